"""Bodies that their executor has never received, and bodies that it no longer has."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from greenroom.errors import RunFailed
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.store import Batch
from greenroom.protocol.events import RunStateChanged
from greenroom.protocol.states import Status

from .scripted import ScriptedExecutor, live
from .worlds import TTL, Lives, World, world


class SlowStore(MemoryStore):
    """Commits nothing before `may_commit` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.may_commit = trio.Event()
        self.may_commit.set()

    async def commit(self, batch: Batch) -> None:
        await self.may_commit.wait()
        await super().commit(batch)


async def begins_at_once(home: World, ticket: Any, executor: Any) -> dict[str, Any]:
    """Receive the next body of a run, within a second and without a lost attempt."""
    with trio.fail_after(1):
        body = await executor.receive("execute")
    assert (body["run"], body["attempt"]) == (ticket.id, 1)
    await executor.end(body, value="elsewhere")
    assert (await home.until_status(ticket, Status.SUCCEEDED)).result == "elsewhere"
    return body


async def reasons(home: World, ticket: Any) -> list[str | None]:
    """Why the run was suspended."""
    history = [event for event in await home.engine.history(ticket.id) if isinstance(event, RunStateChanged)]
    fences = [event.seq for event in history if event.to is Status.RUNNING]
    assert fences == sorted(set(fences))
    return [event.reason for event in history if event.to is Status.SUSPENDED]


@pytest.mark.parametrize("leaves", ["disconnects", "drains", "is replaced"])
async def test_a_run_whose_executor_leaves_before_the_order_begins_elsewhere_at_once(autojump_clock, leaves):
    store = SlowStore()
    async with world(store=store) as home:
        first = await home.executor("e1")
        store.may_commit = trio.Event()
        async with trio.open_nursery() as nursery:

            async def submit() -> None:
                tickets.append(await home.engine.submit("once", handle="h", params={}))

            tickets: list[Any] = []
            nursery.start_soon(submit)
            await trio.testing.wait_all_tasks_blocked()  # it is granted a slot at e1
            if leaves == "drains":
                await first.send({"type": "draining"})
                await trio.testing.wait_all_tasks_blocked()
            else:
                await first.leave()
            second = home.executor("e1" if leaves == "is replaced" else "e2", start="p2")
            store.may_commit.set()
        elsewhere = await second
        await begins_at_once(home, tickets[0], elsewhere)
        assert first.has("execute") == 0
        assert await reasons(home, tickets[0]) == ["not_begun"]


@pytest.mark.parametrize("why", ["refused", "not received"])
@pytest.mark.parametrize("end", ["shutdown", "crash"])
async def test_a_run_whose_body_never_began_still_has_its_attempt_after_a_restart(
    autojump_clock, tmp_path, end, why
):
    lives = Lives(tmp_path)
    async with (lives.clean if end == "shutdown" else lives.crash)() as home:
        if why == "refused":
            executor = await home.executor()
            ticket, body = await home.begin(executor, "once")
            await executor.end(body, "refused", error="other parameters")
        else:
            executor = await stalled(home)
            await home.engine.submit("once", handle="sent", params={})
            await trio.testing.wait_all_tasks_blocked()
            ticket = await home.engine.submit("once", handle="h", params={})
            await trio.testing.wait_all_tasks_blocked()
            await executor.leave()
        await home.until_status(ticket, Status.SUSPENDED)
    async with lives.clean() as home:
        await begins_at_once(home, ticket, await home.executor("e2"))


async def stalled(home: World) -> ScriptedExecutor:
    """An executor that receives nothing. The frame with its first body is on its way, others are not sent."""
    executor = ScriptedExecutor(home.engine, beat=None)
    executor.frames_in_flight, executor.receives = 0, trio.Event()
    await home.attach(executor)
    return executor


@pytest.mark.parametrize("ends", ["disconnects", "is silent"])
async def test_only_orders_that_were_never_sent_are_withdrawn(autojump_clock, ends):
    async with world(max_concurrent=9) as home:
        executor = await stalled(home)
        sent = await home.engine.submit("once", handle="sent", params={})
        await trio.testing.wait_all_tasks_blocked()
        unsent = [await home.engine.submit("once", handle=f"{n}", params={}) for n in range(3)]
        await home.engine.inject(unsent[0].id, "hello")
        await trio.testing.wait_all_tasks_blocked()
        if ends == "disconnects":
            await executor.leave()
            others = await home.executor("e2")
        else:
            others = await home.executor("e2")
            await trio.sleep(TTL + 1)
        with trio.fail_after(1):
            bodies = [await others.receive("execute") for _ in unsent]
        assert {(body["run"], body["attempt"]) for body in bodies} == {(ticket.id, 1) for ticket in unsent}
        for ticket in unsent:
            assert await reasons(home, ticket) == ["not_begun"]
        assert (await others.receive("message"))["run"] == unsent[0].id
        with pytest.raises(RunFailed) as failed:
            await sent.result()
        assert failed.value.run.reason == "crashed"


