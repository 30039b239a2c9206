"""Which worker is called, when there are several."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from greenroom import Engine, Jobs
from greenroom.actors.workers.dispatch import Dispatch
from greenroom.actors.workers.push import PushFailed
from greenroom.actors.workers.states import WorkFailed
from tests.support import open_engine
from tests.workers.support import Answers, dispatch_of, work


async def register(engine: Engine, *ids: str, **loads: float) -> None:
    for id in ids:
        await engine.workers.register(id, f"http://{id}", ["sum"], load=loads.get(id, 0))


async def callees(dispatch: Dispatch, count: int, **options: object) -> list[str | None]:
    return [(await dispatch.push(work(), **options)).worker for _ in range(count)]  # type: ignore[arg-type]


async def test_workers_are_called_in_turn(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await register(engine, "a", "b", "c", a=9)
        dispatch = dispatch_of(engine, Answers())
        assert await callees(dispatch, 6) == ["a", "b", "c", "a", "b", "c"]


async def test_with_weighted_by_load_the_least_busy_worker_is_called(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await register(engine, "a", "b", a=2, b=1)
        dispatch = dispatch_of(engine, Answers())
        assert await callees(dispatch, 3, weighted_by_load=True) == ["b", "b", "b"]
        await engine.workers.heartbeat("b", 7)
        assert await callees(dispatch, 1, weighted_by_load=True) == ["a"]


async def test_calls_that_began_since_a_heartbeat_count_as_load(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await register(engine, "a", "b", a=0, b=4)
        push = Answers()
        push.hold = trio.Event()
        dispatch = dispatch_of(engine, push)

        async def call() -> None:
            await dispatch.push(work(), weighted_by_load=True)

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            assert Counter(push.urls) == {"http://a/exec/sum": 7, "http://b/exec/sum": 3}
            await engine.workers.heartbeat("a", 7)  # which counts them, too
            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            assert push.urls[-1] == "http://b/exec/sum"
            await engine.workers.heartbeat("b", 8)
            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            assert push.urls[-1] == "http://a/exec/sum"
            push.hold.set()
        await engine.workers.heartbeat("a", 0)
        await engine.workers.heartbeat("b", 4)
        assert await callees(dispatch, 9, weighted_by_load=True) == ["a"] * 9  # one call at a time


async def test_a_worker_that_has_failed_is_called_last_for_a_while(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await register(engine, "a", "b")
        push = Answers()
        push.failing["http://a"] = PushFailed("reset", "ended")
        dispatch = dispatch_of(engine, push)

        async def stay_online() -> None:
            while True:
                await engine.workers.heartbeat("a")
                await engine.workers.heartbeat("b")
                await trio.sleep(5)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stay_online)
            with pytest.raises(WorkFailed, match="ended"):
                await dispatch.push(work())
            assert await callees(dispatch, 5) == ["b"] * 5
            push.failing.clear()
            await trio.sleep(30.1)
            assert set(await callees(dispatch, 2)) == {"a", "b"}
            nursery.cancel_scope.cancel()


async def test_a_worker_that_has_failed_is_called_if_there_is_no_other_and_a_success_ends_its_penalty(
    autojump_clock,
):
    async with open_engine(Jobs()) as engine:
        await register(engine, "a")
        push = Answers()
        push.failing["http://a"] = PushFailed("unreachable", "ended")
        dispatch = dispatch_of(engine, push)
        with pytest.raises(WorkFailed):
            await dispatch.push(work())
        push.failing.clear()
        assert await callees(dispatch, 1) == ["a"]
        await register(engine, "b")
        assert set(await callees(dispatch, 2)) == {"a", "b"}


async def test_an_error_of_the_service_is_not_a_fault_of_the_worker(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await register(engine, "a")
        push = Answers(body=b'{"error": "no such thing"}')
        dispatch = dispatch_of(engine, push)
        with pytest.raises(WorkFailed) as failed:
            await dispatch.push(work())
        assert not failed.value.workers_fault
        push.body = b'{"result": 1}'
        await register(engine, "b")
        assert set(await callees(dispatch, 2)) == {"a", "b"}


async def test_a_named_worker_is_called_while_it_is_online(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await register(engine, "a", "b")
        dispatch = dispatch_of(engine, Answers())
        assert await callees(dispatch, 3, worker="b") == ["b", "b", "b"]
        await trio.sleep(10)
        await engine.workers.heartbeat("a")
        await trio.sleep(10)
        assert await callees(dispatch, 1, worker="b") == ["a"]
        assert await callees(dispatch, 1, worker="never was") == ["a"]
        await engine.workers.register("c", "http://c", ["else"])
        assert await callees(dispatch, 1, worker="c") == ["a"]


async def test_workers_to_avoid_are_called_if_there_is_no_other(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await register(engine, "a", "b")
        dispatch = dispatch_of(engine, Answers())
        assert await callees(dispatch, 2, avoid={"a"}) == ["b", "b"]
        assert set(await callees(dispatch, 2, avoid={"a", "b"})) == {"a", "b"}


async def test_only_online_workers_count_as_another_worker_to_call(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await register(engine, "ended")
        await trio.sleep(20)
        await register(engine, "a")
        await engine.workers.register("polls", "", ["sum"], kind="queue")
        dispatch = dispatch_of(engine, Answers())
        assert await dispatch.has_other("sum", [])
        assert not await dispatch.has_other("sum", ["a"])
        assert not await dispatch.has_other("else", [])
        await register(engine, "b")
        assert await dispatch.has_other("sum", ["a"])


async def test_without_a_worker_the_failure_names_the_service(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await engine.workers.register("polls", "", ["sum"], kind="queue")
        with pytest.raises(WorkFailed) as failed:
            await dispatch_of(engine, Answers()).push(work())
        assert failed.value.code == "no_worker"
        assert '"sum"; 1 pull worker serves it: set exec_type: queue' in str(failed.value)


async def test_a_cancelled_call_is_neither_a_success_nor_a_failure_of_the_worker(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await register(engine, "good", "bad")
        push = Answers()
        push.failing["http://bad"] = PushFailed("reset", "ended")
        dispatch = dispatch_of(engine, push)
        with pytest.raises(WorkFailed):
            await dispatch.push(work(), worker="bad")
        for id in ("good", "bad"):
            push.hold = trio.Event()
            with trio.move_on_after(1):
                await dispatch.push(work(), worker=id)
            push.hold = None
        assert push.cancelled == 2
        assert await callees(dispatch, 3) == ["good", "good", "good"]


async def test_the_called_worker_is_reported_before_the_response(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await register(engine, "a")
        push = Answers()
        push.hold = trio.Event()
        reported: list[tuple[str, str]] = []
        with trio.move_on_after(1):
            await dispatch_of(engine, push).push(work(), on_assigned=lambda *who: reported.append(who))
        assert reported == [("a", "http://a")]
