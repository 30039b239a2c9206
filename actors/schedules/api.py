"""`engine.schedules`: the calls for schedules. The gateway uses the same API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import msgspec
import trio

from ...persistence.store import Memo
from ...protocol.errors import Invalid
from ...protocol.events import Event, ScheduleFired
from ...protocol.fold import Projection
from ...protocol.jobs import AnyJob
from ...protocol.names import check_name
from ...protocol.schedules import (
    Missed,
    ScheduleDefinition,
    ScheduleRecord,
    check_schedule,
    define,
)
from ...protocol.submission import ScheduleKeywords, SubmitOptions, check_keywords, to_stored
from ...protocol.values import shown
from ..actor import Address, Delivery
from ..channel import Reply
from ..engine.entry_point import Caller, EntryPoint
from ..engine.ticket import Ticket
from ..journal.change import Change
from ..journal.journal import Journal
from .configured import PORTION, Tables, check_tables, configured, portions
from .decisions import check_times, preview
from .declaration import submission_of
from .machine import refuse_declared, unknown
from .messages import Delete, Put, SetPaused

if TYPE_CHECKING:
    from ..engine.api import Engine


class Schedules:
    """The schedules of an engine. `by` names who caused a change, in its event."""

    def __init__(
        self,
        entry: EntryPoint,
        delivery: Delivery,
        journal: Journal,
        ids: Callable[[], str],
        clock: Callable[[], float],
        engine: Engine,
    ) -> None:
        self._entry = entry
        self._actor = Address(delivery, "schedules")
        self._journal = journal
        self._ids = ids
        self._clock = clock
        self._engine = engine

    async def put(
        self,
        name: str,
        *,
        job: str | AnyJob,
        handle: str | None = None,
        params: Any = None,
        cron: str | None = None,
        every: float | None = None,
        timezone: str = "UTC",
        jitter: float = 0,
        missed: Missed = "latest",
        missed_limit: int = 100,
        paused: bool | None = None,
        by: str = "app",
        **options: Unpack[ScheduleKeywords],
    ) -> ScheduleRecord:
        """Create a schedule, or change the one of this name; returns when that is committed.

        It submits `job` at the local times of the `cron` expression in `timezone`, or every `every` seconds
        from now, each up to `jitter` seconds later. Without a `handle`, its runs have the handle
        `schedule:<name>`. `missed` decides about due times that passed more than a minute ago, for example
        while the engine was stopped: `skip` them, submit only the `latest`, or `all`, at most the last
        `missed_limit`. `options` are those of `submit`, for each run.

        A schedule whose times stay the same continues; otherwise it begins anew. `paused=None` leaves it
        paused or not. Raises `Conflict` for a schedule that is declared in code or
        in the configuration.
        """
        check_keywords("put", options, "job", "cron", "every", "timezone", "jitter", "missed", "missed_limit")
        submitted = SubmitOptions(job=self._entry.name_of(job), handle=handle, params=params, **options)
        definition = define(
            name,
            submitted.job,
            handle=handle,
            params=None,
            cron=cron,
            every=every,
            timezone=timezone,
            jitter=jitter,
            missed=missed,
            missed_limit=missed_limit,
            options=to_stored(submitted),
        )
        if paused is not None and not isinstance(paused, bool):
            raise Invalid(f"paused must be true or false (got {shown(paused)})", value=shown(paused))
        check_times(definition)
        plain = await self._entry.check(submitted)
        definition = msgspec.structs.replace(definition, params=plain)
        put = Put(definition, self._ids(), paused, by, Reply())
        record: ScheduleRecord = await self._entry.ask(put, self._actor)
        return record

    async def preview(
        self, *, cron: str | None = None, every: float | None = None, timezone: str = "UTC"
    ) -> Sequence[float]:
        """The next due times of a schedule with these times, without jitter, if it were put now; nothing is
        stored. Raises `Invalid`, as `put` does."""
        self._entry.check_open()
        await trio.lowlevel.checkpoint()
        return preview(cron, every, timezone, self._clock())

    async def configure(self, tables: Tables, *, by: str = "app") -> None:
        """Change the schedules of the configuration: put those in `tables`, as in `open_engine`, and delete
        those that are no longer in it. Raises `Invalid`, and `Conflict` for one that is declared in code;
        then nothing has changed."""
        check_tables(tables)
        definitions: dict[str, ScheduleDefinition] = {}
        for portion in portions(tables):
            definitions |= {it.name: it for it in configured(portion, self._entry.checks)}
            await trio.lowlevel.checkpoint()
        records = await self.list()
        for record in records:
            if record.source == "code" and record.name in definitions:
                refuse_declared(record, "config", "remove one of them")
        check_name("by", by)
        messages: list[Put | Delete] = [
            Put(definition, self._ids(), None, by, Reply(), source="config")
            for definition in definitions.values()
        ]
        messages += [
            Delete(record.name, by, Reply(), source="config")
            for record in records
            if record.source == "config" and record.name not in definitions
        ]
        for start in range(0, len(messages), PORTION):
            await self._entry.ask_all(messages[start : start + PORTION], self._actor)

    async def list(self) -> Sequence[ScheduleRecord]:
        """All schedules, in the order of their names."""
        return await self._entry.look(sorted_schedules)

    async def get(self, name: str) -> ScheduleRecord:
        """A schedule. Raises `NotFound`."""
        check_schedule(name)
        return await self._entry.look(lambda committed: find_schedule(committed, name))

    async def pause(self, name: str, *, by: str = "app") -> ScheduleRecord:
        """Fire no more until `resume`. What is due meanwhile is not missed: it never fires."""
        return await self._set_paused(name, by, paused=True)

    async def resume(self, name: str, *, by: str = "app") -> ScheduleRecord:
        """Continue with the next due time from now on."""
        return await self._set_paused(name, by, paused=False)

    async def _set_paused(self, name: str, by: str, *, paused: bool) -> ScheduleRecord:
        check_schedule(name)
        record: ScheduleRecord = await self._entry.ask(SetPaused(name, paused, by, Reply()), self._actor)
        return record

    async def trigger(self, name: str, *, request_id: str | None = None, by: str = "app") -> Ticket[Any]:
        """Submit the schedule's run now, once, also if it is paused. Its due times stay the same.

        A call that is repeated with its `request_id` returns the run of the first one.
        """
        record = await self.get(name)
        options = submission_of(record, request_id)
        repeated = request_id is not None and await self._entry.find(options, request_id) is not None
        planned = round(self._clock(), 3)

        def event(run: str, *, joined: bool) -> Event:
            return ScheduleFired(
                seq=0,
                at=0,
                by=by,
                schedule=name,
                at_planned=planned,
                run=run,
                joined=joined,
                triggered=True,
            )

        def together(run: str) -> tuple[tuple[Event, ...], tuple[Memo, ...]]:
            return (event(run, joined=False),), ()

        check_name("by", by)
        accepted, ended = await self._entry.submit(options, Caller(by), together)
        if accepted.joined and not repeated:  # there was no creation to commit it with
            told = Change((event(accepted.run, joined=True),), reply=Reply())
            await self._entry.ask(told, self._journal)
        return Ticket(accepted.run, accepted.joined, ended, self._engine)

    async def delete(self, name: str, *, by: str = "app") -> None:
        """Delete a schedule; its runs stay. Raises `Conflict` for one that is declared in code or in the
        configuration."""
        check_schedule(name)
        await self._entry.ask(Delete(name, by, Reply()), self._actor)


def sorted_schedules(committed: Projection) -> list[ScheduleRecord]:
    """The schedules in the order of their names."""
    return sorted(committed.schedules.values(), key=lambda schedule: schedule.name)


def find_schedule(committed: Projection, name: str) -> ScheduleRecord:
    """A schedule. Raises `NotFound`."""
    schedule = committed.schedules.get(name)
    if schedule is None:
        raise unknown(name)
    return schedule
