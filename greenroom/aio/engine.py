"""The engine for asyncio: `greenroom.Engine` and its parts, with the same methods."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from ..actors.aio.methods import Facade, in_current_loop, iterating, method, sync_method
from ..actors.aio.portal import Portal
from ..actors.channel import Result_co
from ..actors.engine import api
from ..actors.engine import ticket as engine_ticket
from ..actors.engine.open import open_engine as open_engine_in_trio
from ..actors.executors import api as executors_api
from ..actors.flow import api as flow_api
from ..actors.schedules import api as schedules_api
from ..actors.webhooks import api as webhooks_api
from ..actors.workers import api as workers_api
from ..protocol.batches import RunKeywords, check_runs, with_on_wait
from ..protocol.errors import GreenroomError
from ..protocol.jobs import AnyJob, JobFunction
from ..protocol.submission import SubmitKeywords
from .thread import opening

if TYPE_CHECKING:
    from ..gateway.client import RunEngine

P = TypeVar("P")
R = TypeVar("R")


class Ticket(Facade[engine_ticket.Ticket[Result_co]], Generic[Result_co]):
    """`id` is the run's id; `joined` is true if the run existed before the submission."""

    def __init__(self, original: engine_ticket.Ticket[Result_co], portal: Portal) -> None:
        super().__init__(original, portal)
        self.id = original.id
        self.joined = original.joined

    async def result(self) -> Result_co:
        """See `greenroom.Ticket.result`."""
        return await self._portal.call(self._original.result)

    wait = method(engine_ticket.Ticket.wait)
    cancel = method(engine_ticket.Ticket.cancel)


class Flows(Facade[flow_api.Flows]):
    """The flows of an engine."""

    check = method(flow_api.Flows.check)
    create = method(flow_api.Flows.create)
    publish = method(flow_api.Flows.publish)
    add_version = method(flow_api.Flows.add_version)
    put_version = method(flow_api.Flows.put_version)
    list = method(flow_api.Flows.list)
    versions = method(flow_api.Flows.versions)
    definitions = method(flow_api.Flows.definitions)
    version = method(flow_api.Flows.version)
    start = method(flow_api.Flows.start, Ticket)
    task = method(flow_api.Flows.task)
    tasks = method(flow_api.Flows.tasks)
    node_runs = method(flow_api.Flows.node_runs)


class Executors(Facade[executors_api.Executors]):
    """The executors of an engine."""

    list = method(executors_api.Executors.list)
    drain = method(executors_api.Executors.drain)


class Schedules(Facade[schedules_api.Schedules]):
    """The schedules of an engine."""

    put = method(schedules_api.Schedules.put)
    preview = method(schedules_api.Schedules.preview)
    list = method(schedules_api.Schedules.list)
    get = method(schedules_api.Schedules.get)
    pause = method(schedules_api.Schedules.pause)
    resume = method(schedules_api.Schedules.resume)
    trigger = method(schedules_api.Schedules.trigger, Ticket)
    delete = method(schedules_api.Schedules.delete)


class Webhooks(Facade[webhooks_api.Webhooks]):
    """The failing and dead webhooks of an engine."""

    dead = method(webhooks_api.Webhooks.dead)
    failing = method(webhooks_api.Webhooks.failing)
    redeliver = method(webhooks_api.Webhooks.redeliver)
    drop = method(webhooks_api.Webhooks.drop)


class Workers(Facade[workers_api.Workers]):
    """The workers of an engine."""

    register = method(workers_api.Workers.register)
    heartbeat = method(workers_api.Workers.heartbeat)
    list = method(workers_api.Workers.list)
    allocate = method(workers_api.Workers.allocate)
    poll = method(workers_api.Workers.poll)
    complete = method(workers_api.Workers.complete)
    extend = method(workers_api.Workers.extend)


class Engine(Facade[api.Engine]):
    """A running engine, as yielded by `open_engine`. `by` names who caused a change, in its event.

    It can be used from any asyncio loop and any task, while the block of `open_engine` lasts.
    """

    def __init__(self, original: api.Engine, portal: Portal) -> None:
        super().__init__(original, portal)
        self.flows = Flows(original.flows, portal)
        self.workers = Workers(original.workers, portal)
        self.executors = Executors(original.executors, portal)
        self.schedules = Schedules(original.schedules, portal)
        self.webhooks = Webhooks(original.webhooks, portal)

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
        """See `greenroom.Engine.submit`."""
        return await _submit(self, job, handle=handle, params=params, by=by, **options)

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
        """See `greenroom.Engine.submit_many`."""
        check_runs(runs, all_or_nothing)
        given = with_on_wait(runs, in_current_loop)
        outcomes = await self._portal.call(
            partial(self._original.submit_many, given, all_or_nothing=all_or_nothing, by=by)
        )
        return [one if isinstance(one, GreenroomError) else Ticket(one, self._portal) for one in outcomes]

    rerun = method(api.Engine.rerun, Ticket)
    retry = method(api.Engine.retry, Ticket)
    cancel_many = method(api.Engine.cancel_many)
    rerun_many = method(api.Engine.rerun_many)
    retry_many = method(api.Engine.retry_many)
    cancel = method(api.Engine.cancel)
    inject = method(api.Engine.inject)
    answer = method(api.Engine.answer)
    signal = method(api.Engine.signal)
    set_params = method(api.Engine.set_params)
    set_concurrency = method(api.Engine.set_concurrency)
    pause_lane = method(api.Engine.pause_lane)
    resume_lane = method(api.Engine.resume_lane)
    set_lane = method(api.Engine.set_lane)
    set_priority = method(api.Engine.set_priority)
    set_max_concurrent = method(api.Engine.set_max_concurrent)
    clear_lane = method(api.Engine.clear_lane)
    clear_handle = method(api.Engine.clear_handle)
    release_handle = method(api.Engine.release_handle)
    reset_lanes = method(api.Engine.reset_lanes)
    wait_for_active = method(api.Engine.wait_for_active)
    drain = method(api.Engine.drain)
    resume = method(api.Engine.resume)
    snapshot = method(api.Engine.snapshot)
    get_run = method(api.Engine.get_run)
    wait = method(api.Engine.wait)
    list_runs = method(api.Engine.list_runs)
    list_jobs = method(api.Engine.list_jobs)
    list_files = method(api.Engine.list_files)
    locate_file = method(api.Engine.locate_file)
    history = method(api.Engine.history)
    settled = method(api.Engine.settled)
    events = iterating(api.Engine.events)
    bodies = sync_method(api.Engine.bodies)
    report = sync_method(api.Engine.report)
    check_ready = sync_method(api.Engine.check_ready)


_submit: Callable[..., Coroutine[Any, Any, Ticket[Any]]] = method(api.Engine.submit, Ticket)

open_engine = opening(open_engine_in_trio, Engine, "engine")


if TYPE_CHECKING:  # proves to the type checker that programs for the common interface accept this one

    def _same(engine: Engine) -> RunEngine:
        return engine
