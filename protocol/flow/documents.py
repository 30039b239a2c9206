"""Documents: a definition, as JSON or YAML text or as an object, converted to a plain JSON value.

A value that JSON cannot represent is an error with its path: a date of YAML, a set of Python, an infinite
number. So is a duplicate key. Aliases of YAML are refused, because a few lines of them can expand to more
than fits in memory. Size and depth are bounded, so the time and the recursion depth are, too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..errors import Invalid
from ..structuring import Fault, Keys
from ..values import MAX_DEPTH, json_value
from .yamltext import MAX_VALUES, Unreadable, integer, read_yaml

MAX_BYTES = 2**20
"""The maximum size of a definition, in bytes."""


class _Repeating(dict[str, Any]):
    """An object with duplicate keys."""

    repeated: tuple[str, ...] = ()


def parse(definition: Mapping[str, Any] | str) -> tuple[Any, list[Fault]]:
    """Return a copy of the definition as a plain JSON value, and its errors.

    If there are errors, the value is what could be read, with null in place of invalid parts.
    """
    faults: list[Fault] = []
    value: Any = definition
    if isinstance(definition, str):
        size = len(definition.encode(errors="replace"))
        if size > MAX_BYTES:
            return None, [((), f"has {size:,} bytes: at most {MAX_BYTES:,} are allowed")]
        try:
            value = _from_text(definition.removeprefix("\ufeff"), faults)
        except Unreadable:
            return None, faults
    copier = _Copier(faults)
    try:
        return copier.copy(value, ()), faults
    except Unreadable:
        return None, faults


def _from_text(text: str, faults: list[Fault]) -> Any:
    if not text.strip():
        faults.append(((), "is empty"))
        raise Unreadable
    if text.lstrip()[0] not in "{[":
        return read_yaml(text, faults)
    try:
        return json.loads(text, object_pairs_hook=_object, parse_int=integer)
    except RecursionError:
        faults.append(((), f"is nested more than {MAX_DEPTH} levels deep: reduce the nesting"))
        raise Unreadable from None
    except ValueError as error:
        of_yaml: list[Fault] = []
        try:  # YAML can begin with a brace or bracket, too
            value = read_yaml(text, of_yaml)
        except Unreadable:
            faults.append(((), f"is not valid JSON: {error}"))
            raise
        faults.extend(of_yaml)
        return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    times = Counter(key for key, _ in pairs)
    repeating = _Repeating(made)
    repeating.repeated = tuple(key for key, count in times.items() if count > 1)
    return repeating


class _Copier:
    """Copies a value, with null in place of what is not a JSON value."""

    def __init__(self, faults: list[Fault]) -> None:
        self._faults = faults
        self._bytes = MAX_BYTES
        self._values = MAX_VALUES

    def copy(self, value: Any, keys: Keys) -> Any:
        self._values -= 1
        if self._values < 0:
            self._stop(f"has too many values: at most {MAX_VALUES:,} are allowed")
        self._spend(len(value) if isinstance(value, str) else 1)
        if isinstance(value, Mapping | list | tuple) and len(keys) >= MAX_DEPTH:
            self._faults.append((keys, f"is nested more than {MAX_DEPTH} levels deep: reduce the nesting"))
            raise Unreadable
        if isinstance(value, Mapping):
            if isinstance(value, _Repeating):
                self._faults.extend(((*keys, key), "is a duplicate key") for key in value.repeated)
            return {
                key: self.copy(item, (*keys, key)) for key, item in value.items() if self._fits(key, keys)
            }
        if isinstance(value, list | tuple):
            return [self.copy(item, (*keys, index)) for index, item in enumerate(value)]
        try:
            return json_value(value, "", None)
        except Invalid as error:
            self._faults.append((keys, error.message.removeprefix(": ")))
            return None

    def _fits(self, key: object, keys: Keys) -> bool:
        try:
            json_value({key: None}, "", None)
        except Invalid as error:
            self._faults.append((keys, error.message.removeprefix(": ")))
            return False
        self._spend(len(str(key)))
        return True

    def _spend(self, size: int) -> None:
        self._bytes -= size
        if self._bytes < 0:
            self._stop(f"is too large: at most {MAX_BYTES:,} bytes are allowed")

    def _stop(self, text: str) -> None:
        self._faults.append(((), text))
        raise Unreadable
