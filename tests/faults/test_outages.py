"""Outages of the store under load.

During an outage, submissions are answered with `unavailable`, bodies continue, and no uncommitted change is
shown. Afterwards the engine continues without intervention, and every accepted run ends.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import pytest
import trio
import trio.testing
from sqlalchemy import Connection, event, select
from sqlalchemy.pool import Pool

from greenroom import Engine, Jobs, Run, Ticket, open_engine
from greenroom.errors import Conflict, Unavailable
from greenroom.persistence import schema
from greenroom.persistence.database import DatabaseManager
from greenroom.persistence.failures import StoreBroken
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.writer import PlainConnection
from greenroom.protocol.events import Event, RunProgress
from tests.persistence.proxy import Proxy
from tests.servers import Server

PATIENCE = 300.0
"""Seconds of the fast clock."""

Switch = Callable[[], None]


class Load:
    """Users that submit without pause, and one long body that rarely needs the store."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []
        self.done = 0
        self.events: list[Event] = []
        self.ticks = 0
        self.jobs = Jobs()
        self.jobs.job("short", resumable=True)(self._short)
        self.jobs.job("long")(self._long)
        self._over = False
        self._engine: Engine

    async def _short(self, run: Run, params: dict[str, Any]) -> str:
        await run.progress(1, 2)
        await run.save_checkpoint(1)
        await run.sleep(0.1)
        await run.log("nearly")
        return run.id

    async def _long(self, run: Run, params: dict[str, Any]) -> str:
        while not self._over:
            await trio.sleep(0.1)
            self.ticks += 1
        await run.save_checkpoint(self.ticks)
        return "long"

    @asynccontextmanager
    async def on(self, engine: Engine) -> AsyncIterator[None]:
        """Apply the load during the block; at its end every accepted run must end."""
        self._engine = engine
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow)
            long = await engine.submit("long", handle="long", params={})
            with trio.fail_after(PATIENCE):
                async with trio.open_nursery() as users:
                    for number in range(4):
                        users.start_soon(self._submit, number)
                    yield
                    self._over = True
                assert await long.result() == "long"
                for ticket in self.tickets:
                    assert await ticket.result() == ticket.id
            nursery.cancel_scope.cancel()

    async def _follow(self) -> None:
        async for one in self._engine.events(after=0):
            assert isinstance(one, Event)
            self.events.append(one)

    async def _submit(self, number: int) -> None:
        while not self._over:
            try:
                ticket = await self._engine.submit(
                    "short", handle=f"user {number}", params={"padding": "x" * 10_000}, on_conflict="queue"
                )
            except Unavailable:
                await trio.sleep(0.5)
                continue
            self.tickets.append(ticket)
            await ticket.wait(PATIENCE)
            self.done += 1

    async def more(self, count: int = 8) -> None:
        """Wait until this many more runs have ended."""
        enough = self.done + count
        await until(lambda: self.done >= enough)

    async def refusal(self) -> None:
        """Submit until a submission is refused. Earlier ones were accepted, and must end, too."""
        with trio.fail_after(PATIENCE):
            while True:
                try:
                    ticket = await self._engine.submit(
                        "short", handle="one more", params={"padding": "x" * 10_000}, on_conflict="queue"
                    )
                except Unavailable:
                    return
                self.tickets.append(ticket)

    async def body_goes_on(self) -> None:
        enough = self.ticks + 3
        await until(lambda: self.ticks >= enough)

    async def check(self, url: str) -> None:
        """Check that exactly the shown events are stored."""
        seqs = [one.seq for one in self.events]
        assert seqs == list(range(1, len(seqs) + 1))
        store = SqlStore(url)
        stored = await store.open("", 1, 0.0)
        shown = [one for one in self.events if not isinstance(one, RunProgress)]
        events = await store.events(0, 1_000_000)
        assert [one for one in events if one.seq <= seqs[-1]] == shown
        assert stored.last_seq >= seqs[-1]
        assert stored.pending == []
        await store.close()


async def until(predicate: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE):
        while not predicate():  # noqa: ASYNC110 - nobody tells it: that is what the test is about
            await trio.sleep(0.05)


