"""A large snapshot in parts: how the gateway splits one, and how a client joins the parts.

Each part is a snapshot with the same epoch, seq and engine that contains some of the entries of `lanes`,
`handles`, `interrupts`, `runs`, `executors` and `schedules`. Joined in order, the parts give the whole
snapshot. A lane or handle with long lists is in several parts: its lists continue from one part to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from .records import EngineState, Snapshot

_IDS = 1000
"""The maximum number of run ids, of 32 characters each, in one entry of a lane or handle."""


class Part(msgspec.Struct, frozen=True):
    """A part as it is sent, with encoded entries."""

    epoch: str
    seq: int
    engine: EngineState
    lanes: dict[str, msgspec.Raw]
    handles: dict[str, msgspec.Raw]
    interrupts: dict[str, msgspec.Raw]
    runs: dict[str, msgspec.Raw]
    executors: dict[str, msgspec.Raw]
    schedules: dict[str, msgspec.Raw]


def parts(snapshot: Snapshot, encode: Callable[[Any], bytes], most: int) -> Iterator[tuple[Part, bool]]:
    """Yield the parts of a snapshot, of about `most` bytes each, each with whether another one follows.

    A generator, so that the encoded form of a large snapshot is never in memory as a whole.
    """
    part = _empty(snapshot)
    size = 0
    for field, name, entry in _entries(snapshot):
        encoded = encode(entry)
        taken = getattr(part, field)
        if size and (size + len(encoded) > most or name in taken):
            yield part, True
            part = _empty(snapshot)
            size = 0
            taken = getattr(part, field)
        taken[name] = msgspec.Raw(encoded)
        size += len(encoded) + len(name)
    yield part, False


def joined(received: Iterable[Snapshot]) -> Snapshot:
    """Return the whole snapshot, from its parts in order."""
    several = iter(received)
    whole = next(several)
    for part in several:
        for name, lane in part.lanes.items():
            if (before := whole.lanes.get(name)) is not None:
                executing, queued = before.executing + lane.executing, before.queued + lane.queued
                lane = replace(before, executing=executing, queued=queued)
            whole.lanes[name] = lane
        for name, handle in part.handles.items():
            if (held := whole.handles.get(name)) is not None:
                handle = replace(held, waiting=held.waiting + handle.waiting)
            whole.handles[name] = handle
        whole.interrupts.update(part.interrupts)
        whole.runs.update(part.runs)
        whole.executors.update(part.executors)
        whole.schedules.update(part.schedules)
    return whole


def _empty(snapshot: Snapshot) -> Part:
    return Part(snapshot.epoch, snapshot.seq, snapshot.engine, {}, {}, {}, {}, {}, {})


def _entries(snapshot: Snapshot) -> Iterator[tuple[str, str, Any]]:
    for name, lane in snapshot.lanes.items():
        for executing, queued in _cut(lane.executing, lane.queued):
            yield "lanes", name, replace(lane, executing=executing, queued=queued)
    for name, handle in snapshot.handles.items():
        for _, waiting in _cut([], handle.waiting):
            yield "handles", name, replace(handle, waiting=waiting)
    for name, interrupt in snapshot.interrupts.items():
        yield "interrupts", name, interrupt
    for name, run in snapshot.runs.items():
        yield "runs", name, run
    for name, executor in snapshot.executors.items():
        yield "executors", name, executor
    for name, schedule in snapshot.schedules.items():
        yield "schedules", name, schedule


def _cut(first: list[str], second: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield both lists in chunks; a single chunk if they are short."""
    for start in range(0, max(len(first), len(second), 1), _IDS):
        yield first[start : start + _IDS], second[start : start + _IDS]
