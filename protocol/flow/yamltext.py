"""YAML: its text as a plain value, made of the events of PyYAML's parser.

Scalars are read as version 1.2 of YAML says, so `yes` and `no` are texts; a date is refused rather than taken
for one. What is being built stands in a list and not in calls, so that depth costs nothing, and what has an
anchor stands only where it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..structuring import Fault
from ..values import MAX_DEPTH, shown

if TYPE_CHECKING:
    from yaml.events import Event, ScalarEvent

MAX_VALUES = 200_000
"""How many values may stand in it, from objects down to numbers."""

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


class Unreadable(Exception):
    """Nothing more can be read. What is wrong has been noted."""


def read_yaml(text: str, faults: list[Fault]) -> Any:
    """The value that a text is; what is wrong with it is added to the faults."""
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
        raise Unreadable from None
    except (yaml.YAMLError, UnicodeError) as error:
        reason = " ".join(str(error).split()).replace('in "<unicode string>", ', "at ")
        faults.append(((), f"can't be read as YAML: {reason}"))
        raise Unreadable from None
    return builder.value


class _Builder:
    """Makes a value of the events of YAML's parser. What it is building stands in a list, not in calls."""

    def __init__(self, faults: list[Fault]) -> None:
        import yaml.events

        self._events = yaml.events
        self.value: Any = None
        self._faults = faults
        self._open: list[_Container] = []
        self._documents = 0
        self._values = 0

    def take(self, event: Event) -> None:
        events = self._events
        if isinstance(event, events.ScalarEvent):
            if self._open and self._open[-1].wants_key:
                self._key(event)
            else:
                self._add(self._scalar(event), event)
        elif isinstance(event, events.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._stop(f"holds a second document, from line {_line(event)} on: give one")
        elif isinstance(event, events.AliasEvent):
            self._refuse(f"*{event.anchor} in line {_line(event)} is an alias: write out what it stands for")
            self._add(None, event)
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
        self._values += 1
        if self._values > MAX_VALUES:
            self._stop(f"has more than {MAX_VALUES:,} values: a definition may have so many")
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
            return integer(text)
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
        raise Unreadable

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


def integer(text: str) -> int | float:
    """The number; one of too many digits becomes one that is refused, too."""
    return int(text) if len(text) <= _LONGEST_INTEGER else float("inf")
