"""Shared by the tests of the engine: bodies that the test controls, and waits for a state.

Use it with mock time: with `autojump_clock`, a wait for an event that never occurs fails immediately.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import trio

import greenroom
from greenroom import Engine, Jobs, Run, Ticket
from greenroom.gateway import Gateway, GatewayConfig
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.sqlstore import SqlStore
from greenroom.protocol.records import Snapshot

from .following import Followed, open_followed
from .linked import open_linked

STORES = ("memory", "sqlite")
"""Each test of the engine runs with each of these stores (see their `conftest.py`). `sqlite` is in memory,
and uses no threads, so that mock time works."""

PLACES = (*STORES, "link")
"""Each test of bodies runs in the engine's process with each of the `STORES`, and over a link: bodies execute
in an executor then, and the store is `memory`."""

NODES = ("engine", "follower")
"""Each test of the gateway runs with the gateway of an engine, and with that of a follower in a cluster."""

_place = "memory"
_node = "engine"


def use_place(name: str) -> None:
    """From here on, `open_engine` opens an engine at one of the `PLACES`."""
    global _place
    _place = name


def use_node(name: str) -> None:
    """From here on, `open_gateway` opens the gateway of one of the `NODES`."""
    global _node
    _node = name


def outliving_store(request: Any) -> Callable[[], Any]:
    """Return a function that opens a store, which outlives its engines; see the parameter `store_kind`."""
    if request.node.callspec.params["store_kind"] == "sqlite":
        folder = request.getfixturevalue("tmp_path")
        return lambda: SqlStore(f"sqlite:///{folder}/store.db", in_threads=False)
    kept = MemoryStore()
    return lambda: kept


def open_engine(jobs: Jobs, store: Any = "memory:", **options: Any) -> AbstractAsyncContextManager[Engine]:
    """An engine at the place of this test."""
    if store == "memory:" and _place == "sqlite":
        store = SqlStore("sqlite:///:memory:", in_threads=False)
    if _node == "follower":
        return _open_followed_engine(jobs, store, **options)
    if _place == "link":
        return open_linked(jobs, store, **options)
    return greenroom.open_engine(jobs, store, **options)


@asynccontextmanager
async def _open_followed_engine(jobs: Jobs, store: Any, **options: Any) -> AsyncIterator[Engine]:
    async with greenroom.open_engine(jobs, store, **options) as engine:
        yield cast(Engine, Followed(engine))


def open_gateway(
    engine: Engine, config: GatewayConfig | None = None, **options: Any
) -> AbstractAsyncContextManager[Gateway]:
    """A gateway to an engine of `open_engine`, of the node of this test."""
    if isinstance(engine, Followed):
        return open_followed(engine, config, **options)
    return greenroom.gateway.open_gateway(engine, config, **options)


PATIENCE = 1000.0
"""Seconds that a test waits for what should happen; shorter than the default `run_timeout`."""


class Bodies:
    """A registry with the job `wait`, whose bodies last until the test ends them.

    `stubborn` is the same, but a cancel does not end its bodies, and they are not abandoned.
    """

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.jobs.job("wait")(self.wait)
        self.jobs.job("stubborn", grace=float("inf"))(self.ignore_cancel)
        self.begun: list[str] = []  # run ids in order; arbitrary for bodies that started at the same time
        self._ends: defaultdict[str, trio.Event] = defaultdict(trio.Event)

    def end(self, *tickets: Ticket) -> None:
        """Let the bodies of these runs end, and succeed."""
        for ticket in tickets:
            self._ends[ticket.id].set()

    async def wait(self, run: Run, params: dict[str, Any]) -> str:
        """The body of `wait`; tests can register further jobs with it."""
        self.begun.append(run.id)
        await self._ends[run.id].wait()
        return f"done for {run.handle}"

    async def ignore_cancel(self, run: Run, params: dict[str, Any]) -> str:
        """The body of `stubborn`. It ends eventually, so that a failing test does not hang."""
        with trio.move_on_after(PATIENCE, shield=True):
            return await self.wait(run, params)
        return "nobody ended it"


async def until(engine: Engine, predicate: Callable[[Snapshot], object]) -> Snapshot:
    """Follow the events until the predicate is true of a snapshot, and return that."""
    events = engine.events()
    with trio.fail_after(PATIENCE):
        while True:
            snapshot = await engine.snapshot()
            if predicate(snapshot):
                return snapshot
            await anext(events)


async def until_status(engine: Engine, ticket: Ticket, status: str) -> Snapshot:
    """Follow the events until the run has this status."""
    return await until(engine, lambda snapshot: snapshot.runs[ticket.id].status == status)
