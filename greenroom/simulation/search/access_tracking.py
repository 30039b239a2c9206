"""What each step of a task touches, observed rather than declared.

A *step* is what a task does between two points at which trio may let another go on. Two steps that could both
come next lead to the same state in either order unless one of them writes what the other reads or writes. So
that nobody has to know which those are, the classes of the engine (and those of trio that tasks meet in) are
watched: each attribute of each of their objects that a step reads or writes is a *place*, and so is each key
of a dictionary that such an attribute holds. Any other value that can be changed counts as written when it is
read, whatever is done with it. That is more than happens, which costs time but misses nothing.

To wake a task is to write it, and to cancel it is to read whether it has been woken. What is not seen: what
tasks share in other ways, such as variables of an enclosing function; and nurseries, whose owners go on when
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
Place = tuple[object, object]

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
        # Alarms that are due at once wake their actors in one step, whatever their order.
        ("Alarms", "_heap"),
        ("Alarms", "_numbers"),
        # Sets of which only membership matters: to whoever cancels, see below.
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
    """The places that one step has read, and those that it has written."""

    __slots__ = ("read", "stirred", "written")

    def __init__(self) -> None:
        self.read: set[Place] = set()
        self.written: set[Place] = set()
        self.stirred: set[Place] = set()  # dictionaries of which it has written some key

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
    """The steps of one run of trio, while they are taken.

    An object is named by the task that made it and a number, so it has the same name in every execution in
    which that task has done the same until then.

    A walk spends most of its time here: `_watch` does for attributes what `read` and `write` do for the rest,
    without calling anything.
    """

    def __init__(self) -> None:
        self.notes = False
        self.touched = Touched()
        self.number = 0
        self.names: dict[int, tuple[str, int]] = {}
        self._task = ""
        self._kept: list[object] = []  # or another object might come to stand at its address
        self._made: Counter[str] = Counter()

    def begin(self, task: Task) -> None:
        """A task begins a step."""
        self.number += 1
        self.touched = Touched()
        self._task = self.name(task)
        if self.notes:
            self.woken(task)

    def woken(self, task: Task) -> None:
        """This step wakes a task, or is one of it."""
        self.touched.written.add((self.name(task), _WAKE))

    def end(self) -> Touched:
        """It has taken the step."""
        touched, self.touched = self.touched, Touched()
        self._task = ""
        return touched

    def name(self, thing: object) -> str:
        """The name of an object that is watched."""
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
        """Name an object that is seen for the first time: its name, and the number of the step."""
        self._made[self._task] += 1
        found = self.names[id(thing)] = (f"{self._task}.{self._made[self._task]}", self.number)
        self._kept.append(thing)
        return found


_steps = Steps()


@contextmanager
def watched() -> Iterator[None]:
    """Watch the classes of the engine that are imported by now, and those of trio."""
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
    """To be cancelled, a task must be there, and asleep."""
    attempt, activate = Task._attempt_delivery_of_any_pending_cancel, Task._activate_cancel_status

    def attempted(self: Task) -> None:
        _steps.read(self, _WAKE)
        attempt(self)

    def activated(self: Task, status: Any) -> None:
        for one in (self._cancel_status, status):  # the one that it leaves, and the one that it enters
            if one is not None:
                _steps.read(one, "effectively_cancelled")
        activate(self, status)

    for before, after in ((attempt, attempted), (activate, activated)):
        changed.append((Task, before.__name__, before))
        setattr(Task, before.__name__, after)


def record(steps: Steps) -> None:
    """From here on, what is touched is noted there."""
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
    """Whether a value of this type can't be changed, or is watched itself."""
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
    """A dictionary of which each key is a place, and all of them together another."""

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
    """One whose length means nothing: it only says when to tidy up."""

    def __len__(self) -> int:
        return dict.__len__(self)
