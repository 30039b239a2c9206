"""A client in a simulation: the engine's methods, each call traced as a command and its answer.

It survives restarts of the server. While the server is down its calls raise `Unavailable`; so does one that
is under way when the server dies, and then nobody knows whether it was done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Any, Unpack

from ...gateway.client import RunEngine, RunTicket
from ...protocol.events import Event, Filter
from ...protocol.records import RunRecord, Snapshot
from ...protocol.submission import SubmitKeywords
from ...protocol.validation import FilesFate
from ..scenarios.flows.client import FlowsClient
from .server import Server
from .trace import Answer, Trace

_USUAL = {
    "kind": "start",
    "on_conflict": "reject",
    "warn_after": 2,
    "limit": 100,
    "status": "published",
}
"""What options are when nobody says anything; they are left out of the trace, as `None` is."""


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

    async def cancel(self, run_id: str, files: FilesFate = "keep") -> RunRecord:
        record: RunRecord = await self.command("cancel", run_id, files)
        return record

    async def inject(self, run_or_handle: str, message: Any) -> str:
        accepted: str = await self.command("inject", run_or_handle, message)
        return accepted

    async def answer(self, interrupt_id: str, data: Any) -> str:
        outcome: str = await self.command("answer", interrupt_id, data)
        return outcome

    async def signal(self, run_id: str, key: str, value: Any) -> None:
        await self.command("signal", run_id, key, value)

    async def set_params(self, handle: str, params: Any) -> None:
        await self.command("set_params", handle, params)

    async def set_concurrency(self, lane: str, limit: int | None) -> None:
        await self.command("set_concurrency", lane, limit)

    async def set_max_concurrent(self, limit: int) -> None:
        await self.command("set_max_concurrent", limit)

    async def clear_lane(self, lane: str) -> int:
        count: int = await self.command("clear_lane", lane)
        return count

    async def clear_handle(self, handle: str) -> int:
        count: int = await self.command("clear_handle", handle)
        return count

    async def release_handle(self, handle: str) -> bool:
        released: bool = await self.command("release_handle", handle)
        return released

    async def reset_lanes(self) -> None:
        await self.command("reset_lanes")

    async def drain(self) -> None:
        await self.command("drain")

    async def resume(self) -> None:
        await self.command("resume")

    async def wait_for_active(self, timeout: float | None = 15) -> bool:
        drained: bool = await self.ask("wait_for_active", timeout)
        return drained

    async def snapshot(self) -> Snapshot:
        snapshot: Snapshot = await self.ask("snapshot")
        self.server.judge(self.server.rules.shown_snapshot, snapshot)
        return snapshot

    async def get_run(self, run_id: str) -> RunRecord:
        run: RunRecord = await self.ask("get_run", run_id)
        return run

    async def list_runs(
        self,
        *,
        handle: str | None = None,
        lane: str | None = None,
        status: str | Iterable[str] | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[RunRecord]:
        asked = {"handle": handle, "lane": lane, "status": status, "limit": limit, "before": before}
        runs: list[RunRecord] = await self.ask("list_runs", **asked)
        return runs

    async def history(self, run_id: str) -> list[Event]:
        events: list[Event] = await self.ask("history", run_id)
        return events

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
        server.judge(server.rules.shown_snapshot if isinstance(item, Snapshot) else server.rules.shown, item)
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
