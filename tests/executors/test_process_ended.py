"""The end of an executor's process that a node of a cluster reports: its runs do not wait for the ttl."""

from pathlib import Path

import pytest

from greenroom.protocol.events import ExecutorChanged
from greenroom.protocol.states import Status

from .worlds import Lives, world

HOW = "was killed by SIGKILL"


@pytest.fixture
def lives(tmp_path: Path) -> Lives:
    return Lives(tmp_path)


async def test_the_runs_of_an_attached_executor_continue_at_once(mock_clock, caplog):
    async with world() as home:
        executor = await home.executor(beat=None)
        ticket, _ = await home.begin(executor, "work")
        other, body = await home.begin(await home.executor("e2", beat=None), "work", handle="other")
        home.engine.executors.ended("e1", HOW)
        await home.until(lambda now: now.runs[ticket.id].attempt == 2)
        assert home.executors() == {"e2": "attached"}
        assert (await home.run(other)).attempt == body["attempt"]
    assert f"executor e1 {HOW}; it executed the bodies of these runs: {ticket.id}" in caplog.text


async def test_the_runs_of_an_executor_that_has_not_attached_since_the_restart_end_at_once(mock_clock, lives):
    async with lives.crash() as home:
        ticket, _ = await home.begin(await home.executor(beat=None), "once")
    async with lives.clean() as home:
        assert (await home.run(ticket)).status is Status.RUNNING
        home.engine.executors.ended("e1", HOW)
        ended = await home.until_status(ticket, Status.FAILED)
        assert ended.reason == "crashed"
        snapshot = await home.engine.snapshot()
        assert snapshot.executors == {}
        assert await home.engine.executors.list() == []


async def test_bodies_that_an_executor_has_not_named_since_the_restart_are_lost_with_the_others(
    mock_clock, lives
):
    async with lives.crash() as home:
        executor = await home.executor(beat=None)
        first, body = await home.begin(executor, "once", handle="a")
        second, _ = await home.begin(executor, "once", handle="b")
    async with lives.clean() as home:
        live = {"run": body["run"], "attempt": body["attempt"], "fence": body["fence"]}
        await home.attach(executor, bodies=[live])
        before = home.engine.stream.last_seq
        home.engine.executors.ended("e1", HOW)
        for ticket in (first, second):
            assert (await home.until_status(ticket, Status.FAILED)).reason == "crashed"
        gone = [
            published.event
            for published in home.engine.stream.between(before, 1000)
            if isinstance(published.event, ExecutorChanged) and published.event.status == "gone"
        ]
        assert len(gone) == 1


async def test_an_executor_that_is_not_known_changes_nothing(mock_clock):
    async with world() as home:
        await home.executor(beat=None)
        home.engine.executors.ended("e2", HOW)
        assert home.executors() == {"e1": "attached"}
