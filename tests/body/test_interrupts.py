"""Interrupts: answers, other ways to close them, and which answers are kept."""

import math

import pytest
import trio
import trio.testing

from greenroom import Jobs, Run
from greenroom.errors import Conflict, Invalid, RunCancelled, RunFailed, RunTimedOut
from greenroom.protocol.events import InterruptClosed, InterruptOpened
from tests.support import open_engine

settled = trio.testing.wait_all_tasks_blocked
DAY = 24 * 3600.0


def with_body(body, **options):
    """A registry with the job `work`, and the job `other`, which lasts until it is cancelled."""
    jobs = Jobs()
    jobs.job("work", **options)(body)
    jobs.job("other", run_timeout=math.inf)(idle)
    return jobs


async def idle(run: Run):
    await trio.sleep_forever()


async def ask(run: Run):
    return await run.interrupt("may I?")


async def open_interrupts(engine):
    """The open interrupts, oldest first: (id, state)."""
    return list((await engine.snapshot()).interrupts.items())


async def interrupt_of(engine, ticket):
    """The id of the one open interrupt of a run."""
    await settled()
    [id] = [id for id, interrupt in await open_interrupts(engine) if interrupt.run == ticket.id]
    return id


async def status_of(engine, ticket):
    return (await engine.get_run(ticket.id)).status


# Answers.


@pytest.mark.parametrize("release_slot", [False, True])
async def test_an_answer_resolves_the_interrupt_and_reaches_the_body(release_slot, autojump_clock):
    async def body(run: Run):
        return await run.interrupt({"delete": "everything?"}, release_slot=release_slot)

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        interrupt = await interrupt_of(engine, ticket)
        assert await engine.answer(interrupt, {"approved": True}) == "resolved"
        assert await ticket.result() == {"approved": True}


