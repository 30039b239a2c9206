"""The embedding API: the calls of an application. The gateway uses the same API.

Every command is one message and one reply. What a reply reports is committed.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack, cast, overload

import msgspec
import trio

from ...persistence.store import Store
from ...protocol.batches import RunKeywords, check_run, check_runs
from ...protocol.bulk import LIMIT, bulk_filter, check_bulk_request_id, request_id_for
from ...protocol.codec import place_and_reason
from ...protocol.errors import Conflict, Draining, GreenroomError, Invalid, NoActiveRun, Unavailable
from ...protocol.events import Event, Filter, NodeChanged
from ...protocol.fold import Projection
from ...protocol.jobs import AnyJob, JobFunction, typed_job
from ...protocol.lane_settings import check_priority
from ...protocol.lanes import LaneRules
from ...protocol.names import check_name, lane_name
from ...protocol.patterns import Within
from ...protocol.records import BulkResult, JobInfo, RunFile, RunRecord, Snapshot
from ...protocol.results import failed
from ...protocol.run_filter import RunFilterKeywords
from ...protocol.submission import SubmitKeywords, SubmitOptions, again, check_keywords
from ...protocol.validation import (
    FilesFate,
    check_files,
    check_limit,
    check_seconds,
    check_target,
    check_text,
)
from ...protocol.values import json_value, shown
from .. import tracing
from ..actor import Directory
from ..channel import Reply
from ..executors.api import Executors
from ..executors.children import Children
from ..flow.api import Flows
from ..flow.services import FlowServices
from ..journal.change import Change
from ..journal.journal import Journal
from ..journal.stream import Stream
from ..messages import (
    Accepted,
    AnswerInterrupt,
    Cancel,
    Clear,
    Inject,
    NotWaiting,
    PauseLane,
    ReleaseHandle,
    ResetLanes,
    SendSignal,
    SetConcurrency,
    SetDraining,
    SetLane,
    SetMaxConcurrent,
    SetParams,
    SetPriority,
    WaitForActive,
)
from ..run.execution import LiveBodies, LiveBody
from ..schedules.api import Schedules
from ..webhooks.api import Webhooks
from ..workers.api import Workers
from .bulk import Search, for_each
from .entry_point import Caller, EntryPoint
from .event_reader import EventReader
from .finished_files import FinishedFiles
from .lease import Leasing
from .reads import Reads
from .ticket import Ticket
from .watchdog import Watch

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class Engine(Reads):
    """A running engine, as yielded by `open_engine`. `by` names who caused a change, in its event."""

    def __init__(
        self,
        entry: EntryPoint,
        journal: Journal,
        stream: Stream,
        store: Store,
        directory: Directory,
        live_bodies: LiveBodies,
        watch: Watch,
        settled: trio.Event,
        workers: Workers,
        flow_services: FlowServices,
        webhooks: Webhooks,
        executors: Executors,
        ids: Callable[[], str],
        clock: Callable[[], float],
        children: Children | None,
        leasing: Leasing,
        finished_files: FinishedFiles,
    ) -> None:
        self.flows = Flows(entry, flow_services, store, self)
        self.schedules = Schedules(entry, directory, journal, ids, clock, self)
        self.webhooks = webhooks
        self.workers = workers
        self.executors = executors
        self._entry = entry
        self._journal = journal
        self._stream = stream
        super().__init__(store)
        self._directory = directory
        self._live_bodies = live_bodies
        self._watch = watch
        self._settled = settled
        self._children = children
        self._leasing = leasing
        self._finished_files = finished_files

    @overload
    async def submit(
        self,
        job: str,
        *,
        handle: str,
        params: Any = None,
        by: str = "app",
        **options: Unpack[SubmitKeywords],
    ) -> Ticket[Any]: ...

    @overload
    async def submit(
        self,
        job: JobFunction[P, R, ..., Any],
        *,
        handle: str,
        params: P | None = None,
        by: str = "app",
        **options: Unpack[SubmitKeywords],
    ) -> Ticket[R]: ...

    async def submit(
        self,
        job: str | AnyJob,
        *,
        handle: str,
        params: Any = None,
        by: str = "app",
        **options: Unpack[SubmitKeywords],
    ) -> Ticket[Any]:
        """Submit a run of a job, given by name or as its function. Returns when the run is committed."""
        check_keywords("submit", options)
        name = self._entry.name_of(job)
        if tracing.API in sys.modules:
            options = tracing.carry(options)
        submitted = SubmitOptions(job=name, handle=handle, params=params, **options)
        accepted, ended = await self._entry.submit(submitted, Caller(by))
        return Ticket(accepted.run, accepted.joined, ended, self, typed_job(job))

    async def submit_options(self, options: SubmitOptions, *, by: str) -> Ticket[Any]:
        """Submit a run; for flows and the gateway."""
        accepted, ended = await self._entry.submit(options, Caller(by))
        return Ticket(accepted.run, accepted.joined, ended, self)

    @overload
    async def submit_many(
        self, runs: Sequence[RunKeywords], *, all_or_nothing: Literal[True] = True, by: str = "app"
    ) -> list[Ticket[Any]]: ...

    @overload
    async def submit_many(
        self, runs: Sequence[RunKeywords], *, all_or_nothing: bool, by: str = "app"
    ) -> list[Ticket[Any] | GreenroomError]: ...

    async def submit_many(
        self, runs: Sequence[RunKeywords], *, all_or_nothing: bool = True, by: str = "app"
    ) -> Any:
        """Submit up to 10,000 runs together. `runs` has a dict for each, with the arguments of `submit`.

        Returns one ticket for each run, in order, when all are committed by one commit. A run that is refused
        refuses the whole batch, which creates no run: the call raises the error of the first invalid run, or
        if all are valid of the first one that is refused. Its `details` contain the `index` of the run. With
        `all_or_nothing=False`, the list contains the error in that run's place, and the other runs are
        created.
        """
        check_runs(runs, all_or_nothing)
        given = list(runs)
        outcomes = await self._entry.submit_many(
            given, self._options, Caller(by), all_or_nothing=all_or_nothing
        )
        return [
            outcome
            if isinstance(outcome, GreenroomError)
            else Ticket(outcome.run, outcome.joined, _end(outcome), self, typed_job(run["job"]))
            for run, outcome in zip(given, outcomes, strict=True)
        ]

    async def submit_many_options(
        self, runs: Sequence[T], options_of: Callable[[T], SubmitOptions], *, all_or_nothing: bool, by: str
    ) -> Sequence[Accepted | GreenroomError]:
        """Submit runs together; for the gateway. `options_of` returns the options of one, or raises its
        error."""
        return await self._entry.submit_many(runs, options_of, Caller(by), all_or_nothing=all_or_nothing)

    def _options(self, run: RunKeywords) -> SubmitOptions:
        try:
            options = SubmitOptions(**cast(dict[str, Any], tracing.carry(run)))
        except TypeError:  # it has other fields than a submission: this check names them
            check_run(run)
            raise
        if isinstance(options.job, str):
            return options
        return msgspec.structs.replace(options, job=self._entry.name_of(options.job))

    async def rerun(self, run_id: str, *, request_id: str | None = None, by: str = "app") -> Ticket[Any]:
        """Submit a run again, with the same job, handle, lane, kind, parameters, needs, tags, priority and
        key."""
        return await self.submit_options(again(await self.get_run(run_id), request_id), by=by)

    async def retry(self, run_id: str, *, request_id: str | None = None, by: str = "app") -> Ticket[Any]:
        """Submit a run again that ended as `failed`, `timed_out` or `rejected`. Raises `Conflict`, with the
        run, for any other status."""
        run = await self.get_run(run_id)
        return await self.submit_options(again(failed(run), request_id), by=by)

    async def cancel_many(
        self,
        *,
        files: FilesFate = "keep",
        limit: int = LIMIT,
        dry_run: bool = False,
        by: str = "app",
        within: Within | None = None,
        **filter: Unpack[RunFilterKeywords],
    ) -> BulkResult:
        """Cancel all queued, running and suspended runs that match all filters, which are those of
        `list_runs`. Raises `Invalid` without a filter, and if more than `limit` runs match; then nothing is
        cancelled. With `dry_run`, it only counts.

        Queued runs are cancelled before others, so that none of them starts meanwhile.
        """
        check_files(files)
        search = Search(self._search, bulk_filter("cancel_many", filter, limit), within)
        if dry_run:
            return await search.count()

        async def act(id: str) -> None:
            await self.cancel(id, files, by=by)

        matches = await search.matches(limit)
        queued = [match for match in matches if match.is_queued]
        return await for_each(act, queued, [match for match in matches if not match.is_queued])

    async def rerun_many(
        self,
        *,
        request_id: str | None = None,
        limit: int = LIMIT,
        dry_run: bool = False,
        by: str = "app",
        within: Within | None = None,
        **filter: Unpack[RunFilterKeywords],
    ) -> BulkResult:
        """Submit all ended runs that match again, oldest first, as `rerun` does; the new runs wait in their
        handles (`on_conflict="queue"`). The other arguments are those of `cancel_many`.

        With a `request_id`, a repeated call submits none of the runs twice, nor those that it has created.
        """
        return await self._rerun_many("rerun_many", filter, request_id, limit, dry_run, by, within)

    async def retry_many(
        self,
        *,
        request_id: str | None = None,
        limit: int = LIMIT,
        dry_run: bool = False,
        by: str = "app",
        within: Within | None = None,
        **filter: Unpack[RunFilterKeywords],
    ) -> BulkResult:
        """Like `rerun_many`, for runs that ended as `failed`, `timed_out` or `rejected`."""
        return await self._rerun_many("retry_many", filter, request_id, limit, dry_run, by, within)

    async def _rerun_many(
        self,
        function: str,
        filter: RunFilterKeywords,
        request_id: str | None,
        limit: int,
        dry_run: bool,
        by: str,
        within: Within | None,
    ) -> BulkResult:
        check_bulk_request_id(request_id)

        async def made_by_this_request(runs: Sequence[str]) -> set[str]:
            prefix = request_id_for(request_id, "")
            return set() if prefix is None else await self._store.runs_of_requests(runs, prefix)

        chosen = bulk_filter(function, filter, limit)
        search = Search(self._search, chosen, within, made_by_this_request)
        if dry_run:
            return await search.count()

        async def act(id: str) -> None:
            options = again(await self.get_run(id), request_id_for(request_id, id), "queue")
            await self.submit_options(options, by=by)

        matches = await search.matches(limit)
        return await for_each(act, matches[::-1])

    async def cancel(self, run_id: str, files: FilesFate = "keep", *, by: str = "app") -> RunRecord:
        """Cancel a run, or the active run of a handle. A queued run ends immediately; an executing one is
        `cancelling` until its body has ended.

        `files` decides about the files that the run has finished. Raises `Conflict`, with the run, if it has
        ended or is already being cancelled.
        """
        check_text("run_id", run_id)
        check_files(files)
        cancelled: RunRecord | None = await self._entry.ask(Cancel(run_id, by, "cancelled", files, Reply()))
        if cancelled is not None:
            return cancelled
        run = await self.get_run(run_id)
        if run.id != run_id:  # `run_id` names a handle
            return await self.cancel(run.id, files, by=by)
        if not run.ended:
            raise Unavailable(f"engine is shutting down; run {run_id} resumes on restart")
        raise Conflict(f"run {run_id} is {run.status} and cannot be cancelled", run=run)

    async def list_jobs(self) -> list[JobInfo]:
        """The jobs that can be submitted, by name: the registered ones, and those that attached executors
        have announced. Flows are not among them."""
        self._entry.check_open()
        await trio.lowlevel.checkpoint()
        return sorted((job.info for job in self._entry.jobs.all), key=lambda job: job.name)

    async def list_files(self, run_id: str) -> list[RunFile]:
        """The files that a run has finished, by their paths. Those of the engine's data folder are listed
        while they exist."""
        return await self._finished_files.of(await self.get_run(run_id))

    async def locate_file(self, run_id: str, path: str) -> Path:
        """Where a finished file of a run is on this machine. Raises `NotFound` for a file that is not in the
        engine's data folder."""
        return await self._finished_files.locate(await self.get_run(run_id), path)

    async def inject(self, run_or_handle: str, message: Any, *, by: str = "app") -> str:
        """Send a message to a body. Returns `accepted` once it is stored; never waits for the body."""
        check_text("run_or_handle", run_or_handle)
        plain = json_value(message, "message", self._entry.max_value_bytes)
        try:
            accepted: str = await self._entry.ask(Inject(run_or_handle, plain, by, Reply()))
        except NoActiveRun as refused:
            raise await self._delayed_run_error(run_or_handle) or refused from None
        return accepted

    async def answer(self, interrupt_id: str, data: Any, *, key: str | None = None, by: str = "app") -> str:
        """Answer an interrupt: returns `resolved`, `already_resolved` or `not_found`.

        With `key`, the first argument is the run or the handle that opened the interrupt, instead of its id.
        """
        check_text("interrupt_id", interrupt_id)
        plain = json_value(data, "data", self._entry.max_value_bytes)
        interrupt = interrupt_id if key is None else await self._interrupt_of(interrupt_id, key)
        return "not_found" if interrupt is None else await self._answer(interrupt, plain, by)

    async def _interrupt_of(self, run_or_handle: str, key: str) -> str | None:
        """The open interrupt of a run under a key, if there is one."""
        check_text("key", key)

        def read(committed: Projection) -> dict[str, str] | None:
            run = run_or_handle
            if run not in committed.runs or committed.runs[run].ended:
                run = committed.active_run(run_or_handle) or ""
            asked = {
                interrupt.key: id for id, interrupt in committed.interrupts.items() if interrupt.run == run
            }
            return asked if run else None

        asked = await self._entry.look(read)
        if asked is None:
            raise NoActiveRun(
                f"{shown(run_or_handle)} is neither a pending run nor a handle with an active run"
            )
        return asked.get(key)

    async def _answer(self, interrupt_id: str, plain: Any, by: str) -> str:
        run = interrupt_id.rpartition(".")[0]
        outcome: str | None = await self._entry.ask(AnswerInterrupt(run, interrupt_id, plain, by, Reply()))
        if outcome is not None:
            return outcome
        if await self._store.closed_interrupt(interrupt_id) is not None:
            return "already_resolved"
        asking = await self._store.run(run)
        if asking is not None and not asking.ended:
            raise Unavailable(f"engine is shutting down; run {run} resumes on restart")
        return "not_found"

    async def signal(self, run_id: str, key: str, value: Any, *, by: str = "app") -> None:
        """Write a value into the shared data of a flow's run, or of a handle's active run, under `key`
        (`$shared.a.b`, or `a.b`), and wake the nodes that wait for it. The value is stored until the run has
        taken it. Raises `NoActiveRun` if the run has ended."""
        check_text("run_id", run_id)
        target = check_target(key)
        plain = json_value(value, "value", self._entry.max_value_bytes)
        sent: bool | None = await self._entry.ask(SendSignal(run_id, target.text, plain, by, Reply()))
        if sent:
            return None
        run = await self.get_run(run_id)
        if run.id != run_id:  # `run_id` names a handle
            return await self.signal(run.id, key, value, by=by)
        if not run.ended:
            raise Unavailable(f"engine is shutting down; run {run_id} resumes on restart")
        raise NoActiveRun(f"run {run_id} is {run.status}: it no longer takes signals")

    async def set_params(self, handle: str, params: Any, *, by: str = "app") -> None:
        """Set a handle's draft parameters; `None` removes them."""
        check_name("handle", handle)
        plain = json_value(params, "params", self._entry.max_value_bytes)
        await self._entry.ask(SetParams(handle, plain, by, Reply()))

    async def set_concurrency(self, lane: str, limit: int | None, *, by: str = "app") -> None:
        """Set a lane's limit: 0 pauses the lane, `None` leaves only the global limit."""
        name = check_name("lane", lane_name(lane))
        if limit is not None:
            check_limit("limit", limit)
        await self._entry.ask(SetConcurrency(name, limit, by, Reply()))

    async def pause_lane(self, lane: str, *, by: str = "app") -> None:
        """Grant no more slots in a lane, until `resume_lane`. Its limit stays as it is."""
        await self._entry.ask(PauseLane(check_name("lane", lane_name(lane)), True, by, Reply()))

    async def resume_lane(self, lane: str, *, by: str = "app") -> None:
        """End the pause of a lane."""
        await self._entry.ask(PauseLane(check_name("lane", lane_name(lane)), False, by, Reply()))

    async def set_lane(self, lane: str, /, *, by: str = "app", **rules: Any) -> LaneRules:
        """Change rules of a lane, the fields of `LaneRules`; the others stay. Returns its rules."""
        name = check_name("lane", lane_name(lane))
        if rules.get("notify") is not None:
            self._entry.subscriptions.check(rules["notify"])
        changed: LaneRules = await self._entry.ask(SetLane(name, rules, by, Reply()))
        return changed

    async def set_priority(self, run_id: str, priority: int, *, by: str = "app") -> RunRecord:
        """Change the priority of a run that has not begun. Raises `Conflict` if it has."""
        run = await self.get_run(run_id)
        message = SetPriority(run.id, check_priority("priority", priority), by, Reply())
        changed: bool | None = await self._entry.ask(message)
        run = await self.get_run(run.id)
        if changed is None:
            raise Conflict(
                f"run {run.id} is {run.status}: its priority can be changed before it starts", run=run
            )
        return run

    async def set_max_concurrent(self, limit: int, *, by: str = "app") -> None:
        """Set the global limit."""
        await self._entry.ask(SetMaxConcurrent(check_limit("limit", limit), by, Reply()))

    async def clear_lane(self, lane: str, *, by: str = "app") -> int:
        """Cancel the runs that are queued in a lane or wait in handles for it; return their number."""
        name = check_name("lane", lane_name(lane))
        count: int = await self._entry.ask(Clear("lane_cleared", name, by, Reply()))
        return count

    async def clear_handle(self, handle: str, *, by: str = "app") -> int:
        """Cancel the runs that wait in a handle; return their number."""
        name = check_name("handle", handle)
        count: int = await self._entry.ask(Clear("handle_cleared", name, by, Reply()))
        return count

    async def release_handle(self, handle: str, *, by: str = "app") -> bool:
        """Free a handle that an abandoned body still has. Returns whether there was such a body.

        If the abandoned body still executes, two bodies then execute for the handle.
        """
        released: bool = await self._entry.ask(ReleaseHandle(check_name("handle", handle), by, Reply()))
        return released

    async def reset_lanes(self, *, by: str = "app") -> None:
        """Free the slots of all executing runs and start queued ones. For when bodies are stuck."""
        await self._entry.ask(ResetLanes(by, Reply()))

    async def wait_for_active(self, timeout: float | None = 15) -> bool:
        """Wait for the runs that execute now; return whether all ended within `timeout` seconds."""
        message = WaitForActive(Reply())
        with trio.move_on_after(check_seconds("timeout", timeout, 15)):
            try:
                drained: bool = await self._entry.ask(message)
                return drained
            except trio.Cancelled:
                self._entry.tell(NotWaiting(message.reply))
                raise
        return False

    async def drain(self, *, by: str = "app") -> None:
        """Refuse new runs and start none until `resume`; executing runs continue."""
        await self._entry.ask(SetDraining(True, by, Reply()))

    async def resume(self, *, by: str = "app") -> None:
        """Accept and start runs again after `drain`."""
        await self._entry.ask(SetDraining(False, by, Reply()))

    async def wait(self, run_id: str, timeout: float | None = 15) -> RunRecord:
        """Wait for a run, or a handle's active run; return it when it ends or after `timeout` seconds."""
        seconds = check_seconds("timeout", timeout, 15)
        run = await self.get_run(run_id)
        with trio.move_on_after(seconds):
            await self._entry.end_of(run.id)
        return await self.get_run(run.id)

    def events(
        self, after: int | None = None, filter: Filter | Mapping[str, Any] | None = None
    ) -> AsyncIterator[Event | Snapshot]:
        """The events from now on, or those after the seq `after`.

        If those are no longer in memory (`after` is too old, or the reader too slow), yields a `Snapshot`
        and then the events after it. Ends when the engine ends.
        """
        if filter is not None and not isinstance(filter, Filter):
            try:
                filter = msgspec.convert(filter, Filter)
            except msgspec.ValidationError as error:
                where, reason = place_and_reason(error)
                raise Invalid(f"filter{where}: {reason}") from None
        cursor = self._stream.cursor(self._stream.last_seq if after is None else after)
        return EventReader(cursor, self.snapshot, filter)

    @property
    def stream(self) -> Stream:
        """The stream of encoded events that many subscribers share; for the gateway."""
        return self._stream

    def job_of(self, run_id: str) -> str | None:
        """The job of a run that is committed and in memory; for the gateway."""
        return self._journal.job_of(run_id)

    def lane_of(self, job: str) -> str:
        """The lane for runs of a job that are submitted without a lane; for the gateway."""
        return self._entry.lane_of(job)

    @property
    def commit_seconds(self) -> float:
        """How long the last commit took; for the gateway's metrics."""
        return self._journal.commit_seconds

    @property
    def blocked(self) -> tuple[int, float]:
        """How often the event loop was blocked for a second or longer, here and by bodies in executors, and
        for how many seconds in total; for the gateway's metrics."""
        count, seconds = self.executors.blocked
        return self._watch.count + count, self._watch.seconds + seconds

    @property
    def max_value_bytes(self) -> int:
        """The maximum size of a value; for the gateway's limits."""
        return self._entry.max_value_bytes

    @property
    def store_is_down(self) -> bool:
        """Whether the store currently cannot be written, so that no runs are accepted or started."""
        return self._journal.store_is_down

    @property
    def has_lease(self) -> bool:
        """Whether the lease on the store is good; for a node of a cluster."""
        return self._leasing.is_good()

    async def lease_lapsed(self) -> None:
        """Wait until the lease on the store could not be renewed in time; for a node of a cluster."""
        await self._leasing.lapsed()

    @property
    def committed(self) -> Projection:
        """The committed state; for a node of a cluster, which continues with it after its engine."""
        return self._journal.look_now(lambda committed: committed)

    def node_changed(self, node: str, status: str, address: str, version: str) -> None:
        """Commit that a node has `joined` or `left` the cluster, without waiting for the commit."""
        event = NodeChanged(
            seq=0, at=0, by="engine", node=node, status=status, address=address, version=version
        )
        self._journal.tell(Change((event,)))

    @property
    def stopped(self) -> bool:
        """Whether the engine has stopped and refuses every command; for the gateway of a cluster's node."""
        return self._entry.closed

    def check_ready(self) -> None:
        """Raise `Unavailable` or `Draining` if no new runs are accepted now, or if the engine has child
        processes for them and none is attached. Does not wait for an actor."""
        if self._entry.closed:
            raise Unavailable("engine has stopped")
        if self.store_is_down:
            raise Unavailable("the store is unavailable: retry later")
        if self._journal.draining:
            raise Draining("engine is draining and accepts no new runs: retry after it resumes")
        if self._children is not None:
            self._children.check_ready()

    def check_open(self) -> None:
        self._entry.check_open()

    async def look(self, read: Callable[[Projection], T]) -> T:
        """Read committed state; `read` must neither keep nor change what it receives. For the gateway."""
        return await self._entry.look(read)

    async def settled(self) -> None:
        """Wait until the engine has ended, except for bodies that do not end; nothing more is committed. For
        a server, which does not wait for such bodies."""
        await self._settled.wait()

    def bodies(self) -> list[LiveBody]:
        """The bodies that execute, including abandoned and detached ones."""
        return [execution.describe() for execution in self._live_bodies]

    def report(self) -> list[dict[str, Any]]:
        """The state of every active actor, to diagnose a stuck engine."""
        return self._directory.reports()


def _end(accepted: Accepted) -> Reply[RunRecord | None]:
    assert accepted.ended is not None, "the entry point sets it"
    return accepted.ended
