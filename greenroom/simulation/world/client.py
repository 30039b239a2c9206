"""A simulated client: the methods of `RunEngine`, without `workers`.

The trace records each call and its result. The client survives restarts of the server. A call raises
`Unavailable` while the server is down, and also if the server dies during the call; then the command may or
may not have been executed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

from ...actors.channel import Result_co
from ...gateway.client import RunEngine, RunTicket
from ...gateway.client.interface import RunFlows, RunSchedules, RunWebhooks
from ...protocol.batches import RunKeywords
from ...protocol.errors import GreenroomError
from ...protocol.events import Event, Filter
from ...protocol.flow.records import NodeRun
from ...protocol.jobs import AnyJob, JobFunction
from ...protocol.records import ExecutorInfo, RunRecord, Snapshot
from ...protocol.submission import SubmitKeywords
from ...protocol.validation import FilesFate
from .server import Server
from .trace import Answer, Trace

P = ParamSpec("P")
Given = TypeVar("Given")
R = TypeVar("R")
T = TypeVar("T")

_USUAL = {
    "kind": "start",
    "on_conflict": "reject",
    "warn_after": 2,
    "all_or_nothing": True,
    "limit": 100,
    "status": "published",
}
"""Default values of options. The trace leaves them out, as it does `None`."""


def _command(
    method: Callable[Concatenate[Any, P], Awaitable[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method that calls the engine's method of the same name, with the client's name in `by`."""

    async def command(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        done: T = await self.command(method.__name__, *arguments, **options)
        return done

    return command


def _query(
    method: Callable[Concatenate[Any, P], Awaitable[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method that calls the engine's method of the same name, which only reads."""

    async def query(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        found: T = await self.ask(method.__name__, *arguments, **options)
        return found

    return query


class Client:
    """See the module's docstring. The events that it causes contain its `name`."""

    def __init__(self, name: str, server: Server, trace: Trace) -> None:
        self.name = name
        self.server = server
        self.flows = FlowsClient(self)
        self.executors = ExecutorsClient(self)
        self.schedules = SchedulesClient(self)
        self.webhooks = WebhooksClient(self)
        self._trace = trace

    @overload
    async def submit(
        self,
        job: str,
        *,
        handle: str,
        params: Any = None,
        **options: Unpack[SubmitKeywords],
    ) -> SimulatedTicket[Any]: ...

    @overload
    async def submit(
        self,
        job: JobFunction[Given, R, ..., Any],
        *,
        handle: str,
        params: Given | None = None,
        **options: Unpack[SubmitKeywords],
    ) -> SimulatedTicket[R]: ...

    async def submit(
        self,
        job: str | AnyJob,
        *,
        handle: str,
        params: Any = None,
        **options: Unpack[SubmitKeywords],
    ) -> SimulatedTicket[Any]:
        return self.ticket(await self.command("submit", job, handle=handle, params=params, **options))

    @overload
    async def submit_many(
        self, runs: Sequence[RunKeywords], *, all_or_nothing: Literal[True] = True
    ) -> list[SimulatedTicket[Any]]: ...

    @overload
    async def submit_many(
        self, runs: Sequence[RunKeywords], *, all_or_nothing: bool
    ) -> list[SimulatedTicket[Any] | GreenroomError]: ...

    async def submit_many(self, runs: Sequence[RunKeywords], *, all_or_nothing: bool = True) -> Any:
        outcomes = await self.command("submit_many", runs, all_or_nothing=all_or_nothing)
        return [one if isinstance(one, GreenroomError) else self.ticket(one) for one in outcomes]

    async def rerun(self, run_id: str, *, request_id: str | None = None) -> SimulatedTicket[Any]:
        return self.ticket(await self.command("rerun", run_id, request_id=request_id))

    async def retry(self, run_id: str, *, request_id: str | None = None) -> SimulatedTicket[Any]:
        return self.ticket(await self.command("retry", run_id, request_id=request_id))

    cancel_many = _command(RunEngine.cancel_many)
    rerun_many = _command(RunEngine.rerun_many)
    retry_many = _command(RunEngine.retry_many)

    cancel = _command(RunEngine.cancel)
    inject = _command(RunEngine.inject)
    answer = _command(RunEngine.answer)
    signal = _command(RunEngine.signal)
    set_params = _command(RunEngine.set_params)
    set_concurrency = _command(RunEngine.set_concurrency)
    pause_lane = _command(RunEngine.pause_lane)
    resume_lane = _command(RunEngine.resume_lane)
    set_lane = _command(RunEngine.set_lane)
    set_priority = _command(RunEngine.set_priority)
    set_max_concurrent = _command(RunEngine.set_max_concurrent)
    clear_lane = _command(RunEngine.clear_lane)
    clear_handle = _command(RunEngine.clear_handle)
    release_handle = _command(RunEngine.release_handle)
    reset_lanes = _command(RunEngine.reset_lanes)
    drain = _command(RunEngine.drain)
    resume = _command(RunEngine.resume)
    wait_for_active = _query(RunEngine.wait_for_active)
    get_run = _query(RunEngine.get_run)
    wait = _query(RunEngine.wait)
    list_runs = _query(RunEngine.list_runs)
    list_jobs = _query(RunEngine.list_jobs)
    list_files = _query(RunEngine.list_files)
    history = _query(RunEngine.history)

    async def snapshot(self) -> Snapshot:
        snapshot: Snapshot = await self.ask("snapshot")
        self.server.judge(self.server.rules.observations.shown_snapshot, snapshot)
        return snapshot

    def events(
        self, after: int | None = None, filter: Filter | Mapping[str, Any] | None = None
    ) -> AsyncIterator[Event | Snapshot]:
        """Like `Engine.events`. Raises `Unavailable` if the server dies, and ends when it is stopped."""
        return _Events(self.server, self.server.engine.events(after, filter))

    # For the classes that call through it.

    def ticket(self, ticket: RunTicket[R]) -> SimulatedTicket[R]:
        """A ticket for this client."""
        return SimulatedTicket(ticket, self)

    async def command(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the engine that changes something, with this client's name in `by`."""
        return await self._call(name, arguments, options, by=self.name)

    async def ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the engine that only reads."""
        return await self._call(name, arguments, options)

    async def _call(self, name: str, arguments: tuple[Any, ...], options: dict[str, Any], **by: str) -> Any:
        def call(engine: RunEngine) -> Any:
            return attrgetter(name)(engine)(*arguments, **options, **by)

        shown = {key: value for key, value in options.items() if value != _USUAL.get(key)}
        named = [one.name if isinstance(one, JobFunction) else one for one in arguments]
        return await self.traced(name, [*named, shown] if shown else named, call)

    def reach(self) -> AbstractContextManager[RunEngine]:
        """The engine that a call goes to, while the call lasts."""
        return self.server.connection()

    async def traced(self, name: str, arguments: Any, call: Callable[[RunEngine], Any]) -> Any:
        """Call the engine, and record the call and its result in the trace."""
        number = self._trace.command(self.name, name, arguments)
        try:
            with self.reach() as engine:
                value = await call(engine)
        except Exception as error:
            self._trace.add("reply", self.name, Answer(number, error))
            raise
        self._trace.add("reply", self.name, Answer(number, value))
        return value


class FlowsClient:
    """A client's calls about flows: the methods of `engine.flows`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    create = _command(RunFlows.create)
    check = _query(RunFlows.check)
    publish = _command(RunFlows.publish)
    add_version = _command(RunFlows.add_version)
    task = _query(RunFlows.task)
    tasks = _query(RunFlows.tasks)
    list = _query(RunFlows.list)
    versions = _query(RunFlows.versions)
    version = _query(RunFlows.version)

    async def start(self, flow: str, **options: Any) -> SimulatedTicket[Any]:
        """The options are those of `engine.flows.start`."""
        return self._client.ticket(await self.command("start", flow, **options))

    async def node_runs(self, run_id: str) -> Sequence[NodeRun]:
        server = self._client.server
        since = server.rules.flows.shown_until(run_id)
        rows: Sequence[NodeRun] = await self.ask("node_runs", run_id)
        server.judge(server.rules.flows.shown, run_id, rows, since)
        return rows

    async def command(self, name: str, *arguments: Any, **options: Any) -> Any:
        """See `Client.command`."""
        return await self._client.command(f"flows.{name}", *arguments, **options)

    async def ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        """See `Client.ask`."""
        return await self._client.ask(f"flows.{name}", *arguments, **options)


class ExecutorsClient:
    """A client's calls about executors: the methods of `engine.executors` that clients share."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self) -> Sequence[ExecutorInfo]:
        found: Sequence[ExecutorInfo] = await self._client.ask("executors.list")
        return found

    async def drain(self, executor: str) -> None:
        await self._client.command("executors.drain", executor)


class SchedulesClient:
    """A client's calls about schedules: the methods of `engine.schedules`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    put = _command(RunSchedules.put)
    preview = _query(RunSchedules.preview)
    list = _query(RunSchedules.list)
    get = _query(RunSchedules.get)
    pause = _command(RunSchedules.pause)
    resume = _command(RunSchedules.resume)
    delete = _command(RunSchedules.delete)

    async def trigger(self, name: str, *, request_id: str | None = None) -> SimulatedTicket[Any]:
        """See `Schedules.trigger`."""
        return self._client.ticket(await self.command("trigger", name, request_id=request_id))

    async def command(self, name: str, *arguments: Any, **options: Any) -> Any:
        """See `Client.command`."""
        return await self._client.command(f"schedules.{name}", *arguments, **options)

    async def ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        """See `Client.ask`."""
        return await self._client.ask(f"schedules.{name}", *arguments, **options)


class WebhooksClient:
    """A client's calls about webhooks: the methods of `engine.webhooks`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    dead = _query(RunWebhooks.dead)
    failing = _query(RunWebhooks.failing)
    redeliver = _command(RunWebhooks.redeliver)
    drop = _command(RunWebhooks.drop)

    async def command(self, name: str, *arguments: Any, **options: Any) -> Any:
        """See `Client.command`."""
        return await self._client.command(f"webhooks.{name}", *arguments, **options)

    async def ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        """See `Client.ask`."""
        return await self._client.ask(f"webhooks.{name}", *arguments, **options)


class _Events:
    """The events of one life of a server. The rules check each of them."""

    def __init__(self, server: Server, events: AsyncIterator[Event | Snapshot]) -> None:
        self._server = server
        self._life = server.lives
        self._events = events

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> Event | Snapshot:
        server = self._server
        if server.lives != self._life:
            raise StopAsyncIteration
        with server.connection():
            item = await anext(self._events)
        rules = server.rules.observations
        server.judge(rules.shown_snapshot if isinstance(item, Snapshot) else rules.shown, item)
        return item


class SimulatedTicket(Generic[Result_co]):
    """A client's ticket for a run. After the server has died, its calls raise `Unavailable`: use `get_run`
    with the run's id."""

    def __init__(self, ticket: RunTicket[Result_co], client: Client) -> None:
        self.id = ticket.id
        self.joined = ticket.joined
        self._ticket = ticket
        self._client = client

    async def result(self) -> Result_co:
        """See `Ticket.result`."""
        result: Result_co = await self._client.traced("result", [self.id], lambda _: self._ticket.result())
        return result

    async def wait(self, timeout: float | None = 15) -> bool:
        """See `Ticket.wait`."""
        ended: bool = await self._client.traced("wait", [self.id], lambda _: self._ticket.wait(timeout))
        return ended

    async def cancel(self, files: FilesFate = "keep") -> RunRecord:
        """See `Ticket.cancel`."""
        return await self._client.cancel(self.id, files)
