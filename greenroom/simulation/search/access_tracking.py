"""Tracking of what each step of a task reads and writes, by observation.

A *step* is what a task does between two points at which trio can switch to another task. Two steps that could
both be next lead to the same state in either order, unless one of them writes what the other reads or writes.
To find these accesses, this module watches the classes of the engine, and the classes of trio through which
tasks meet. Each attribute of their objects that a step reads or writes is a *location*, and so is each key of
a dictionary in such an attribute. Reading any other mutable value counts as writing it. That overestimates
the accesses, which costs time but misses no conflict.

Waking a task counts as writing it; cancelling a task reads whether it has been woken. Not tracked are other
state that tasks share, such as variables of an enclosing function, and nurseries, whose owners continue when
the last of their tasks has woken them.
"""

from __future__ import annotations

import enum
import sys
import types
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import trio
from trio._core import _run

Task = trio.lowlevel.Task
Location = tuple[object, object]

_MODULES = (
    *("greenroom.actors.", "greenroom.persistence.", "greenroom.protocol.fold"),
    *(
        "greenroom.simulation.world.server",
        "greenroom.simulation.world.client",
        "greenroom.simulation.world.disk",
    ),
)
_OF_TRIO: tuple[type, ...] = (
    trio.CancelScope,
    trio.Event,
    trio.lowlevel.ParkingLot,
    _run.CancelStatus,
)
_ORDERLESS = frozenset(
    {
        # Alarms that are due at the same time wake their actors in one step, in any order.
        ("Alarms", "_heap"),
        ("Alarms", "_numbers"),
        # Sets of which only membership matters, and only for a cancellation: see `_watch_cancelling`.
        ("CancelStatus", "_children"),
        ("CancelStatus", "_tasks"),
        # Each handle claims and releases its own name.
        ("LocalOwnership", "_claimed"),
    }
)
_ORDERLESS_NAMES = frozenset(name for _, name in _ORDERLESS)
_WAKE = "wake"
_PLAIN = (
    *(int, float, complex, str, bytes, tuple, frozenset, type(None), enum.Enum, type),
    *(types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.CoroutineType),
)


class Touched:
    """The locations that one step has read, and those that it has written."""

    __slots__ = ("read", "stirred", "written")

    def __init__(self) -> None:
        self.read: set[Location] = set()
        self.written: set[Location] = set()
        self.stirred: set[Location] = set()  # dictionaries in which it has written a key

    def commutes_with(self, other: Touched) -> bool:
        """Whether the two steps lead to the same state in either order."""
        return (
            self.written.isdisjoint(other.written)
            and self.written.isdisjoint(other.read)
            and self.read.isdisjoint(other.written)
            and self.stirred.isdisjoint(other.read)
            and self.read.isdisjoint(other.stirred)
        )


class Steps:
    """The steps of one trio run, recorded while they are taken.

    The name of an object consists of the task that created it and a number, so it is the same in every
    execution in which that task has done the same until then.

    A walk spends most of its time here. For speed, `_watch` does for attributes what `read` and `write` do
    for other accesses, without a function call.
    """

    def __init__(self) -> None:
        self.notes = False
        self.touched = Touched()
        self.number = 0
        self.names: dict[int, tuple[str, int]] = {}
        self._task = ""
        self._kept: list[object] = []  # keeps named objects alive, so that no other gets the same `id`
        self._made: Counter[str] = Counter()

    def begin(self, task: Task) -> None:
        """Start recording a step of a task."""
        self.number += 1
        self.touched = Touched()
        self._task = self.name(task)
        if self.notes:
            self.woken(task)

    def woken(self, task: Task) -> None:
        """Record that this step wakes a task, or is a step of that task."""
        self.touched.written.add((self.name(task), _WAKE))

    def end(self) -> Touched:
        """Return what the step has touched, and stop recording it."""
        touched, self.touched = self.touched, Touched()
        self._task = ""
        return touched

    def name(self, thing: object) -> str:
        """The name of a watched object."""
        return (self.names.get(id(thing)) or self.named(thing))[0]

    def read(self, thing: object, key: object) -> None:
        name, made = self.names.get(id(thing)) or self.named(thing)
        if self.notes and made != self.number:
            self.touched.read.add((name, key))

    def write(self, thing: object, key: object) -> None:
        name, made = self.names.get(id(thing)) or self.named(thing)
        if self.notes and made != self.number:
            self.touched.written.add((name, key))

    def write_key(self, thing: object, key: object) -> None:
        name, made = self.names.get(id(thing)) or self.named(thing)
        if self.notes and made != self.number:
            self.touched.written.add((name, self._key(key)))
            self.touched.stirred.add((name, ...))

    def read_key(self, thing: object, key: object) -> None:
        self.read(thing, self._key(key))

    def _key(self, key: object) -> object:
        return key if isinstance(key, _PLAIN) else self.name(key)

    def named(self, thing: object) -> tuple[str, int]:
        """Name an object at its first access. Returns its name, and the number of the step."""
        self._made[self._task] += 1
        found = self.names[id(thing)] = (f"{self._task}.{self._made[self._task]}", self.number)
        self._kept.append(thing)
        return found


_steps = Steps()


@contextmanager
def watched() -> Iterator[None]:
    """Watch the engine's classes that have been imported, and the chosen classes of trio."""
    modules = [module for name, module in sys.modules.items() if name.startswith(_MODULES)]
    classes = {
        thing: None
        for module in modules
        for thing in vars(module).values()
        if isinstance(thing, type) and thing.__module__ == module.__name__ and _can_change(thing)
    }
    changed: list[tuple[type, str, Any]] = []
    try:
        _watch_cancelling(changed)
        for cls in (*classes, *_OF_TRIO):
            if not any(base in classes for base in cls.__mro__[1:]):
                _watch(cls, changed)
        yield
    finally:
        for cls, name, before in reversed(changed):
            if before is None:
                delattr(cls, name)
            else:
                setattr(cls, name, before)
        _is_plain.clear()


