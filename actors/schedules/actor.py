"""The actor of the schedules: it wakes when one is due, and submits its run.

There is one timer for all schedules, and a helper task per firing while it is being submitted. The timer
measures elapsed time, but due times are times of the wall clock, which can be set: so the actor compares them
at least every `_RECHECK` seconds while a schedule waits.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import trio
from msgspec.structs import replace

from ...persistence.store import Memo
from ...protocol.errors import GreenroomError
from ...protocol.events import Event, ScheduleFired
from ...protocol.schedules import ScheduleRecord, after_firing
from ..actor import Actor, Delivery
from ..effects import Spawn
from ..engine.entry_point import Caller, EntryPoint
from .declaration import submission_of
from .machine import Declared, SchedulesMachine
from .messages import FiringEnded

logger = logging.getLogger("greenroom")

_RECHECK = 30.0


class SchedulesActor(Actor):
    """See the module's docstring."""

    def __init__(
        self, entry: EntryPoint, delivery: Delivery, spawn: Spawn, clock: Callable[[], float]
    ) -> None:
        super().__init__("schedules", "")
        self._entry = entry
        self._delivery = delivery
        self._spawn = spawn
        self._clock = clock
        self._machine = SchedulesMachine(self._submit)

    def restore(
        self,
        stored: Mapping[str, ScheduleRecord],
        declared: Sequence[Declared],
        ids: Callable[[], str],
    ) -> None:
        """Restore the schedules of the store, and put those that are declared."""
        self._machine.restore(stored)
        for name in self._machine.declare(declared, ids, self._clock()):
            logger.warning(
                "schedule %r is now declared in code or in the configuration: this replaces the one that was "
                "put",
                name,
            )
        self._end_turn()

    def has_work(self) -> bool:
        return self._machine.has_schedules

    def report(self) -> dict[str, Any]:
        return super().report() | self._machine.counts()

    async def on_batch(self, messages: Sequence[Any]) -> None:
        now = self._clock()
        for message in messages:
            self._machine.receive(message, now)
        self._end_turn()

    async def on_deadline(self) -> None:
        self._end_turn()

    def _end_turn(self) -> None:
        now = self._clock()
        self._machine.end_turn(now)
        self._machine.effects.carry_out(self._delivery, self._spawn)
        due = self._machine.deadline()
        wait = math.inf if due == math.inf else min(max(0.0, due - now), _RECHECK)
        self.deadline = trio.current_time() + wait

    async def _submit(self, record: ScheduleRecord, event: ScheduleFired) -> None:
        """Submit a firing. Its event and the advance of the schedule are committed with the new run."""

        def together(run: str) -> tuple[tuple[Event, ...], tuple[Memo, ...]]:
            fired = replace(event, run=run)
            return (fired,), (after_firing(record, fired),)

        options = submission_of(record, record.request_id(event.at_planned))
        try:
            accepted, _ = await self._entry.submit(options, caller_of(record), together)
        except GreenroomError as error:
            self.tell(FiringEnded(record.name, error=error))
        else:
            self.tell(FiringEnded(record.name, accepted.run, accepted.joined))


def caller_of(record: ScheduleRecord) -> Caller:
    """Who submits the runs of a schedule, in their events."""
    return Caller(f"schedule:{record.name}", request_ids=f"schedule:{record.name}:")
