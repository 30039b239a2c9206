"""The machine of the schedules: which one fires next, and what their changes become.

It keeps one heap with the next time of each schedule. A schedule submits one firing at a time, so its runs
are submitted in the order of their due times. The run, its `schedule_fired` event and the advance of the
schedule are one commit; only if no run was created does the machine commit the event and the advance itself.
So after a crash at any moment, a due time is either decided or still due.

A change of a schedule waits while one of its firings is being submitted, because both write its record.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any

import msgspec
from msgspec.structs import replace

from ...persistence.store import ScheduleGone
from ...protocol.errors import Conflict, Draining, GreenroomError, Invalid, NotFound, QueueFull, Unavailable
from ...protocol.events import ScheduleChanged, ScheduleFired, ScheduleMissed
from ...protocol.schedules import ScheduleDefinition, ScheduleRecord, after_firing, after_missing
from ...protocol.values import shown
from ..effects import Effects
from ..journal.change import Change
from .decisions import NEXT_TIMES, Fire, LeaveOut, decide, revised, times_of
from .due_times import DueTimes
from .messages import Delete, FiringEnded, Put, Resumed, SetPaused, Source, StoreIsBack, TellWhenResumed

logger = logging.getLogger("greenroom")

MAX_SCHEDULES = 10_000
"""The most schedules of the configuration. Callers create none beyond this number of all sources together."""

_MOST_FIRINGS = 1000
"""How many firings are submitted at a time; the others wait in the heap."""

_VISITED_PER_TURN = 500
"""How many due times a turn visits before other actors have their turn: about 5 ms."""

_SLACK = 64

Declared = tuple[ScheduleDefinition, Source]
"""A schedule that is declared in code or in the configuration."""

Submit = Callable[[ScheduleRecord, ScheduleFired], Awaitable[None]]
"""Submits a firing, commits the event with it, and sends `FiringEnded`."""


class _Schedule(msgspec.Struct):
    """A schedule, including changes that are not committed yet."""

    record: ScheduleRecord
    wakes_at: float = math.inf  # Unix seconds; other entries of the heap are outdated
    times: DueTimes | None = None
    firing: ScheduleFired | None = None  # being submitted
    waiting: list[Any] = []  # changes that wait for the end of the firing
    held: bool = False  # a firing waits until the store is back
    refusal: str | None = None  # why the last firing was refused, as it was logged


class SchedulesMachine:
    """See the module's docstring. Call `receive` for the messages of a turn, and then `end_turn`; all times
    are those of the wall clock."""

    def __init__(self, submit: Submit) -> None:
        self.effects = Effects()
        self._submit = submit
        self._schedules: dict[str, _Schedule] = {}
        self._heap: list[tuple[float, str]] = []
        self._firings = 0
        self._draining = False  # a firing was refused because the engine drains
        self._awaits_store = False

    @property
    def has_schedules(self) -> bool:
        """Whether there is a schedule."""
        return bool(self._schedules)

    def restore(self, stored: Mapping[str, ScheduleRecord]) -> None:
        """Restore the schedules of the store."""
        for name, record in stored.items():
            self._schedules[name] = _Schedule(record)
            self._wake_at_next(self._schedules[name])

    def declare(self, declared: Sequence[Declared], ids: Callable[[], str], now: float) -> list[str]:
        """Put the schedules that are declared in code and in the configuration, and delete those that no
        longer are. Returns the names of those that replace a schedule that was put by a caller."""
        replaced: list[str] = []
        for definition, source in declared:
            before = self._schedules.get(definition.name)
            if before is not None and before.record.source == "api":
                replaced.append(definition.name)
            self._revise(definition, ids(), source, None, "engine", now)
        names = {definition.name for definition, _ in declared}
        for name, schedule in list(self._schedules.items()):
            if schedule.record.source != "api" and name not in names:
                self.effects.commit(self._delete_now(name, "engine"))
        return replaced

    def counts(self) -> dict[str, int]:
        """For the actor's report."""
        return {"schedules": len(self._schedules), "firings": self._firings}

    def receive(self, message: Any, now: float) -> None:
        """Handle a message."""
        try:
            _HANDLERS[type(message)](self, message, now)
        except GreenroomError as error:
            message.reply.fail(error)

    def end_turn(self, now: float) -> None:
        """Decide about the schedules that are due."""
        visited = 0
        while visited < _VISITED_PER_TURN and self.deadline() <= now:
            _, name = heappop(self._heap)
            schedule = self._schedules[name]
            schedule.wakes_at = math.inf
            visited += self._decide(schedule, now)

    def deadline(self) -> float:
        """When to call `end_turn` without a message."""
        if self._draining or self._firings >= _MOST_FIRINGS:
            return math.inf
        while self._heap:
            at, name = self._heap[0]
            schedule = self._schedules.get(name)
            if schedule is not None and schedule.wakes_at == at:
                return at
            heappop(self._heap)
        return math.inf

    # Firings.

    def _decide(self, schedule: _Schedule, now: float) -> int:
        """Decide about a schedule that is due. Returns how many due times that has visited."""
        visited = 1 + NEXT_TIMES
        record = schedule.record
        times = schedule.times
        if times is None:
            times = schedule.times = times_of(record, record.since)
        decision = decide(record, times, now)
        while isinstance(decision, LeaveOut):
            visited += decision.visited + NEXT_TIMES
            upcoming = times.following(decision.until, NEXT_TIMES)
            missed = ScheduleMissed(
                seq=0,
                at=0,
                by="engine",
                schedule=record.name,
                count=decision.count,
                until=decision.until,
                next=upcoming,
            )
            record = schedule.record = after_missing(record, missed)
            self.effects.commit(Change((missed,), memos=(record,)))
            decision = decide(record, times, now)
        if isinstance(decision, Fire):
            planned = decision.planned
            event = schedule.firing = ScheduleFired(
                seq=0,
                at=0,
                by="engine",
                schedule=record.name,
                at_planned=planned,
                next=times.following(planned, NEXT_TIMES),
            )
            self._firings += 1
            self.effects.help(partial(self._submit, record, event))
        else:
            self._wake(schedule, decision.until)
        return visited

    def _firing_ended(self, message: FiringEnded, now: float) -> None:
        schedule = self._schedules[message.schedule]
        event, error = schedule.firing, message.error
        assert event is not None, "a change of the schedule waits for the end of its firing"
        schedule.firing = None
        self._firings -= 1
        if isinstance(error, Unavailable):
            schedule.held = True
            self._await_store()
        elif isinstance(error, Draining):
            self._await_resume()
        else:
            self._fired(schedule, event, message)
        waiting, schedule.waiting = schedule.waiting, []
        for change in waiting:
            self.receive(change, now)
        if self._schedules.get(message.schedule) is schedule:
            self._wake_at_next(schedule)

    def _fired(self, schedule: _Schedule, event: ScheduleFired, message: FiringEnded) -> None:
        error = message.error
        event = replace(event, run=message.run, joined=message.joined)
        if error is not None:
            event = replace(event, refused=error.code, error=error.message)
        schedule.record = after_firing(schedule.record, event)
        _log_refusal(schedule, error)
        if error is not None or message.joined:  # else it was committed with the creation of the run
            self.effects.commit(Change((event,), memos=(schedule.record,)))

    def _await_store(self) -> None:
        """A change without events is not refused while the store is down: it is accepted when it is back."""
        if not self._awaits_store:
            self._awaits_store = True
            self.effects.commit(Change((), notify=(("schedules", "", StoreIsBack()),)))

    def _await_resume(self) -> None:
        """Nothing fires while the engine drains. What is due then is decided when it no longer does; an
        engine that shuts down does so in its next life."""
        if not self._draining:
            self._draining = True
            self.effects.tell("supervisor", "", TellWhenResumed())

    def _store_is_back(self, message: StoreIsBack, now: float) -> None:
        self._awaits_store = False
        for schedule in self._schedules.values():
            if schedule.held:
                schedule.held = False
                self._wake_at_next(schedule)

    def _resumed(self, message: Resumed, now: float) -> None:
        self._draining = False

    def _wake_at_next(self, schedule: _Schedule) -> None:
        record = schedule.record
        if schedule.firing is None and not schedule.held:
            self._wake(schedule, record.starts_at(record.next[0]) if record.next else math.inf)

    def _wake(self, schedule: _Schedule, at: float) -> None:
        if schedule.wakes_at != at:
            schedule.wakes_at = at
            if at != math.inf:
                heappush(self._heap, (at, schedule.record.name))
        if len(self._heap) > 2 * len(self._schedules) + _SLACK:
            self._drop_outdated()

    def _drop_outdated(self) -> None:
        """Remove the entries of schedules that were changed or deleted from the heap."""
        self._heap = [
            (schedule.wakes_at, name)
            for name, schedule in self._schedules.items()
            if schedule.wakes_at != math.inf
        ]
        heapify(self._heap)

    # Changes.

    def _put(self, message: Put, now: float) -> None:
        name = message.definition.name
        schedule = self._schedules.get(name)
        if schedule is None and message.source == "api" and len(self._schedules) >= MAX_SCHEDULES:
            raise QueueFull(
                f"schedule {shown(name)} cannot be created: the limit of {MAX_SCHEDULES:,} schedules is "
                "reached",
                limit=MAX_SCHEDULES,
            )
        if schedule is not None:
            refuse_declared(schedule.record, message.source, "change it there, or pause it")
            if schedule.firing is not None:
                schedule.waiting.append(message)
                return
        change = self._revise(message.definition, message.id, message.source, message.paused, message.by, now)
        change.reply, change.answer = message.reply, self._schedules[name].record

    def _revise(
        self,
        definition: ScheduleDefinition,
        id: str,
        source: Source,
        paused: bool | None,
        by: str,
        now: float,
    ) -> Change:
        before = self._schedules.get(definition.name)
        record = revised(
            None if before is None else before.record,
            definition,
            id=id,
            source=source,
            paused=paused,
            now=now,
        )
        return self._set(record, by)

    def _set(self, record: ScheduleRecord, by: str) -> Change:
        """Set the record of a schedule; a change without events if it stays the same."""
        schedule = self._schedules.get(record.name)
        if schedule is not None and schedule.record == record:
            change = Change(())  # replies after the commits before it
        else:
            event = ScheduleChanged(seq=0, at=0, by=by, schedule=record.name, state=record)
            change = Change((event,), memos=(record,))
            if schedule is None or schedule.record.id != record.id:
                schedule = self._schedules[record.name] = _Schedule(record)
            schedule.record = record
            self._wake_at_next(schedule)
        self.effects.commit(change)
        return change

    def _set_paused(self, message: SetPaused, now: float) -> None:
        schedule = self._find(message.schedule)
        if schedule.firing is not None:
            schedule.waiting.append(message)
            return
        before = schedule.record
        record = revised(before, before, id=before.id, source=before.source, paused=message.paused, now=now)
        change = self._set(record, message.by)
        change.reply, change.answer = message.reply, record

    def _delete(self, message: Delete, now: float) -> None:
        schedule = self._find(message.schedule)
        refuse_declared(schedule.record, message.source, "remove it there, or pause it")
        if schedule.firing is not None:
            schedule.waiting.append(message)
            return
        change = self._delete_now(message.schedule, message.by)
        change.reply = message.reply
        self.effects.commit(change)

    def _delete_now(self, name: str, by: str) -> Change:
        del self._schedules[name]
        event = ScheduleChanged(seq=0, at=0, by=by, schedule=name, state=None)
        return Change((event,), memos=(ScheduleGone(name),))

    def _find(self, name: str) -> _Schedule:
        schedule = self._schedules.get(name)
        if schedule is None:
            raise unknown(name)
        return schedule


