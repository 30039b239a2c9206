"""A client in a simulation: the engine's methods, each call traced as a command and its answer.

It survives restarts of the server. While the server is down its calls raise `Unavailable`; so does one that
is under way when the server dies, and then nobody knows whether it was done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from ...gateway.client import RunEngine, RunTicket
from ...gateway.client.interface import RunFlows
from ...protocol.events import Event, Filter
from ...protocol.flow.records import NodeRun
from ...protocol.records import RunRecord, Snapshot
from ...protocol.submission import SubmitKeywords
from ...protocol.validation import FilesFate
from .server import Server
from .trace import Answer, Trace

P = ParamSpec("P")
T = TypeVar("T")

_USUAL = {
    "kind": "start",
    "on_conflict": "reject",
    "warn_after": 2,
    "limit": 100,
    "status": "published",
}
"""What options are when nobody says anything; they are left out of the trace, as `None` is."""


def _command(
    method: Callable[Concatenate[Any, P], Awaitable[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method that has the engine do what its own method of this name does, in the client's name."""

    async def command(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        done: T = await self.command(method.__name__, *arguments, **options)
        return done

    return command


def _question(
    method: Callable[Concatenate[Any, P], Awaitable[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method that asks the engine what its own method of this name tells."""

    async def question(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        found: T = await self.ask(method.__name__, *arguments, **options)
        return found

    return question


class Client:
    """See the module's text; the methods are those of `Engine`. `name` is in the events that it causes."""

    def __init__(self, name: str, server: Server, trace: Trace) -> None:
        self.name = name
        self.server = server
        self.flows = FlowsClient(self)
        self._trace = trace

    async def submit(
        self,
        job: str,
        *,
        handle: str,
        params: Any = None,
        **options: Unpack[SubmitKeywords],
    ) -> SimulatedTicket:
        return self.ticket(await self.command("submit", job, handle=handle, params=params, **options))

    async def rerun(self, run_id: str) -> SimulatedTicket:
        return self.ticket(await self.command("rerun", run_id))

    cancel = _command(RunEngine.cancel)
    inject = _command(RunEngine.inject)
    answer = _command(RunEngine.answer)
    signal = _command(RunEngine.signal)
    set_params = _command(RunEngine.set_params)
    set_concurrency = _command(RunEngine.set_concurrency)
    set_max_concurrent = _command(RunEngine.set_max_concurrent)
    clear_lane = _command(RunEngine.clear_lane)
    clear_handle = _command(RunEngine.clear_handle)
    release_handle = _command(RunEngine.release_handle)
    reset_lanes = _command(RunEngine.reset_lanes)
    drain = _command(RunEngine.drain)
    resume = _command(RunEngine.resume)
    wait_for_active = _question(RunEngine.wait_for_active)
    get_run = _question(RunEngine.get_run)
    list_runs = _question(RunEngine.list_runs)
    history = _question(RunEngine.history)

    async def snapshot(self) -> Snapshot:
        snapshot: Snapshot = await self.ask("snapshot")
        self.server.judge(self.server.rules.observations.shown_snapshot, snapshot)
        return snapshot

    def events(
        self, after: int | None = None, filter: Filter | Mapping[str, Any] | None = None
    ) -> AsyncIterator[Event | Snapshot]:
        """As `Engine.events`; raises `Unavailable` when the server dies, and ends when it is stopped."""
        return _Events(self.server, self.server.engine.events(after, filter))

    # For those who speak through it.

    def ticket(self, ticket: RunTicket) -> SimulatedTicket:
        """A ticket of the engine, as it is held by this client."""
        return SimulatedTicket(ticket, self)

    async def command(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Have the engine do something, in this client's name."""
        return await self._call(name, arguments, options, by=self.name)

    async def ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Ask the engine for something."""
        return await self._call(name, arguments, options)

    async def _call(self, name: str, arguments: tuple[Any, ...], options: dict[str, Any], **by: str) -> Any:
        def call(engine: RunEngine) -> Any:
            return attrgetter(name)(engine)(*arguments, **options, **by)

        shown = {key: value for key, value in options.items() if value != _USUAL.get(key)}
        return await self.traced(name, [*arguments, shown] if shown else list(arguments), call)

    def reach(self) -> AbstractContextManager[RunEngine]:
        """What is called, for as long as a call takes."""
        return self.server.connection()

    async def traced(self, name: str, arguments: Any, call: Callable[[RunEngine], Any]) -> Any:
        """Call the engine, and keep in the trace what was asked and what came of it."""
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
    """What a client says to flows: the methods of `engine.flows`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    create = _command(RunFlows.create)
    publish = _command(RunFlows.publish)
    add_version = _command(RunFlows.add_version)
    task = _question(RunFlows.task)
    tasks = _question(RunFlows.tasks)
    versions = _question(RunFlows.versions)

    async def start(self, flow: str, **options: Any) -> SimulatedTicket:
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


class _Events:
    """The events of one life of a server. What they show is judged."""

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


class SimulatedTicket:
    """What a client holds for a run. When the server has died it knows no more: ask for the run by its id."""

    def __init__(self, ticket: RunTicket, client: Client) -> None:
        self.id = ticket.id
        self.joined = ticket.joined
        self._ticket = ticket
        self._client = client

    async def result(self) -> Any:
        """See `Ticket.result`."""
        return await self._client.traced("result", [self.id], lambda _: self._ticket.result())

    async def wait(self, timeout: float | None = 15) -> bool:
        """See `Ticket.wait`."""
        ended: bool = await self._client.traced("wait", [self.id], lambda _: self._ticket.wait(timeout))
        return ended

    async def cancel(self, files: FilesFate = "keep") -> RunRecord:
        """See `Ticket.cancel`."""
        return await self._client.cancel(self.id, files)