async def test_a_withdrawn_order_is_not_sent_when_the_session_continues(autojump_clock):
    async with world() as home:
        executor = await stalled(home)
        sent = await home.engine.submit("once", handle="sent", params={})
        await trio.testing.wait_all_tasks_blocked()
        unsent = await home.engine.submit("once", handle="unsent", params={})
        await trio.testing.wait_all_tasks_blocked()
        await executor.leave()
        await begins_at_once(home, unsent, await home.executor("e2"))
        executor.receives.set()
        assert (await home.attach(executor, resume=True))["resumed"]
        body = await executor.receive("execute")
        assert body["run"] == sent.id
        await executor.end(body, value=1)
        assert await sent.result() == 1
        assert executor.has("execute") == 0


async def test_an_order_that_was_not_sent_before_a_shutdown_begins_elsewhere_afterwards(
    autojump_clock, tmp_path
):
    lives = Lives(tmp_path)
    async with lives.clean() as home:
        await stalled(home)
        await home.engine.submit("once", handle="sent", params={})
        await trio.testing.wait_all_tasks_blocked()
        ticket = await home.engine.submit("once", handle="h", params={})
        await trio.testing.wait_all_tasks_blocked()
    async with lives.clean() as home:
        await begins_at_once(home, ticket, await home.executor("e2"))


async def test_a_draining_executor_that_has_not_received_an_order_gets_it_no_more(autojump_clock):
    async with world() as home:
        executor = await stalled(home)
        ticket = await home.engine.submit("once", handle="h", params={})
        await trio.testing.wait_all_tasks_blocked()
        await executor.leave()
        executor.receives.set()
        assert (await home.attach(executor, resume=True, draining=True))["resumed"]
        await begins_at_once(home, ticket, await home.executor("e2"))
        await executor.leave()
        assert home.executors() == {"e2": "attached"}


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("job", ["once", "resumable"])
async def test_a_body_that_its_executor_no_longer_has_is_lost_at_once(autojump_clock, resume, job):
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, job)
        kept, other = await home.begin(executor, handle="other")
        answer = await home.attach(executor, resume=resume, bodies=[live(other)])
        assert answer["resumed"] == resume
        assert (await executor.ask(body, "log", text="late", level="info"))["code"] == "abandoned"
        await executor.end(other, value=1)
        assert await kept.result() == 1
        if job == "once":
            run = await home.until_status(ticket, Status.FAILED)
            assert run.reason == "body_lost"
            assert run.error == "its executor e1 attached without it"
        else:
            again = await executor.receive("execute")
            assert await reasons(home, ticket) == ["body_lost"]
            assert (again["attempt"], again["fence"] > body["fence"]) == (1, True)


async def test_a_body_that_its_executor_no_longer_has_is_no_death_of_a_process(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        ticket, _body = await home.begin(executor, "resumable")
        for _ in range(4):
            await home.attach(executor, resume=True, bodies=[])
            body = await executor.receive("execute")
        await executor.end(body, value=1)
        assert await ticket.result() == 1


async def test_an_abandoned_body_that_its_executor_no_longer_has_frees_its_handle(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        ticket, _body = await home.begin(executor, "stubborn")
        await ticket.cancel()
        await home.until_status(ticket, Status.CANCELLED)
        following = await home.engine.submit("work", handle="h", params={}, on_conflict="queue")
        await home.attach(executor, resume=True, bodies=[])
        assert (await executor.receive("execute"))["run"] == following.id


async def test_a_body_without_which_its_executor_attaches_after_a_restart_is_lost_at_the_ttl(
    autojump_clock, tmp_path
):
    lives = Lives(tmp_path)
    async with lives.crash() as home:
        executor = await home.executor()
        ticket, _body = await home.begin(executor, "once")
    async with lives.clean() as home:
        await home.attach(executor)
        await trio.sleep(TTL - 1)
        assert (await home.run(ticket)).status is Status.RUNNING
        await trio.sleep(2)
        run = await home.run(ticket)
        assert (run.status, run.reason) == (Status.FAILED, "body_lost")
        assert run.error == "its executor e1 attached without it after the engine's restart"
