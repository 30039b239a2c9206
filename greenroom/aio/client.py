"""The client for asyncio: `greenroom.Client` and its parts, with the same methods."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

import trio

from ..actors.aio.methods import Facade, in_current_loop, iterating, method
from ..actors.aio.portal import Portal
from ..actors.channel import Result_co
from ..gateway.client import client, cluster, connecting, executors, flows, schedules, webhooks, workers
from ..gateway.client import ticket as client_ticket
from ..protocol.batches import RunKeywords, check_runs, with_on_wait
from ..protocol.errors import GreenroomError
from ..protocol.jobs import AnyJob, JobFunction
from ..protocol.records import Snapshot
from ..protocol.submission import SubmitKeywords
from .thread import opening

if TYPE_CHECKING:
    from ..gateway.client import RunEngine

P = TypeVar("P")
R = TypeVar("R")


class ClientTicket(Facade[client_ticket.ClientTicket[Result_co]], Generic[Result_co]):
    """`id` is the run's id; `joined` is true if the run existed before the submission."""

    def __init__(self, original: client_ticket.ClientTicket[Result_co], portal: Portal) -> None:
        super().__init__(original, portal)
        self.id = original.id
        self.joined = original.joined

    async def result(self) -> Result_co:
        """See `greenroom.Ticket.result`; continues to wait while the gateway is unreachable."""
        return await self._portal.call(self._original.result)

    wait = method(client_ticket.ClientTicket.wait)
    cancel = method(client_ticket.ClientTicket.cancel)


class ClientFlows(Facade[flows.ClientFlows]):
    """The flows of the engine behind a gateway."""

    check = method(flows.ClientFlows.check)
    create = method(flows.ClientFlows.create)
    publish = method(flows.ClientFlows.publish)
    add_version = method(flows.ClientFlows.add_version)
    list = method(flows.ClientFlows.list)
    versions = method(flows.ClientFlows.versions)
    version = method(flows.ClientFlows.version)
    start = method(flows.ClientFlows.start, ClientTicket)
    task = method(flows.ClientFlows.task)
    tasks = method(flows.ClientFlows.tasks)
    node_runs = method(flows.ClientFlows.node_runs)


class ClientWorkers(Facade[workers.ClientWorkers]):
    """The workers of the engine behind a gateway."""

    register = method(workers.ClientWorkers.register)
    heartbeat = method(workers.ClientWorkers.heartbeat)
    list = method(workers.ClientWorkers.list)
    allocate = method(workers.ClientWorkers.allocate)
    poll = method(workers.ClientWorkers.poll)
    complete = method(workers.ClientWorkers.complete)
    extend = method(workers.ClientWorkers.extend)


class ClientExecutors(Facade[executors.ClientExecutors]):
    """The executors of the engine behind a gateway."""

    list = method(executors.ClientExecutors.list)
    drain = method(executors.ClientExecutors.drain)


class ClientSchedules(Facade[schedules.ClientSchedules]):
    """The schedules of the engine behind a gateway."""

    put = method(schedules.ClientSchedules.put)
    preview = method(schedules.ClientSchedules.preview)
    list = method(schedules.ClientSchedules.list)
    get = method(schedules.ClientSchedules.get)
    pause = method(schedules.ClientSchedules.pause)
    resume = method(schedules.ClientSchedules.resume)
    trigger = method(schedules.ClientSchedules.trigger, ClientTicket)
    delete = method(schedules.ClientSchedules.delete)


class ClientWebhooks(Facade[webhooks.ClientWebhooks]):
    """The failing and dead webhooks of the engine behind a gateway."""

    dead = method(webhooks.ClientWebhooks.dead)
    failing = method(webhooks.ClientWebhooks.failing)
    redeliver = method(webhooks.ClientWebhooks.redeliver)
    drop = method(webhooks.ClientWebhooks.drop)


class ClientCluster(Facade[cluster.ClientCluster]):
    """The cluster of a gateway."""

    status = method(cluster.ClientCluster.status)
    step_down = method(cluster.ClientCluster.step_down)


