"""Executors of an engine: attach, sessions, liveness, loss and drain, by scripted executors."""

import json
import logging
import re
from contextlib import suppress

import pytest
import trio

from greenroom import Jobs
from greenroom.errors import NotFound, RunFailed
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.store import Batch
from greenroom.protocol.events import RunStateChanged
from greenroom.protocol.executors import Drain
from greenroom.protocol.states import Status

from .scripted import about, live
from .worlds import TTL, world

pytestmark = pytest.mark.usefixtures("store_kind")


# Attach and sessions.


async def test_an_executor_executes_a_body_and_its_end_is_settled(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor)
        assert (body["job"], body["handle"], body["attempt"]) == ("work", "h", 1)
        assert (await home.run(ticket)).executor == "e1"
        assert (await executor.end(body, value=3))["fence"] == body["fence"]
        assert await ticket.result() == 3


async def test_a_resumed_session_sends_what_was_not_received_and_drops_what_is_repeated(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor)
        call = await executor.call(body, "log", text="once", level="info")
        await executor.answer(call)
        first, received = executor.sent, executor.received
        await executor.leave()
        await home.engine.inject(ticket.id, "while disconnected")
        executor.sent = first - 1  # the log is repeated, with its number
        answer = await home.attach(executor, resume=True, received=received)
        assert (answer["resumed"], answer["received"]) == (True, first)
        await executor.send(executor.calling(body, call, "log", text="once", level="info"))
        assert (await executor.receive("message"))["value"] == "while disconnected"
        await executor.end(body)
        await ticket.result()
        logs = [event for event in await home.engine.history(ticket.id) if event.type == "run_log"]
        assert [event.text for event in logs] == ["once"]


async def test_messages_are_sent_again_from_the_first_that_was_not_received(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        ticket, _body = await home.begin(executor)
        executor.acknowledges = False
        await home.engine.inject(ticket.id, 1)
        await executor.receive("message")
        await home.engine.inject(ticket.id, 2)
        await executor.receive("message")
        executor.received -= 1
        assert (await home.attach(executor, resume=True))["resumed"]
        assert (await executor.receive("message"))["value"] == 2
        assert executor.has("message") == 0


@pytest.mark.parametrize("received", [1000, 2**53 - 1])
async def test_a_session_cannot_continue_after_messages_that_were_never_sent(autojump_clock, received):
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor)
        answer = await home.attach(executor, resume=True, received=received)
        assert answer["type"] == "refused"
        assert f"(got {received})" in answer["message"]
        assert (await home.attach(executor, resume=True))["resumed"]
        await executor.end(body)
        await ticket.result()


async def test_a_new_session_of_the_same_process_keeps_the_listed_bodies_and_begins_the_others(
    autojump_clock,
):
    async with world() as home:
        executor = await home.executor()
        kept, body = await home.begin(executor, handle="a")
        executor.acknowledges = False
        lost, other = await home.begin(executor, "once", handle="b")
        answer = await home.attach(executor, bodies=[live(body), live(other, fence=other["fence"] + 1)])
        assert not answer["resumed"]
        assert [each["run"] for each in answer["bodies"]] == [kept.id]
        again = await executor.receive("execute")  # its process has not received it yet
        assert (again["run"], again["fence"]) == (lost.id, other["fence"])
        await executor.end(again, value=2)
        assert await lost.result() == 2
        await executor.end(body, value=1)
        assert await kept.result() == 1


async def test_a_process_that_attaches_again_replaces_its_connection(autojump_clock):
    async with world() as home:
        executor = await home.executor(beat=None)
        ticket, body = await home.begin(executor)
        old, ended = executor.connection, executor.ended
        executor.connection = None  # its end is not noticed
        assert (await home.attach(executor, resume=True))["resumed"]
        with trio.fail_after(5):
            await ended.wait()
        assert old is not executor.connection
        assert home.executors() == {"e1": "attached"}
        await executor.end(body)
        await ticket.result()


