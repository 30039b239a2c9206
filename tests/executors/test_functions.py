"""Functions of flows in executors: which executor is chosen, and what follows when one is lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import greenroom
from greenroom import Engine, Jobs
from greenroom.actors.executors.connection import MemoryConnection, connection_pair
from greenroom.actors.executors.functions import FunctionCalls, FunctionFailed
from greenroom.actors.executors.peer import Peer
from greenroom.executor.executor import Executor, Identity
from greenroom.persistence.files import DiskFiles
from greenroom.protocol.events import RunLog
from greenroom.protocol.executors import Attach
from tests.flow.restarts import Lives
from tests.flow.walking import Walked, ended, flow, local, start, walk

TTL = 30.0


class Site:
    """Executors, and the engine that they can reach; it can be replaced by the next one."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.engine: Engine | None = None
        self._nursery = nursery
        self._scopes: dict[str, trio.CancelScope] = {}
        self._reachable: dict[str, bool] = {}
        self._connections: dict[str, MemoryConnection] = {}

    async def add(self, name: str, jobs: Jobs) -> Executor:
        """Start an executor, and wait until it is attached."""

        async def connect() -> MemoryConnection:
            await trio.lowlevel.checkpoint()
            if self.engine is None or not self._reachable[name]:
                raise OSError("unreachable")
            ours, theirs = connection_pair()
            self._connections[name] = ours
            self._nursery.start_soon(self.engine.executors.serve, ours)
            return theirs

        self._reachable[name] = True
        identity = Identity(node=name, start=f"start of {name}")
        files = DiskFiles("data", in_threads=False)
        executor = Executor(jobs, connect, identity, files, random=random.Random(1))
        scope = self._scopes[name] = trio.CancelScope()

        async def run() -> None:
            with scope:
                await executor.run()

        self._nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        return executor

    async def cut(self, name: str) -> None:
        """Cut the connection of an executor."""
        self._reachable[name] = False
        await self._connections[name].aclose()

    def heal(self, name: str) -> None:
        """Let an executor connect again."""
        self._reachable[name] = True


