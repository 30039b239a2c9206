"""Parsers for the fields of a definition: one function per type of field.

They raise `ValueError` with a text that follows the field's path, `Invalid` for a bad path, or `Several`.
Input with a clear meaning is accepted: an empty string is an empty field, and `3.0` is an integer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..structuring import MAX_MISTAKES, Fault, Several, faults_in
from ..suggestions import suggestion
from ..values import shown
from .model import DEFAULT_ACTION, Output
from .paths import Source, parse_path, parse_source, parse_target

MAX_NAME = 256
"""The maximum length of names of nodes, actions, services and flows."""

T = TypeVar("T")


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string (got {shown(value)})")
    return value


def name(value: Any) -> str:
    """A name of a node, an action or a service."""
    named = text(value)
    if not named.strip():
        raise ValueError("must not be empty")
    if len(named) > MAX_NAME:
        raise ValueError(f"has {len(named):,} characters: at most {MAX_NAME} are allowed")
    if not named.isprintable():
        raise ValueError(f"must not contain non-printable characters (got {shown(named)})")
    return named


def whole(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON does not distinguish them
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"must be an integer, 0 or more (got {shown(value)})")
    return value


def milliseconds(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ValueError(f"must be a number of milliseconds, 0 or more (got {shown(value)})")
    return float(value)


def limit(value: Any) -> float | None:
    """A time limit; 0 means none."""
    return milliseconds(value) or None


def truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false (got {shown(value)})")
    return value


def mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be an object (got {shown(value)})")
    return dict(value)


def listed(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list (got {shown(value)})")
    return list(value)


def optional(read: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """A field that can be empty."""
    return lambda value: None if value == "" else read(value)


def one_of(*words: str, older: Mapping[str, str]) -> Callable[[Any], str]:
    """One of some words, by default the first; `older` maps former names to them."""

    def read(value: Any) -> str:
        word = older.get(text(value), value) or words[0]
        if word not in words:
            raise ValueError(f"unknown value {shown(value)}{suggestion(value, words)}")
        return str(word)

    return read


def each(read: Callable[[Any], T], parts: Mapping[Any, Any]) -> dict[Any, T]:
    """Parse every part, or raise the errors of all of them; stops after very many errors."""
    done: dict[Any, T] = {}
    faults: list[Fault] = []
    for key, part in parts.items():
        try:
            done[key] = read(part)
        except Exception as error:  # `ValueError`, `Invalid`, or a group of cattrs
            faults.extend(faults_in(error, (key,)))
            if len(faults) > MAX_MISTAKES:
                break
    if faults:
        raise Several(faults)
    return done


def every(read: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    """A list whose items `read` parses."""
    return lambda value: tuple(each(read, dict(enumerate(listed(value)))).values())


def program(value: Any) -> str:
    """The name of a program."""
    if not text(value).strip():
        raise ValueError("must name a program")
    return text(value)


def arguments(value: Any) -> tuple[str, ...]:
    """A program and its arguments, as a list. A single string would need a shell to split it."""
    if isinstance(value, str | Mapping):
        raise ValueError(f'must be a list of arguments, as in ["python", "fetch.py"] (got {shown(value)})')
    given = every(text)(value)
    if given and not given[0].strip():
        raise Several([((0,), "must name a program")])
    return given


def input_map(value: Any) -> dict[str, Source]:
    return each(parse_source, mapping(value))


def output_map(value: Any) -> tuple[Output, ...]:
    lines = {to: (to, field) for to, field in mapping(value).items()}
    return tuple(each(_output, lines).values())


def _output(line: tuple[Any, Any]) -> Output:
    to, field = line
    return Output(to=parse_target(to), field=_field(field))


def _field(value: Any) -> Any:
    path = parse_path(text(value))
    if not path.bare:
        raise ValueError(f"must be a field of the output, without $ (got {shown(value)})")
    return path


def version(value: Any) -> int:
    return 0 if value == "latest" else whole(value)


def action(value: Any) -> str:
    """The action of an edge."""
    return name(value) if value != "" else DEFAULT_ACTION


def destination(value: Any) -> str:
    """The target of an edge; an empty string is the end of the flow."""
    return name(value) if value != "" else ""
