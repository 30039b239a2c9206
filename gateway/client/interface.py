"""The common interface of the embedded engine and the client, for programs that work with either.

The engine's methods also accept `by`, the name of the caller; a gateway uses the name of the token.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, Unpack, overload

from ...actors.channel import Result_co
from ...protocol.batches import RunKeywords
from ...protocol.errors import GreenroomError
from ...protocol.events import Event, Filter
from ...protocol.flow.records import (
    FlowRow,
    FlowTask,
    NodeRun,
    QueueItem,
    VersionRow,
    VersionStatus,
    WorkerState,
)
from ...protocol.jobs import AnyJob, JobFunction
from ...protocol.lanes import LaneRules
from ...protocol.records import BulkResult, ExecutorInfo, JobInfo, RunFile, RunRecord, Snapshot
from ...protocol.run_filter import RunFilterKeywords
from ...protocol.schedules import Missed, ScheduleRecord
from ...protocol.submission import FlowKeywords, ScheduleKeywords, SubmitKeywords
from ...protocol.validation import FilesFate
from ...protocol.webhooks import Webhook

if TYPE_CHECKING:
    from ...actors.engine.api import Engine
    from ...protocol.flow.check import Checked
    from .client import Client


P = TypeVar("P")
R = TypeVar("R")


class RunTicket(Protocol[Result_co]):
    """See `Ticket`."""

    @property
    def id(self) -> str: ...

    @property
    def joined(self) -> bool: ...

    async def result(self) -> Result_co: ...

    async def wait(self, timeout: float | None = 15) -> bool: ...

    async def cancel(self, files: FilesFate = "keep") -> RunRecord: ...


class RunFlows(Protocol):
    """See `Flows`."""

    async def check(self, definition: Mapping[str, Any] | str) -> Checked: ...

    async def create(self, name: str, description: str = "") -> FlowRow: ...

    async def publish(
        self,
        name: str,
        definition: Mapping[str, Any] | str,
        *,
        version: int | None = None,
        status: VersionStatus = "published",
    ) -> VersionRow: ...

    async def add_version(
        self,
        flow: str,
        definition: Mapping[str, Any] | str,
        *,
        version: int | None = None,
        status: VersionStatus = "published",
    ) -> VersionRow: ...

    async def list(self, limit: int = 20, offset: int = 0) -> tuple[Sequence[FlowRow], int]: ...

    async def versions(self, flow: str, *, limit: int = 1000, offset: int = 0) -> Sequence[VersionRow]: ...

    async def version(self, id: str) -> VersionRow: ...

    async def start(
        self,
        flow: str,
        *,
        version: int = 0,
        params: Mapping[str, Any] | None = None,
        handle: str | None = None,
        **options: Unpack[FlowKeywords],
    ) -> RunTicket[Any]: ...

    async def task(self, run_id: str) -> FlowTask: ...

    async def tasks(
        self,
        *,
        status: str | Iterable[str] | None = None,
        version: str | None = None,
        limit: int = 20,
        offset: int = 0,
    ) -> tuple[Sequence[FlowTask], int]: ...

    async def node_runs(self, run_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[NodeRun]: ...


class EngineWorkers(Protocol):
    """See `Workers`."""

    async def register(
        self,
        id: str,
        url: str,
        services: Sequence[str],
        *,
        kind: Literal["http", "queue"] = "http",
        load: float = 0,
    ) -> WorkerState: ...

    async def heartbeat(self, id: str, load: float | None = None) -> None: ...

    async def list(self, service: str | None = None, ttl: float | None = None) -> Sequence[WorkerState]: ...

    async def allocate(self, service: str) -> WorkerState | None: ...

    async def poll(self, worker_id: str, services: Sequence[str], wait: float = 25) -> QueueItem | None: ...

    async def complete(
        self, queue_id: str, result: Any = None, error: str = "", *, worker_id: str | None = None
    ) -> None: ...

    async def extend(self, queue_id: str, worker_id: str) -> None: ...


class EngineExecutors(Protocol):
    """See `Executors`."""

    async def list(self) -> Sequence[ExecutorInfo]: ...

    async def drain(self, executor: str) -> None: ...


class RunSchedules(Protocol):
    """See `Schedules`."""

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
    ) -> ScheduleRecord: ...

    async def preview(
        self, *, cron: str | None = None, every: float | None = None, timezone: str = "UTC"
    ) -> Sequence[float]: ...

    async def list(self) -> Sequence[ScheduleRecord]: ...

    async def get(self, name: str) -> ScheduleRecord: ...

    async def pause(self, name: str) -> ScheduleRecord: ...

    async def resume(self, name: str) -> ScheduleRecord: ...

    async def trigger(self, name: str, *, request_id: str | None = None) -> RunTicket[Any]: ...

    async def delete(self, name: str) -> None: ...


class RunWebhooks(Protocol):
    """See `Webhooks`."""

    async def dead(self, *, limit: int = 100, after: str | None = None) -> Sequence[Webhook]: ...

    async def failing(self, *, limit: int = 100, after: str | None = None) -> Sequence[Webhook]: ...

    async def redeliver(self, webhook_id: str) -> Webhook: ...

    async def drop(self, webhook_id: str) -> Webhook: ...


class RunEngine(Protocol):
    """See `Engine`."""

    @property
    def flows(self) -> RunFlows: ...

    @property
    def workers(self) -> EngineWorkers: ...

    @property
    def executors(self) -> EngineExecutors: ...

    @property
    def schedules(self) -> RunSchedules: ...

    @property
    def webhooks(self) -> RunWebhooks: ...

    @overload
    async def submit(
        self,
        job: str,
        *,
        handle: str,
        params: Any = None,
        **options: Unpack[SubmitKeywords],
    ) -> RunTicket[Any]: ...

    @overload
    async def submit(
        self,
        job: JobFunction[P, R, ..., Any],
        *,
        handle: str,
        params: P | None = None,
        **options: Unpack[SubmitKeywords],
    ) -> RunTicket[R]: ...

    @overload
    async def submit_many(
        self, runs: Sequence[RunKeywords], *, all_or_nothing: Literal[True] = True
    ) -> Sequence[RunTicket[Any]]: ...

    @overload
    async def submit_many(
        self, runs: Sequence[RunKeywords], *, all_or_nothing: bool
    ) -> Sequence[RunTicket[Any] | GreenroomError]: ...

    async def rerun(self, run_id: str, *, request_id: str | None = None) -> RunTicket[Any]: ...

    async def retry(self, run_id: str, *, request_id: str | None = None) -> RunTicket[Any]: ...

    async def cancel_many(
        self,
        *,
        files: FilesFate = "keep",
        limit: int = 1000,
        dry_run: bool = False,
        **filter: Unpack[RunFilterKeywords],
    ) -> BulkResult: ...

    async def rerun_many(
        self,
        *,
        request_id: str | None = None,
        limit: int = 1000,
        dry_run: bool = False,
        **filter: Unpack[RunFilterKeywords],
    ) -> BulkResult: ...

    async def retry_many(
        self,
        *,
        request_id: str | None = None,
        limit: int = 1000,
        dry_run: bool = False,
        **filter: Unpack[RunFilterKeywords],
    ) -> BulkResult: ...

    async def cancel(self, run_id: str, files: FilesFate = "keep") -> RunRecord: ...

    async def inject(self, run_or_handle: str, message: Any) -> str: ...

    async def answer(self, interrupt_id: str, data: Any, *, key: str | None = None) -> str: ...

    async def signal(self, run_id: str, key: str, value: Any) -> None: ...

    async def set_params(self, handle: str, params: Any) -> None: ...

    async def set_concurrency(self, lane: str, limit: int | None) -> None: ...

    async def pause_lane(self, lane: str) -> None: ...

    async def resume_lane(self, lane: str) -> None: ...

    async def set_lane(self, lane: str, /, **rules: Any) -> LaneRules: ...

    async def set_priority(self, run_id: str, priority: int) -> RunRecord: ...

    async def set_max_concurrent(self, limit: int) -> None: ...

    async def clear_lane(self, lane: str) -> int: ...

    async def clear_handle(self, handle: str) -> int: ...

    async def release_handle(self, handle: str) -> bool: ...

    async def reset_lanes(self) -> None: ...

    async def wait_for_active(self, timeout: float | None = 15) -> bool: ...

    async def drain(self) -> None: ...

    async def resume(self) -> None: ...

    async def snapshot(self) -> Snapshot: ...

    async def get_run(self, run_id: str) -> RunRecord: ...

    async def wait(self, run_id: str, timeout: float | None = 15) -> RunRecord: ...

    async def list_runs(
        self, *, limit: int = 100, before: str | None = None, **filter: Unpack[RunFilterKeywords]
    ) -> list[RunRecord]: ...

    async def list_jobs(self) -> list[JobInfo]: ...

    async def list_files(self, run_id: str) -> list[RunFile]: ...

    async def history(
        self, run_id: str, *, after: int = 0, before: int | None = None, limit: int | None = None
    ) -> list[Event]: ...

    def events(
        self, after: int | None = None, filter: Filter | Mapping[str, Any] | None = None
    ) -> AsyncIterator[Event | Snapshot]: ...


if TYPE_CHECKING:  # the type checker proves that both have this interface

    def _both(engine: Engine, client: Client) -> tuple[RunEngine, RunEngine]:
        return engine, client
