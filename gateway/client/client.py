"""`Client`: the engine's methods, each as one command over the connection.

The gateway checks arguments like the embedded engine; the client checks only what cannot be sent.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar, Unpack, overload

import trio

from ...protocol import commands as wire
from ...protocol.errors import GreenroomError, Invalid, Unavailable
from ...protocol.events import Event, Filter, RunStateChanged, RunWaiting
from ...protocol.flow.commands import Signal
from ...protocol.fold import Projection
from ...protocol.jobs import AnyJob, JobFunction, job_name, typed_job
from ...protocol.names import check_name
from ...protocol.parameters import plain_params
from ...protocol.parts import joined
from ...protocol.records import RunRecord, Snapshot
from ...protocol.states import Status
from ...protocol.submission import (
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
    check_statuses,
    check_target,
    check_text,
)
from ...protocol.values import json_value
from .calls import expected
from .cluster import ClientCluster
from .executors import ClientExecutors
from .flows import ClientFlows
from .iterating import Iterating, converted, still_executing
from .link import Link
from .schedules import ClientSchedules
from .ticket import ClientTicket
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
        given = SubmitOptions(job=name, handle=handle, params=params, **options)
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
        existed = bool(ok.joined) and (options.request_id is not None or options.on_conflict == "join")
        if options.on_wait is not None and self._link.follows:
            self._nursery.start_soon(self._report_wait, run_id, before, options.on_wait)
        return ClientTicket(run_id, existed, self, job)

    async def rerun(self, run_id: str) -> ClientTicket[Any]:
        """See `Engine.rerun`."""
        run = await self.get_run(run_id)
        return await self.submit(
            run.job, handle=run.handle, params=run.params, kind=run.kind, lane=run.lane, needs=run.needs
        )

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
        self,
        *,
        handle: str | None = None,
        lane: str | None = None,
        status: str | Iterable[str] | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[RunRecord]:
        """See `Engine.list_runs`."""
        command = wire.ListRuns(
            id=self._link.number(),
            handle=handle,
            lane=lane,
            status=None if status is None else sorted(check_statuses(status)),
            limit=limit,
            before=before,
        )
        parts = await self._link.ask_for_parts(command)
        return [run for part in parts for run in part.runs or ()]

    async def history(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """See `Engine.history`. A long history is requested in pages."""
        check_text("run_id", run_id)
        check_seq("after", after)
        if limit is not None:
            check_page(limit)
        events: list[Event] = []
        following: int | None = after
        while following is not None and (limit is None or len(events) < limit):
            most = None if limit is None else limit - len(events)
            command = wire.History(id=self._link.number(), run_id=run_id, after=following, limit=most)
            parts = await self._link.ask_for_parts(command)
            events += [event for part in parts for event in part.events or ()]
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