async def test_another_process_under_the_same_id_is_refused_while_the_first_could_have_bodies(
    autojump_clock,
):
    async with world() as home:
        first = await home.executor(start="p1", beat=None)
        second = await home.executor("e2")
        second.name = "e1"
        assert (await home.attach(second))["retry"]
        _ticket, _body = await home.begin(first)
        await first.leave()
        refused = await home.attach(second)
        assert (refused["code"], refused["retry"]) == ("conflict", True)
        assert 'another process is attached as executor "e1", or was and has bodies' in refused["message"]


async def test_another_process_replaces_one_that_is_disconnected_and_has_no_bodies(autojump_clock):
    async with world() as home:
        await (await home.executor(start="p1")).leave()
        assert [each.start for each in await home.engine.executors.list()] == ["p1"]
        second = await home.executor(start="p2")
        assert [each.start for each in await home.engine.executors.list()] == ["p2"]
        assert (await home.engine.snapshot()).executors["e1"].start == "p2"
        ticket, body = await home.begin(second)
        await second.end(body, value="second")
        assert await ticket.result() == "second"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["gpu", "gpu"], 'labels must contain each label once (got "gpu" twice)'),
        ([f"label {n}" for n in range(17)], "labels must contain at most 16 labels (got 17)"),
        ([""], 'labels[0] must not be empty (got "")'),
    ],
)
async def test_labels_are_checked_like_those_that_a_job_needs(autojump_clock, labels, message):
    async with world() as home:
        with pytest.raises(AssertionError, match=re.escape(message)):
            await home.executor(labels=labels)


@pytest.mark.parametrize("name", ["local-1", "local-", "local-99"])
async def test_ids_of_children_are_reserved(autojump_clock, name):
    async with world() as home:
        with pytest.raises(AssertionError, match="names that begin with local- are reserved"):
            await home.executor(name)
        assert home.executors() == {}


async def test_an_executor_receives_at_most_as_many_bodies_as_it_has_slots(autojump_clock):
    async with world() as home:
        executor = await home.executor(slots=2)
        tickets = [await home.engine.submit("work", handle=name, params={}) for name in "abc"]
        bodies = [await executor.receive("execute") for _ in range(2)]
        await trio.sleep(1)
        assert executor.has("execute") == 0
        assert (await home.run(tickets[2])).waiting_for == "executor"
        await executor.end(bodies[0])
        await executor.receive("execute")


async def test_a_run_with_needs_executes_only_where_the_labels_are(autojump_clock):
    async with world() as home:
        plain = await home.executor("plain")
        ticket = await home.engine.submit("gpu", handle="h", params={})
        await trio.sleep(5)
        assert plain.has("execute") == 0
        gpu = await home.executor("strong", labels=["gpu", "large"])
        body = await gpu.receive("execute")
        await gpu.end(body)
        await ticket.result()


async def test_a_new_attach_changes_the_jobs_of_an_executor(autojump_clock):
    async with world() as home:
        executor = await home.executor("e1", "once")
        ticket = await home.engine.submit("work", handle="h", params={})
        await trio.sleep(1)
        assert executor.has("execute") == 0
        await home.attach(executor, "work", resume=True)
        await executor.end(await executor.receive("execute"))
        await ticket.result()


# Liveness and loss.


async def test_an_engine_that_was_stopped_reads_heartbeats_before_it_gives_up_executors(mock_clock):
    async with world() as home:
        executor = await home.executor(beat=None)
        mock_clock.jump(TTL + 5)  # as if the process was stopped while a heartbeat arrived
        await executor.raw(b'{"type": "beat", "executor": "e1", "start": "process of e1", "sent": 1.0}')
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(5)
        await trio.testing.wait_all_tasks_blocked()
        assert home.executors() == {"e1": "attached"}


async def test_a_silent_executor_is_lost_at_the_ttl_and_not_before(autojump_clock, caplog):
    async with world() as home:
        executor = await home.executor(beat=None)
        ticket, _body = await home.begin(executor, "once")
        await trio.sleep(TTL - 0.01)
        assert (await home.run(ticket)).status is Status.RUNNING
        await trio.sleep(0.02)
        with pytest.raises(RunFailed, match="its executor e1 was silent for 30 s"):
            await ticket.result()
        assert home.executors() == {}
        assert home.engine.executors.lost == 1
        assert (await executor.closed()) is None
    assert "executor e1 is lost" in caplog.text


