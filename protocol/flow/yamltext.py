"""YAML text as a plain value, built from the events of PyYAML's parser.

Scalars follow YAML 1.2, so `yes` and `no` are strings; a date is refused. Open containers are on a list
instead of the call stack, so that the nesting depth needs no recursion. Aliases are refused.
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
"""The maximum number of values in a document: objects, lists, strings, numbers, booleans and nulls."""

_LONGEST_INTEGER = 25  # characters; a longer one is out of range, and slow to parse
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
    """Parsing cannot continue. The errors are in the list of faults."""


def read_yaml(text: str, faults: list[Fault]) -> Any:
    """Return the value of a YAML text; errors are added to `faults`."""
    import yaml  # slow to import, and most definitions are JSON

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(faults)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        faults.append(((), f"is not valid YAML: {error.problem or error.context}{at}"))
        raise Unreadable from None
    except (yaml.YAMLError, UnicodeError) as error:
        reason = " ".join(str(error).split()).replace('in "<unicode string>", ', "at ")
        faults.append(((), f"is not valid YAML: {reason}"))
        raise Unreadable from None
    return builder.value


class _Builder:
    """Builds a value from the events of the YAML parser, without recursion."""

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
            if self._open and self._open[-1].expects_key:
                self._key(event)
            else:
                self._add(self._scalar(event), event)
        elif isinstance(event, events.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._stop(f"has a second document at line {_line(event)}: only one is allowed")
        elif isinstance(event, events.AliasEvent):
            self._refuse(f"alias *{event.anchor} at line {_line(event)} is not supported: repeat the value")
            self._add(None, event)
        elif isinstance(event, events.MappingStartEvent | events.SequenceStartEvent):
            if self._open and self._open[-1].expects_key:
                self._stop(f"key at line {_line(event)} is an object or a list: keys must be strings")
            if len(self._open) == MAX_DEPTH:
                self._stop(
                    f"line {_line(event)} is nested more than {MAX_DEPTH} levels deep: reduce the nesting"
                )
            self._check_tag(event.tag)
            self._open.append(_Container({} if isinstance(event, events.MappingStartEvent) else []))
        elif isinstance(event, events.MappingEndEvent | events.SequenceEndEvent):
            self._add(self._open.pop().value, event)

    def _add(self, value: Any, event: Event) -> None:
        """Add a complete value to the open container, or make it the document."""
        self._values += 1
        if self._values > MAX_VALUES:
            self._stop(f"has too many values: at most {MAX_VALUES:,} are allowed")
        if not self._open:
            self.value = value
            return
        container = self._open[-1]
        if isinstance(container.value, list):
            container.value.append(value)
        elif container.expects_key:  # an alias in place of a key
            self._stop(f"key at line {_line(event)} is an alias: write the key")
        else:
            container.value[container.key] = value
            container.key = None

    def _key(self, event: ScalarEvent) -> None:
        container = self._open[-1]
        key = event.value
        if key == "<<" and event.implicit[0]:
            self._refuse(f"merge key << at line {_line(event)} is not supported: repeat the fields")
        elif key in container.lines:
            container.key = key
            self._refuse(f"is a duplicate key: lines {container.lines[key]} and {_line(event)}")
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
            self._refuse(f"{shown(text)} is a date, which is not a JSON value: put it in quotes")
        return text

    def _check_tag(self, tag: str | None) -> None:
        if tag is not None and tag != "!" and tag not in _TAGS:
            self._refuse(f"tag {shown(tag)} is not supported: only JSON's types are")

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
    """An object or a list that is not yet complete."""

    __slots__ = ("key", "lines", "value")

    def __init__(self, value: dict[str, Any] | list[Any]) -> None:
        self.value: Any = value
        self.key: str | None = None
        self.lines: dict[str, int] = {}

    @property
    def expects_key(self) -> bool:
        return isinstance(self.value, dict) and self.key is None


def _line(event: Event) -> int:
    return int(getattr(event.start_mark, "line", 0)) + 1


def integer(text: str) -> int | float:
    """Return the number. One with too many digits becomes infinity, which is refused later."""
    return int(text) if len(text) <= _LONGEST_INTEGER else float("inf")