@pytest.mark.parametrize("answer", [None, False, 0, "", [], {}])
async def test_an_empty_answer_is_an_answer(answer, autojump_clock):
    async with open_engine(with_body(ask), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        assert await engine.answer(await interrupt_of(engine, ticket), answer) == "resolved"
        assert await ticket.result() == answer
        assert trio.current_time() < 300


async def test_a_second_answer_finds_the_interrupt_resolved_while_the_run_continues(autojump_clock):
    async def body(run: Run):
        answer = await run.interrupt("may I?")
        await trio.sleep(10)
        return answer

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        interrupt = await interrupt_of(engine, ticket)
        await engine.answer(interrupt, "first")
        assert await engine.answer(interrupt, "second") == "already_resolved"
        assert await ticket.result() == "first"


async def test_a_second_answer_finds_the_interrupt_resolved_when_the_run_has_ended(autojump_clock):
    async with open_engine(with_body(ask), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        interrupt = await interrupt_of(engine, ticket)
        await engine.answer(interrupt, "first")
        await ticket.result()
        assert await engine.answer(interrupt, "second") == "already_resolved"


async def test_one_of_many_concurrent_answers_resolves_the_interrupt(autojump_clock):
    outcomes = []

    async with open_engine(with_body(ask), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        interrupt = await interrupt_of(engine, ticket)

        async def answer(number):
            outcomes.append((await engine.answer(interrupt, number), number))

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(answer, number)
        [winner] = [number for outcome, number in outcomes if outcome == "resolved"]
        assert await ticket.result() == winner
    assert sorted(outcome for outcome, _ in outcomes) == ["already_resolved"] * 19 + ["resolved"]


async def test_an_interrupt_that_was_never_opened_is_not_found(autojump_clock):
    async with open_engine(with_body(ask), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        interrupt = await interrupt_of(engine, ticket)
        for id in ("", "nothing", ticket.id, "alice", interrupt + "1", interrupt + ".1", "0" * 32 + ".1"):
            assert await engine.answer(id, "yes") == "not_found", id
        await engine.answer(interrupt, "yes")


async def test_an_answer_that_is_no_json_value_is_refused_and_the_interrupt_stays_open(autojump_clock):
    async with open_engine(with_body(ask), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        interrupt = await interrupt_of(engine, ticket)
        with pytest.raises(Invalid, match=r"data\.n"):
            await engine.answer(interrupt, {"n": {1, 2}})
        assert await engine.answer(interrupt, "yes") == "resolved"


async def test_a_body_that_changes_an_answer_changes_neither_history_nor_the_kept_answer(autojump_clock):
    async def body(run: Run):
        answer = await run.interrupt("may I?")
        before = list(answer["pages"])
        answer["pages"].append(2)
        if run.attempt == 1:
            raise ConnectionError
        return before

    async with open_engine(with_body(body, max_attempts=2), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await engine.answer(await interrupt_of(engine, ticket), {"pages": [1]})
        assert await ticket.result() == [1]
        closed = [event for event in await engine.history(ticket.id) if isinstance(event, InterruptClosed)]
    assert closed[0].answer == {"pages": [1]}


# Yes or no.

DENIALS = [None, False, 0, "", [], {}, {"approved": False}, {"approved": None}, {"approved": 0}]
DENIALS += [{"approved": "no"}, {"approved": "yes"}, {"approved": 1}, {"approved": False, "reason": "no"}]


@pytest.mark.parametrize("answer", DENIALS)
async def test_a_denial_is_false_and_keeps_the_value_of_the_answer(answer, autojump_clock):
    async def body(run: Run):
        given = await run.interrupt("may I?")
        return [bool(given), given, await run.confirm("really?")]

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await engine.answer(await interrupt_of(engine, ticket), answer)
        await engine.answer(await interrupt_of(engine, ticket), answer)
        assert await ticket.result() == [False, answer, False]


@pytest.mark.parametrize("answer", [True, {"approved": True}, {"approved": True, "reason": "of course"}])
async def test_what_approves_is_true_and_confirms(answer, autojump_clock):
    async def body(run: Run):
        given = await run.interrupt("may I?")
        return [bool(given), given, await run.confirm("really?")]

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await engine.answer(await interrupt_of(engine, ticket), answer)
        await engine.answer(await interrupt_of(engine, ticket), answer)
        assert await ticket.result() == [True, answer, True]


@pytest.mark.parametrize("answer", [1, "yes", "no", ["approved"], {"yes": True}])
async def test_an_answer_that_is_no_yes_or_no_keeps_its_truth_and_confirms_nothing(answer, autojump_clock):
    async def body(run: Run):
        given = await run.interrupt("may I?")
        return [bool(given), given, await run.confirm("really?")]

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await engine.answer(await interrupt_of(engine, ticket), answer)
        await engine.answer(await interrupt_of(engine, ticket), answer)
        assert await ticket.result() == [True, answer, False]


@pytest.mark.parametrize("leave", [False, True])
async def test_a_cancel_and_a_shutdown_deny(leave, autojump_clock):
    seen = []

    async def body(run: Run):
        answer = await run.interrupt("delete production?", release_slot=not leave)
        seen.append((bool(answer), answer["approved"]))

    async def confirms(run: Run):
        seen.append((await run.confirm("delete production?"), False))

    jobs = with_body(body, cancel="cooperative")
    jobs.job("confirms", cancel="cooperative")(confirms)
    async with open_engine(jobs, store="memory:") as engine:
        tickets = [await engine.submit(job, handle=job) for job in ("work", "confirms")]
        await settled()
        if not leave:
            for ticket in tickets:
                await ticket.cancel()
    assert seen == [(False, False)] * 2


async def test_a_timeout_confirms_nothing(autojump_clock):
    async def body(run: Run):
        return await run.confirm("may I?", timeout=5, key="mine", release_slot=True)

    async with open_engine(with_body(body), store="memory:") as engine:
        assert await (await engine.submit("work", handle="alice")).result() is False


# The visible state of an interrupt.


async def test_an_open_interrupt_is_in_the_snapshot(autojump_clock):
    async def body(run: Run):
        await run.interrupt({"text": "may I?"}, timeout=60, key="permission")

    async with open_engine(
        with_body(body), store="memory:", clock=lambda: 1000 + trio.current_time()
    ) as engine:
        begun = 1000 + trio.current_time()
        ticket = await engine.submit("work", handle="alice")
        await settled()
        [(_, interrupt)] = await open_interrupts(engine)
        assert (interrupt.run, interrupt.key, interrupt.data) == (ticket.id, "permission", {"text": "may I?"})
        assert (interrupt.opened_at, interrupt.deadline) == (begun, begun + 60)
        await ticket.result()
        assert await open_interrupts(engine) == []


async def test_an_interrupt_without_a_timeout_has_no_deadline(autojump_clock):
    async def body(run: Run):
        return await run.interrupt("may I?", timeout=math.inf)

    async with open_engine(with_body(body, run_timeout=math.inf), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        interrupt = await interrupt_of(engine, ticket)
        assert (await engine.snapshot()).interrupts[interrupt].deadline is None
        await trio.sleep(100 * DAY)
        await engine.answer(interrupt, "late")
        assert await ticket.result() == "late"


async def test_opening_and_answering_are_events_that_name_who_answered(autojump_clock):
    async with open_engine(with_body(ask), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        interrupt = await interrupt_of(engine, ticket)
        await engine.answer(interrupt, "yes", by="bob")
        await ticket.result()
        history = await engine.history(ticket.id)
    opened = [event for event in history if isinstance(event, InterruptOpened)]
    closed = [event for event in history if isinstance(event, InterruptClosed)]
    assert [(event.interrupt, event.data, event.by) for event in opened] == [(interrupt, "may I?", "body")]
    assert [(event.interrupt, event.outcome, event.answer, event.by) for event in closed] == [
        (interrupt, "answered", "yes", "bob")
    ]


async def test_interrupts_of_two_tasks_are_open_together_and_answered_separately(autojump_clock):
    async def body(run: Run):
        answers = {}

        async def one(key):
            answers[key] = await run.interrupt(f"{key}?", key=key)

        async with trio.open_nursery() as nursery:
            for key in ("a", "b"):
                nursery.start_soon(one, key)
        return answers

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        for id, interrupt in reversed(await open_interrupts(engine)):
            await engine.answer(id, f"answer to {interrupt.data}")
        assert await ticket.result() == {"a": "answer to a?", "b": "answer to b?"}


async def test_a_key_of_an_open_interrupt_can_not_be_used_again(autojump_clock):
    async def body(run: Run):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.interrupt, "first", 10, "same")
            await settled()
            with pytest.raises(Conflict):
                await run.interrupt("second", 10, "same")

    async with open_engine(with_body(body), store="memory:") as engine:
        await (await engine.submit("work", handle="alice")).result()


@pytest.mark.parametrize("key", [["a"], {"a": 1}, 7, "\ud800"])
async def test_a_key_that_is_no_text_fails_the_run_and_not_the_engine(key, autojump_clock):
    async def body(run: Run):
        await run.interrupt("may I?", timeout=5, key=key)

    async with open_engine(with_body(body), store="memory:") as engine:
        with pytest.raises(RunFailed, match="key"):
            await (await engine.submit("work", handle="alice")).result()


# Ends without an answer.


@pytest.mark.parametrize("release_slot", [False, True])
@pytest.mark.parametrize(("timeout", "seconds"), [(None, 300), (7, 7), (0, 0)])
async def test_without_an_answer_in_time_it_is_none(release_slot, timeout, seconds, autojump_clock):
    async def body(run: Run):
        begun = trio.current_time()
        answer = await run.interrupt("may I?", timeout=timeout, release_slot=release_slot)
        return [answer, trio.current_time() - begun]

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        assert await ticket.result() == [None, seconds]
        closed = [event for event in await engine.history(ticket.id) if isinstance(event, InterruptClosed)]
        assert [event.outcome for event in closed] == ["timed_out"]
        assert await engine.answer(closed[0].interrupt, "too late") == "already_resolved"


async def test_the_default_timeout_is_five_minutes(autojump_clock):
    async def body(run: Run):
        begun = trio.current_time()
        await run.interrupt("may I?")
        return trio.current_time() - begun

    async with open_engine(with_body(body), store="memory:") as engine:
        assert await (await engine.submit("work", handle="alice")).result() == 300


@pytest.mark.parametrize("release_slot", [False, True])
async def test_a_cancel_answers_the_open_interrupts_and_then_ends_the_body(release_slot, autojump_clock):
    answers = []

    async def body(run: Run):
        answers.append(await run.interrupt("may I?", release_slot=release_slot))
        await trio.sleep_forever()

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        interrupt = await interrupt_of(engine, ticket)
        await ticket.cancel(by="bob")
        with pytest.raises(RunCancelled):
            await ticket.result()
        assert await engine.answer(interrupt, "too late") == "already_resolved"
        closed = [event for event in await engine.history(ticket.id) if isinstance(event, InterruptClosed)]
    assert answers == [{"approved": False, "reason": "cancelled"}]
    assert [(event.outcome, event.answer, event.by) for event in closed] == [
        ("cancelled", {"approved": False, "reason": "cancelled"}, "bob")
    ]


async def test_an_interrupt_opened_after_the_cancel_is_answered_immediately(autojump_clock):
    async def body(run: Run):
        await cancelling.wait()
        assert run.cancel_requested
        begun = trio.current_time()
        answers.append(await run.interrupt("may I?"))
        assert trio.current_time() == begun

    answers, cancelling = [], trio.Event()
    async with open_engine(with_body(body, cancel="cooperative"), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel()
        await settled()
        cancelling.set()
        await ticket.wait()
    assert answers == [{"approved": False, "reason": "cancelled"}]


@pytest.mark.parametrize("release_slot", [False, True])
async def test_leaving_the_engine_answers_with_shutdown(release_slot, autojump_clock):
    answers = []

    async def body(run: Run):
        answers.append(await run.interrupt("may I?", release_slot=release_slot))
        await trio.sleep(1)
        answers.append(await run.interrupt("and now?"))

    async with open_engine(with_body(body), store="memory:") as engine:
        await engine.submit("work", handle="alice")
        await settled()
        left = trio.current_time()
    assert answers == [{"approved": False, "reason": "shutdown"}] * 2
    assert trio.current_time() == left + 1, "the interrupts did not time out"


async def test_the_end_of_a_run_closes_its_open_interrupts(autojump_clock):
    async def body(run: Run):
        with trio.CancelScope(shield=True):
            await run.interrupt("may I?", timeout=1000)

    async with open_engine(with_body(body, run_timeout=2000), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice", deadline=60)
        await ticket.wait(100)  # it is abandoned at 70
        assert await status_of(engine, ticket) == "timed_out"
        assert await open_interrupts(engine) == []


# Withdrawn interrupts.


@pytest.mark.parametrize("release_slot", [False, True])
async def test_an_interrupt_that_the_body_no_longer_waits_for_is_withdrawn(release_slot, autojump_clock):
    async def body(run: Run):
        with trio.move_on_after(10):
            await run.interrupt("may I?", release_slot=release_slot)
        await trio.sleep(10)
        return "went on"

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        interrupt = await interrupt_of(engine, ticket)
        await trio.sleep(15)
        assert await open_interrupts(engine) == []
        assert await status_of(engine, ticket) == "running"
        assert await engine.answer(interrupt, "too late") == "already_resolved"
        assert await ticket.result() == "went on"


async def test_a_withdrawn_interrupt_can_be_opened_again_with_its_key(autojump_clock):
    async def body(run: Run):
        with trio.move_on_after(10):
            await run.interrupt("first?", key="permission")
        return await run.interrupt("second?", key="permission")

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(15)
        interrupt = await interrupt_of(engine, ticket)
        assert (await engine.snapshot()).interrupts[interrupt].data == "second?"
        await engine.answer(interrupt, "yes")
        assert await ticket.result() == "yes"


# Kept answers.


async def test_an_answer_is_kept_for_the_next_attempt_that_uses_the_same_key(autojump_clock):
    async def body(run: Run):
        answer = await run.interrupt("may I?", key="permission")
        if run.attempt == 1:
            raise ConnectionError
        return answer

    async with open_engine(with_body(body, max_attempts=2), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await engine.answer(await interrupt_of(engine, ticket), "yes")
        assert await ticket.result() == "yes"
        opened = [event for event in await engine.history(ticket.id) if isinstance(event, InterruptOpened)]
    assert len(opened) == 1, "the interrupt is opened once"


async def test_without_a_key_the_number_of_the_interrupt_is_its_key(autojump_clock):
    async def body(run: Run):
        answers = [await run.interrupt("first?"), await run.interrupt("second?")]
        if run.attempt == 1:
            raise ConnectionError
        return [*answers, await run.interrupt("third?")]

    async with open_engine(with_body(body, max_attempts=2), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        asked = []
        for answer in ("1", "2", "3"):
            await trio.sleep(10)
            interrupt = await interrupt_of(engine, ticket)
            asked.append((await engine.snapshot()).interrupts[interrupt].data)
            await engine.answer(interrupt, answer)
        assert await ticket.result() == ["1", "2", "3"]
    assert asked == ["first?", "second?", "third?"]


async def test_an_interrupt_that_timed_out_is_opened_again_by_the_next_attempt(autojump_clock):
    async def body(run: Run):
        answer = await run.interrupt("may I?", timeout=10)
        if run.attempt == 1:
            raise ConnectionError
        return answer

    async with open_engine(with_body(body, max_attempts=2), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(15)
        await engine.answer(await interrupt_of(engine, ticket), "now")
        assert await ticket.result() == "now"


async def test_an_answer_given_to_none_is_kept_as_well(autojump_clock):
    async def body(run: Run):
        answer = await run.interrupt("may I?", timeout=10)
        if run.attempt == 1:
            raise ConnectionError
        return [answer, trio.current_time() - begun]

    async with open_engine(with_body(body, max_attempts=2, backoff=1), store="memory:") as engine:
        begun = trio.current_time()
        ticket = await engine.submit("work", handle="alice")
        await engine.answer(await interrupt_of(engine, ticket), None)
        assert await ticket.result() == [None, 1]


async def test_kept_answers_are_those_of_the_same_run_only(autojump_clock):
    async def body(run: Run):
        return await run.interrupt("may I?", key="permission", timeout=10)

    async with open_engine(with_body(body), store="memory:") as engine:
        first = await engine.submit("work", handle="alice")
        await engine.answer(await interrupt_of(engine, first), "yes")
        await first.result()
        second = await engine.submit("work", handle="alice", kind="continue")
        assert await second.result() is None


# Waiting without the slot.


async def test_an_interrupt_keeps_the_slot_by_default(autojump_clock):
    async with open_engine(with_body(ask), store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="alice")
        other = await engine.submit("other", handle="bob")
        interrupt = await interrupt_of(engine, ticket)
        assert await status_of(engine, ticket) == "running"
        assert await status_of(engine, other) == "queued"
        await engine.answer(interrupt, "yes")
        await ticket.result()
        await other.cancel()


async def test_release_slot_suspends_the_run_and_another_run_gets_its_slot(autojump_clock):
    async def body(run: Run):
        return await run.interrupt("may I?", release_slot=True)

    async with open_engine(with_body(body), store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="alice")
        other = await engine.submit("other", handle="bob")
        interrupt = await interrupt_of(engine, ticket)
        run = await engine.get_run(ticket.id)
        assert (run.status, run.waiting_for) == ("suspended", "answer")
        assert await status_of(engine, other) == "running"
        snapshot = await engine.snapshot()
        assert snapshot.lanes["main"].executing == [other.id]
        assert snapshot.handles["alice"].active_run == ticket.id
        await engine.answer(interrupt, "yes")
        await other.cancel()
        assert await ticket.result() == "yes"


async def test_after_a_released_wait_the_body_continues_only_with_a_slot(autojump_clock):
    went_on = []

    async def body(run: Run):
        answer = await run.interrupt("may I?", release_slot=True)
        went_on.append(trio.current_time() - begun)
        return answer

    begun = trio.current_time()
    async with open_engine(with_body(body), store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="alice")
        other = await engine.submit("other", handle="bob")
        await engine.answer(await interrupt_of(engine, ticket), "yes")
        await trio.sleep(100)
        assert await status_of(engine, ticket) == "suspended"
        assert went_on == []
        await other.cancel()
        assert await ticket.result() == "yes"
    assert went_on == [100]


async def test_a_withdrawn_interrupt_gets_its_slot_back_before_the_body_continues(autojump_clock):
    went_on = []

    async def body(run: Run):
        with trio.move_on_after(10):
            await run.interrupt("may I?", release_slot=True)
        went_on.append(trio.current_time() - begun)

    begun = trio.current_time()
    async with open_engine(with_body(body), store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="alice")
        other = await engine.submit("other", handle="bob")
        await trio.sleep(60)
        assert await open_interrupts(engine) == [], "it is no longer open"
        assert went_on == []
        await other.cancel()
        await ticket.result()
    assert went_on == [60]


async def test_a_timeout_with_the_slot_must_be_shorter_than_what_is_left_to_the_run(autojump_clock):
    async def body(run: Run):
        await trio.sleep(40)
        with pytest.raises(Invalid, match="60"):
            await run.interrupt("may I?", timeout=60)
        return await run.interrupt("may I?", timeout=59)

    async with open_engine(with_body(body, run_timeout=100), store="memory:") as engine:
        assert await (await engine.submit("work", handle="alice")).result() is None


async def test_an_infinite_timeout_with_the_slot_is_refused_in_a_run_with_a_run_timeout(autojump_clock):
    async def body(run: Run):
        await run.interrupt("may I?", timeout=math.inf)

    async with open_engine(with_body(body), store="memory:") as engine:
        with pytest.raises(RunFailed, match="release_slot"):
            await (await engine.submit("work", handle="alice")).result()


async def test_a_week_without_the_slot_does_not_use_up_the_time_of_the_run(autojump_clock):
    async def body(run: Run):
        answer = await run.interrupt("may I?", timeout=8 * DAY, release_slot=True)
        await trio.sleep(50)
        return answer

    async with open_engine(with_body(body, run_timeout=60), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        interrupt = await interrupt_of(engine, ticket)
        await trio.sleep(7 * DAY)
        await engine.answer(interrupt, "at last")
        assert await ticket.result() == "at last"


async def test_time_before_and_after_a_released_wait_counts_together(autojump_clock):
    async def body(run: Run):
        await trio.sleep(40)
        await run.interrupt("may I?", timeout=DAY, release_slot=True)
        await trio.sleep_forever()

    begun = trio.current_time()
    async with open_engine(with_body(body, run_timeout=60), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        with pytest.raises(RunTimedOut) as timed_out:
            await ticket.result()
    assert timed_out.value.run.reason == "run_timeout"
    assert trio.current_time() - begun == 40 + DAY + 20


async def test_a_wait_without_the_slot_ends_at_the_deadline(autojump_clock):
    async def body(run: Run):
        await run.interrupt("may I?", timeout=8 * DAY, release_slot=True)

    begun = trio.current_time()
    async with open_engine(with_body(body, deadline=7 * DAY), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        with pytest.raises(RunTimedOut) as timed_out:
            await ticket.result()
        assert await open_interrupts(engine) == []
    assert timed_out.value.run.reason == "deadline"
    assert trio.current_time() - begun == 7 * DAY


async def test_one_wait_without_the_slot_at_a_time(autojump_clock):
    async def body(run: Run):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.interrupt, "first?", 10, "first", True)
            await settled()
            for second in (
                lambda: run.interrupt("second?", key="second", release_slot=True),
                lambda: run.sleep(1),
                lambda: run.call("work", handle="of the child"),
            ):
                with pytest.raises(Conflict):
                    await second()
        await run.sleep(1)  # afterwards another one is allowed
        return "done"

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        assert await ticket.result() == "done"


async def test_while_the_run_waits_without_its_slot_another_task_can_open_an_interrupt(autojump_clock):
    async def body(run: Run):
        answers = []

        async def first():
            answers.append(await run.interrupt("first?", 100, "first", True))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            await settled()
            answers.append(await run.interrupt("second?", 10, "second"))
        return answers

    async with open_engine(with_body(body), store="memory:") as engine:
        assert await (await engine.submit("work", handle="alice")).result() == [None, None]


async def test_a_kept_answer_releases_no_slot(autojump_clock):
    async def body(run: Run):
        answer = await run.interrupt("may I?", release_slot=True)
        if run.attempt == 1:
            raise ConnectionError
        return answer

    async with open_engine(with_body(body, max_attempts=2), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await engine.answer(await interrupt_of(engine, ticket), "yes")
        assert await ticket.result() == "yes"
        history = await engine.history(ticket.id)
    waits = [e for e in history if e.type == "run_state_changed" and e.waiting_for == "answer"]
    assert len(waits) == 1


@pytest.mark.parametrize("number", ["9" * 5000, "2", "0", "-1", "1.0", "x", ""])
async def test_an_answer_under_an_id_that_the_run_never_gave_is_not_found(number, autojump_clock):
    async with open_engine(with_body(ask), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        interrupt = await interrupt_of(engine, ticket)
        assert await engine.answer(f"{ticket.id}.{number}", "no") == "not_found"
        assert await engine.answer(interrupt, "yes") == "resolved"
        assert await ticket.result() == "yes"
