"""Messages to a body: when they are accepted, the order in which they arrive, and that none is lost."""

import pytest
import trio
import trio.testing

from greenroom import Jobs, Run
from greenroom.errors import (
    Compacting,
    Conflict,
    Invalid,
    NoActiveRun,
    NotInteractive,
    NotStreaming,
    QueueFull,
    RunCancelled,
    RunFailed,
    RunTimedOut,
    TooLarge,
)
from greenroom.protocol.events import RunMessage
from tests.support import open_engine

settled = trio.testing.wait_all_tasks_blocked


def with_body(body, **options):
    """A registry with one job, `work`."""
    jobs = Jobs()
    jobs.job("work", **options)(body)
    return jobs


async def idle(run: Run):
    await trio.sleep_forever()


async def take_until_stop(run: Run):
    """Return all messages before `stop`."""
    taken = []
    while (message := await run.next_message()) != "stop":
        taken.append(message)
    return taken


# Target and order of messages.


@pytest.mark.parametrize("target", ["run", "handle"])
async def test_a_message_reaches_the_body_by_its_run_and_by_its_handle(target, autojump_clock):
    async with open_engine(with_body(take_until_stop), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        to = ticket.id if target == "run" else "alice"
        assert await engine.inject(to, {"text": "hello"}) == "accepted"
        assert await engine.inject(to, "stop") == "accepted"
        assert await ticket.result() == [{"text": "hello"}]


async def test_messages_returns_all_waiting_messages_oldest_first_and_then_none(autojump_clock):
    injected = trio.Event()

    async def body(run: Run):
        await injected.wait()
        return [await run.messages(), await run.messages()]

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        for number in range(5):
            await engine.inject("alice", number)
        injected.set()
        assert await ticket.result() == [[0, 1, 2, 3, 4], []]


async def test_next_message_returns_one_message_at_a_time_oldest_first(autojump_clock):
    injected = trio.Event()

    async def body(run: Run):
        await injected.wait()
        return [await run.next_message(), await run.next_message(), await run.messages()]

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        for number in range(4):
            await engine.inject("alice", number)
        injected.set()
        assert await ticket.result() == [0, 1, [2, 3]]


async def test_next_message_waits_for_the_next_message(autojump_clock):
    async def body(run: Run):
        return [await run.next_message(), trio.current_time() - begun]

    begun = trio.current_time()
    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(60)
        await engine.inject("alice", "at last")
        assert await ticket.result() == ["at last", 60]


async def test_each_message_goes_to_one_of_the_tasks_that_wait(autojump_clock):
    async def body(run: Run):
        taken = []

        async def take():
            taken.append(await run.next_message())

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(take)
        return sorted(taken)

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        for number in range(3):
            await engine.inject("alice", number)
        assert await ticket.result() == [0, 1, 2]


async def test_inject_does_not_wait_for_the_body(autojump_clock):
    async with open_engine(with_body(idle), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        with trio.fail_after(0.1):
            assert await engine.inject("alice", "unheard") == "accepted"
        await ticket.cancel()


async def test_an_accepted_message_is_an_event_that_names_its_sender(autojump_clock):
    async with open_engine(with_body(take_until_stop), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await engine.inject("alice", {"n": 1}, by="bob")
        await engine.inject("alice", "stop")
        await ticket.result()
        said = [event for event in await engine.history(ticket.id) if isinstance(event, RunMessage)]
    assert [(event.message, event.by) for event in said] == [({"n": 1}, "bob"), ("stop", "app")]


async def test_a_message_is_copied_when_it_is_sent(autojump_clock):
    message = {"pages": [1]}

    async def body(run: Run):
        await trio.sleep(1)
        return await run.next_message()

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await engine.inject("alice", message)
        message["pages"].append(2)
        assert await ticket.result() == {"pages": [1]}


async def test_a_body_that_changes_a_message_changes_nothing_that_is_stored(autojump_clock):
    async def body(run: Run):
        message = await run.next_message()
        message["pages"].append(2)

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await engine.inject("alice", {"pages": [1]})
        await ticket.result()
        said = [event for event in await engine.history(ticket.id) if isinstance(event, RunMessage)]
    assert said[0].message == {"pages": [1]}


async def test_a_message_that_is_no_json_value_is_refused_with_the_place(autojump_clock):
    async with open_engine(with_body(idle), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        with pytest.raises(Invalid, match=r"message\.pages\[1\]"):
            await engine.inject("alice", {"pages": [1, {2}]})
        assert (await engine.get_run(ticket.id)).status == "running"
        await ticket.cancel()


async def test_a_message_that_is_too_large_is_refused(autojump_clock):
    async with open_engine(with_body(idle), store="memory:", max_value_bytes=1000) as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        with pytest.raises(TooLarge):
            await engine.inject("alice", "x" * 2000)
        await ticket.cancel()


# Nothing is lost.


async def test_a_cancelled_next_message_loses_nothing(autojump_clock):
    async def body(run: Run):
        taken = []
        while len(taken) < 50:
            with trio.move_on_after(1):
                taken.append(await run.next_message())
        return taken

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        for number in range(50):  # when the body stops waiting, and in between
            await engine.inject("alice", number)
            await trio.sleep(0.5)
        assert await ticket.result() == list(range(50))


async def test_a_next_message_that_is_cancelled_before_it_begins_takes_nothing(autojump_clock):
    async def body(run: Run):
        await trio.sleep(1)
        with trio.CancelScope() as scope:
            scope.cancel()
            await run.next_message()
        with trio.CancelScope() as scope:
            scope.cancel()
            await run.messages()
        return await run.messages()

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await engine.inject("alice", "still here")
        assert await ticket.result() == ["still here"]


async def test_a_message_for_a_waiting_task_that_is_cancelled_goes_to_another(autojump_clock):
    async def body(run: Run):
        taken = []

        async def take(scope):
            with scope:
                taken.append(await run.next_message())

        first, second = trio.CancelScope(), trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, first)
            await settled()
            nursery.start_soon(take, second)
            await settled()
            first.cancel()
        return taken

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        for _ in range(5):
            await settled()
        await engine.inject("alice", "for the second")
        assert await ticket.result() == ["for the second"]


async def test_messages_that_were_not_taken_wait_for_the_next_attempt(autojump_clock):
    injected = trio.Event()

    async def body(run: Run):
        if run.attempt == 1:
            await injected.wait()
            assert await run.next_message() == 0
            raise ConnectionError
        return await run.messages()

    async with open_engine(with_body(body, max_attempts=2), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        for number in range(3):
            await engine.inject("alice", number)
        injected.set()
        assert await ticket.result() == [1, 2]


async def test_messages_of_two_attempts_keep_their_order(autojump_clock):
    failing = trio.Event()

    async def body(run: Run):
        if run.attempt == 1:
            await failing.wait()
            raise ConnectionError
        await trio.sleep(10)
        return await run.messages()

    async with open_engine(with_body(body, max_attempts=2, backoff=5), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await engine.inject("alice", "to the first")
        failing.set()
        await trio.sleep(6)
        await engine.inject("alice", "to the second")
        assert await ticket.result() == ["to the first", "to the second"]


# Refusals.


@pytest.mark.parametrize("target", ["nobody", "0" * 32])
async def test_a_target_without_a_run_is_no_active_run(target, autojump_clock):
    async with open_engine(with_body(idle), store="memory:") as engine:
        with pytest.raises(NoActiveRun):
            await engine.inject(target, "hello")


@pytest.mark.parametrize("target", ["run", "handle"])
async def test_an_ended_run_is_no_active_run(target, autojump_clock):
    async def body(run: Run):
        pass

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await ticket.result()
        with pytest.raises(NoActiveRun):
            await engine.inject(ticket.id if target == "run" else "alice", "hello")


async def test_a_target_that_is_no_name_is_refused_and_the_engine_continues(autojump_clock):
    async with open_engine(with_body(take_until_stop), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        run = await engine.get_run(ticket.id)
        with pytest.raises(Invalid):
            await engine.inject(run, "hello")
        await engine.inject(run.id, "stop")
        assert await ticket.result() == []


@pytest.mark.parametrize("target", ["run", "handle"])
async def test_a_queued_run_is_not_interactive(target, autojump_clock):
    async with open_engine(with_body(idle), store="memory:", max_concurrent=0) as engine:
        ticket = await engine.submit("work", handle="alice")
        with pytest.raises(NotInteractive):
            await engine.inject(ticket.id if target == "run" else "alice", "hello")
        await ticket.cancel()


async def test_a_run_that_waits_for_its_next_attempt_is_not_interactive(autojump_clock):
    async def body(run: Run):
        raise ConnectionError

    async with open_engine(with_body(body, max_attempts=2, backoff=60), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        with pytest.raises(NotInteractive):
            await engine.inject("alice", "hello")
        await ticket.cancel()


async def test_a_run_that_is_being_cancelled_is_not_interactive(autojump_clock):
    async def body(run: Run):
        with trio.CancelScope(shield=True):
            await trio.sleep(1)

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel()
        with pytest.raises(NotInteractive):
            await engine.inject("alice", "hello")


async def test_a_suspended_run_takes_messages(autojump_clock):
    async def body(run: Run):
        await run.sleep(60)
        return await run.messages()

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(1)
        assert (await engine.get_run(ticket.id)).status == "suspended"
        await engine.inject("alice", "while it sleeps")
        assert await ticket.result() == ["while it sleeps"]


async def test_at_most_a_thousand_messages_wait(autojump_clock):
    async def body(run: Run):
        await trio.sleep(60)
        taken = [await run.next_message()]
        await trio.sleep(60)
        return taken + await run.messages()

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        for number in range(1000):
            await engine.inject("alice", number)
        with pytest.raises(QueueFull):
            await engine.inject("alice", "one too many")
        await trio.sleep(90)  # the body has taken one
        await engine.inject("alice", 1000)
        with pytest.raises(QueueFull):
            await engine.inject("alice", "one too many")
        assert await ticket.result() == list(range(1001))


async def test_messages_that_wait_for_the_next_attempt_count(autojump_clock):
    failing = trio.Event()

    async def body(run: Run):
        if run.attempt == 1:
            await failing.wait()
            raise ConnectionError
        await trio.sleep(10)
        return len(await run.messages())

    async with open_engine(with_body(body, max_attempts=2, backoff=1), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        for number in range(1000):
            await engine.inject("alice", number)
        failing.set()
        await trio.sleep(5)
        with pytest.raises(QueueFull):
            await engine.inject("alice", "one too many")
        assert await ticket.result() == 1000


async def test_ten_concurrent_callers_do_not_exceed_the_limit(autojump_clock):
    refused = []

    async def body(run: Run):
        await trio.sleep(60)
        return len(await run.messages())

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()

        async def send():
            try:
                await engine.inject("alice", "hello")
            except QueueFull as error:
                refused.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(1010):
                nursery.start_soon(send)
        assert len(refused) == 10
        assert await ticket.result() == 1000


# Phases.


async def phase_seen(engine, ticket):
    run = (await engine.snapshot()).runs[ticket.id]
    return run.interactive, run.streaming, run.compacting


async def test_phases_are_in_the_snapshot_while_they_last(autojump_clock):
    async def body(run: Run):
        await trio.sleep(10)
        async with run.streaming():
            await trio.sleep(10)
            async with run.compacting():
                await trio.sleep(10)
            await trio.sleep(10)
        await trio.sleep(10)
        await run.end_interactive()
        await trio.sleep(10)

    seen = []
    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(5)
        for _ in range(7):
            seen.append(await phase_seen(engine, ticket))
            await trio.sleep(10)
    assert seen == [
        (True, False, False),
        (True, True, False),
        (True, True, True),
        (True, True, False),
        (True, False, False),
        (False, False, False),
        (False, False, False),  # it has ended
    ]


async def test_a_queued_run_is_in_no_phase(autojump_clock):
    async with open_engine(with_body(idle), store="memory:", max_concurrent=0) as engine:
        ticket = await engine.submit("work", handle="alice")
        assert await phase_seen(engine, ticket) == (False, False, False)
        await ticket.cancel()


@pytest.mark.parametrize("phase", ["streaming", "compacting"])
async def test_a_phase_that_ends_with_an_error_has_ended(phase, autojump_clock):
    async def body(run: Run):
        with pytest.raises(ConnectionError):
            async with getattr(run, phase)():
                raise ConnectionError
        await trio.sleep(10)

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(5)
        assert await phase_seen(engine, ticket) == (True, False, False)
        await ticket.result()


async def test_the_next_attempt_begins_outside_of_every_phase_and_interactive_again(autojump_clock):
    async def body(run: Run):
        if run.attempt == 1:
            await run.end_interactive()
            async with run.streaming():
                raise ConnectionError
        return await run.next_message()

    async with open_engine(with_body(body, max_attempts=2, backoff=1), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(5)
        assert await phase_seen(engine, ticket) == (True, False, False)
        await engine.inject("alice", "hello")
        assert await ticket.result() == "hello"


async def test_a_streaming_job_takes_messages_only_while_it_streams(autojump_clock):
    async def body(run: Run):
        await trio.sleep(10)
        async with run.streaming():
            await trio.sleep(10)
        await trio.sleep(10)
        return await run.messages()

    answers = []
    async with open_engine(with_body(body, accepts="streaming"), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        for number in range(3):
            await trio.sleep(5 if number == 0 else 10)
            try:
                answers.append(await engine.inject("alice", number))
            except NotStreaming as error:
                answers.append(error.code)
        assert await ticket.result() == [1]
    assert answers == ["not_streaming", "accepted", "not_streaming"]


async def test_an_interactive_job_takes_messages_whether_it_streams_or_not(autojump_clock):
    async def body(run: Run):
        async with run.streaming():
            await trio.sleep(10)
        await trio.sleep(10)
        return await run.messages()

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(5)
        await engine.inject("alice", "streaming")
        await trio.sleep(10)
        await engine.inject("alice", "not")
        assert await ticket.result() == ["streaming", "not"]


@pytest.mark.parametrize("accepts", ["interactive", "streaming"])
async def test_while_it_compacts_a_run_takes_no_messages(accepts, autojump_clock):
    async def body(run: Run):
        async with run.streaming():
            async with run.compacting():
                await trio.sleep(10)
            await trio.sleep(10)
        return await run.messages()

    async with open_engine(with_body(body, accepts=accepts), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(5)
        with pytest.raises(Compacting):
            await engine.inject("alice", "during")
        await trio.sleep(10)
        await engine.inject("alice", "after")
        assert await ticket.result() == ["after"]


async def test_messages_received_before_can_be_taken_while_the_run_compacts(autojump_clock):
    async def body(run: Run):
        await trio.sleep(1)
        async with run.compacting():
            return await run.messages()

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await engine.inject("alice", "before")
        assert await ticket.result() == ["before"]


@pytest.mark.parametrize(("options", "seconds"), [({}, 120), ({"timeout": 7}, 7)])
async def test_a_compaction_that_takes_too_long_is_a_too_slow_error(options, seconds, autojump_clock):
    async def body(run: Run):
        begun = trio.current_time()
        with pytest.raises(trio.TooSlowError):
            async with run.compacting(**options):
                await trio.sleep_forever()
        took = trio.current_time() - begun
        await run.next_message()
        return took

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(200)
        assert await phase_seen(engine, ticket) == (True, False, False)
        await engine.inject("alice", "accepted again")
        assert await ticket.result() == seconds


async def test_an_uncaught_too_slow_error_fails_the_run_with_its_text(autojump_clock):
    async def body(run: Run):
        async with run.compacting(timeout=1):
            await trio.sleep_forever()

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        with pytest.raises(RunFailed, match="TooSlowError"):
            await ticket.result()


# Post-processing.


async def ending_interaction(run: Run):
    """Be in post-processing from second 10 to second 20."""
    await trio.sleep(10)
    await run.end_interactive()
    await trio.sleep(10)
    return "processed"


async def test_in_post_processing_messages_and_cancels_are_refused(autojump_clock):
    async with open_engine(with_body(ending_interaction), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(15)
        for refused in (
            lambda: engine.inject(ticket.id, "hello"),
            lambda: engine.inject("alice", "hello"),
            lambda: engine.cancel(ticket.id),
            lambda: ticket.cancel(files="delete"),
        ):
            with pytest.raises(NotInteractive):
                await refused()
        assert (await engine.get_run(ticket.id)).status == "running"
        assert await ticket.result() == "processed"


async def test_before_post_processing_a_run_can_be_cancelled(autojump_clock):
    async with open_engine(with_body(ending_interaction), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(5)
        await ticket.cancel()
        with pytest.raises(RunCancelled):
            await ticket.result()


async def test_the_handle_stays_taken_in_post_processing_and_the_next_run_waits(autojump_clock):
    begun = []

    async def body(run: Run):
        begun.append(trio.current_time() - start)
        await ending_interaction(run)

    start = trio.current_time()
    async with open_engine(with_body(body), store="memory:") as engine:
        first = await engine.submit("work", handle="alice")
        await trio.sleep(15)
        second = await engine.submit("work", handle="alice", on_conflict="queue")
        handle = (await engine.snapshot()).handles["alice"]
        assert (handle.active_run, handle.locked, handle.waiting) == (first.id, True, [second.id])
        await second.result()
    assert begun == [0, 20]


async def test_a_replacement_waits_for_the_end_of_post_processing(autojump_clock):
    async with open_engine(with_body(ending_interaction), store="memory:") as engine:
        first = await engine.submit("work", handle="alice")
        await trio.sleep(15)
        second = await engine.submit("work", handle="alice", on_conflict="replace")
        assert await first.result() == "processed"
        assert await second.result() == "processed"


async def test_messages_received_before_can_be_taken_in_post_processing(autojump_clock):
    async def body(run: Run):
        await trio.sleep(1)
        await run.end_interactive()
        return await run.messages()

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await engine.inject("alice", "before")
        assert await ticket.result() == ["before"]


async def test_a_deadline_applies_in_post_processing_too(autojump_clock):
    async def body(run: Run):
        await run.end_interactive()
        await trio.sleep_forever()

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice", run_timeout=30)
        assert await ticket.wait(40)
        assert (await engine.get_run(ticket.id)).status == "timed_out"


async def test_a_message_refused_by_a_body_that_is_ending_does_not_make_its_run_refuse_a_cancel(
    autojump_clock,
):
    jobs = Jobs()

    @jobs.job("slow to end", run_timeout=1)
    async def slow_to_end(run: Run) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)

    async with open_engine(jobs) as engine:
        ticket = await engine.submit("slow to end", handle="h")
        await trio.sleep(2)
        with pytest.raises(NotInteractive):
            await engine.inject(ticket.id, "too late")
        assert (await engine.cancel(ticket.id)).status == "cancelling"
        assert not await ticket.wait(0)


# Waiting for a message without a slot.


def listening(heard, **options):
    """A job that takes messages without a slot until it receives `bye`."""

    async def body(run: Run):
        while (message := await run.next_message(release_slot=True)) != "bye":
            heard.append(message)
        return list(heard)

    return with_body(body, **options)


async def test_a_body_that_waits_for_a_message_without_its_slot_does_not_count_as_executing(autojump_clock):
    heard = []
    async with open_engine(listening(heard), store="memory:", max_concurrent=1) as engine:
        tickets = [await engine.submit("work", handle=f"h{n}") for n in range(50)]
        await settled()
        snapshot = await engine.snapshot()
        assert {(run.status, run.waiting_for) for run in snapshot.runs.values()} == {("suspended", "message")}
        assert (snapshot.engine.executing, snapshot.engine.queued) == (0, 0)
        assert all(run.interactive for run in snapshot.runs.values())
        assert snapshot.handles["h7"].active_run == tickets[7].id
        for target in (tickets[7].id, "h7"):
            assert await engine.inject(target, target) == "accepted"
            await settled()
        assert heard == [tickets[7].id, "h7"]
        for n, ticket in enumerate(tickets):
            await engine.inject(f"h{n}", "bye")
            await ticket.result()


async def test_a_message_that_waits_already_is_taken_without_releasing_the_slot(autojump_clock):
    async def body(run: Run):
        await trio.sleep(10)
        return await run.next_message(release_slot=True)

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await engine.inject("alice", "early")
        assert await ticket.result() == "early"
        states = [event.to for event in await engine.history(ticket.id) if event.type == "run_state_changed"]
    assert states == ["queued", "running", "succeeded"]


async def test_a_body_that_got_a_message_continues_only_with_a_slot_and_before_later_runs(autojump_clock):
    order = []

    async def body(run: Run):
        await run.next_message(release_slot=True)
        order.append("talks")
        await trio.sleep(10)

    async def other(run: Run):
        order.append(run.handle)
        await trio.sleep(10)

    jobs = with_body(body)
    jobs.job("other")(other)
    async with open_engine(jobs, store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        others = [await engine.submit("other", handle=handle) for handle in ("first", "second")]
        await settled()
        for message in ("one", "two"):  # more messages arrive while it waits for its slot
            assert await engine.inject("alice", message) == "accepted"
        await settled()
        assert (await engine.get_run(ticket.id)).status == "suspended"
        for each in (ticket, *others):
            await each.result()
    assert order == ["first", "talks", "second"]


async def test_a_run_that_waits_for_a_message_can_be_cancelled_and_has_a_deadline(autojump_clock):
    async with open_engine(listening([]), store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="alice")
        late = await engine.submit("work", handle="bob", deadline=50, run_timeout=5)
        await settled()
        await ticket.cancel()
        with pytest.raises(RunCancelled):
            await ticket.result()
        with pytest.raises(RunTimedOut) as timed_out:
            await late.result()
        assert timed_out.value.run.reason == "deadline"


async def test_a_wait_for_a_message_that_is_given_up_gets_its_slot_back_and_loses_nothing(autojump_clock):
    async def body(run: Run):
        with trio.move_on_after(5):
            await run.next_message(release_slot=True)
        await trio.sleep(5)
        return await run.next_message(release_slot=True)

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(7)
        assert (await engine.get_run(ticket.id)).status == "running"
        await engine.inject("alice", "late")
        assert await ticket.result() == "late"


async def test_two_tasks_cannot_both_wait_for_messages_without_the_slot(autojump_clock):
    async def body(run: Run):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.next_message, True)
            await settled()
            with pytest.raises(Conflict):
                await run.next_message(release_slot=True)
            return "refused"

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(1)
        await engine.inject("alice", "for the first")
        assert await ticket.result() == "refused"


async def test_a_streaming_job_takes_messages_while_it_waits_in_its_stream(autojump_clock):
    async def body(run: Run):
        async with run.streaming():
            return await run.next_message(release_slot=True)

    async with open_engine(with_body(body, accepts="streaming"), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        assert (await engine.get_run(ticket.id)).streaming
        await engine.inject("alice", "hello")
        assert await ticket.result() == "hello"