def _watch_cancelling(changed: list[tuple[type, str, Any]]) -> None:
    """Record that a cancellation reads whether the task has been woken, and which cancel status it is in."""
    attempt, activate = Task._attempt_delivery_of_any_pending_cancel, Task._activate_cancel_status

    def attempted(self: Task) -> None:
        _steps.read(self, _WAKE)
        attempt(self)

    def activated(self: Task, status: Any) -> None:
        for one in (self._cancel_status, status):  # the status that it leaves, and the one that it enters
            if one is not None:
                _steps.read(one, "effectively_cancelled")
        activate(self, status)

    for before, after in ((attempt, attempted), (activate, activated)):
        changed.append((Task, before.__name__, before))
        setattr(Task, before.__name__, after)


def record(steps: Steps) -> None:
    """Record accesses in `steps` from now on."""
    global _steps
    _steps = steps


def _can_change(cls: type) -> bool:
    if issubclass(cls, BaseException | enum.Enum | tuple | dict) or getattr(cls, "_is_protocol", False):
        return False
    return not _is_frozen(cls)


def _is_frozen(cls: type) -> bool:
    return issubclass(cls, msgspec.Struct) and cls.__struct_config__.frozen


def _watch(cls: type, changed: list[tuple[type, str, Any]]) -> None:
    get: Any = cls.__getattribute__
    set_: Any = cls.__setattr__

    def __getattribute__(self: object, name: str) -> Any:
        value = get(self, name)
        steps = _steps
        if not steps.notes and id(self) in steps.names:
            return value
        kind = type(value)
        if (
            name[:2] != "__"
            and kind is not types.MethodType
            and (name not in _ORDERLESS_NAMES or (type(self).__name__, name) not in _ORDERLESS)
        ):
            known, made = steps.names.get(id(self)) or steps.named(self)
            if steps.notes and made != steps.number:
                plain = _is_plain.get(kind)
                touched = steps.touched
                if _plain(kind) if plain is None else plain:
                    touched.read.add((known, name))
                else:
                    touched.written.add((known, name))
        return value

    def __setattr__(self: object, name: str, value: Any) -> None:
        if type(value) is dict:
            value = (_Uncounted if (type(self).__name__, name) == ("Alarms", "_wanted") else _Keyed).of(value)
        set_(self, name, value)
        steps = _steps
        known, made = steps.names.get(id(self)) or steps.named(self)
        if steps.notes and made != steps.number:
            steps.touched.written.add((known, name))

    for name, function in (("__getattribute__", __getattribute__), ("__setattr__", __setattr__)):
        changed.append((cls, name, vars(cls).get(name)))
        setattr(cls, name, function)
    _is_plain[cls] = True


_is_plain: dict[type, bool] = {}


def _plain(cls: type) -> bool:
    """Whether a value of this type is immutable, or is watched itself."""
    known = _is_plain.get(cls)
    if known is None:
        known = (
            _is_frozen(cls)
            or issubclass(cls, (*_PLAIN, _Keyed, BaseException))
            or any(map(_is_plain.get, cls.__mro__))
            or cls is Task
        )
        _is_plain[cls] = known
    return known


class _Keyed(dict[Any, Any]):
    """A dictionary in which each key is a location, and the set of all keys is another."""

    @classmethod
    def of(cls, plain: dict[Any, Any]) -> _Keyed:
        return cls({key: cls.of(value) if type(value) is dict else value for key, value in plain.items()})

    def __getitem__(self, key: Any) -> Any:
        _steps.read_key(self, key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        _steps.read_key(self, key)
        return super().__contains__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        _steps.read_key(self, key)
        return super().get(key, default)

    def __setitem__(self, key: Any, value: Any) -> None:
        _steps.write_key(self, key)
        super().__setitem__(key, value)

    def __delitem__(self, key: Any) -> None:
        _steps.write_key(self, key)
        super().__delitem__(key)

    def pop(self, key: Any, *default: Any) -> Any:
        _steps.write_key(self, key)
        return super().pop(key, *default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        _steps.write_key(self, key)
        return super().setdefault(key, default)

    def __iter__(self) -> Iterator[Any]:
        _steps.read(self, ...)
        return super().__iter__()

    def __len__(self) -> int:
        _steps.read(self, ...)
        return super().__len__()

    def keys(self) -> Any:
        _steps.read(self, ...)
        return super().keys()

    def values(self) -> Any:
        _steps.read(self, ...)
        return super().values()

    def items(self) -> Any:
        _steps.read(self, ...)
        return super().items()

    def copy(self) -> _Keyed:
        _steps.read(self, ...)
        return _Keyed(super().items())

    def clear(self) -> None:
        for key in list(super().__iter__()):
            _steps.write_key(self, key)
        super().clear()

    def update(self, *others: Any, **values: Any) -> None:
        for key, value in dict(*others, **values).items():
            self[key] = value

    def popitem(self) -> Any:
        _steps.read(self, ...)
        key, value = super().popitem()
        _steps.write_key(self, key)
        return key, value


class _Uncounted(_Keyed):
    """A dictionary whose length is not tracked: it only decides when to clean up."""

    def __len__(self) -> int:
        return dict.__len__(self)