class Functions:
    """The function `work`, whose calls last until the test lets them end."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.executing = 0
        self.cancelled = 0
        self.stubborn = False
        self.end = trio.Event()
        self.jobs = Jobs()
        self.jobs.function("work")(self.work)

    async def work(self, input: Any) -> Any:
        assert self.executing == 0 or input == "many"
        self.begun.append(input)
        self.executing += 1
        try:
            with trio.move_on_after(20 * TTL, shield=self.stubborn):  # a failing test does not hang
                await self.end.wait()
        except trio.Cancelled:
            self.cancelled += 1
            raise
        finally:
            self.executing -= 1
        return len(self.begun)


def engine_without_bodies(**options: Any) -> Any:
    return greenroom.open_engine(Jobs(), "memory:", executors=0, executor_ttl=TTL, **options)


async def logged(engine: Engine, run: str) -> list[str]:
    return [event.text for event in await engine.history(run) if isinstance(event, RunLog)]


async def until(condition: Callable[[], object]) -> None:
    """Wait in small steps of the mock clock."""
    with trio.fail_after(10 * TTL):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.5)


WORK = flow("", a=local("work", "$params.x", "out", max_retries=2))


async def test_a_node_waits_for_an_executor_that_has_its_function(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    site, functions = Site(nursery), Functions()
    functions.end.set()
    async with engine_without_bodies() as site.engine:
        ticket = await start(site.engine, WORK)
        await site.add("other", Jobs())
        await trio.sleep(60)
        assert await logged(site.engine, ticket.id) == [
            "node \"a\" waits: no attached executor has function 'work'"
        ]
        await site.add("e1", functions.jobs)
        assert (await ended(site.engine, ticket)).result == {"out": 1}
    nursery.cancel_scope.cancel()


async def test_the_timeout_of_a_node_includes_its_wait_for_an_executor(autojump_clock: MockClock) -> None:
    async with engine_without_bodies() as engine:
        done = await walk(engine, flow("", a=local("work", timeout_ms=2000)))
        assert done.error == 'node "a": timeout: not finished within 2 s'


async def test_the_executor_with_the_fewest_calls_is_chosen(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    site, functions = Site(nursery), [Functions(), Functions(), Functions()]
    async with engine_without_bodies() as site.engine:
        executors = [await site.add(f"e{n}", one.jobs) for n, one in enumerate(functions)]
        executors[2].drain()
        tickets = [await start(site.engine, WORK, {"x": "many"})]
        tickets += [await site.engine.flows.start("flow", params={"x": "many"}) for _ in range(2)]
        await trio.sleep(1)
        assert [len(one.begun) for one in functions] == [2, 1, 0]
        for one in functions:
            one.end.set()
        for ticket in tickets:
            await ended(site.engine, ticket)
    nursery.cancel_scope.cancel()


async def test_a_short_cut_of_the_connection_does_not_affect_a_call(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    site, functions = Site(nursery), Functions()
    async with engine_without_bodies() as site.engine:
        await site.add("e1", functions.jobs)
        ticket = await start(site.engine, WORK, {"x": 1})
        await until(lambda: functions.executing)
        await site.cut("e1")
        await trio.sleep(TTL / 3)
        functions.end.set()
        await trio.sleep(1)
        site.heal("e1")
        done = await ended(site.engine, ticket)
        assert (done.result, done.story) == ({"out": 1}, ["a ok default"])
    nursery.cancel_scope.cancel()


async def test_a_short_cut_of_the_connection_of_a_draining_executor_does_not_affect_a_call(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    site, functions, others = Site(nursery), Functions(), Functions()
    async with engine_without_bodies() as site.engine:
        await site.add("e1", functions.jobs)
        ticket = await start(site.engine, WORK, {"x": 1})
        await until(lambda: functions.executing)
        await site.add("e2", others.jobs)
        await site.engine.executors.drain("e1")
        await trio.sleep(1)
        await site.cut("e1")
        await trio.sleep(TTL / 3)
        assert others.begun == []
        functions.end.set()
        site.heal("e1")
        done = await ended(site.engine, ticket)
        assert (done.result, done.story) == ({"out": 1}, ["a ok default"])
    nursery.cancel_scope.cancel()


async def test_the_attempt_at_a_lost_executor_has_crashed_and_is_repeated_at_another(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    site, functions, others = Site(nursery), Functions(), Functions()
    others.end.set()
    async with engine_without_bodies() as site.engine:
        await site.add("e1", functions.jobs)
        ticket = await start(site.engine, WORK, {"x": 1})
        await until(lambda: functions.executing)
        await site.add("e2", others.jobs)
        await site.cut("e1")
        done = await ended(site.engine, ticket)
        assert functions.cancelled == 1
        assert done.story == ["a error", "a ok default"]
        assert done.rows[0].error == "crashed: its executor e1 was silent for 30 s"
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("repetition", range(8))  # trio's order of tasks is random
async def test_a_call_ends_if_its_executor_leaves_as_soon_as_it_is_chosen(
    repetition: int, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    attach = Attach(executor="e1", start="p1", jobs=(), functions=("work",))
    peer = Peer(attach, 0, TTL, lambda _: None, lambda *_: None)
    peer.hang_up = trio.CancelScope().cancel
    peers = [peer]

    async def leave() -> None:
        peers.clear()
        calls.gone(peer, "it has left")

    def choose() -> list[Peer]:
        nursery.start_soon(leave)
        return peers

    calls = FunctionCalls(choose, lambda: False)
    with pytest.raises(FunctionFailed, match="it has left"):
        await calls.call("work", 1, {}, run="r1", recovered=False, waits=lambda _: None)


@pytest.mark.parametrize("leave", ["crash", "clean"])
async def test_a_function_from_before_a_restart_has_ended_before_it_is_called_again(
    leave: str, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    site, functions = Site(nursery), Functions()
    functions.stubborn = True
    lives = Lives(Jobs(), executors=0, executor_ttl=TTL)
    async with getattr(lives, leave)() as site.engine:
        await site.add("e1", functions.jobs)
        ticket = await start(site.engine, WORK, {"x": 1})
        await until(lambda: functions.executing)
    site.engine = None
    await trio.sleep(1)
    others = Functions()
    others.end.set()
    async with lives.clean() as site.engine:
        await site.add("e2", others.jobs)
        await trio.sleep(TTL / 2)  # e1 has attached, and its function has not ended
        assert (functions.executing, others.begun) == (1, [])
        assert (await logged(site.engine, ticket.id))[-1].startswith('node "a" waits: ')
        functions.end.set()
        done: Walked = await ended(site.engine, ticket)
        assert done.story == ["a ok default"]
        assert len(functions.begun) + len(others.begun) == 2
    nursery.cancel_scope.cancel()


async def test_a_recovered_flow_waits_until_earlier_executors_are_lost(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    site, functions = Site(nursery), Functions()
    lives = Lives(Jobs(), executors=0, executor_ttl=TTL)
    async with lives.crash() as site.engine:
        await site.add("e1", functions.jobs)
        ticket = await start(site.engine, WORK, {"x": 1})
        await until(lambda: functions.executing)
        await site.cut("e1")
    others = Functions()
    others.end.set()
    async with lives.clean() as site.engine:
        began = trio.current_time()
        await site.add("e2", others.jobs)
        new = await site.engine.flows.start("flow", params={"x": 2})
        await ended(site.engine, new)
        assert trio.current_time() < began + 5, "a new run does not wait"
        assert (await ended(site.engine, ticket)).result == {"out": 2}
        assert trio.current_time() >= began + TTL - 1
        assert functions.executing == 0
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("order", range(20))  # the order of tasks is random
async def test_an_executor_that_is_lost_when_it_is_chosen_gets_no_call(
    autojump_clock: MockClock, nursery: trio.Nursery, order: int
) -> None:
    attach = Attach(executor="e1", start="p1", jobs=(), functions=("work",))
    peer = Peer(attach, 0.0, TTL, lambda call: None, lambda peer, message: None)
    peer.hang_up = lambda: None
    peers, waits = [peer], list[str]()
    calls = FunctionCalls(lambda: peers, lambda: False)
    ended = trio.Event()

    async def call() -> None:
        with pytest.raises(FunctionFailed, match="it was lost"):
            await calls.call("work", 1, {}, run="r1", recovered=False, waits=waits.append)
        ended.set()

    nursery.start_soon(call)
    for _ in range(order % 4):
        await trio.lowlevel.checkpoint()
    peers.remove(peer)
    calls.gone(peer, "it was lost")
    await trio.testing.wait_all_tasks_blocked()
    calls.close()
    nursery.cancel_scope.cancel()
    assert ended.is_set() or waits


async def test_a_draining_executor_that_loses_its_connection_keeps_its_call(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    site, functions, others = Site(nursery), Functions(), Functions()
    others.end.set()
    async with engine_without_bodies() as site.engine:
        executor = await site.add("e1", functions.jobs)
        ticket = await start(site.engine, WORK, {"x": 1})
        await until(lambda: functions.executing)
        await site.add("e2", others.jobs)
        executor.drain()
        await trio.testing.wait_all_tasks_blocked()
        await site.cut("e1")
        await trio.sleep(TTL / 3)
        assert others.begun == []
        site.heal("e1")
        await trio.sleep(TTL / 3)
        functions.end.set()
        done = await ended(site.engine, ticket)
        assert done.story == ["a ok default"]
        assert (len(functions.begun), others.begun) == (1, [])
    nursery.cancel_scope.cancel()
