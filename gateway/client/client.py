"""`Client`: the engine's methods, each as one command over the connection.

The gateway checks arguments like the embedded engine; the client checks only what cannot be sent.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar, Unpack, overload

import trio

from ...actors import tracing
from ...protocol import commands as wire
from ...protocol.batches import (
    Refusals,
    RunKeywords,
    Submitted,
    check_run,
    check_runs,
    existed,
    with_drawn_ids,
)
from ...protocol.bulk import LIMIT, bulk_to_wire, check_bulk_request_id
from ...protocol.errors import GreenroomError, Invalid, Unavailable
from ...protocol.events import Event, Filter, RunStateChanged, RunWaiting
from ...protocol.flow.commands import Signal
from ...protocol.fold import Projection
from ...protocol.jobs import AnyJob, JobFunction, job_name, typed_job
from ...protocol.lane_settings import check_names, check_priority
from ...protocol.lanes import LaneRules
from ...protocol.names import check_name
from ...protocol.parameters import plain_params
from ...protocol.parts import joined
from ...protocol.records import BulkResult, JobInfo, RunFile, RunRecord, Snapshot
from ...protocol.run_filter import RunFilterKeywords, filter_to_wire, run_filter
from ...protocol.states import Status
from ...protocol.submission import (
    JOINING,
    NewRun,
    OnWait,
    SubmitCommand,
    SubmitKeywords,
    SubmitOptions,
    check_keywords,
    to_wire,
)
from ...protocol.validation import (
    FilesFate,
    check_limit,
    check_page,
    check_seconds,
    check_seq,
    check_target,
    check_text,
)
from ...protocol.values import json_value
from .calls import expected
from .cluster import ClientCluster
from .errors import raised_from
from .executors import ClientExecutors
from .flows import ClientFlows
from .iterating import Iterating, converted, still_executing
from .link import Link
from .schedules import ClientSchedules
from .ticket import ClientTicket
from .webhooks import ClientWebhooks
from .workers import ClientWorkers

P = TypeVar("P")
R = TypeVar("R")

logger = logging.getLogger("greenroom.client")


class Client:
    """A client of a gateway; `connect` creates it.

    Every method raises the errors of the engine's method. In addition, it raises `Unavailable` if there is no
    connection for `patience` seconds (the command was not executed), and its subclass `OutcomeUnknown` if the
    connection was lost before the reply and the command is not safe to repeat.
    """

    def __init__(self, link: Link, nursery: trio.Nursery) -> None:
        self.flows = ClientFlows(link, self)
        self.workers = ClientWorkers(link)
        self.executors = ClientExecutors(link)
        self.schedules = ClientSchedules(link, self)
        self.webhooks = ClientWebhooks(link)
        self.cluster = ClientCluster(link)
        self._link = link
        self._nursery = nursery

    @property
    def state(self) -> Projection:
        """The fold of all received events, equal to the engine's state at the same `seq`.

        It changes at every checkpoint of the program; `state.snapshot()` returns a copy that does not. After
        the reply to a command it includes the command's effects.
        """
        state = self._link.following.state if self._link.follows else None
        if state is None:
            raise Invalid("this client does not follow events: connect with follow=True")
        return state

    @property
    def url(self) -> str:
        """The gateway's URL; with several addresses, that of the connection or of the next attempt."""
        return self._link.addresses.current.url.geturl()

    @property
    def role(self) -> str:
        """The token's role: `viewer`, `operator`, `admin` or `worker`."""
        return self._link.welcome.role

    @property
    def connected(self) -> bool:
        """Whether the client is connected; if not, it reconnects."""
        return self._link.connected

    async def wait_lost(self) -> str:
        """Wait until the connection is lost. Returns the reason; the client then reconnects."""
        return await self._link.lost()

    async def wait_connected(self) -> None:
        """Wait until there is a connection."""
        await self._link.found()

    # Runs.

    @overload
    async def submit(
        self,
        job: str,
        *,
        handle: str,
        params: Any = None,
        **options: Unpack[SubmitKeywords],
    ) -> ClientTicket[Any]: ...

    @overload
    async def submit(
        self,
        job: JobFunction[P, R, ..., Any],
        *,
        handle: str,
        params: P | None = None,
        **options: Unpack[SubmitKeywords],
    ) -> ClientTicket[R]: ...

    async def submit(
        self,
        job: str | AnyJob,
        *,
        handle: str,
        params: Any = None,
        **options: Unpack[SubmitKeywords],
    ) -> ClientTicket[Any]:
        """Submit a run of a job, given by its name or its function. Returns when the run is committed.

        The submit is sent again if the connection is lost, and creates one run: without a `request_id`, the
        client generates one. `on_wait` is called when the gateway reports that the run waits too long.
        """
        check_keywords("submit", options)
        name = check_name("job", job_name(job))
        check_name("handle", handle)
        if params is not None:
            params = json_value(plain_params(params, None), "params", None)
        given = SubmitOptions(job=name, handle=handle, params=params, **tracing.carry(options))
        return await self.send_submission(
            given, partial(wire.Submit, job=name, params=params), typed_job(job)
        )

    async def send_submission(
        self,
        options: SubmitOptions,
        command: Callable[..., SubmitCommand],
        job: AnyJob | None = None,
    ) -> ClientTicket[Any]:
        """Submit a run with this command. Used by `submit` and by `flows.start`."""
        options.check()
        fields = to_wire(options)
        fields["request_id"] = options.request_id or self._link.draw_id()
        before = self._link.following.seq
        ok = await self._link.ask(command(id=self._link.number(), **fields), repeatable=True)
        run_id = expected(ok.run_id)
        # With a generated request id, `joined` only means that the submit was sent twice.
        existed = bool(ok.joined) and (options.request_id is not None or options.on_conflict in JOINING)
        if options.on_wait is not None and self._link.follows:
            self._nursery.start_soon(self._report_wait, run_id, before, options.on_wait)
        return ClientTicket(run_id, existed, self, job)

    @overload
    async def submit_many(
        self, runs: Sequence[RunKeywords], *, all_or_nothing: Literal[True] = True
    ) -> list[ClientTicket[Any]]: ...

    @overload
    async def submit_many(
        self, runs: Sequence[RunKeywords], *, all_or_nothing: bool
    ) -> list[ClientTicket[Any] | GreenroomError]: ...

    async def submit_many(self, runs: Sequence[RunKeywords], *, all_or_nothing: bool = True) -> Any:
        """See `Engine.submit_many`. Like a submit, a batch is sent again if the connection is lost, and
        creates each run once."""
        check_runs(runs, all_or_nothing)
        refusals: Refusals[ClientTicket[Any]] = Refusals(all_or_nothing)
        given: list[tuple[RunKeywords, NewRun]] = []
        for index, run in enumerate(runs):
            try:
                given.append((run, self._new_run(run)))
            except GreenroomError as error:
                refusals.add(index, error)
        if not given:
            await trio.lowlevel.checkpoint()
            return refusals.merged([])
        before = self._link.following.seq
        command = wire.SubmitMany(
            id=self._link.number(),
            runs=with_drawn_ids([new for _, new in given], self._link.draw_id),
            all_or_nothing=all_or_nothing,
        )
        parts = await self._link.ask_for_parts(command)
        outcomes = [outcome for part in parts for outcome in part.submitted or ()]
        return refusals.merged(
            [self._outcome(*pair, outcome, before) for pair, outcome in zip(given, outcomes, strict=True)]
        )

    def _new_run(self, run: RunKeywords) -> NewRun:
        check_run(run)
        given: dict[str, Any] = dict(tracing.carry(run))
        given["job"] = check_name("job", job_name(run["job"]))
        options = SubmitOptions(**given)
        check_name("handle", options.handle)
        options.check()
        params = options.params
        if params is not None:
            params = json_value(plain_params(params, None), "params", None)
        return NewRun(job=options.job, params=params, **to_wire(options))

    def _outcome(
        self, run: RunKeywords, new: NewRun, outcome: Submitted, before: int
    ) -> ClientTicket[Any] | GreenroomError:
        if outcome.error is not None:
            return raised_from(outcome.error.code, outcome.error.message, outcome.error.details)
        run_id, on_wait = expected(outcome.run_id), run.get("on_wait")
        if on_wait is not None and self._link.follows:
            self._nursery.start_soon(self._report_wait, run_id, before, on_wait)
        return ClientTicket(run_id, existed(new, outcome), self, typed_job(run["job"]))

    async def rerun(self, run_id: str, *, request_id: str | None = None) -> ClientTicket[Any]:
        """See `Engine.rerun`."""
        return await self._submit_again(wire.Rerun, run_id, request_id)

    async def retry(self, run_id: str, *, request_id: str | None = None) -> ClientTicket[Any]:
        """See `Engine.retry`."""
        return await self._submit_again(wire.Retry, run_id, request_id)

    async def _submit_again(
        self, command: type[wire.Rerun | wire.Retry], run_id: str, request_id: str | None
    ) -> ClientTicket[Any]:
        check_text("run_id", run_id)
        if request_id is not None:
            check_name("request_id", request_id)
        drawn = request_id or self._link.draw_id()
        sent = command(id=self._link.number(), run_id=run_id, request_id=drawn)
        ok = await self._link.ask(sent, repeatable=True)
        return ClientTicket(expected(ok.run_id), bool(ok.joined) and request_id is not None, self)

    async def cancel_many(
        self,
        *,
        files: FilesFate = "keep",
        limit: int = LIMIT,
        dry_run: bool = False,
        **filter: Unpack[RunFilterKeywords],
    ) -> BulkResult:
        """See `Engine.cancel_many`."""
        fields = bulk_to_wire("cancel_many", filter, limit, dry_run)
        ok = await self._link.ask(wire.CancelMany(id=self._link.number(), files=files, **fields))
        return expected(ok.bulk)

    async def rerun_many(
        self,
        *,
        request_id: str | None = None,
        limit: int = LIMIT,
        dry_run: bool = False,
        **filter: Unpack[RunFilterKeywords],
    ) -> BulkResult:
        """See `Engine.rerun_many`. The command is sent again if the connection is lost; no run is submitted
        twice."""
        fields = bulk_to_wire("rerun_many", filter, limit, dry_run)
        return await self._rerun_many(wire.RerunMany, request_id, fields)

    async def retry_many(
        self,
        *,
        request_id: str | None = None,
        limit: int = LIMIT,
        dry_run: bool = False,
        **filter: Unpack[RunFilterKeywords],
    ) -> BulkResult:
        """See `Engine.retry_many`, and `rerun_many`."""
        fields = bulk_to_wire("retry_many", filter, limit, dry_run)
        return await self._rerun_many(wire.RetryMany, request_id, fields)

    async def _rerun_many(
        self,
        command: type[wire.RerunMany | wire.RetryMany],
        request_id: str | None,
        fields: dict[str, Any],
    ) -> BulkResult:
        check_bulk_request_id(request_id)
        drawn = request_id or self._link.draw_id()
        sent = command(id=self._link.number(), request_id=drawn, **fields)
        return expected((await self._link.ask(sent, repeatable=True)).bulk)

    async def cancel(self, run_id: str, files: FilesFate = "keep") -> RunRecord:
        """See `Engine.cancel`."""
        check_text("run_id", run_id)
        ok = await self._link.ask(wire.Cancel(id=self._link.number(), run_id=run_id, files=files))
        return expected(ok.run)

    async def inject(self, run_or_handle: str, message: Any) -> str:
        """See `Engine.inject`."""
        check_text("run_or_handle", run_or_handle)
        plain = json_value(message, "message", None)
        ok = await self._link.ask(
            wire.Inject(id=self._link.number(), run_or_handle=run_or_handle, message=plain)
        )
        return ok.outcome or ""

    async def answer(self, interrupt_id: str, data: Any, *, key: str | None = None) -> str:
        """See `Engine.answer`."""
        check_text("interrupt_id", interrupt_id)
        if key is not None:
            check_text("key", key)
        plain = json_value(data, "data", None)
        ok = await self._link.ask(
            wire.Answer(id=self._link.number(), interrupt_id=interrupt_id, data=plain, key=key)
        )
        return ok.outcome or ""

    async def signal(self, run_id: str, key: str, value: Any) -> None:
        """See `Engine.signal`."""
        check_text("run_id", run_id)
        target = check_target(key)
        plain = json_value(value, "value", None)
        await self._link.ask(Signal(id=self._link.number(), run_id=run_id, key=target.text, value=plain))

    async def get_run(self, run_id: str) -> RunRecord:
        """See `Engine.get_run`."""
        check_text("run_id", run_id)
        ok = await self._link.ask(wire.GetRun(id=self._link.number(), run_id=run_id), repeatable=True)
        return expected(ok.run)

    async def wait(self, run_id: str, timeout: float | None = 15) -> RunRecord:
        """See `Engine.wait`."""
        seconds = check_seconds("timeout", timeout, 15)
        run = await self.get_run(run_id)
        with trio.move_on_after(seconds):
            return await self.ended(run.id)
        return await self.get_run(run.id)

    async def list_runs(
        self, *, limit: int = 100, before: str | None = None, **filter: Unpack[RunFilterKeywords]
    ) -> list[RunRecord]:
        """See `Engine.list_runs`."""
        fields = filter_to_wire(run_filter("list_runs", filter))
        command = wire.ListRuns(id=self._link.number(), limit=limit, before=before, **fields)
        parts = await self._link.ask_for_parts(command)
        return [run for part in parts for run in part.runs or ()]

    async def list_jobs(self) -> list[JobInfo]:
        """See `Engine.list_jobs`."""
        parts = await self._link.ask_for_parts(wire.ListJobs(id=self._link.number()))
        return [job for part in parts for job in part.jobs or ()]

    async def list_files(self, run_id: str) -> list[RunFile]:
        """See `Engine.list_files`."""
        check_text("run_id", run_id)
        command = wire.ListFiles(id=self._link.number(), run_id=run_id)
        parts = await self._link.ask_for_parts(command)
        return [file for part in parts for file in part.files or ()]

    async def history(
        self, run_id: str, *, after: int = 0, before: int | None = None, limit: int | None = None
    ) -> list[Event]:
        """See `Engine.history`. A long history is requested in pages."""
        check_text("run_id", run_id)
        check_seq("after", after)
        if before is not None:
            check_seq("before", before)
        if limit is not None:
            check_page(limit)
        backwards = before is not None
        events: list[Event] = []
        following = before if backwards else after
        while following is not None and (limit is None or len(events) < limit):
            command = wire.History(
                id=self._link.number(),
                run_id=run_id,
                after=after if backwards else following,
                before=following if backwards else None,
                limit=None if limit is None else limit - len(events),
            )
            parts = await self._link.ask_for_parts(command)
            page = [event for part in parts for event in part.events or ()]
            events = page + events if backwards else events + page
            following = parts[-1].next
        return events

    # Handles, lanes and the engine.

    async def set_params(self, handle: str, params: Any) -> None:
        """See `Engine.set_params`."""
        plain = json_value(params, "params", None)
        await self._link.ask(
            wire.SetParams(id=self._link.number(), handle=check_name("handle", handle), params=plain)
        )

    async def set_concurrency(self, lane: str, limit: int | None) -> None:
        """See `Engine.set_concurrency`."""
        check_text("lane", lane)
        if limit is not None:
            check_limit("limit", limit)
        await self._link.ask(wire.SetConcurrency(id=self._link.number(), lane=lane, limit=limit))

    async def pause_lane(self, lane: str) -> None:
        """See `Engine.pause_lane`."""
        check_text("lane", lane)
        await self._link.ask(wire.PauseLane(id=self._link.number(), lane=lane))

    async def resume_lane(self, lane: str) -> None:
        """See `Engine.resume_lane`."""
        check_text("lane", lane)
        await self._link.ask(wire.ResumeLane(id=self._link.number(), lane=lane))

    async def set_lane(self, lane: str, /, **rules: Any) -> LaneRules:
        """See `Engine.set_lane`."""
        check_text("lane", lane)
        check_names(lane, rules)
        return expected(
            (await self._link.ask(wire.SetLane(id=self._link.number(), lane=lane, rules=rules))).rules
        )

    async def set_priority(self, run_id: str, priority: int) -> RunRecord:
        """See `Engine.set_priority`."""
        check_text("run_id", run_id)
        check_priority("priority", priority)
        ok = await self._link.ask(wire.SetPriority(id=self._link.number(), run_id=run_id, priority=priority))
        return expected(ok.run)

    async def set_max_concurrent(self, limit: int) -> None:
        """See `Engine.set_max_concurrent`."""
        check_limit("limit", limit)
        await self._link.ask(wire.SetMaxConcurrent(id=self._link.number(), limit=limit))

    async def clear_lane(self, lane: str) -> int:
        """See `Engine.clear_lane`."""
        check_text("lane", lane)
        return (await self._link.ask(wire.ClearLane(id=self._link.number(), lane=lane))).count or 0

    async def clear_handle(self, handle: str) -> int:
        """See `Engine.clear_handle`."""
        command = wire.ClearHandle(id=self._link.number(), handle=check_name("handle", handle))
        return (await self._link.ask(command)).count or 0

    async def release_handle(self, handle: str) -> bool:
        """See `Engine.release_handle`."""
        command = wire.ReleaseHandle(id=self._link.number(), handle=check_name("handle", handle))
        return bool((await self._link.ask(command)).released)

    async def reset_lanes(self) -> None:
        """See `Engine.reset_lanes`."""
        await self._link.ask(wire.ResetLanes(id=self._link.number()))

    async def wait_for_active(self, timeout: float | None = 15) -> bool:
        """Wait for the runs that execute at the call. Returns whether all ended within `timeout` seconds."""
        with trio.move_on_after(check_seconds("timeout", timeout, 15)):
            await self._link.catch_up()
            executing = {run for lane in self.state.snapshot().lanes.values() for run in lane.executing}
            if executing:
                async for item in self.events(after=self.state.seq):
                    executing = still_executing(executing, item)
                    if not executing:
                        break
                else:
                    raise Unavailable("the client is closed")
            return True
        return False

    async def drain(self) -> None:
        """See `Engine.drain`."""
        await self._link.ask(wire.Drain(id=self._link.number()))

    async def resume(self) -> None:
        """See `Engine.resume`."""
        await self._link.ask(wire.Resume(id=self._link.number()))

    # State and events.

    async def snapshot(self) -> Snapshot:
        """The current snapshot, requested from the engine."""
        parts = await self._link.ask_for_parts(wire.GetSnapshot(id=self._link.number()))
        return joined(part.snapshot for part in parts if part.snapshot is not None)

    def events(
        self, after: int | None = None, filter: Filter | Mapping[str, Any] | None = None
    ) -> AsyncIterator[Event | Snapshot]:
        """Iterate over the events from now on, or over those after seq `after`.

        If these events are no longer available (`after` is too old, the reader is too slow, or the connection
        was lost for too long), the iterator returns a `Snapshot` instead, and then the events after it. The
        iterator ends when the client is closed. If the gateway refuses the client, it raises that error.
        """
        wanted = converted(filter)
        start = self.state.seq if after is None else check_seq("after", after)
        return Iterating(self._link, start, wanted)

    async def ended(self, run_id: str) -> RunRecord:
        """Wait for a run's end, without a timeout. Returns its last state."""
        following = self._link.following
        while True:
            run = None if following.state is None else following.state.runs.get(run_id)
            if run is None:
                wait = wire.Wait(id=self._link.number(), run_id=run_id, timeout="none")
                run = expected((await self._link.ask(wait, repeatable=True)).run)
            elif not run.ended:
                run = await following.end(run_id).get()
            if run is not None and run.ended:
                return run

    async def _report_wait(self, run_id: str, after: int, on_wait: OnWait) -> None:
        """Call `on_wait` when the gateway reports that the run waits too long, unless it starts before."""
        try:
            waiting = await self._long_wait(run_id, after)
        except GreenroomError as error:
            logger.info("on_wait of run %s is no longer available: %s", run_id, error)
            return
        if waiting is None:
            return
        try:
            result = on_wait(waiting.waited, waiting.ahead, list(waiting.blockers))
            if isinstance(result, Awaitable):
                await result
        except Exception:
            logger.exception("on_wait of run %s failed", run_id)

    async def _long_wait(self, run_id: str, after: int) -> RunWaiting | None:
        """The event that reports a long wait; `None` if the run is no longer queued."""
        wanted = Filter(runs=frozenset({run_id}), types=frozenset({"run_waiting", "run_state_changed"}))
        async for item in self.events(after, wanted):
            if isinstance(item, RunWaiting):
                return item
            if isinstance(item, Snapshot):
                run = item.runs.get(run_id)
                status = None if run is None else run.status
            else:
                status = item.to if isinstance(item, RunStateChanged) else Status.QUEUED
            if status is not Status.QUEUED:
                return None
        return None
