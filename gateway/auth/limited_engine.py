"""The engine for the caller of a limited token.

Commands call it like the engine itself. It refuses each method that it does not define. So a new command is
refused for limited tokens until this module defines what it does for them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack, cast

from ...actors.schedules.machine import unknown
from ...protocol.errors import Conflict, Forbidden, GreenroomError, Invalid, NoActiveRun, NotFound
from ...protocol.jobs import job_name
from ...protocol.names import FLOW, lane_name
from ...protocol.records import BulkResult, JobInfo, RunFile, RunRecord
from ...protocol.results import failed
from ...protocol.run_filter import RunFilterKeywords
from ...protocol.submission import SubmitOptions, again, from_stored
from ...protocol.values import shown
from ..stream.filters import narrowed
from ..stream.snapshots import filtered_in_slices
from .scopes import Scope, without_foreign_runs

if TYPE_CHECKING:
    from pathlib import Path

    from ...actors.engine.api import Engine
    from ...actors.engine.ticket import Ticket
    from ...actors.messages import Accepted
    from ...protocol.events import Event
    from ...protocol.flow.records import FlowRow, FlowTask, NodeRun, VersionRow
    from ...protocol.records import Snapshot
    from ...protocol.schedules import ScheduleRecord
    from ...protocol.submission import OnConflict
    from ...protocol.validation import FilesFate


T = TypeVar("T")


class _Denied:
    """Refuses each method that it does not define."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def __getattr__(self, name: str) -> NoReturn:
        raise self.lacks()

    def lacks(self) -> Forbidden:
        """The error for a command that a limited token cannot use."""
        return self._scope.lacks()