async def make_tables(url: str) -> None:
    """Create the tables that an engine requires on a server."""
    database = DatabaseManager(url)
    await database.open()
    await database.run(schema.metadata.create_all)
    await database.close()


# Complete outages.


@contextlib.contextmanager
def no_file_grows() -> Iterator[tuple[Switch, Switch]]:
    """The system refuses every write of this process to a file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))

    def empty() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    try:
        yield full, empty
    finally:
        empty()


@contextlib.contextmanager
def no_page_is_left() -> Iterator[tuple[Switch, Switch]]:
    """Make SQLite report a full disk: no database can get more pages."""
    most = 1_000_000

    def limit(connection: Any, *_: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {most}")

    def set_most(count: int) -> None:
        nonlocal most
        most = count

    transaction = PlainConnection.transaction

    def limited(self: PlainConnection, fn: Callable[[Any], Any], then: Any) -> Any:
        def limit_first(cursor: Any) -> Any:
            limit(cursor)
            return fn(cursor)

        return transaction(self, limit_first, then)

    event.listen(Pool, "checkout", limit)
    try:
        with patch.object(PlainConnection, "transaction", limited):
            yield lambda: set_most(1), lambda: set_most(1_000_000)
    finally:
        event.remove(Pool, "checkout", limit)


Outage = tuple[str, Switch, Switch]


@pytest.fixture(params=["no file grows", "no page is left"])
def full_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outage]:
    """An address, a function that fills its disk, and one that frees it."""
    with no_file_grows() if request.param == "no file grows" else no_page_is_left() as switches:
        yield (f"sqlite:///{tmp_path}/x.db", *switches)


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each server in turn."""
    return request.getfixturevalue(request.param)


async def go_through(load: Load, url: str, begin: Switch, end: Switch, *, silent: bool) -> None:
    async with open_engine(load.jobs, url, max_concurrent=5) as engine, load.on(engine):
        await load.more()
        await trio.to_thread.run_sync(begin)
        await load.refusal()
        shown = len(load.events)
        await load.body_goes_on()
        await load.refusal()
        if silent:
            assert len(load.events) == shown
        await trio.to_thread.run_sync(end)
        await load.more()
    await load.check(url)


async def test_the_engine_survives_a_full_disk(full_disk: Outage, fast_clock: trio.testing.MockClock):
    # A small commit can still fit in existing pages, so events can be shown during the outage.
    await go_through(Load(), *full_disk, silent=False)


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_the_engine_survives_a_restart_of_the_server(
    server: Server, end: Literal["stop", "kill"], fast_clock: trio.testing.MockClock
):
    url = server.fresh_database()
    await make_tables(url)
    await go_through(Load(), url, getattr(server, end), server.start, silent=True)


async def test_the_engine_survives_repeatedly_closed_connections(
    server: Server, fast_clock: trio.testing.MockClock
):
    url = server.fresh_database()
    await make_tables(url)
    load = Load()
    async with open_engine(load.jobs, url, max_concurrent=5) as engine, load.on(engine):
        for _ in range(4):
            await load.more(4)
            await trio.to_thread.run_sync(server.end_sessions)
        await load.more()
    await load.check(url)


async def test_the_engine_survives_connections_closed_at_any_moment(
    server: Server, fast_clock: trio.testing.MockClock
):
    proxy = Proxy(server.port)
    url = server.fresh_database().replace(str(server.port), str(proxy.port))
    await make_tables(url)
    load = Load()
    try:
        async with open_engine(load.jobs, url, max_concurrent=5) as engine, load.on(engine):
            for number in range(6):
                await load.more(3)
                proxy.cut = "before" if number % 2 else "after"
            await load.more()
        await load.check(url)
    finally:
        proxy.close()


async def test_an_engine_whose_connections_were_closed_takes_its_lock_again(
    server: Server, fast_clock: trio.testing.MockClock
):
    url = server.fresh_database()
    await make_tables(url)
    load = Load()
    async with open_engine(load.jobs, url, max_concurrent=5) as engine, load.on(engine):
        await load.more(4)
        await trio.to_thread.run_sync(server.end_sessions)
        await load.more(4)
        await trio.sleep(20)
        with pytest.raises(Conflict):
            async with open_engine(Jobs(), url):
                pass
        await load.more(4)
    await load.check(url)