async def test_beats_on_another_connection_keep_an_executor_attached(autojump_clock):
    async with world() as home:
        executor = await home.executor(beat=None)
        _ticket, _body = await home.begin(executor, "once")
        beats = await executor.connect(home.nursery)
        own, executor.connection = executor.connection, beats
        for number in range(4):
            beaten = await executor.exchange(
                {"type": "beat", "executor": "e1", "start": executor.start, "sent": number}
            )
            await trio.sleep(TTL - 1)
            assert beaten == {"type": "beaten", "sent": float(number), "attached": True}
        executor.connection = own
        assert home.executors() == {"e1": "attached"}


@pytest.mark.parametrize(("name", "start"), [("e2", "process of e1"), ("e1", "another process")])
async def test_beats_of_an_unknown_process_keep_nobody_attached(autojump_clock, name, start):
    async with world() as home:
        executor = await home.executor(beat=None)
        executor.connection = await executor.connect(home.nursery)
        for _ in range(3):
            beaten = await executor.exchange({"type": "beat", "executor": name, "start": start, "sent": 1.5})
            assert beaten == {"type": "beaten", "sent": 1.5, "attached": False}
            await trio.sleep(TTL / 2)
        assert home.executors() == {}


async def test_without_its_lease_an_engine_answers_no_beats_and_attaches_no_executor(autojump_clock):
    async with world() as home:
        executor = await home.executor(beat=1.0)
        registry = home.engine.executors._registry
        await trio.sleep(2.5)
        registry.may_answer = lambda: False
        count = len(executor.beaten)
        assert count >= 2
        await trio.sleep(TTL - 3)
        assert len(executor.beaten) == count
        with pytest.raises(AssertionError, match="engine cannot reach its store"):
            await home.executor("e2")
        assert home.executors() == {"e1": "attached"}
        await trio.sleep(10)
        assert home.executors() == {}


async def test_a_disconnected_executor_keeps_its_bodies_until_the_ttl(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "once")
        await executor.leave()
        assert home.executors() == {"e1": "disconnected"}
        await trio.sleep(TTL - 1)
        assert (await home.attach(executor, resume=True))["resumed"]
        await executor.end(body, value=1)
        assert await ticket.result() == 1