class LimitedEngine(_Denied):
    """The methods of `Engine` that a limited token can use, each within the token's limits."""

    def __init__(self, engine: Engine, scope: Scope) -> None:
        super().__init__(scope)
        self._engine = engine
        self.flows = _LimitedFlows(engine, scope, self)
        self.schedules = _LimitedSchedules(engine, scope, self)

    # Runs that the caller names.

    async def get_run(self, run_id: str) -> RunRecord:
        """One run. Raises `NotFound` also for a run that the token does not permit."""
        unknown = NotFound(
            f"run {shown(run_id)} not found: no run has this id, and no handle of this name has a run",
            value=run_id,
        )
        try:
            run = await self._engine.get_run(run_id)
        except NoActiveRun:  # a handle, which the token may not permit
            if self._scope.handles is None or run_id not in self._scope.handles:
                raise unknown from None
            raise
        if not self._scope.sees(run):
            raise unknown
        return run

    async def history_page(
        self, run_id: str, after: int, limit: int, before: int | None = None
    ) -> tuple[list[Event], int | None]:
        run = await self.get_run(run_id)
        return await self._engine.history_page(run.id, after, limit, before)

    async def list_files(self, run_id: str) -> Sequence[RunFile]:
        run = await self.get_run(run_id)
        return await self._engine.list_files(run.id)

    async def locate_file(self, run_id: str, path: str) -> Path:
        run = await self.get_run(run_id)
        return await self._engine.locate_file(run.id, path)

    async def cancel(self, run_id: str, files: FilesFate = "keep", *, by: str = "app") -> RunRecord:
        run = await self.get_run(run_id)
        return await self._engine.cancel(run.id, files, by=by)

    async def set_priority(self, run_id: str, priority: int, *, by: str = "app") -> RunRecord:
        run = await self.get_run(run_id)
        return await self._engine.set_priority(run.id, priority, by=by)

    async def signal(self, run_id: str, key: str, value: Any, *, by: str = "app") -> None:
        run = await self.get_run(run_id)
        await self._engine.signal(run.id, key, value, by=by)

    async def inject(self, run_or_handle: str, message: Any, *, by: str = "app") -> str:
        try:
            run = await self._engine.get_run(run_or_handle)
        except (NotFound, NoActiveRun):
            self._scope.check_whole_handle(run_or_handle)
        else:
            if run.id != run_or_handle:
                self._scope.check_whole_handle(run_or_handle)  # any run that is active then receives it
            elif not self._scope.sees(run):
                self._scope.check_whole_handle(run_or_handle)
                raise NoActiveRun(
                    f"{shown(run_or_handle)} is neither a pending run nor a handle with an active run"
                )
        return await self._engine.inject(run_or_handle, message, by=by)

    async def answer(self, interrupt_id: str, data: Any, *, key: str | None = None, by: str = "app") -> str:
        if key is None:
            with suppress(NotFound, NoActiveRun):
                await self.get_run(interrupt_id.rpartition(".")[0])
                return await self._engine.answer(interrupt_id, data, by=by)
        try:
            run = await self.get_run(interrupt_id)
        except (NotFound, NoActiveRun):
            if key is None:
                return "not_found"
            raise NoActiveRun(
                f"{shown(interrupt_id)} is neither a pending run nor a handle with an active run"
            ) from None
        return await self._engine.answer(run.id, data, key=key, by=by)

    # Several runs: those that match, of those that the token permits.

    async def cancel_many(self, *, by: str = "app", **options: Any) -> BulkResult:
        self._check_filter(cast(RunFilterKeywords, options))
        return await self._engine.cancel_many(by=by, within=self._scope, **options)

    async def rerun_many(self, *, by: str = "app", **options: Any) -> BulkResult:
        self._check_filter(cast(RunFilterKeywords, options))
        return await self._engine.rerun_many(by=by, within=self._scope, **options)

    async def retry_many(self, *, by: str = "app", **options: Any) -> BulkResult:
        self._check_filter(cast(RunFilterKeywords, options))
        return await self._engine.retry_many(by=by, within=self._scope, **options)

    # New runs.

    async def rerun(self, run_id: str, *, request_id: str | None = None, by: str = "app") -> Ticket[Any]:
        run = await self.get_run(run_id)
        return await self.submit_options(again(run, request_id), by=by)

    async def retry(self, run_id: str, *, request_id: str | None = None, by: str = "app") -> Ticket[Any]:
        run = await self.get_run(run_id)
        return await self.submit_options(again(failed(run), request_id), by=by)

    async def submit_options(self, options: SubmitOptions, *, by: str) -> Ticket[Any]:
        self._check_new(options)
        async with hiding_foreign_runs(self._scope):
            return await self._engine.submit_options(options, by=by)

    async def submit_many_options(
        self, runs: Sequence[T], options_of: Callable[[T], SubmitOptions], *, all_or_nothing: bool, by: str
    ) -> Sequence[Accepted | GreenroomError]:
        def permitted(run: T) -> SubmitOptions:
            options = options_of(run)
            self._check_new(options)
            return options

        async with hiding_foreign_runs(self._scope):
            outcomes = await self._engine.submit_many_options(
                runs, permitted, all_or_nothing=all_or_nothing, by=by
            )
        return [
            _without_foreign_runs(outcome, self._scope) if isinstance(outcome, GreenroomError) else outcome
            for outcome in outcomes
        ]

    def _check_new(self, options: SubmitOptions) -> None:
        scope = self._scope
        scope.check_handle("task:" if options.handle is None else options.handle)
        scope.check_job(options.job)
        if scope.lanes is not None:
            scope.check_lane(self._engine.lane_of(options.job) if options.lane is None else options.lane)
        if options.on_conflict == "replace" and not (scope.lanes is None and scope.jobs is None):
            raise scope.lacks("a token limited to handles only, as `replace` cancels any run of a handle")

    # Lists and snapshots.

    async def list_jobs(self) -> list[JobInfo]:
        """The jobs that the token permits. A token limited to lanes can submit each job, in such a lane."""
        jobs = self._scope.jobs
        return [job for job in await self._engine.list_jobs() if jobs is None or job.name in jobs]

    async def list_runs(
        self, *, limit: int = 100, before: str | None = None, **filter: Unpack[RunFilterKeywords]
    ) -> list[RunRecord]:
        self._check_filter(filter)
        return await self._engine.list_runs(limit=limit, before=before, within=self._scope, **filter)

    def _check_filter(self, filter: RunFilterKeywords) -> None:
        handle, lane, job = filter.get("handle"), filter.get("lane"), filter.get("job")
        if handle is not None:
            self._scope.check_handle(handle)
        if lane is not None:
            self._scope.check_lane(lane)
        if job is not None:
            self._scope.check_job(job_name(job))
        if filter.get("flow") is not None:
            self._scope.check_job(FLOW)

    async def snapshot(self) -> Snapshot:
        filter = narrowed(None, self._scope, self._engine.job_of)
        return await filtered_in_slices(await self._engine.snapshot(), filter)

    # Handles and lanes.

    async def set_params(self, handle: str, params: Any, *, by: str = "app") -> None:
        self._scope.check_handle(handle)
        if self._scope.handles is None:
            raise self._scope.lacks("a token that is limited to handles, or has no limits")
        async with hiding_foreign_runs(self._scope):
            await self._engine.set_params(handle, params, by=by)

    async def clear_handle(self, handle: str, *, by: str = "app") -> int:
        self._scope.check_whole_handle(handle)
        return await self._engine.clear_handle(handle, by=by)

    async def release_handle(self, handle: str, *, by: str = "app") -> bool:
        self._scope.check_whole_handle(handle)
        return await self._engine.release_handle(handle, by=by)

    async def clear_lane(self, lane: str, *, by: str = "app") -> int:
        self._scope.check_lane(lane)
        if self._scope.handles is not None or self._scope.jobs is not None:
            raise self._scope.lacks("a token that is limited to lanes only, or has no limits")
        return await self._engine.clear_lane(lane, by=by)


