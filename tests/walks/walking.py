"""Every order of the events between the machines of an engine, enumerated instead of sampled.

Two paths to the same state have the same future, so each state is expanded once: `states` is the number of
states that were reached, `orders` the number of paths through them from the beginning to an end.
"""

from __future__ import annotations

import enum
import types
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from typing import Any

import attrs
import msgspec
import trio

from greenroom.actors.jobs import Job
from greenroom.actors.run.services import Services
from greenroom.persistence.store import Terms
from greenroom.protocol.events import EventBase
from greenroom.protocol.fold import Projection
from greenroom.protocol.records import RunRecord

from .whole import Step, Whole


@attrs.define
class Walked:
    """The result of a walk. An outcome is counted once for each final state that has it."""

    states: int = 0
    orders: int = 0
    complete: bool = True
    outcomes: Counter[str] = attrs.field(factory=Counter)


@attrs.define
class _Visit:
    state: bytes
    steps: list[Step]
    orders: int = 0
    taken: int = 0


def walk(scenario: Callable[[], Whole], outcome: Callable[[Whole], str], most: int) -> Walked:
    """Walk a scenario completely, or until `most` states are reached."""
    found, known = Walked(), dict[bytes, int]()  # the number of paths from each state to an end
    whole = scenario()
    path: list[_Visit] = [_Visit(state_of(whole), whole.steps())]
    at = 0  # the current depth of `whole`
    while path:
        visit = path[-1]
        if not visit.steps:
            whole.at_rest()
            found.outcomes[outcome(whole)] += 1
            visit.orders = 1
        if visit.taken == len(visit.steps) or len(known) >= most:
            path.pop()
            known[visit.state] = visit.orders
            if path:
                path[-1].orders += visit.orders
            continue
        if at != len(path) - 1:
            whole, at = _again(scenario, path), len(path) - 1
        step = visit.steps[visit.taken]
        visit.taken += 1
        try:
            whole.do(step)
        except Exception as error:
            error.add_note(" → ".join([*_steps(path), "here"]))
            raise
        at += 1
        state = state_of(whole)
        if state in known:
            visit.orders += known[state]
        else:
            path.append(_Visit(state, whole.steps()))
    found.states, found.orders, found.complete = len(known), known[visit.state], len(known) < most
    return found


def _steps(path: list[_Visit]) -> Iterator[Step]:
    return (visit.steps[visit.taken - 1] for visit in path if visit.taken)


def _again(scenario: Callable[[], Whole], path: list[_Visit]) -> Whole:
    whole = scenario()
    for visit in path[:-1]:
        whole.do(visit.steps[visit.taken - 1])
    return whole


def state_of(whole: Whole) -> bytes:
    """Everything that the future depends on: the machines' state, the messages in flight, and the event
    history, which the rules check."""
    whereabouts = (whole.channels, whole.runs, whole.bodies, whole.replies)
    digest = blake2b(digest_size=16)
    for part in _parts(
        (
            *(sorted(each.items(), key=_key) for each in whereabouts),
            *(whole.supervisor, whole.journal, whole.committing, whole.helpers, whole.durable),
            *(whole.begun, whole.stop, whole.curtain, whole.story, whole.log, whole.now),
            *(whole.deeds_left(), whole.may_crash),
        )
    ):
        digest.update(part)
    return digest.digest()


def _key(item: tuple[Any, Any]) -> Any:
    return item[0]


_PLAIN = (str, int, float, bool, bytes, types.NoneType, enum.Enum, type, types.ModuleType)
_DATA = (EventBase, RunRecord, Terms)
_KNOWN = (Services, Job, Whole, Projection)  # the same in every state, or part of the event history


def _parts(root: object) -> Iterator[bytes]:
    """An object and everything reachable from it, as bytes that are equal for equal graphs of objects."""
    numbers: dict[int, int] = {}
    kept = [root]  # so that no two of them have the same id
    left: list[object] = [root]
    while left:
        value = left.pop()
        if isinstance(value, _PLAIN):
            yield b"%s 0\0" % repr(value).encode()
            continue
        if isinstance(value, deque) and not value:
            yield b"None 0\0"  # created on first use, and empty again
            continue
        if isinstance(value, _DATA):
            yield msgspec.msgpack.encode(value)
            continue
        number = numbers.setdefault(id(value), len(numbers))
        if number < len(numbers) - 1 or isinstance(value, _KNOWN):
            yield b"%s %d\0" % (type(value).__name__.encode(), number)
            continue
        kept.append(value)
        name, inside = _inside(value)
        yield b"%s %d\0" % (name.encode(), len(inside))
        left.extend(inside)


def _inside(value: Any) -> tuple[str, list[object]]:
    """The kind of an object, and the objects that it refers to."""
    name = type(value).__name__
    match value:
        case dict():
            return name, [*value.keys(), *value.values()]
        case list() | tuple() | deque():
            return name, list(value)
        case set() | frozenset():
            return name, sorted(value, key=repr)
        case types.FunctionType():
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            return value.__qualname__, [*cells, value.__defaults__]
        case types.MethodType() | types.BuiltinMethodType():
            return value.__qualname__, [value.__self__]
        case partial():
            return name, [value.func, value.args, value.keywords]
        case types.GeneratorType():
            frame = value.gi_frame
            if frame is None:
                return value.__qualname__, []
            return f"{value.__qualname__} at {frame.f_lasti}", [dict(frame.f_locals), value.gi_yieldfrom]
        case trio.CancelScope():
            return name, [value.cancel_called]
        case msgspec.Struct():
            return name, [getattr(value, field) for field in value.__struct_fields__]
    fields = {field for each in type(value).__mro__ for field in getattr(each, "__slots__", ())}
    fields |= vars(value).keys() if hasattr(value, "__dict__") else set()
    return name, [getattr(value, field, None) for field in sorted(fields)]
