"""JSON values: the form of parameters, results, checkpoints, messages, answers and progress.

The engine passes each value from a body or a caller through `json_value`. This copies the value, so that
later changes by the caller have no effect, and refuses it with its path if JSON cannot represent it. Every
codec can encode an accepted value, and every store can keep it. What the values mean is in `parameters`.
"""

from __future__ import annotations

import json
import re
import reprlib
from math import isfinite
from typing import Any

import msgspec

from .errors import Invalid, TooLarge

MAX_DEPTH = 100
"""The maximum nesting depth of lists and dicts."""

_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
_LONGEST_NUMBER = 25  # the most bytes of a number, true, false or null as JSON
_LONGEST_CHARACTER = 6  # the most bytes of a character as JSON: \u001f
_MAX_SHOWN_KEY = 60
_SCALARS = frozenset({type(None), bool, int, float})
_HINTS = {
    "bytes": "encode it as text, for example as base64",
    "datetime": "use Unix seconds or an ISO 8601 string",
    "Decimal": "use a number or a string",
    "set": "use a list",
    "frozenset": "use a list",
}

_encode = msgspec.json.Encoder().encode


class _Shown(reprlib.Repr):
    """Values as short JSON; a value that JSON cannot represent, as Python's `repr`."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 100

    def repr_str(self, x: str, level: int) -> str:
        half = self.maxstring // 2
        cut = x if len(x) <= self.maxstring else x[:half] + x[-half:]
        text = json.dumps(cut, ensure_ascii=not cut.isprintable())
        return text if len(text) <= self.maxstring else f"{text[: half - 2]}...{text[1 - half :]}"

    def repr_scalar(self, x: object, level: int) -> str:
        return json.dumps(x)

    def repr_tuple(self, x: tuple[Any, ...], level: int) -> str:
        return self.repr_list(list(x), level)

    def repr_time(self, x: object, level: int) -> str:
        return str(x)  # TOML and YAML have dates and times

    repr_NoneType = repr_bool = repr_float = repr_scalar
    repr_datetime = repr_date = repr_time


_shown = _Shown()


def json_value(value: object, where: str, max_bytes: int | None) -> Any:
    """Return a copy of `value` in plain dicts, lists, strings, numbers, booleans and nulls.

    Tuples become lists, and instances of subclasses (a StrEnum, an OrderedDict) become their base type.
    Raises `Invalid` if a part of it is not a JSON value, and `TooLarge` if it has more than `max_bytes` bytes
    as JSON. Both errors contain the path of the part, which begins with `where`.
    """
    copier = _Copier(where, max_bytes)
    plain = copier.copy(value)
    if max_bytes is not None and not _surely_fits(plain, max_bytes):
        size = len(_encode(plain))
        if size > max_bytes:
            raise too_large(where, str(size), size, max_bytes)
    return plain


def child_path(path: str, key: object) -> str:
    """Return the path of `key` in the value at `path`: `params.pages`, `params.pages[3]`."""
    if type(key) is int:
        return f"{path}[{key}]"
    if isinstance(key, str) and len(key) <= _MAX_SHOWN_KEY and key.isidentifier():
        return f"{path}.{key}"
    return f"{path}[{shown(key)}]"


def shown(value: object) -> str:
    """Return `value` for a message: short JSON, the same in every process (no addresses of objects)."""
    try:
        return re.sub(r" at 0x[0-9a-fA-F]+", "", _shown.repr(value))
    except Exception:  # an int of too many digits, a __repr__ that raises
        return f"<{type(value).__name__}>"


def _surely_fits(plain: Any, max_bytes: int) -> bool:
    """Whether `plain` is certainly within the limit; a quick check that does not encode it."""
    kind = type(plain)
    if kind in _SCALARS:
        return max_bytes >= _LONGEST_NUMBER
    if kind is str:
        return len(plain) * _LONGEST_CHARACTER + 2 <= max_bytes
    return not plain and max_bytes >= 2


def too_large(where: str, amount: str, size: int, limit: int) -> TooLarge:
    """Return the error for a value of `size` bytes; `amount` is the size as text."""
    return TooLarge(
        f"{where}: too large: {amount} bytes as JSON, at most {limit} are allowed; store it in a file",
        path=where,
        size=size,
        limit=limit,
    )


class _Copier:
    """One walk over a value. `path` contains the keys down to the current part, for errors.

    The walk counts the parts, each of which takes at least one byte as JSON. So a value that is far too large
    is refused before it is copied in full, also if it is small in memory because its parts are shared.
    """

    __slots__ = ("limit", "met", "path", "where")

    def __init__(self, where: str, max_bytes: int | None) -> None:
        self.where = where
        self.limit = max_bytes
        self.met = 0
        self.path: list[object] = []

    def copy(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return value if value.isascii() else self._string(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return self._integer(value)
        if kind is float:
            return self._number(value)
        if kind is dict:
            return self._dict(value)
        if kind is list or kind is tuple:
            return self._list(value)
        return self._of_a_subclass(value)

    def _of_a_subclass(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._string(str.__str__(value))
        if isinstance(value, int):
            return self._integer(int.__int__(value))
        if isinstance(value, float):
            return self._number(float.__float__(value))
        if isinstance(value, dict):
            return self._dict(value)
        if isinstance(value, list | tuple):
            return self._list(value)
        name = type(value).__name__
        hint = _HINTS.get(name, "use an object, array, string, number, boolean or null")
        raise self._unfit(f"{name} is not a JSON value ({shown(value)}); {hint}")

    def _string(self, value: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            why = (
                f"the string {shown(value)} has a lone surrogate at {error.start}, which UTF-8 cannot encode"
            )
            raise self._unfit(why) from None
        return value

    def _integer(self, value: int) -> int:
        if not _MIN_INT <= value <= _MAX_INT:
            raise self._unfit(f"the number {shown(value)} is outside -2^63 to 2^64-1; use a string")
        return value

    def _number(self, value: float) -> float:
        if not isfinite(value):
            raise self._unfit(f"the number {shown(value)} is not a JSON value; use null or a string")
        return value

    def _dict(self, value: dict[Any, Any]) -> dict[str, Any]:
        self._enter(len(value))
        path = self.path
        copied: dict[str, Any] = {}
        for key, item in value.items():
            if type(key) is not str or not key.isascii():
                key = self._key(key)
            if item is None:
                copied[key] = None
                continue
            path.append(key)
            copied[key] = self.copy(item)
            path.pop()
        return copied

    def _key(self, key: object) -> str:
        if not isinstance(key, str):
            raise self._unfit(f"the key {shown(key)} is not a string; keys must be strings")
        return self._string(str.__str__(key))

    def _list(self, value: list[Any] | tuple[Any, ...]) -> list[Any]:
        self._enter(len(value))
        path = self.path
        copied = []
        for index, item in enumerate(value):
            path.append(index)
            copied.append(self.copy(item))
            path.pop()
        return copied

    def _enter(self, parts: int) -> None:
        if len(self.path) >= MAX_DEPTH:
            raise self._unfit(
                f"nested more than {MAX_DEPTH} levels deep, or it contains itself; reduce the nesting"
            )
        self.met += parts
        if self.limit is not None and self.met > self.limit:
            raise too_large(self.where, f"at least {self.met}", self.met, self.limit)

    def _unfit(self, why: str) -> Invalid:
        path = self.where
        for key in self.path:
            path = child_path(path, key)
        if len(path) > 200:
            path = f"{path[:150]}…{path[-49:]}"
        return Invalid(f"{path}: {why}", path=path)


def same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal. In contrast to Python, `true` does not equal 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(part, other[key]) for key, part in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


def copied(value: Any) -> Any:
    """Return a deep copy of a JSON value, so that a caller can change it without effect on the original."""
    kind = type(value)
    if kind is dict:
        return {key: copied(part) for key, part in value.items()}
    if kind is list:
        return [copied(part) for part in value]
    return value
