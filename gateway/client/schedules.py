"""The client's `schedules`: the methods of `engine.schedules`, each as one command over the connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ...protocol import schedule_commands as wire
from ...protocol.jobs import AnyJob, job_name
from ...protocol.names import check_name
from ...protocol.parameters import plain_params
from ...protocol.schedules import Missed, ScheduleRecord, check_every, check_schedule, define
from ...protocol.submission import ScheduleKeywords, SubmitOptions, check_keywords, to_stored
from ...protocol.values import json_value
from .calls import expected
from .link import Link
from .ticket import ClientTicket

if TYPE_CHECKING:
    from .client import Client


class ClientSchedules:
    """See `Schedules`."""

    def __init__(self, link: Link, client: Client) -> None:
        self._link = link
        self._client = client

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
        **options: Unpack[ScheduleKeywords],
    ) -> ScheduleRecord:
        """See `Schedules.put`."""
        check_keywords("put", options, "job", "cron", "every", "timezone", "jitter", "missed", "missed_limit")
        called = check_name("job", job_name(job))
        if params is not None:
            params = json_value(plain_params(params, None), "params", None)
        submitted = SubmitOptions(job=called, handle=handle, params=params, **options)
        checked = define(
            name,
            called,
            handle=handle,
            params=params,
            cron=cron,
            every=every,
            timezone=timezone,
            jitter=jitter,
            missed=missed,
            missed_limit=missed_limit,
            options=to_stored(submitted),
        )
        command = wire.PutSchedule(
            id=self._link.number(),
            name=checked.name,
            job=called,
            handle=handle,
            params=params,
            cron=cron,
            every=checked.every,
            timezone=timezone,
            jitter=checked.jitter,
            missed=missed,
            missed_limit=missed_limit,
            paused=paused,
            **checked.options,
        )
        return expected((await self._link.ask(command, repeatable=True)).schedule)

    async def preview(
        self, *, cron: str | None = None, every: float | None = None, timezone: str = "UTC"
    ) -> Sequence[float]:
        """See `Schedules.preview`."""
        every = check_every("a preview", cron, every, timezone)
        command = wire.PreviewSchedule(id=self._link.number(), cron=cron, every=every, timezone=timezone)
        return tuple(expected((await self._link.ask(command, repeatable=True)).times))

    async def list(self) -> Sequence[ScheduleRecord]:
        """See `Schedules.list`."""
        parts = await self._link.ask_for_parts(wire.ListSchedules(id=self._link.number()))
        return [schedule for part in parts for schedule in part.schedules or ()]

    async def get(self, name: str) -> ScheduleRecord:
        """See `Schedules.get`."""
        command = wire.GetSchedule(id=self._link.number(), name=check_schedule(name))
        return expected((await self._link.ask(command, repeatable=True)).schedule)

    async def pause(self, name: str) -> ScheduleRecord:
        """See `Schedules.pause`."""
        command = wire.PauseSchedule(id=self._link.number(), name=check_schedule(name))
        return expected((await self._link.ask(command, repeatable=True)).schedule)

    async def resume(self, name: str) -> ScheduleRecord:
        """See `Schedules.resume`."""
        command = wire.ResumeSchedule(id=self._link.number(), name=check_schedule(name))
        return expected((await self._link.ask(command, repeatable=True)).schedule)

    async def trigger(self, name: str, *, request_id: str | None = None) -> ClientTicket[Any]:
        """See `Schedules.trigger`."""
        if request_id is not None:
            check_name("request_id", request_id)
        command = wire.TriggerSchedule(
            id=self._link.number(),
            name=check_schedule(name),
            request_id=request_id or self._link.draw_id(),
        )
        ok = await self._link.ask(command, repeatable=True)
        return ClientTicket(expected(ok.run_id), bool(ok.joined), self._client)

    async def delete(self, name: str) -> None:
        """See `Schedules.delete`."""
        await self._link.ask(wire.DeleteSchedule(id=self._link.number(), name=check_schedule(name)))
