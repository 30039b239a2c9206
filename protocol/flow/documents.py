"""Documents: the text of a definition, JSON or YAML, as a plain JSON value; or what was given as such.

What JSON has no word for is a mistake with its path: a date of YAML, a set of Python's, an endless number. So
is a key that is written twice, which would silently win or lose. YAML's aliases are refused: a few lines of
them can stand for more than there is memory. Size and depth are bounded, so no text makes this slow or deep.

YAML is read as its version 1.2 says, where `yes` and `no` are texts.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import Invalid
from ..structuring import Keys
from ..values import MAX_DEPTH, json_value, shown

if TYPE_CHECKING:
    from yaml.events import Event, ScalarEvent

MAX_BYTES = 2**20
"""How large a definition may be."""

Fault = tuple[Keys, str]
"""Where something is wrong, and what."""

_LONGEST_INTEGER = 25  # characters; one of more digits is out of range anyhow, and slow to read
_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in "str int float bool null map seq".split())
_TEXT = "tag:yaml.org,2002:str"
_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_INTEGER_IN_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_ENDLESS = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt\s].*)?")


class _Stopped(Exception):
    """Nothing more can be read."""


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
        except _Stopped:
            return None, faults
    copier = _Copier(faults)
    try:
        return copier.copy(value, ()), faults
    except _Stopped:
        return None, faults


def _from_text(text: str, faults: list[Fault]) -> Any:
    if not text.strip():
        faults.append(((), "is empty"))
        raise _Stopped
    if text.lstrip()[0] not in "{[":
        return _from_yaml(text, faults)
    try:
        return _from_json(text)
    except RecursionError:
        faults.append(((), f"is nested more than {MAX_DEPTH} deep"))
        raise _Stopped from None
    except ValueError as error:
        of_yaml: list[Fault] = []
        try:  # YAML has braces and brackets, too
            value = _from_yaml(text, of_yaml)
        except _Stopped:
            faults.append(((), f"can't be read as JSON: {error}"))
            raise
        faults.extend(of_yaml)
        return value


def _from_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_object, parse_int=_integer)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    times = Counter(key for key, _ in pairs)
    repeating = _Repeating(made)
    repeating.repeated = tuple(key for key, count in times.items() if count > 1)
    return repeating


def _integer(text: str) -> int | float:
    """The number; one of too many digits becomes one that is refused, too."""
    return int(text) if len(text) <= _LONGEST_INTEGER else float("inf")


def _from_yaml(text: str, faults: list[Fault]) -> Any:
    import yaml  # takes long to import, and most definitions are JSON

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(faults)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f" in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        faults.append(((), f"can't be read as YAML: {error.problem or error.context}{at}"))
        raise _Stopped from None
    except (yaml.YAMLError, UnicodeError) as error:
        faults.append(((), f"can't be read as YAML: {' '.join(str(error).split())}"))
        raise _Stopped from None
    return builder.value


class _Builder:
    """Makes a value of the events of YAML's parser. What it is building stands in a list, not in calls."""

    def __init__(self, faults: list[Fault]) -> None:
        self.value: Any = None
        self._faults = faults
        self._open: list[_Container] = []
        self._documents = 0

    def take(self, event: Event) -> None:
        import yaml.events as events

        if isinstance(event, events.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._stop(f"holds a second document, from line {_line(event)} on: give one")
        elif isinstance(event, events.AliasEvent):
            self._refuse(f"*{event.anchor} in line {_line(event)} is an alias: write out what it stands for")
            self._add(None, event)
        elif isinstance(event, events.ScalarEvent):
            if self._open and self._open[-1].wants_key:
                self._key(event)
            else:
                self._add(self._scalar(event), event)
        elif isinstance(event, events.MappingStartEvent | events.SequenceStartEvent):
            if self._open and self._open[-1].wants_key:
                self._stop(f"line {_line(event)} has a key that is an object or a list: keys are texts")
            if len(self._open) == MAX_DEPTH:
                self._stop(f"line {_line(event)} is nested more than {MAX_DEPTH} deep: make it flatter")
            self._check_tag(event.tag)
            self._open.append(_Container({} if isinstance(event, events.MappingStartEvent) else []))
        elif isinstance(event, events.MappingEndEvent | events.SequenceEndEvent):
            self._add(self._open.pop().value, event)

    def _add(self, value: Any, event: Event) -> None:
        """A value is complete: it belongs to what is open, or is the whole."""
        if not self._open:
            self.value = value
            return
        container = self._open[-1]
        if isinstance(container.value, list):
            container.value.append(value)
        elif container.wants_key:  # an alias where a key belongs
            self._stop(f"line {_line(event)} has a key that is an alias: write it out")
        else:
            container.value[container.key] = value
            container.key = None

    def _key(self, event: ScalarEvent) -> None:
        container = self._open[-1]
        key = event.value
        if key == "<<" and event.implicit[0]:
            self._refuse(f"<< in line {_line(event)} merges objects: write out what belongs here")
        elif key in container.lines:
            container.key = key
            self._refuse(f"is written twice, in lines {container.lines[key]} and {_line(event)}")
        container.lines.setdefault(key, _line(event))
        container.key = key

    def _scalar(self, event: ScalarEvent) -> Any:
        text = event.value
        if event.tag == "!" or event.tag == _TEXT or (event.tag is None and not event.implicit[0]):
            return text
        self._check_tag(event.tag)
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _INTEGER.fullmatch(text):
            return _integer(text)
        if _INTEGER_IN_BASE.fullmatch(text):
            return int(text, 0) if len(text) <= _LONGEST_INTEGER else float("inf")
        if _NUMBER.fullmatch(text):
            return float(text)
        if _ENDLESS.fullmatch(text):
            return float(text.replace(".", "", 1))
        if _DATE.fullmatch(text):
            self._refuse(f"{shown(text)} is a date, which is no JSON value: put it in quotes")
        return text

    def _check_tag(self, tag: str | None) -> None:
        if tag is not None and tag != "!" and tag not in _TAGS:
            self._refuse(f"the tag {shown(tag)} is none of JSON's types")

    def _refuse(self, text: str) -> None:
        self._faults.append((tuple(self._keys()), text))

    def _stop(self, text: str) -> None:
        self._faults.append(((), text))
        raise _Stopped

    def _keys(self) -> Iterator[str | int]:
        for container in self._open:
            if isinstance(container.value, list):
                yield len(container.value)
            elif container.key is not None:
                yield container.key


class _Container:
    """An object or a list that is being read."""

    __slots__ = ("key", "lines", "value")

    def __init__(self, value: dict[str, Any] | list[Any]) -> None:
        self.value: Any = value
        self.key: str | None = None
        self.lines: dict[str, int] = {}

    @property
    def wants_key(self) -> bool:
        return isinstance(self.value, dict) and self.key is None


def _line(event: Event) -> int:
    return int(getattr(event.start_mark, "line", 0)) + 1


class _Copier:
    """Copies a value, and puts null where it is none that JSON has."""

    def __init__(self, faults: list[Fault]) -> None:
        self._faults = faults
        self._left = MAX_BYTES

    def copy(self, value: Any, keys: Keys) -> Any:
        self._spend(len(value) if isinstance(value, str) else 1, keys)
        if isinstance(value, Mapping | list | tuple) and len(keys) >= MAX_DEPTH:
            self._faults.append((keys, f"is nested more than {MAX_DEPTH} deep: make it flatter"))
            raise _Stopped
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
        self._spend(len(str(key)), keys)
        return True

    def _spend(self, size: int, keys: Keys) -> None:
        self._left -= size
        if self._left < 0:
            self._faults.append(((), f"has more than {MAX_BYTES:,} bytes: a definition may have so many"))
            raise _Stopped
