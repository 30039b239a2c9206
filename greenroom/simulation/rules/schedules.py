"""The rules of schedules: each due time fires exactly once, or is counted as left out; also across crashes.

The due times are computed here by other means than the engine's: by walking from one minute to the next. So
scenarios can use intervals, and cron expressions in UTC that restrict minute and hour only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from msgspec.structs import replace

from ...actors.schedules.decisions import GRACE, NEXT_TIMES
from ...persistence.store import Batch, RunWrite
from ...protocol.events import Event, ScheduleChanged, ScheduleFired, ScheduleMissed
from ...protocol.schedules import ScheduleRecord

_MINUTE = 60


class ScheduleRules:
    """See the module's docstring."""

    def __init__(self, fault: Callable[[str], None]) -> None:
        self.schedules: dict[str, ScheduleRecord] = {}
        """The schedules, as of the last commit."""
        self._fault = fault
        self._latest = -math.inf

    def time_is(self, now: float) -> None:
        """Record the time of the wall clock, which can be set back later."""
        self._latest = max(self._latest, now)

    def opened(self, stored: Mapping[str, ScheduleRecord]) -> None:
        """Check the schedules that an engine has read from the store."""
        if stored != self.schedules:
            self._fault(f"these schedules were restored: {stored}, but committed were {self.schedules}")

    def commit(self, batch: Batch) -> None:
        """Check that a batch contains each run of a schedule together with its firing."""
        created = {id for id, write in batch.runs.items() if write.expected is None and _is_firing(write)}
        fired = {
            event.run
            for event in batch.events
            if isinstance(event, ScheduleFired) and not (event.triggered or event.joined or event.refused)
        }
        if created != fired:
            self._fault(f"runs {created} of schedules are created in a commit with firings of {fired}")

    def take(self, event: Event) -> None:
        """Read the next event."""
        self.time_is(event.at)
        if isinstance(event, ScheduleChanged):
            self._changed(event)
        elif isinstance(event, ScheduleFired) and not event.triggered:
            self._fired(event)
        elif isinstance(event, ScheduleMissed):
            self._missed(event)

    def check_all_decided(self, now: float, within: float) -> None:
        """Check that no due time remains that has passed more than `within` seconds ago."""
        for schedule in self.schedules.values():
            undecided = next(due_after(schedule, schedule.decided_until))
            if not schedule.paused and schedule.starts_at(undecided) < now - within:
                self._fault(f"{schedule} has not fired for {undecided}, and it is {now}")

    def _changed(self, event: ScheduleChanged) -> None:
        before = self.schedules.pop(event.schedule, None)
        after = event.state
        if after is None:
            return
        self.schedules[event.schedule] = after
        self._check_next(event, after)
        if before is None or before.id != after.id:
            if after.decided_until != after.since:
                self._wrong(event, "a new schedule has decided due times")
        elif before.since != after.since:
            self._wrong(event, f"its anchor was {before.since}")
        elif after.decided_until < before.decided_until:
            self._wrong(event, f"due times up to {before.decided_until} were decided")
        elif after.decided_until > before.decided_until and not before.paused:
            self._wrong(event, f"it was not paused, and decided until {before.decided_until}")

    def _fired(self, event: ScheduleFired) -> None:
        schedule = self._active(event)
        due = next(due_after(schedule, schedule.decided_until))
        if event.at_planned != due:
            self._wrong(event, f"the next due time was {due}")
        if schedule.starts_at(due) > self._latest:
            self._wrong(event, f"it was not due before {schedule.starts_at(due)}")
        if (event.run is None) == (event.refused is None):
            self._wrong(event, "it has either a run or an error")
        if (event.refused is None) != (event.error is None):
            self._wrong(event, "a refusal has a reason, and only a refusal has one")
        if event.refused in ("draining", "unavailable"):
            self._wrong(event, "it must fire later")
        self._advance(
            event,
            replace(
                schedule,
                decided_until=event.at_planned,
                next=event.next,
                last_fired=event.at_planned,
                last_run=event.run,
                last_error=event.error,
            ),
        )

    def _missed(self, event: ScheduleMissed) -> None:
        schedule = self._active(event)
        left_out = list(islice(due_after(schedule, schedule.decided_until), event.count))
        if not left_out or left_out[-1] != event.until:
            self._wrong(event, f"these were due: {left_out}")
            return
        following = next(due_after(schedule, event.until))
        if schedule.missed == "latest":
            if schedule.starts_at(following) > self._latest:
                self._wrong(event, "the latest one must fire")
        elif event.until > self._latest - GRACE - schedule.jitter:
            self._wrong(event, "it was not late")
        self._advance(event, replace(schedule, decided_until=event.until, next=event.next))

    def _active(self, event: ScheduleFired | ScheduleMissed) -> ScheduleRecord:
        schedule = self.schedules[event.schedule]
        if schedule.paused:
            self._wrong(event, "it is paused")
        return schedule

    def _advance(self, event: ScheduleFired | ScheduleMissed, after: ScheduleRecord) -> None:
        self.schedules[event.schedule] = after
        self._check_next(event, after)

    def _check_next(self, event: Event, schedule: ScheduleRecord) -> None:
        following = tuple(islice(due_after(schedule, schedule.decided_until), NEXT_TIMES))
        if schedule.next != (() if schedule.paused else following):
            self._wrong(event, f"the next due times are {following}")

    def _wrong(self, event: Event, why: str) -> None:
        self._fault(f"{event}: {why}")


def _is_firing(write: RunWrite) -> bool:
    request_id = None if write.terms is None else write.terms.request_id
    return request_id is not None and request_id.startswith("schedule:")


def due_after(schedule: ScheduleRecord, instant: float) -> Iterator[float]:
    """Yield the due times of a schedule after this instant."""
    if schedule.every is not None:
        number = max(1, math.floor((instant - schedule.since) / schedule.every) - 1)
        while True:
            due = round(schedule.since + number * schedule.every, 3)
            if due > instant:
                yield due
            number += 1
    assert schedule.cron is not None, "a schedule has one of both"
    minute_field, hour_field, *_ = schedule.cron.split()
    minutes, hours = _values(minute_field, 60), _values(hour_field, 24)
    minute = math.floor(instant / _MINUTE) + 1
    while True:
        if minute % 60 in minutes and minute // 60 % 24 in hours:
            yield float(minute * _MINUTE)
        minute += 1


def _values(field: str, count: int) -> frozenset[int]:
    """The values of a field: `*`, `*/5`, or `5`."""
    if field == "*":
        return frozenset(range(count))
    if field.startswith("*/"):
        return frozenset(range(0, count, int(field[2:])))
    return frozenset({int(field)})