class _LimitedFlows(_Denied):
    """The methods of `Flows` that a limited token can use. Runs of flows are runs of the job `flow`. A caller
    that can start flows can read all of them; a limited token cannot change flows."""

    def __init__(self, engine: Engine, scope: Scope, limited: LimitedEngine) -> None:
        super().__init__(scope)
        self._engine = engine
        self._limited = limited

    async def check(self, definition: Mapping[str, Any] | str) -> Any:
        return await self._engine.flows.check(definition)

    async def list(self, limit: int = 20, offset: int = 0) -> tuple[Sequence[FlowRow], int]:
        self._scope.check_job(FLOW)
        return await self._engine.flows.list(limit, offset)

    async def versions(self, flow: str, **page: int) -> Sequence[VersionRow]:
        self._scope.check_job(FLOW)
        return await self._engine.flows.versions(flow, **page)

    async def definitions(self, flow: str, **page: int) -> Sequence[VersionRow]:
        self._scope.check_job(FLOW)
        return await self._engine.flows.definitions(flow, **page)

    async def version(self, id: str) -> VersionRow:
        self._scope.check_job(FLOW)
        return await self._engine.flows.version(id)

    async def task(self, run_id: str) -> FlowTask:
        return await self._engine.flows.task(await self._seen(run_id))

    async def node_runs(self, run_id: str, *arguments: Any, **more: Any) -> Sequence[NodeRun]:
        return await self._engine.flows.node_runs(await self._seen(run_id), *arguments, **more)

    async def tasks(self, **query: Any) -> tuple[Sequence[FlowTask], int]:
        self._scope.check_job(FLOW)
        return await self._engine.flows.tasks(**query, within=self._scope)

    async def _seen(self, run_id: str) -> str:
        """The id of a run that the caller can see. Raises `NotFound`."""
        try:
            return (await self._limited.get_run(run_id)).id
        except (NotFound, NoActiveRun):
            raise NotFound(f"flow run {shown(run_id)} not found", value=run_id) from None


class _LimitedSchedules(_Denied):
    """The methods of `Schedules` that a limited token can use: for schedules whose runs it can submit. Any
    other is not found."""

    def __init__(self, engine: Engine, scope: Scope, limited: LimitedEngine) -> None:
        super().__init__(scope)
        self._engine = engine
        self._limited = limited

    async def put(
        self,
        name: str,
        *,
        job: str,
        handle: str | None,
        lane: str | None,
        on_conflict: OnConflict,
        **more: Any,
    ) -> ScheduleRecord:
        self._scope.check_handle(f"schedule:{name}" if handle is None else handle)
        self._limited._check_new(SubmitOptions(job=job, handle=handle, lane=lane, on_conflict=on_conflict))
        with suppress(NotFound):
            if not self._sees(await self._engine.schedules.get(name)):
                raise Conflict(f"schedule name {shown(name)} is taken: choose another name")
        return await self._engine.schedules.put(
            name, job=job, handle=handle, lane=lane, on_conflict=on_conflict, **more
        )

    async def preview(self, **times: Any) -> Sequence[float]:
        return await self._engine.schedules.preview(**times)

    async def list(self) -> Sequence[ScheduleRecord]:
        return [schedule for schedule in await self._engine.schedules.list() if self._sees(schedule)]

    async def get(self, name: str) -> ScheduleRecord:
        schedule = await self._engine.schedules.get(name)
        if not self._sees(schedule):
            raise unknown(name)
        return schedule

    async def pause(self, name: str, *, by: str) -> ScheduleRecord:
        return await self._engine.schedules.pause((await self.get(name)).name, by=by)

    async def resume(self, name: str, *, by: str) -> ScheduleRecord:
        return await self._engine.schedules.resume((await self._firing(name)).name, by=by)

    async def trigger(self, name: str, *, request_id: str | None, by: str) -> Ticket[Any]:
        schedule = await self._firing(name)
        async with hiding_foreign_runs(self._scope):
            return await self._engine.schedules.trigger(schedule.name, request_id=request_id, by=by)

    async def _firing(self, name: str) -> ScheduleRecord:
        """A schedule whose runs the token could submit by itself."""
        schedule = await self.get(name)
        options = from_stored(schedule.options)
        self._limited._check_new(SubmitOptions(job=schedule.job, handle=schedule.handle, **options))
        return schedule

    async def delete(self, name: str, *, by: str) -> None:
        await self._engine.schedules.delete((await self.get(name)).name, by=by)

    def _sees(self, schedule: ScheduleRecord) -> bool:
        lane = schedule.options.get("lane")
        if lane is None and self._scope.lanes is not None:
            try:
                lane = self._engine.lane_of(schedule.job)
            except Invalid:  # its job no longer exists, so its lane is unknown
                return False
        return self._scope.holds(schedule.handle, lane_name(lane), schedule.job)


@asynccontextmanager
async def hiding_foreign_runs(scope: Scope) -> AsyncIterator[None]:
    """Remove runs that the caller cannot see from the details of an error."""
    try:
        yield
    except GreenroomError as error:
        permitted = _without_foreign_runs(error, scope)
        if permitted is error:
            raise
        raise permitted from None


def _without_foreign_runs(error: GreenroomError, scope: Scope) -> GreenroomError:
    """The same error, without details about runs that the caller cannot see."""
    kept = without_foreign_runs(error.details, scope)
    return error if len(kept) == len(error.details) else type(error)(error.message, **kept)
