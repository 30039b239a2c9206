"""Terms of Python, which must not be in messages about JSON, YAML, TOML or command lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

PYTHON = re.compile(
    r"\b(NoneType|None|True|False|str|int|float|bool|bytes|dict|tuple|frozenset|inf|nan|self|attrs|cattrs"
    r"|msgspec|Struct|Traceback|object at|list object|valid Status|\w+Error)\b"
    r"|\b(math|greenroom|typing|collections)\.|<class|<unicode string>|`|\*\*|\$\[|\$\."
)
"""Words of Python and of its libraries."""

WRONG: list[Any] = [
    *(None, True, 0, -1, 1.5, 1e308, 10**30, "", " ", "x", "x" * 5_000, "a\0b", "it's", "\u202e"),
    *([], [None], [[]], {}, {"a": None}, {"a b": [True, None]}),
]
"""Values of all JSON types; each fits few fields, if any."""


def python_in(message: str, sent: Any = None) -> str | None:
    """The terms of Python in a message about a value that was sent."""
    if found := PYTHON.search(message):
        return found[0]
    as_python = repr(sent)
    return as_python if as_python != json.dumps(sent, ensure_ascii=False) and as_python in message else None


def paths_of(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The keys and indexes that lead to each part of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield (*above, key)
        yield from paths_of(part, (*above, key))


def replaced(value: Any, path: tuple[str | int, ...], part: Any) -> Any:
    """A copy of a JSON value with another part at a path."""
    if not path:
        return part
    key, *below = path
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = replaced(value[key], tuple(below), part)
    return copy