async def test_no_body_begins_at_a_disconnected_executor(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        await executor.leave()
        ticket = await home.engine.submit("work", handle="h", params={})
        await trio.sleep(5)
        assert (await home.run(ticket)).waiting_for == "executor"
        await home.attach(executor, resume=True)
        await executor.receive("execute")


@pytest.mark.parametrize("disconnects", [True, False])
async def test_a_lost_executor_counts_as_a_death_if_its_connection_was_closed(autojump_clock, disconnects):
    async with world() as home:
        ticket = await home.engine.submit("resumable", handle="h", params={})
        for number in range(4):
            executor = await home.executor(f"e{number}", beat=None)
            if (await home.run(ticket)).ended:
                break
            await executor.receive("execute")
            if disconnects:
                await executor.leave()
            await trio.sleep(TTL + 1)
        run = await home.run(ticket)
        if disconnects:
            assert (number, run.status, run.reason) == (3, Status.FAILED, "killed")
        else:
            assert (number, run.status, run.attempt) == (3, Status.SUSPENDED, 1)


async def test_the_runs_of_a_lost_executor_continue_elsewhere_with_their_checkpoint(autojump_clock):
    async with world() as home:
        lost = await home.executor("e1", beat=None)
        ticket, body = await home.begin(lost, "resumable")
        await lost.ask(body, "checkpoint", value={"page": 7}, interrupts=0, calls=0)
        other = await home.executor("e2")
        again = await other.receive("execute")
        assert (again["checkpoint"], again["attempt"]) == ({"page": 7}, 1)
        assert again["fence"] > body["fence"]
        await other.end(again, value=1)
        assert await ticket.result() == 1


async def test_what_a_lost_executor_still_reports_changes_nothing(autojump_clock):
    async with world() as home:
        lost = await home.executor("e1", beat=None)
        ticket, body = await home.begin(lost, "resumable")
        other = await home.executor("e2")
        again = await other.receive("execute")
        answer = await home.attach(lost, resume=True, bodies=[live(body)])
        assert (answer["resumed"], answer.get("bodies")) == (False, None)
        assert (await lost.ask(body, "log", text="late", level="info"))["code"] == "abandoned"
        await lost.report(body, "progress", done=99, total=100)
        await lost.end(body, value="late")
        await other.end(again, value="right")
        assert await ticket.result() == "right"


# Refused bodies.


async def test_a_refused_body_executes_elsewhere_without_a_lost_attempt(autojump_clock):
    async with world() as home:
        unfit = await home.executor("a")
        ticket, body = await home.begin(unfit, "once")
        await unfit.end(body, "refused", error="no such module")
        await trio.sleep(5)
        assert unfit.has("execute") == 0
        fit = await home.executor("b")
        again = await fit.receive("execute")
        assert again["attempt"] == 1
        await fit.end(again, value=1)
        assert await ticket.result() == 1


async def test_a_new_process_gets_the_job_that_the_last_one_has_refused(autojump_clock):
    async with world() as home:
        first = await home.executor(start="p1")
        ticket, body = await home.begin(first, "once")
        await first.end(body, "refused", error="no such module")
        await first.leave()
        second = await home.executor(start="p2")
        await second.end(await second.receive("execute"), value=1)
        assert await ticket.result() == 1


async def test_different_terms_of_a_job_are_logged_unless_the_engine_has_the_job(autojump_clock, caplog):
    async with world() as home:
        for name, attempts in (("e1", 1), ("e2", 2)):
            jobs = [{"name": job, "max_attempts": attempts} for job in ("work", "new")]
            await home.executor(name, *jobs)
    assert "executor e2 announces job new with other parameters or options" in caplog.text
    assert "announces job work" not in caplog.text


async def test_a_refused_body_of_an_announced_job_fails_the_run(autojump_clock):
    async with world(Jobs()) as home:
        executor = await home.executor("e1", {"name": "theirs", "params": {"type": "object"}})
        ticket, body = await home.begin(executor, "theirs")
        await executor.end(body, "refused", error="params.x must be a number")
        with pytest.raises(RunFailed, match=r"params\.x must be a number"):
            await ticket.result()


# Drain.


async def test_a_drained_executor_gets_no_new_bodies_and_is_gone_when_it_leaves(autojump_clock, caplog):
    caplog.set_level(logging.INFO)
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, handle="a")
        await home.engine.executors.drain("e1")
        await executor.receive("drain")
        assert home.executors() == {"e1": "draining"}
        waiting = await home.engine.submit("work", handle="b", params={})
        await trio.sleep(1)
        assert executor.has("execute") == 0
        await executor.send({"type": "draining"})
        await executor.end(body, value=1)
        assert await ticket.result() == 1
        await executor.leave()
        assert home.executors() == {}
        assert (await home.run(waiting)).waiting_for == "executor"
        assert home.engine.executors.lost == 0
    assert "executor e1 has drained and left" in caplog.text


