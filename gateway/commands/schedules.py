"""The entries of commands about schedules; a part of `commands.TABLE`."""

from __future__ import annotations

from typing import cast

from ...protocol import schedule_commands as wire
from ...protocol.schedules import Missed, ScheduleRecord
from ...protocol.submission import ScheduleKeywords, from_wire
from ..auth.tokens import Role
from ..stream.receivers import of_schedule
from .entries import Context, Entry, Fields, Http


def _seen(context: Context, schedule: ScheduleRecord) -> ScheduleRecord:
    return schedule if context.sees_receivers else of_schedule(schedule)


def _one(context: Context, schedule: ScheduleRecord) -> Fields:
    return {"schedule": _seen(context, schedule)}


async def _put(context: Context, command: wire.PutSchedule) -> Fields:
    schedule = await context.engine.schedules.put(
        command.name,
        job=command.job,
        handle=command.handle,
        params=command.params,
        cron=command.cron,
        every=command.every,
        timezone=command.timezone,
        jitter=command.jitter,
        missed=cast(Missed, command.missed),  # the engine checks it
        missed_limit=command.missed_limit,
        paused=command.paused,
        by=context.by,
        **cast(ScheduleKeywords, from_wire(command)),
    )
    return _one(context, schedule)


async def _preview(context: Context, command: wire.PreviewSchedule) -> Fields:
    times = await context.engine.schedules.preview(
        cron=command.cron, every=command.every, timezone=command.timezone
    )
    return {"times": times}


async def _list(context: Context, command: wire.ListSchedules) -> Fields:
    return {"schedules": [_seen(context, schedule) for schedule in await context.engine.schedules.list()]}


async def _get(context: Context, command: wire.GetSchedule) -> Fields:
    return _one(context, await context.engine.schedules.get(command.name))


async def _pause(context: Context, command: wire.PauseSchedule) -> Fields:
    return _one(context, await context.engine.schedules.pause(command.name, by=context.by))


async def _resume(context: Context, command: wire.ResumeSchedule) -> Fields:
    return _one(context, await context.engine.schedules.resume(command.name, by=context.by))


async def _trigger(context: Context, command: wire.TriggerSchedule) -> Fields:
    schedules = context.engine.schedules
    ticket = await schedules.trigger(command.name, request_id=command.request_id, by=context.by)
    return {"run_id": ticket.id, "joined": ticket.joined}


async def _delete(context: Context, command: wire.DeleteSchedule) -> None:
    await context.engine.schedules.delete(command.name, by=context.by)


_VIEWER, _OPERATOR = Role.VIEWER, Role.OPERATOR
_ONE = "/api/schedules/{name}"

SCHEDULE_TABLE: tuple[Entry, ...] = (
    Entry(wire.PutSchedule, _OPERATOR, _put, Http("PUT", _ONE, body="schedule"), repeatable=True),
    Entry(wire.PreviewSchedule, _OPERATOR, _preview, Http("GET", "/api/schedule_times"), repeatable=True),
    Entry(wire.ListSchedules, _VIEWER, _list, Http("GET", "/api/schedules"), heavy=True, repeatable=True),
    Entry(wire.GetSchedule, _VIEWER, _get, Http("GET", _ONE, body="schedule"), repeatable=True),
    Entry(
        wire.PauseSchedule,
        _OPERATOR,
        _pause,
        Http("POST", f"{_ONE}/pause", body="schedule"),
        repeatable=True,
    ),
    Entry(
        wire.ResumeSchedule,
        _OPERATOR,
        _resume,
        Http("POST", f"{_ONE}/resume", body="schedule"),
        repeatable=True,
    ),
    Entry(
        wire.TriggerSchedule,
        _OPERATOR,
        _trigger,
        Http("POST", f"{_ONE}/trigger", status=201),
        repeatable=True,
    ),
    Entry(wire.DeleteSchedule, _OPERATOR, _delete, Http("DELETE", _ONE)),
)
