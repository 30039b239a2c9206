"""Work that waits in the queue until a worker polls for it."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import trio

from greenroom import Engine, Jobs, Run
from greenroom.actors.channel import Reply
from greenroom.actors.workers.dispatch import Dispatch
from greenroom.actors.workers.messages import Offer
from greenroom.actors.workers.states import Worked, WorkFailed, acknowledge, refuse
from greenroom.protocol.errors import Conflict, Invalid, TooLarge, Unavailable
from greenroom.protocol.flow.records import QueueItem
from tests.support import open_engine
from tests.workers.support import Answers, dispatch_of, work

Outcome = Worked | WorkFailed


class Offers:
    """Offers work in separate tasks, and records the outcomes in the order of their arrival. `kept` outcomes
    are acknowledged."""

    def __init__(self, dispatch: Dispatch, nursery: trio.Nursery, *, acknowledge: bool = True) -> None:
        self._dispatch = dispatch
        self._nursery = nursery
        self._acknowledge = acknowledge
        self.outcomes: list[Outcome] = []
        self._came = trio.Event()

    async def offer(self, service: str = "sum", **about: Any) -> trio.CancelScope:
        """Offer work; returns when it is offered. Cancel the returned scope to withdraw it."""
        scope = await self._nursery.start(self._wait, work(service, **about))
        await trio.testing.wait_all_tasks_blocked()
        return scope

    async def _wait(self, offered: Any, task_status: Any) -> None:
        with trio.CancelScope() as scope:
            task_status.started(scope)
            outcome: Outcome
            try:
                outcome = await self._dispatch.offer(offered)
            except WorkFailed as failed:
                outcome = failed
            self.outcomes.append(outcome)
            if self._acknowledge:
                acknowledge(outcome)
            self._came.set()

    async def outcome(self) -> Outcome:
        """The first outcome that arrives."""
        while not self.outcomes:
            await self._came.wait()
            self._came = trio.Event()
        return self.outcomes.pop(0)


async def take(engine: Engine, worker: str = "w", *services: str) -> QueueItem:
    item = await engine.workers.poll(worker, services or ("sum",), wait=0)
    assert item is not None
    return item


async def has_none(engine: Engine, worker: str = "w", *services: str) -> bool:
    return await engine.workers.poll(worker, services or ("sum",), wait=0) is None


async def test_work_goes_to_the_worker_that_polls_and_its_result_to_the_caller(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        offers = Offers(dispatch_of(engine, Answers()), nursery)
        await offers.offer("sum", input=[1, 2], params={"a": 1}, run="r1", node="add", key="r1:add:1:0")
        item = await take(engine)
        assert (item.service, item.input, item.params) == ("sum", [1, 2], {"a": 1})
        assert (item.run, item.node, item.key, item.visible_for) == ("r1", "add", "r1:add:1:0", 60)
        await engine.workers.complete(item.id, 3, worker_id="w")
        outcome = await offers.outcome()
        assert isinstance(outcome, Worked)
        assert (outcome.result, outcome.worker, outcome.worker_url) == (3, "w", None)
        assert await has_none(engine)


async def test_a_poll_waits_for_work_as_long_as_requested(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        began = trio.current_time()
        assert await engine.workers.poll("w", ["sum"]) is None
        assert trio.current_time() == began + 25
        assert await engine.workers.poll("w", ["sum"], wait=3) is None
        assert trio.current_time() == began + 28
        offers = Offers(dispatch_of(engine, Answers()), nursery)

        async def later() -> None:
            await trio.sleep(2)
            await offers.offer()

        nursery.start_soon(later)
        assert await engine.workers.poll("w", ["sum"]) is not None
        assert trio.current_time() == began + 30
        nursery.cancel_scope.cancel()


async def test_work_is_assigned_in_the_order_of_the_offers_across_services(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        offers = Offers(dispatch_of(engine, Answers()), nursery)
        for number, service in enumerate(["a", "b", "c", "a", "b"]):
            await offers.offer(service, input=number)
        assert (await take(engine, "w", "c")).input == 2
        assert [(await take(engine, "w", "b", "a")).input for _ in range(4)] == [0, 1, 3, 4]
        assert await has_none(engine, "w", "a", "b", "c")
        nursery.cancel_scope.cancel()


async def test_work_goes_to_the_longest_waiting_worker_that_serves_it(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        got: list[tuple[str, Any]] = []

        async def poll(worker: str, *services: str) -> None:
            item = await engine.workers.poll(worker, services)
            got.append((worker, None if item is None else item.input))

        for worker, service in (("a", "other"), ("b", "sum"), ("c", "sum")):
            nursery.start_soon(poll, worker, service)
            await trio.testing.wait_all_tasks_blocked()
        offers = Offers(dispatch_of(engine, Answers()), nursery)
        for number in range(3):
            await offers.offer(input=number)
        assert got == [("b", 0), ("c", 1)]
        assert (await take(engine, "d")).input == 2
        nursery.cancel_scope.cancel()


async def test_a_second_poll_of_the_same_worker_ends_the_first_without_work(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        got: list[QueueItem | None] = []

        async def poll() -> None:
            got.append(await engine.workers.poll("w", ["sum"]))

        nursery.start_soon(poll)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(poll)
        await trio.testing.wait_all_tasks_blocked()
        assert got == [None]
        await Offers(dispatch_of(engine, Answers()), nursery).offer()
        assert [item is None for item in got] == [True, False]
        nursery.cancel_scope.cancel()


async def test_a_second_completion_is_refused(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        offers = Offers(dispatch_of(engine, Answers()), nursery)
        await offers.offer()
        item = await take(engine)
        await engine.workers.complete(item.id, "first")
        with pytest.raises(Conflict, match="is not assigned: it was completed"):
            await engine.workers.complete(item.id, "second")
        outcome = await offers.outcome()
        assert isinstance(outcome, Worked)
        assert outcome.result == "first"


async def test_a_completion_or_a_heartbeat_by_another_worker_is_refused_and_changes_nothing(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        offers = Offers(dispatch_of(engine, Answers()), nursery)
        await offers.offer()
        item = await take(engine)
        with pytest.raises(Conflict, match='to another worker, not to "thief"'):
            await engine.workers.complete(item.id, "stolen", worker_id="thief")
        with pytest.raises(Conflict, match="to another worker"):
            await engine.workers.extend(item.id, "thief")
        await engine.workers.complete(item.id, "mine", worker_id="w")
        outcome = await offers.outcome()
        assert isinstance(outcome, Worked)
        assert outcome.result == "mine"


async def test_an_item_that_was_never_assigned_cannot_be_completed(autojump_clock):
    async with open_engine(Jobs()) as engine:
        with pytest.raises(Conflict, match='"made up" is not assigned'):
            await engine.workers.complete("made up", 1)
        with pytest.raises(Conflict):
            await engine.workers.extend("made up", "w")


async def test_a_worker_without_contact_for_a_minute_loses_the_item_and_its_result_is_refused(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        offers = Offers(dispatch_of(engine, Answers()), nursery)
        await offers.offer(input="once")
        first = await take(engine)
        began = trio.current_time()
        outcome = await offers.outcome()
        assert isinstance(outcome, WorkFailed)
        assert (outcome.code, outcome.worker, outcome.workers_fault) == ("expired", "w", False)
        assert '"w" took it from the queue and sent no heartbeat for 60 s' in outcome.message
        assert trio.current_time() == began + 60
        await offers.offer(input="twice")
        second = await take(engine, "v")
        assert second.id != first.id
        with pytest.raises(Conflict):
            await engine.workers.complete(first.id, "late")
        with pytest.raises(Conflict):
            await engine.workers.extend(first.id, "w")
        await engine.workers.complete(second.id, "in time")
        outcome = await offers.outcome()
        assert isinstance(outcome, Worked)
        assert (outcome.result, outcome.worker) == ("in time", "v")


async def test_heartbeats_keep_the_item_for_another_minute_each(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        offers = Offers(dispatch_of(engine, Answers()), nursery)
        await offers.offer(input="long")
        await offers.offer(input="short")
        long, short = await take(engine, "w"), await take(engine, "v")
        began = trio.current_time()
        for _ in range(5):
            await trio.sleep(50)
            await engine.workers.extend(long.id, "w")
        outcome = await offers.outcome()
        assert isinstance(outcome, WorkFailed)
        assert outcome.worker == "v"
        with pytest.raises(Conflict):
            await engine.workers.complete(short.id, 1)
        await trio.sleep(50)
        await engine.workers.complete(long.id, "done")
        assert trio.current_time() == began + 300
        assert isinstance(await offers.outcome(), Worked)


async def test_a_cancelled_run_withdraws_its_work_assigned_or_not(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        offers = Offers(dispatch_of(engine, Answers()), nursery)
        taken, waiting = await offers.offer(input="taken"), await offers.offer(input="waiting")
        item = await take(engine)
        taken.cancel()
        waiting.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert await has_none(engine)
        with pytest.raises(Conflict, match="withdrawn"):
            await engine.workers.extend(item.id, "w")
        with pytest.raises(Conflict, match="withdrawn"):
            await engine.workers.complete(item.id, 1)
        assert next(report for report in engine.report() if report["kind"] == "workqueue") == {
            "kind": "workqueue",
            "name": "",
            "mailbox": 0,
            "waiting": 0,
            "leased": 0,
            "polls": 0,
        }


async def test_a_cancelled_run_receives_the_worker_that_had_taken_its_work(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        dispatch = dispatch_of(engine, Answers())
        reported: list[tuple[str, str]] = []
        nursery.start_soon(partial(dispatch.offer, work(), on_assigned=lambda *who: reported.append(who)))
        await trio.testing.wait_all_tasks_blocked()
        await take(engine)
        nursery.cancel_scope.cancel()
    assert reported == [("w", "")]


async def test_a_poll_that_timed_out_or_was_cancelled_takes_no_work(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        with trio.move_on_after(1):
            await engine.workers.poll("w", ["sum"])
        assert await engine.workers.poll("u", ["sum"], wait=2) is None
        await Offers(dispatch_of(engine, Answers()), nursery).offer()
        assert await take(engine, "v") is not None
        nursery.cancel_scope.cancel()


async def test_work_that_is_assigned_to_a_poll_being_cancelled_is_requeued_in_its_order(
    autojump_clock,
):
    async with open_engine(Jobs()) as engine:
        async with trio.open_nursery() as polls:
            polls.start_soon(engine.workers.poll, "ended", ["sum"])
            await trio.testing.wait_all_tasks_blocked()
            for number in range(3):
                engine.workers._queue.tell(Offer(work(input=number), Reply()))
            polls.cancel_scope.cancel()
        assert [(await take(engine, "v")).input for _ in range(3)] == [0, 1, 2]


async def test_an_error_of_the_service_is_raised_by_the_offer(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        offers = Offers(dispatch_of(engine, Answers()), nursery)
        await offers.offer()
        item = await take(engine)
        await engine.workers.complete(item.id, None, "division by zero")
        outcome = await offers.outcome()
        assert isinstance(outcome, WorkFailed)
        assert (outcome.code, outcome.message, outcome.worker) == ("service_error", "division by zero", "w")


@pytest.mark.parametrize(
    ("result", "error", "code"),
    [
        ("x" * 2000, TooLarge, "too_large"),
        (float("nan"), Invalid, "bad_answer"),
        ({"when": object()}, Invalid, "bad_answer"),
        ("\ud800", Invalid, "bad_answer"),
    ],
)
async def test_an_invalid_result_is_refused_and_fails_the_work(autojump_clock, result, error, code):
    async with open_engine(Jobs(), max_value_bytes=1000) as engine, trio.open_nursery() as nursery:
        offers = Offers(dispatch_of(engine, Answers()), nursery)
        await offers.offer()
        item = await take(engine)
        with pytest.raises(error, match="result"):
            await engine.workers.complete(item.id, result)
        outcome = await offers.outcome()
        assert isinstance(outcome, WorkFailed)
        assert (outcome.code, outcome.worker) == (code, "w")


async def test_a_long_error_is_cut(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        offers = Offers(dispatch_of(engine, Answers()), nursery)
        await offers.offer()
        await engine.workers.complete((await take(engine)).id, None, "x" * 1_000_000 + "\ud800")
        outcome = await offers.outcome()
        assert isinstance(outcome, WorkFailed)
        assert outcome.message == "x" * 2000 + "…"


async def test_work_that_is_too_large_is_not_offered(autojump_clock):
    async with open_engine(Jobs(), max_value_bytes=1000) as engine:
        dispatch = dispatch_of(engine, Answers())
        with pytest.raises(WorkFailed, match=r"have 1,0\d\d bytes as JSON, more than the 1,000") as failed:
            await dispatch.offer(work(input="x" * 1000))
        assert (failed.value.code, failed.value.worker) == ("too_large", None)


async def test_a_completion_is_answered_when_it_has_been_acknowledged(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        offers = Offers(dispatch_of(engine, Answers()), nursery, acknowledge=False)
        answered = trio.Event()
        await offers.offer()
        item = await take(engine)

        async def complete() -> None:
            await engine.workers.complete(item.id, 1)
            answered.set()

        nursery.start_soon(complete)
        outcome = await offers.outcome()
        await trio.sleep(20)
        assert not answered.is_set()
        acknowledge(outcome)
        refuse(outcome)
        await answered.wait()


async def test_a_completion_that_is_refused_is_a_conflict(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        offers = Offers(dispatch_of(engine, Answers()), nursery, acknowledge=False)
        await offers.offer()
        item = await take(engine)

        async def refuse_it() -> None:
            refuse(await offers.outcome())

        nursery.start_soon(refuse_it)
        with pytest.raises(Conflict, match="no longer needs this work"):
            await engine.workers.complete(item.id, None, "failed")


async def test_a_completion_that_is_not_committed_within_30_seconds_is_unavailable(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        offers = Offers(dispatch_of(engine, Answers()), nursery, acknowledge=False)
        await offers.offer()
        item = await take(engine)
        began = trio.current_time()
        with pytest.raises(Unavailable, match="is not committed yet"):
            await engine.workers.complete(item.id, 1)
        assert trio.current_time() == began + 30
        acknowledge(await offers.outcome())


async def test_work_that_is_not_done_in_time_is_withdrawn(autojump_clock):
    async with open_engine(Jobs()) as engine:
        dispatch = dispatch_of(engine, Answers())
        with pytest.raises(WorkFailed, match="no worker took it from the queue within 5 s") as failed:
            await dispatch.offer(work(timeout=5))
        assert (failed.value.code, failed.value.worker) == ("timeout", None)
        assert await has_none(engine)
        async with trio.open_nursery() as nursery:
            offers = Offers(dispatch, nursery)
            await offers.offer(timeout=5)
            item = await take(engine)
            outcome = await offers.outcome()
            assert isinstance(outcome, WorkFailed)
            assert (outcome.code, outcome.worker) == ("timeout", "w")
            assert '"w" did not complete it within 5 s' in outcome.message
            with pytest.raises(Conflict):
                await engine.workers.complete(item.id, 1)


@pytest.mark.parametrize("wait", [-1, 25.1, math.inf, math.nan, "1", True])
async def test_a_poll_waits_at_most_25_seconds(autojump_clock, wait):
    async with open_engine(Jobs()) as engine:
        with pytest.raises(Invalid, match="wait must be"):
            await engine.workers.poll("w", ["sum"], wait)


async def test_a_poll_counts_as_contact(autojump_clock):
    async with open_engine(Jobs()) as engine, trio.open_nursery() as nursery:
        offers = Offers(dispatch_of(engine, Answers()), nursery)
        await engine.workers.register("w", "", ["sum"], kind="queue")
        await trio.sleep(20)
        assert (await engine.workers.list())[0].status == "offline"
        await engine.workers.poll("w", ["sum"], wait=0)
        await trio.testing.wait_all_tasks_blocked()
        assert (await engine.workers.list())[0].status == "online"
        await offers.offer()
        item = await take(engine)
        for _ in range(3):
            await trio.sleep(14)
            await engine.workers.extend(item.id, "w")
        await trio.sleep(14)
        await engine.workers.complete(item.id, 1, worker_id="w")
        await trio.sleep(14)
        assert (await engine.workers.list())[0].status == "online"


async def test_at_shutdown_polls_are_answered_and_the_last_work_is_still_assigned_and_done(
    autojump_clock,
):
    jobs = Jobs()
    dispatch: Dispatch

    @jobs.job("adds")
    async def adds(run: Run, params: dict[str, Any]) -> Any:
        first = await dispatch.offer(work(input=1))
        acknowledge(first)
        second = await dispatch.offer(work(input=2))
        acknowledge(second)
        return [first.result, second.result]

    answers: list[Any] = []
    results: list[Any] = []
    async with trio.open_nursery() as nursery, open_engine(jobs) as engine:
        dispatch = dispatch_of(engine, Answers())

        async def worker() -> None:
            while (item := await engine.workers.poll("w", ["sum"])) is not None:
                await trio.sleep(3)
                await engine.workers.complete(item.id, item.input)
            answers.append(None)

        async def result() -> None:
            results.append(await ticket.result())

        ticket = await engine.submit("adds", handle="h")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(worker)
        nursery.start_soon(result)
        await trio.testing.wait_all_tasks_blocked()
    assert results == [[1, 2]]
    assert answers == [None]


async def test_after_shutdown_offers_and_calls_fail_and_polls_are_unavailable(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await engine.workers.register("w", "http://w", ["sum"])
        dispatch = dispatch_of(engine, Answers())
    for call in (dispatch.offer, dispatch.push):
        with pytest.raises(WorkFailed) as failed:
            await call(work())
        assert failed.value.code == "stopped"
    with pytest.raises(Unavailable):
        await engine.workers.poll("w", ["sum"])


async def test_an_offer_that_still_waits_at_shutdown_fails(autojump_clock):
    async with trio.open_nursery() as nursery:
        async with open_engine(Jobs()) as engine:
            offers = Offers(dispatch_of(engine, Answers()), nursery)
            await offers.offer()
        outcome = await offers.outcome()
        assert isinstance(outcome, WorkFailed)
        assert str(outcome) == "stopped: engine is shutting down"