def _log_refusal(schedule: _Schedule, error: GreenroomError | None) -> None:
    """Log why a firing was refused: again only if the reason has changed, or a firing was accepted since."""
    # The text of other errors than these changes each time, for example because it names a run.
    reason = None if error is None else str(error.code)
    if isinstance(error, Invalid | NotFound):
        reason = error.message
    if error is not None and reason != schedule.refusal:
        logger.warning(
            "schedule %r has submitted no run, because it was refused (%s): %s. It tries again at its next "
            "due time, and logs only another reason; `greenroom schedules show` prints the last one",
            schedule.record.name,
            error.code,
            error.message,
        )
    schedule.refusal = reason


def unknown(name: str) -> NotFound:
    """The error for a schedule that does not exist."""
    return NotFound(
        f"schedule {shown(name)} not found: `greenroom schedules list` prints the names", value=name
    )


def refuse_declared(record: ScheduleRecord, source: Source, remedy: str) -> None:
    """Refuse a change of a schedule that is declared elsewhere."""
    if record.source not in ("api", source):
        place = f"code of job {shown(record.job)}" if record.source == "code" else "configuration"
        raise Conflict(f"schedule {shown(record.name)} is declared in the {place}: {remedy}")


_HANDLERS: dict[type, Callable[[SchedulesMachine, Any, float], None]] = {
    Put: SchedulesMachine._put,
    SetPaused: SchedulesMachine._set_paused,
    Delete: SchedulesMachine._delete,
    FiringEnded: SchedulesMachine._firing_ended,
    Resumed: SchedulesMachine._resumed,
    StoreIsBack: SchedulesMachine._store_is_back,
}
