"""What the fields of a definition may hold: one function each, which takes what fits and says what would.

They raise `ValueError` with a text that goes on a path, `Invalid` where a path can't be read, or `Several`.
What an author most likely means is taken: an empty text is an empty field, and a whole number may be written
as `3.0`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..structuring import MAX_MISTAKES, Fault, Several, suggestion, told
from ..values import shown
from .model import DEFAULT_ACTION, Output
from .paths import Source, parse_path, parse_source, parse_target

MAX_NAME = 256
"""How long names of nodes, actions, services and flows may be."""

T = TypeVar("T")


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a text, not {shown(value)}")
    return value


def name(value: Any) -> str:
    """What names something: a node, an action, a service."""
    named = text(value)
    if not named.strip():
        raise ValueError("must not be empty")
    if len(named) > MAX_NAME:
        raise ValueError(f"has {len(named):,} characters: a name may have {MAX_NAME}")
    if not named.isprintable():
        raise ValueError(f"{shown(named)} has characters that can't be printed")
    return named


def whole(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON knows no difference
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"must be a whole number, 0 or more, not {shown(value)}")
    return value


def milliseconds(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ValueError(f"must be a number of milliseconds, 0 or more, not {shown(value)}")
    return float(value)


def limit(value: Any) -> float | None:
    """A time that something may take; 0 is no limit."""
    return milliseconds(value) or None


def truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {shown(value)}")
    return value


def mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be an object, not {shown(value)}")
    return dict(value)


def listed(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list, not {shown(value)}")
    return list(value)


def optional(read: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """For a field that an author may leave empty."""
    return lambda value: None if value == "" else read(value)


def one_of(*words: str, older: Mapping[str, str]) -> Callable[[Any], str]:
    """One of a few words, the first if empty; `older` are other names for some."""

    def read(value: Any) -> str:
        word = older.get(text(value), value) or words[0]
        if word not in words:
            raise ValueError(f"unknown value {shown(value)}{suggestion(value, words)}")
        return str(word)

    return read


def each(read: Callable[[Any], T], parts: Mapping[Any, Any]) -> dict[Any, T]:
    """Every part as it is read, or the mistakes of all; parts after very many mistakes are not read."""
    done: dict[Any, T] = {}
    faults: list[Fault] = []
    for key, part in parts.items():
        try:
            done[key] = read(part)
        except Exception as error:  # `ValueError`, `Invalid`, or what cattrs has collected
            faults.extend(told(error, (key,)))
            if len(faults) > MAX_MISTAKES:
                break
    if faults:
        raise Several(faults)
    return done


def every(read: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    """For a list of what `read` takes."""
    return lambda value: tuple(each(read, dict(enumerate(listed(value)))).values())


def program(value: Any) -> str:
    """A program to start."""
    if not text(value).strip():
        raise ValueError("must name a program")
    return text(value)


def arguments(value: Any) -> tuple[str, ...]:
    """A program and its arguments. One text would need a shell to take it apart."""
    if isinstance(value, str | Mapping):
        raise ValueError(f'must be a list of arguments, as in ["python", "fetch.py"], not {shown(value)}')
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
        raise ValueError(f"must name a field of the output, without $: not {shown(value)}")
    return path


def version(value: Any) -> int:
    return 0 if value == "latest" else whole(value)


def action(value: Any) -> str:
    """The action of an edge."""
    return name(value) if value != "" else DEFAULT_ACTION


def destination(value: Any) -> str:
    """Where an edge leads: an empty text is the end."""
    return name(value) if value != "" else ""
