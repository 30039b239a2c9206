"""Documents: the text of a definition, JSON or YAML, as a plain JSON value; or what was given as such.

What JSON has no word for is a mistake with its path: a date of YAML, a set of Python's, an endless number. So
is a key that is written twice, which would silently win or lose. YAML's aliases are refused: a few lines of
them can stand for more than there is memory. Size and depth are bounded, so no text makes this slow or deep.
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
"""How large a definition may be."""


class _Repeating(dict[str, Any]):
    """An object of which some keys were written twice."""

    repeated: tuple[str, ...] = ()


def parse(definition: Mapping[str, Any] | str) -> tuple[Any, list[Fault]]:
    """The definition as a plain JSON value, a copy, and all that is wrong with it as such.

    With a mistake, the value is what could be read, with null where something is none.
    """
    faults: list[Fault] = []
    value: Any = definition
    if isinstance(definition, str):
        size = len(definition.encode(errors="replace"))
        if size > MAX_BYTES:
            return None, [((), f"has {size:,} bytes: a definition may have {MAX_BYTES:,}")]
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
        faults.append(((), f"is nested more than {MAX_DEPTH} deep"))
        raise Unreadable from None
    except ValueError as error:
        of_yaml: list[Fault] = []
        try:  # YAML has braces and brackets, too
            value = read_yaml(text, of_yaml)
        except Unreadable:
            faults.append(((), f"can't be read as JSON: {error}"))
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
    """Copies a value, and puts null where it is none that JSON has."""

    def __init__(self, faults: list[Fault]) -> None:
        self._faults = faults
        self._bytes = MAX_BYTES
        self._values = MAX_VALUES

    def copy(self, value: Any, keys: Keys) -> Any:
        self._values -= 1
        if self._values < 0:
            self._stop(f"has more than {MAX_VALUES:,} values: a definition may have so many")
        self._spend(len(value) if isinstance(value, str) else 1)
        if isinstance(value, Mapping | list | tuple) and len(keys) >= MAX_DEPTH:
            self._faults.append((keys, f"is nested more than {MAX_DEPTH} deep: make it flatter"))
            raise Unreadable
        if isinstance(value, Mapping):
            if isinstance(value, _Repeating):
                self._faults.extend(((*keys, key), "is written twice") for key in value.repeated)
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
            self._stop(f"has more than {MAX_BYTES:,} bytes: a definition may have so many")

    def _stop(self, text: str) -> None:
        self._faults.append(((), text))
        raise Unreadable