async def test_a_drain_is_not_forgotten_if_the_connection_is_lost_before_the_executor_knows(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        executor.acknowledges = False
        await home.engine.executors.drain("e1")
        await executor.receive("drain")
        await executor.leave()
        assert home.executors() == {"e1": "disconnected"}
        executor.received -= 1
        await home.attach(executor, resume=True)
        await executor.receive("drain")
        assert home.executors() == {"e1": "draining"}


async def test_an_executor_that_does_not_exist_cannot_be_drained(autojump_clock):
    async with world() as home:
        with pytest.raises(NotFound, match="missing"):
            await home.engine.executors.drain("missing")


async def test_an_executor_that_drains_by_itself_gets_no_new_bodies(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        await executor.send({"type": "draining"})
        await home.engine.submit("work", handle="b", params={})
        await trio.sleep(1)
        assert executor.has("execute") == 0
        assert home.executors() == {"e1": "draining"}


class SlowStarts(MemoryStore):
    """Does not commit the start of a run until `goes_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = trio.Event()

    async def commit(self, batch: Batch) -> None:
        if any(isinstance(event, RunStateChanged) and event.to is Status.RUNNING for event in batch.events):
            await self.goes_on.wait()
        await super().commit(batch)


@pytest.mark.parametrize("leaves", [False, True], ids=["drains", "leaves"])
async def test_a_run_loses_no_attempt_if_its_executor_drains_while_its_start_is_committed(
    autojump_clock, leaves
):
    store = SlowStarts()
    async with world(store=store) as home:
        ticket = await home.engine.submit("once", handle="a", params={})
        executor = await home.executor()
        await trio.sleep(1)
        await executor.send({"type": "draining"})
        await trio.sleep(1)
        if leaves:
            await executor.leave()
        store.goes_on.set()
        await trio.sleep(1)
        assert executor.has("execute") == 0
        other = await home.executor("e2")
        again = await other.receive("execute")
        assert (again["run"], again["attempt"]) == (ticket.id, 1)
        await other.end(again, value=1)
        assert await ticket.result() == 1


async def test_at_the_time_limit_of_a_drain_bodies_are_suspended_or_cancelled(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        resumable, body = await home.begin(executor, "resumable", handle="a")
        single, other = await home.begin(executor, "once", handle="b")
        await executor.send({"type": "draining", "now": True})
        while len(stopped := {each["run"] for each in executor.pending if each.get("stop")}) < 2:  # noqa: ASYNC110
            await trio.sleep(0.1)
        assert stopped == {resumable.id, single.id}
        await executor.end(body, "stopped")
        await executor.end(other, "stopped")
        assert (await home.until_status(single, Status.CANCELLED)).reason == "shutdown"
        elsewhere = await home.executor("e2")
        again = await elsewhere.receive("execute")
        assert (again["run"], again["attempt"]) == (resumable.id, 1)
        await elsewhere.end(again, value=1)
        assert await resumable.result() == 1


# Ends.


async def test_a_repeated_end_is_settled_again(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor)
        await executor.end(body, value=1)
        await executor.end(body, value=2)
        assert await ticket.result() == 1


async def test_a_body_that_was_stopped_without_a_request_is_executed_again(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor)
        await executor.end(body, "stopped")
        again = await executor.receive("execute")
        assert again["attempt"] == 2
        await executor.end(again, "stopped")
        with pytest.raises(RunFailed, match="its executor stopped the body"):
            await ticket.result()


async def test_a_body_that_is_refused_after_it_released_its_slot_is_executed_again(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor)
        await executor.ask(body, "release_slot", waiting_for="message")
        await executor.end(body, "refused", error="never began")
        await home.engine.inject(ticket.id, "wake")
        again = await executor.receive("execute")
        assert again["attempt"] == 2
        await executor.end(again, value=1)
        assert await ticket.result() == 1


async def test_a_refused_body_leaves_no_open_interrupt(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor)
        await executor.ask(body, "interrupt", data="Deploy?", timeout=100, key="1")
        assert len((await home.engine.snapshot()).interrupts) == 1
        await executor.end(body, "refused", error="never began")
        await home.until(lambda now: now.runs[ticket.id].status == Status.QUEUED or not now.interrupts)
        assert (await home.engine.snapshot()).interrupts == {}


@pytest.mark.parametrize("delay", [-1.0, -1e308])
async def test_an_invalid_delay_before_a_retry_is_replaced_by_the_default(autojump_clock, delay):
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor)
        await executor.end(body, "raised", error="ValueError", retry_after=delay)
        with trio.fail_after(3):
            again = await executor.receive("execute")
        await executor.end(again, value=1)
        assert await ticket.result() == 1


async def test_a_body_can_withdraw_any_number_of_interrupts(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor)
        for number in range(1100):
            await executor.ask(body, "interrupt", data=1, timeout=100, key=str(number))
            await executor.report(body, "withdraw", key=str(number))
        await executor.end(body, value=1)
        assert await ticket.result() == 1


async def test_a_body_can_drop_any_number_of_child_runs_that_it_awaits(autojump_clock):
    async with world() as home:
        executor = await home.executor(slots=1)
        ticket, body = await home.begin(executor)
        child = (await executor.ask(body, "call_child", position=1, job="once", handle="c", params={}))[
            "value"
        ]
        for _ in range(1100):
            await executor.call(body, "await_child", run=child)
            await executor.report(body, "drop_child", run=child)
        await executor.end(body, value=1)
        assert await ticket.result() == 1


@pytest.mark.parametrize("late", [False, True])
async def test_the_child_of_a_cancelled_call_is_cancelled(autojump_clock, late):
    async with world() as home:
        executor = await home.executor(slots=1)
        ticket, body = await home.begin(executor)
        call = executor.calling(body, 7, "call_child", position=1, job="once", handle="c", params={})
        cancel = {"type": "cancel_call", "run": ticket.id, "fence": body["fence"], "call": 7}
        if late:  # the answer is sent before the cancel is received
            await executor.send(call)
            child = (await executor.answer(7))["value"]
            await executor.send(cancel)
        else:
            await executor.send(call, cancel)
            await executor.answer(7)
            await trio.sleep(1)
            runs = (await home.engine.snapshot()).runs
            child = next((id for id, run in runs.items() if run.handle == "c"), None)
        if child is not None:
            await home.until(lambda now: now.runs[child].status == Status.CANCELLED)
        await executor.end(body, value=1)
        assert await ticket.result() == 1


@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_run_whose_body_ignores_a_drain_continues_when_the_body_is_gone(autojump_clock, is_lost):
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "resumable")
        await executor.send({"type": "draining", "now": True})
        await executor.receive("cancel")
        elsewhere = await home.executor("e2")
        await trio.sleep(TTL)
        assert elsewhere.has("execute") == 0
        if is_lost:
            await executor.leave()
        else:
            await executor.end(body, "stopped")
        again = await elsewhere.receive("execute")
        assert (again["run"], again["attempt"]) == (ticket.id, 1)
        await elsewhere.end(again, value=1)
        assert await ticket.result() == 1


@pytest.mark.parametrize("order", range(12))  # the order of tasks is random
async def test_a_message_is_not_sent_on_a_connection_that_was_replaced(autojump_clock, order):
    async with world() as home:
        executor = await home.executor(beat=None)
        executor.connection = None  # the engine has not noticed its end
        peer = home.engine.executors._registry.peers["e1"]

        async def attach() -> None:
            assert (await home.attach(executor, resume=True))["resumed"]

        home.nursery.start_soon(attach)
        for _ in range(order % 6):
            await trio.lowlevel.checkpoint()
        peer.send(Drain())
        assert await executor.receive("drain")


@pytest.mark.parametrize("order", range(12))  # the order of tasks is random
async def test_a_frame_of_a_connection_that_was_replaced_is_not_of_the_new_session(autojump_clock, order):
    async with world() as home:
        executor = await home.executor(beat=None)
        executor.acknowledges = False
        _ticket, body = await home.begin(executor)
        old, executor.connection = executor.connection, None
        late = about(body, "call", call=99, request={"type": "log", "text": "old", "level": "info"})

        async def attach() -> None:
            assert not (await home.attach(executor, bodies=[live(body)]))["resumed"]

        home.nursery.start_soon(attach)
        for _ in range(order % 6):
            await trio.lowlevel.checkpoint()
        with suppress(trio.BrokenResourceError):  # the engine has already closed it
            await old.send(json.dumps({"type": "frame", "first": 1, "ack": 0, "messages": [late]}).encode())
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(5):
            assert (await executor.ask(body, "log", text="new", level="info")).get("code") is None