class Client(Facade[client.Client]):
    """A client, as yielded by `connect`. Every method raises the same errors as in `greenroom.Client`.

    It can be used from any asyncio loop and any task, while the block of `connect` lasts.
    """

    def __init__(self, original: client.Client, portal: Portal) -> None:
        super().__init__(original, portal)
        self.flows = ClientFlows(original.flows, portal)
        self.workers = ClientWorkers(original.workers, portal)
        self.executors = ClientExecutors(original.executors, portal)
        self.schedules = ClientSchedules(original.schedules, portal)
        self.webhooks = ClientWebhooks(original.webhooks, portal)
        self.cluster = ClientCluster(original.cluster, portal)

    @property
    def url(self) -> str:
        """The URL of the gateway; with several addresses, that of the connection or of the next attempt."""
        return self._original.url

    @property
    def role(self) -> str:
        """The role of the token: `viewer`, `operator`, `admin` or `worker`."""
        return self._original.role

    @property
    def connected(self) -> bool:
        """Whether the client is connected; if not, it is reconnecting."""
        return self._original.connected

    async def state(self) -> Snapshot:
        """The client's current state, as of one seq, without a request to the gateway. After the reply to a
        command, it includes the command's effects."""

        async def taken() -> Snapshot:
            await trio.lowlevel.checkpoint()
            return self._original.state.snapshot()

        return await self._portal.call(taken)

    wait_lost = method(client.Client.wait_lost)
    wait_connected = method(client.Client.wait_connected)

    @overload
    async def submit(
        self, job: str, *, handle: str, params: Any = None, **options: Unpack[SubmitKeywords]
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
        self, job: str | AnyJob, *, handle: str, params: Any = None, **options: Unpack[SubmitKeywords]
    ) -> ClientTicket[Any]:
        """See `greenroom.Client.submit`."""
        return await _submit(self, job, handle=handle, params=params, **options)

    @overload
    async def submit_many(
        self, runs: Sequence[RunKeywords], *, all_or_nothing: Literal[True] = True
    ) -> list[ClientTicket[Any]]: ...

    @overload
    async def submit_many(
        self, runs: Sequence[RunKeywords], *, all_or_nothing: bool
    ) -> list[ClientTicket[Any] | GreenroomError]: ...

    async def submit_many(self, runs: Sequence[RunKeywords], *, all_or_nothing: bool = True) -> Any:
        """See `greenroom.Client.submit_many`."""
        check_runs(runs, all_or_nothing)
        given = with_on_wait(runs, in_current_loop)
        outcomes = await self._portal.call(
            partial(self._original.submit_many, given, all_or_nothing=all_or_nothing)
        )
        return [
            one if isinstance(one, GreenroomError) else ClientTicket(one, self._portal) for one in outcomes
        ]

    rerun = method(client.Client.rerun, ClientTicket)
    retry = method(client.Client.retry, ClientTicket)
    cancel_many = method(client.Client.cancel_many)
    rerun_many = method(client.Client.rerun_many)
    retry_many = method(client.Client.retry_many)
    cancel = method(client.Client.cancel)
    inject = method(client.Client.inject)
    answer = method(client.Client.answer)
    signal = method(client.Client.signal)
    set_params = method(client.Client.set_params)
    set_concurrency = method(client.Client.set_concurrency)
    pause_lane = method(client.Client.pause_lane)
    resume_lane = method(client.Client.resume_lane)
    set_lane = method(client.Client.set_lane)
    set_priority = method(client.Client.set_priority)
    set_max_concurrent = method(client.Client.set_max_concurrent)
    clear_lane = method(client.Client.clear_lane)
    clear_handle = method(client.Client.clear_handle)
    release_handle = method(client.Client.release_handle)
    reset_lanes = method(client.Client.reset_lanes)
    wait_for_active = method(client.Client.wait_for_active)
    drain = method(client.Client.drain)
    resume = method(client.Client.resume)
    snapshot = method(client.Client.snapshot)
    get_run = method(client.Client.get_run)
    wait = method(client.Client.wait)
    list_runs = method(client.Client.list_runs)
    list_jobs = method(client.Client.list_jobs)
    list_files = method(client.Client.list_files)
    history = method(client.Client.history)
    ended = method(client.Client.ended)
    events = iterating(client.Client.events)


_submit: Callable[..., Coroutine[Any, Any, ClientTicket[Any]]] = method(client.Client.submit, ClientTicket)

connect = opening(connecting.connect, Client, "client")


if TYPE_CHECKING:  # proves to the type checker that programs for the common interface accept this one

    def _same(client: Client) -> RunEngine:
        return client
