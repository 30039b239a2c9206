"""Executors that are connected to a follower execute for the leader."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from greenroom.actors.executors.connection import Connection, connection_pair
from greenroom.gateway.cluster.router import PATIENCE
from greenroom.protocol.records import LeaderInfo
from tests.executors.scripted import ScriptedExecutor
from tests.executors.worlds import some_jobs
from tests.support import Bodies, until_status

from .support import Pair, pair


class RelayedExecutor(ScriptedExecutor):
    """A scripted executor that connects to the follower."""

    def __init__(self, here: Pair) -> None:
        super().__init__(here.engine)
        self._router = here.follower.router

    async def connect(self, nursery: trio.Nursery) -> Connection:
        ours, theirs = connection_pair(self.frames_in_flight)
        nursery.start_soon(self._router.serve_executor, theirs, "executor")
        return ours


@asynccontextmanager
async def cluster() -> AsyncIterator[Pair]:
    """A leader that executes nothing itself, and a follower."""
    bodies = Bodies()
    bodies.jobs = some_jobs()
    async with pair(bodies, executors=0) as here:
        yield here


def statuses(here: Pair) -> dict[str, str]:
    return {each.id: each.status for each in here.engine.executors._registry.list()}


async def attached(here: Pair) -> RelayedExecutor:
    executor = RelayedExecutor(here)
    answer = await executor.attach(here.nursery, "work")
    assert answer["type"] == "attached", answer
    return executor


async def test_a_run_executes_in_an_executor_that_is_connected_to_a_follower(autojump_clock):
    async with cluster() as here:
        executor = await attached(here)
        ticket = await here.engine.submit("work", handle="h", params={"n": 1})
        body = await executor.receive("execute")
        assert body["run"] == ticket.id
        await executor.end(body, value="done")
        assert await ticket.result() == "done"


async def test_beats_over_a_follower_keep_an_executor(autojump_clock):
    async with cluster() as here:
        await attached(here)
        await trio.sleep(3 * here.engine.executors.ttl)
        assert statuses(here) == {"e1": "attached"}


async def test_an_executor_that_leaves_the_follower_is_disconnected_at_the_leader(autojump_clock):
    async with cluster() as here:
        executor = await attached(here)
        await executor.leave()
        assert statuses(here) == {"e1": "disconnected"}


async def test_an_executor_resumes_its_bodies_over_another_connection(autojump_clock):
    async with cluster() as here:
        executor = await attached(here)
        ticket = await here.engine.submit("work", handle="h", params={})
        body = await executor.receive("execute")
        answer = await executor.attach(here.nursery, "work", resume=True)
        assert (answer["type"], answer["resumed"]) == ("attached", True)
        await executor.end(body, value="done")
        assert await ticket.result() == "done"
        assert (await here.engine.get_run(ticket.id)).attempt == 1


async def test_an_executor_connects_again_when_the_leader_is_lost(autojump_clock):
    async with cluster() as here:
        executor = await attached(here)
        ticket = await here.engine.submit("work", handle="h", params={})
        await executor.receive("execute")
        here.leader.hang_up()
        await executor.closed()
        await until_status(here.engine, ticket, "running")  # the executor has its ttl to come back
        assert statuses(here) == {"e1": "disconnected"}


async def test_without_a_leader_the_connection_is_closed_after_a_while(autojump_clock):
    async with cluster() as here:
        here.follower.stop()
        await trio.testing.wait_all_tasks_blocked()
        executor = RelayedExecutor(here)
        executor.connection = await executor.connect(here.nursery)
        began = trio.current_time()
        with pytest.raises(trio.EndOfChannel):
            await executor.connection.receive()
        assert trio.current_time() == began + PATIENCE


async def test_an_executor_that_waits_for_a_leader_is_then_attached(autojump_clock):
    async with cluster() as here:
        here.follower.stop()
        await trio.testing.wait_all_tasks_blocked()
        answers: list[Any] = []

        async def attach() -> None:
            answers.append(await RelayedExecutor(here).attach(here.nursery, "work"))

        here.nursery.start_soon(attach)
        await trio.sleep(PATIENCE - 1)
        assert answers == []
        await here.nursery.start(here.follower.follow, here.leader)
        await trio.testing.wait_all_tasks_blocked()
        assert [answer["type"] for answer in answers] == ["attached"]


@pytest.mark.parametrize("error", [OSError("no route"), trio.BrokenResourceError("gone")])
async def test_a_leader_that_cannot_be_reached_closes_the_connection(autojump_clock, error):
    async def fail(leader: LeaderInfo) -> Connection:
        raise error

    async with cluster() as here:
        here.follower.router._dial = fail
        executor = RelayedExecutor(here)
        executor.connection = await executor.connect(here.nursery)
        with trio.fail_after(1), pytest.raises(trio.EndOfChannel):
            await executor.connection.receive()


async def test_a_side_that_does_not_read_slows_the_other_down(autojump_clock):
    far, near = connection_pair()

    async def dial(leader: LeaderInfo) -> Connection:
        await trio.lowlevel.checkpoint()
        return near

    async with cluster() as here:
        here.follower.router._dial = dial
        ours, theirs = connection_pair()
        here.nursery.start_soon(here.follower.router.serve_executor, theirs, "executor")
        sent = 0
        with trio.move_on_after(10):
            while True:
                await ours.send(json.dumps({"number": sent}).encode())
                sent += 1
        assert sent < 50
        for number in range(sent):
            assert json.loads(await far.receive()) == {"number": number}