# Permanent loss of a primary.


class Pair:
    """A primary behind a proxy, and its replica, which is updated on demand."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._primary = server.fresh_database()
        self.replica = server.fresh_database()
        self._proxy = Proxy(server.port)
        self.urls = [self._primary.replace(str(server.port), str(self._proxy.port)), self.replica]

    async def make_tables(self) -> None:
        for url in (self._primary, self.replica):
            await make_tables(url)

    async def follow(self) -> None:
        """Copy the primary to the replica."""
        primary, replica = DatabaseManager(self._primary), DatabaseManager(self.replica)
        await primary.open()
        await replica.open()
        rows = await primary.read(all_rows)

        def write(connection: Connection) -> None:
            for table in schema.metadata.sorted_tables:
                connection.execute(table.delete())
                if rows[table.name]:
                    connection.execute(table.insert(), rows[table.name])

        await replica.run(write)
        await primary.close()
        await replica.close()

    async def replica_rows(self) -> Any:
        replica = DatabaseManager(self.replica)
        await replica.open()
        rows = await replica.read(all_rows)
        await replica.close()
        return rows

    def fail_over(self) -> None:
        self._proxy.close()
        self._server.end_sessions()


def all_rows(connection: Connection) -> dict[str, Sequence[dict[str, Any]]]:
    return {
        table.name: [dict(row) for row in connection.execute(select(table)).mappings()]
        for table in schema.metadata.sorted_tables
    }


async def test_a_replica_that_lags_behind_is_refused_and_unchanged(
    server: Server, fast_clock: trio.testing.MockClock
):
    pair = Pair(server)
    await pair.make_tables()
    load = Load()
    behind: Any = None

    async def lose_the_primary() -> None:
        nonlocal behind
        async with open_engine(load.jobs, pair.urls, max_concurrent=5) as engine, load.on(engine):
            await load.more()
            await pair.follow()
            behind = await pair.replica_rows()
            await load.more()
            await trio.to_thread.run_sync(pair.fail_over)
            await trio.sleep_forever()

    with pytest.raises(StoreBroken, match=r"an outdated copy|no longer \d+"):
        await lose_the_primary()
    assert await pair.replica_rows() == behind


async def test_a_replica_that_has_everything_takes_over(server: Server, fast_clock: trio.testing.MockClock):
    pair = Pair(server)
    await pair.make_tables()
    load = Load()
    async with open_engine(load.jobs, pair.urls, max_concurrent=5) as engine:
        ticket = await engine.submit("short", handle="a", params={})
        await ticket.result()
        await pair.follow()
        await trio.to_thread.run_sync(pair.fail_over)

        async def submit() -> Ticket:
            while True:
                try:
                    return await engine.submit("short", handle="a", params={})
                except Unavailable:
                    await trio.sleep(1)

        with trio.fail_after(PATIENCE):
            second = await submit()
            assert await second.result() == second.id
        assert (await engine.history(ticket.id))[-1].run == ticket.id


async def test_a_check_waits_only_briefly_for_a_slow_commit(autojump_clock):
    class Slow(MemoryStore):
        slow = False

        async def commit(self, batch: Any) -> None:
            if self.slow:
                await trio.sleep(8)
            await super().commit(batch)

    store, jobs = Slow(), Jobs()

    @jobs.job("nothing")
    async def nothing(run: Run) -> None: ...

    async with open_engine(jobs, store=store) as engine, trio.open_nursery() as nursery:
        await (await engine.submit("nothing", handle="a")).result()
        store.slow = True
        nursery.start_soon(partial(engine.submit, "nothing", handle="b"))
        await trio.sleep(0.1)
        began = trio.current_time()
        snapshot = await engine.snapshot()
        assert trio.current_time() - began <= 1
        assert [run.handle for run in snapshot.runs.values()] == ["a"], "the other is not committed"
        store.slow = False
