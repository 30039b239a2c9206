"""The WebSocket commands of schedules; a part of `protocol.commands`."""

from __future__ import annotations

from .commandbase import CommandBase
from .submission import RunCommand


class PutSchedule(RunCommand, frozen=True, kw_only=True, tag="put_schedule"):
    """Create a schedule that submits `job`, or change the one of this name.

    It is due at the local times of a `cron` expression in `timezone`, or every `every` seconds, each up to
    `jitter` seconds later. `missed` decides about due times that were missed: `skip` them, submit only the
    `latest`, or `all`, at most the last `missed_limit`. With `paused` null, an existing schedule stays paused
    or not.
    """

    name: str
    job: str
    handle: str | None = None
    cron: str | None = None
    every: float | None = None
    timezone: str = "UTC"
    jitter: float = 0.0
    missed: str = "latest"
    missed_limit: int = 100
    paused: bool | None = None


class PreviewSchedule(CommandBase, frozen=True, kw_only=True, tag="preview_schedule"):
    """Compute the next due times of a schedule with these times, if it were put now; nothing is stored."""

    cron: str | None = None
    every: float | None = None
    timezone: str = "UTC"


class ListSchedules(CommandBase, frozen=True, kw_only=True, tag="list_schedules"):
    """List the schedules, in the order of their names."""


class GetSchedule(CommandBase, frozen=True, kw_only=True, tag="get_schedule"):
    """Get one schedule."""

    name: str


class PauseSchedule(CommandBase, frozen=True, kw_only=True, tag="pause_schedule"):
    """Let a schedule fire no more until it is resumed; what is due meanwhile never fires."""

    name: str


class ResumeSchedule(CommandBase, frozen=True, kw_only=True, tag="resume_schedule"):
    """Let a paused schedule continue with its next due time."""

    name: str


class TriggerSchedule(CommandBase, frozen=True, kw_only=True, tag="trigger_schedule"):
    """Submit the run of a schedule now, once; its due times stay the same."""

    name: str
    request_id: str | None = None


class DeleteSchedule(CommandBase, frozen=True, kw_only=True, tag="delete_schedule"):
    """Delete a schedule; its runs stay."""

    name: str
