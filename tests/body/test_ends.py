"""How runs end: cancels and their races, bodies that ignore them, timeouts, retries, failures."""

import logging
import math

import pytest
import trio
import trio.testing

from greenroom import Jobs, Run
from greenroom.errors import (
    Conflict,
    Invalid,
    NotFound,
    RunAbandoned,
    RunCancelled,
    RunFailed,
    RunTimedOut,
)
from greenroom.persistence.memory import MemoryStore
from tests.support import open_engine

settled = trio.testing.wait_all_tasks_blocked
ENDED = {"succeeded", "failed", "cancelled", "timed_out", "rejected"}


class SlowStore(MemoryStore):
    """A store whose commits take a second."""

    async def commit(self, batch):
        await trio.sleep(1)
        await super().commit(batch)


def with_body(body, **options):
    """A registry with the job `work`, and the job `other`, which lasts until it is cancelled."""
    jobs = Jobs()
    jobs.job("work", **options)(body)
    jobs.job("other", run_timeout=math.inf)(idle)
    return jobs


async def idle(run: Run):
    await trio.sleep_forever()


async def failing(run: Run):
    raise ConnectionError("no route")


def stubborn_for(seconds):
    """A body that shields itself from cancellation for this number of seconds."""

    async def body(run: Run):
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)

    return body


async def status_of(engine, ticket):
    return (await engine.get_run(ticket.id)).status


async def transitions_of(engine, ticket):
    """Every transition of a run: (to, reason, by)."""
    return [
        (event.to, event.reason, event.by)
        for event in await engine.history(ticket.id)
        if event.type == "run_state_changed"
    ]


# Cancelling.


@pytest.mark.parametrize("how", ["by the ticket", "by the engine"])
async def test_a_running_run_becomes_cancelling_and_then_cancelled(how, autojump_clock):
    async with open_engine(with_body(idle), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        if how == "by the ticket":
            run = await ticket.cancel(by="bob")
        else:
            run = await engine.cancel(ticket.id, by="bob")
        assert (run.id, run.status) == (ticket.id, "cancelling")
        with pytest.raises(RunCancelled) as cancelled:
            await ticket.result()
        assert cancelled.value.run.id == ticket.id
        assert (await transitions_of(engine, ticket))[2:] == [
            ("cancelling", "cancelled", "bob"),
            ("cancelled", "cancelled", "bob"),
        ]


async def test_a_queued_run_leaves_the_queue_and_is_cancelled_immediately(autojump_clock):
    async with open_engine(with_body(idle), store="memory:", lanes={"main": 0}) as engine:
        ticket = await engine.submit("work", handle="alice")
        behind = await engine.submit("work", handle="bob")
        assert (await ticket.cancel()).status == "cancelled"
        snapshot = await engine.snapshot()
        assert snapshot.lanes["main"].queued == [behind.id]
        assert snapshot.handles["alice"].status == "Idle"
        assert (await transitions_of(engine, ticket))[-1][0] == "cancelled"
        assert snapshot.runs[ticket.id].started_at is None


async def test_a_run_that_waits_in_its_handle_is_cancelled_immediately(
    autojump_clock,
):
    async with open_engine(with_body(idle), store="memory:") as engine:
        first, second, third = [
            await engine.submit("work", handle="alice", on_conflict="queue") for _ in range(3)
        ]
        assert (await second.cancel()).status == "cancelled"
        await first.cancel()
        await settled()
        assert await status_of(engine, third) == "running"


@pytest.mark.parametrize("wait", ["time", "answer", "child"])
async def test_a_suspended_run_with_a_live_body_becomes_cancelling(wait, autojump_clock):
    async def body(run: Run):
        try:
            if wait == "time":
                await run.sleep(1000)
            elif wait == "answer":
                await run.interrupt("may I?", timeout=1000, release_slot=True)
                await trio.sleep_forever()
            else:
                await run.call("other", handle="of the child")
        finally:
            ended.append(wait)

    ended = []
    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        assert await status_of(engine, ticket) == "suspended"
        assert (await ticket.cancel()).status == "cancelling"
        with pytest.raises(RunCancelled):
            await ticket.result()
    assert ended == [wait]


async def test_a_run_that_waits_for_its_next_attempt_is_cancelled_immediately(autojump_clock):
    async with open_engine(with_body(failing, max_attempts=2, backoff=60), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        assert await status_of(engine, ticket) == "suspended"
        assert (await ticket.cancel()).status == "cancelled"
        await trio.sleep(100)
        assert (await transitions_of(engine, ticket))[-1][0] == "cancelled"


async def test_a_run_that_is_queued_for_its_next_attempt_is_cancelled_and_leaves_the_queue(autojump_clock):
    jobs = with_body(failing, max_attempts=2, backoff=60)
    async with open_engine(jobs, store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="alice")
        other = await engine.submit("other", handle="bob")
        await trio.sleep(100)
        assert (await ticket.cancel()).status == "cancelled"
        await other.cancel()
        after = await engine.submit("other", handle="carol")
        await settled()
        assert await status_of(engine, after) == "running"
        assert (await transitions_of(engine, ticket))[-1][0] == "cancelled"


async def test_a_second_cancel_is_a_conflict_with_the_run_as_it_is(autojump_clock):
    async with open_engine(with_body(stubborn_for(5)), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel()
        with pytest.raises(Conflict) as refused:
            await ticket.cancel()
        run = refused.value.details["run"]
        assert (run.id, run.status) == (ticket.id, "cancelling")


async def finished(run: Run):
    return "done"


@pytest.mark.parametrize(
    ("body", "status"),
    [(finished, "succeeded"), (failing, "failed"), (idle, "cancelled"), (idle, "timed_out")],
    ids=["succeeded", "failed", "cancelled", "timed_out"],
)
async def test_cancelling_an_ended_run_is_a_conflict_with_the_run_as_it_is(body, status, autojump_clock):
    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice", run_timeout=10)
        await settled()
        if status == "cancelled":
            await ticket.cancel()
        await ticket.wait()
        before = await engine.snapshot()
        for files in ("keep", "delete"):
            with pytest.raises(Conflict) as refused:
                await ticket.cancel(files=files)
            run = refused.value.details["run"]
            assert (run.id, run.status) == (ticket.id, status)
        assert await engine.snapshot() == before


async def test_cancelling_an_unknown_run_is_not_found(autojump_clock):
    async with open_engine(with_body(idle), store="memory:") as engine:
        with pytest.raises(NotFound):
            await engine.cancel("0" * 32)


async def test_a_cancel_that_names_no_run_is_invalid_and_the_engine_continues(autojump_clock):
    async with open_engine(with_body(idle), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        run = await engine.get_run(ticket.id)
        with pytest.raises(Invalid):
            await engine.cancel(run)
        await ticket.cancel()


async def test_files_must_be_kept_or_deleted(autojump_clock):
    async with open_engine(with_body(idle), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        with pytest.raises(Invalid, match="files"):
            await ticket.cancel(files="burn")
        assert await status_of(engine, ticket) == "running"
        await ticket.cancel()


async def test_a_body_can_clean_up_when_it_is_cancelled(autojump_clock):
    async def body(run: Run):
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
                await run.log("cleaned up")
                await run.save_checkpoint("where it was")

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel()
        with pytest.raises(RunCancelled):
            await ticket.result()
        texts = [event.text for event in await engine.history(ticket.id) if event.type == "run_log"]
    assert texts == ["cleaned up"]


async def test_a_body_that_returns_despite_its_cancel_has_succeeded(autojump_clock):
    async def body(run: Run):
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return "done all the same"

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel()
        assert await ticket.result() == "done all the same"


async def test_a_body_that_raises_while_it_is_cancelled_has_failed_and_is_not_retried(autojump_clock):
    async def body(run: Run):
        try:
            await trio.sleep_forever()
        finally:
            raise ConnectionError("while cleaning up")

    async with open_engine(with_body(body, max_attempts=5), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel()
        with pytest.raises(RunFailed, match="while cleaning up") as failed:
            await ticket.result()
        assert failed.value.run.attempt == 1


# Races.


@pytest.mark.parametrize("turns", range(0, 40, 2))
async def test_a_cancel_that_races_with_the_end_has_one_outcome(turns, autojump_clock):
    go = trio.Event()

    async def body(run: Run):
        await go.wait()
        return "done"

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        go.set()
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        conflict = None
        try:
            await ticket.cancel()
        except Conflict as error:
            conflict = error
        await ticket.wait()
        states = [to for to, _, _ in await transitions_of(engine, ticket)]
        assert sum(state in ENDED for state in states) == 1
        if conflict is not None:
            assert states[-1] == conflict.details["run"].status == "succeeded"
        after = await engine.submit("other", handle="alice")
        await settled()
        assert await status_of(engine, after) == "running", "no slot and no handle is lost"


@pytest.mark.parametrize("turns", range(0, 30, 2))
async def test_a_cancel_that_races_with_the_start_ends_the_run_and_loses_no_slot(turns, autojump_clock):
    async with open_engine(with_body(idle), store="memory:", max_concurrent=1) as engine:
        first = await engine.submit("work", handle="alice")
        second = await engine.submit("work", handle="bob")
        await settled()
        await first.cancel()
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        await second.cancel()
        await second.wait()
        assert await status_of(engine, second) == "cancelled"
        third = await engine.submit("work", handle="bob")
        await settled()
        assert await status_of(engine, third) == "running"


@pytest.mark.parametrize("status", ["queued", "running", "suspended", "waiting"])
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
async def test_one_of_many_concurrent_cancels_of_a_run_succeeds(status, turns, autojump_clock):
    async def body(run: Run):
        await run.sleep(1000, release_slot=status == "suspended")

    outcomes = []
    limit = 0 if status == "queued" else 3
    async with open_engine(with_body(body), store="memory:", max_concurrent=limit) as engine:
        if status == "waiting":
            await engine.submit("other", handle="alice")
        ticket = await engine.submit("work", handle="alice", on_conflict="queue")
        await settled()

        async def cancel(turns):
            for _ in range(turns):
                await trio.lowlevel.checkpoint()
            try:
                await ticket.cancel()
                outcomes.append("cancelled")
            except Conflict as error:
                outcomes.append(error.code)

        async with trio.open_nursery() as nursery:
            for n in range(5):
                nursery.start_soon(cancel, n * turns)
        await ticket.wait()
        states = [to for to, _, _ in await transitions_of(engine, ticket)]
    assert sorted(outcomes) == ["cancelled"] + ["conflict"] * 4
    assert sum(state in ENDED for state in states) == 1


async def test_a_cancel_during_the_commit_of_the_end_is_a_conflict(autojump_clock):
    async def body(run: Run):
        await trio.sleep(10)

    async with open_engine(with_body(body), store=SlowStore()) as engine:
        ticket = await engine.submit("work", handle="alice")  # committed at 1, started at 2, ends at 12 to 13
        await trio.sleep(11.5)
        with pytest.raises(Conflict) as refused:
            await ticket.cancel()
        assert refused.value.details["run"].status == "succeeded"


async def test_a_cancel_at_the_instant_of_the_timeout_ends_the_run_once(autojump_clock):
    for offset in (-0.001, 0.0, 0.001):
        async with open_engine(with_body(stubborn_for(12)), store="memory:") as engine:
            ticket = await engine.submit("work", handle="alice", run_timeout=10)
            await trio.sleep(10 + offset)
            await ticket.cancel()
            assert await ticket.wait(30)
            states = [to for to, _, _ in await transitions_of(engine, ticket)]
            assert sum(state in ENDED for state in states) == 1


# Cooperative cancels.


async def cooperative(run: Run):
    """End at the first whole second after the cancel."""
    for _ in range(1000):
        if run.cancel_requested:
            return "saw it"
        await trio.sleep(1)
    return "saw nothing"


async def test_a_cooperative_body_sees_the_request_and_ends_by_itself(autojump_clock):
    async with open_engine(with_body(cooperative, cancel="cooperative"), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(5.5)
        assert (await ticket.cancel()).status == "cancelling"
        begun = trio.current_time()
        with pytest.raises(RunCancelled):
            await ticket.result()
        assert trio.current_time() == begun + 0.5


@pytest.mark.parametrize("cancel", ["immediate", "cooperative"])
async def test_cancel_requested_is_false_without_a_cancel(cancel, autojump_clock):
    seen = []

    async def body(run: Run):
        for _ in range(3):
            seen.append(run.cancel_requested)
            await trio.sleep(100)

    async with open_engine(with_body(body, cancel=cancel), store="memory:") as engine:
        await (await engine.submit("work", handle="alice")).result()
    assert seen == [False] * 3


async def test_a_cooperative_body_that_does_not_check_is_cancelled_after_its_grace(autojump_clock):
    jobs = with_body(idle, cancel="cooperative", grace=7)
    async with open_engine(jobs, store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        begun = trio.current_time()
        await ticket.cancel()
        with pytest.raises(RunCancelled) as cancelled:
            await ticket.result()
        assert trio.current_time() == begun + 7
        assert cancelled.value.run.reason == "cancelled"


async def test_a_cooperative_body_that_also_shields_itself_is_abandoned_after_twice_its_grace(autojump_clock):
    jobs = with_body(stubborn_for(100), cancel="cooperative", grace=7)
    async with open_engine(jobs, store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        begun = trio.current_time()
        await ticket.cancel()
        with pytest.raises(RunCancelled) as cancelled:
            await ticket.result()
        assert trio.current_time() == begun + 14
        assert cancelled.value.run.reason == "abandoned"


async def test_a_cooperative_body_with_infinite_grace_is_awaited_and_not_cancelled(autojump_clock):
    async def body(run: Run):
        for _ in range(100):
            if run.cancel_requested:
                await trio.sleep(1000)  # the time until its regular end
                ended.append("well")
                return
            await trio.sleep(1)

    ended = []
    jobs = with_body(body, cancel="cooperative", grace=math.inf)
    async with open_engine(jobs, store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(5)
        await ticket.cancel()
        with pytest.raises(RunCancelled):
            await ticket.result()
    assert ended == ["well"]


async def test_a_timeout_is_cooperative_too(autojump_clock):
    saw = []

    async def body(run: Run):
        saw.append(await cooperative(run))

    async with open_engine(with_body(body, cancel="cooperative"), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice", run_timeout=5)
        with pytest.raises(RunTimedOut):
            await ticket.result()
    assert saw == ["saw it"]


# Bodies that ignore their end.


@pytest.mark.parametrize(("options", "grace"), [({}, 10), ({"grace": 3}, 3), ({"grace": 0}, 0)])
async def test_a_shielding_body_holds_its_slot_for_its_grace_and_no_longer(options, grace, autojump_clock):
    jobs = with_body(stubborn_for(100), **options)
    async with open_engine(jobs, store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="alice")
        other = await engine.submit("other", handle="bob")
        await settled()
        begun = trio.current_time()
        await ticket.cancel()
        if grace:
            await trio.sleep(grace - 0.5)
            assert await status_of(engine, ticket) == "cancelling"
            assert await status_of(engine, other) == "queued"
        with pytest.raises(RunCancelled) as cancelled:
            await ticket.result()
        assert trio.current_time() == begun + grace
        assert cancelled.value.run.reason == "abandoned"
        await settled()
        assert await status_of(engine, other) == "running"


async def test_an_abandoned_body_is_named_by_an_event_and_an_error_log(autojump_clock, caplog):
    async with open_engine(with_body(stubborn_for(100)), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        events = engine.events(filter={"runs": [ticket.id]})
        await ticket.cancel()
        await ticket.wait()
        with trio.fail_after(1):
            [_, event] = [await anext(events), await anext(events)]
    assert (event.to, event.reason, event.run, event.handle) == (
        "cancelled",
        "abandoned",
        ticket.id,
        "alice",
    )
    [record] = [r for r in caplog.records if r.levelno == logging.ERROR and "abandoned" in r.message]
    assert ticket.id in record.message


async def test_an_abandoned_body_keeps_its_handle_until_it_ends(autojump_clock):
    begun = trio.current_time()
    async with open_engine(with_body(stubborn_for(100)), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel()
        await ticket.wait()
        handle = (await engine.snapshot()).handles["alice"]
        assert (handle.active_run, handle.locked, handle.status) == (ticket.id, True, "Cancelled")
        with pytest.raises(Conflict) as refused:
            await engine.submit("other", handle="alice")
        assert refused.value.details["active_run"] == ticket.id
        after = await engine.submit("other", handle="alice", on_conflict="queue")
        await trio.sleep_until(begun + 99)
        assert await status_of(engine, after) == "queued"
        await trio.sleep_until(begun + 101)
        assert await status_of(engine, after) == "running"
        assert (await engine.snapshot()).handles["alice"].active_run == after.id


async def test_release_handle_frees_the_handle_of_an_abandoned_body_immediately(autojump_clock):
    async with open_engine(with_body(stubborn_for(100)), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel()
        await ticket.wait()
        after = await engine.submit("other", handle="alice", on_conflict="queue")
        events = engine.events(filter={"types": ["handle_changed"]})
        await engine.release_handle("alice", by="bob")
        with trio.fail_after(1):
            event = await anext(events)
        assert (event.handle, event.by) == ("alice", "bob")
        await settled()
        assert await status_of(engine, after) == "running"
        await trio.sleep(200)  # the abandoned body has ended meanwhile, which changes nothing
        assert (await engine.snapshot()).handles["alice"].active_run == after.id


async def test_the_end_of_a_body_frees_no_handle_that_another_body_holds(autojump_clock):
    """The handle of an abandoned body was released, and the body of its next run is abandoned, too."""
    jobs = Jobs()
    for name, seconds in (("first", 100), ("second", 300)):
        jobs.job(name)(stubborn_for(seconds))
    async with open_engine(jobs, store="memory:") as engine:
        first = await engine.submit("first", handle="alice")
        await settled()
        await first.cancel()
        await first.wait()
        await engine.release_handle("alice")
        second = await engine.submit("second", handle="alice")
        await settled()
        await second.cancel()
        await second.wait()
        third = await engine.submit("second", handle="alice", on_conflict="queue")

        await trio.sleep(100)  # the first one's body has ended
        assert (await engine.snapshot()).handles["alice"].active_run == second.id
        assert await status_of(engine, third) == "queued"
        await trio.sleep(200)  # and now the second one's
        assert await status_of(engine, third) == "running"


async def test_release_handle_does_not_affect_a_pending_run(autojump_clock):
    async with open_engine(with_body(idle), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        before = await engine.snapshot()
        await engine.release_handle("alice")
        assert await engine.snapshot() == before
        await ticket.cancel()


async def test_an_abandoned_body_gets_run_abandoned_with_each_use_and_its_end_changes_nothing(autojump_clock):
    refused = []

    async def body(run: Run):
        with trio.CancelScope(shield=True):
            await trio.sleep(20)
            for use in (run.progress(1), run.log("here"), run.sleep(1), run.messages()):
                try:
                    await use
                except RunAbandoned as error:
                    refused.append(str(error))
            return "too late"

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel()
        await ticket.wait()
        before = await engine.history(ticket.id)
        await trio.sleep(30)
        assert await engine.history(ticket.id) == before
        assert (await engine.get_run(ticket.id)).result is None
    assert len(refused) == 4
    assert all(ticket.id in text for text in refused)


async def test_a_failure_of_an_abandoned_body_has_no_effect(autojump_clock):
    async def body(run: Run):
        with trio.CancelScope(shield=True):
            await trio.sleep(20)
        raise ConnectionError("much too late")

    async with open_engine(with_body(body, max_attempts=3), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel()
        await trio.sleep(60)
        assert await status_of(engine, ticket) == "cancelled"
        assert (await engine.snapshot()).handles["alice"].active_run is None


async def test_leaving_the_engine_waits_for_an_abandoned_body(autojump_clock):
    begun = trio.current_time()
    async with open_engine(with_body(stubborn_for(1000)), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel()
        await ticket.wait()
    assert trio.current_time() == begun + 1000


@pytest.mark.parametrize("grace", [0, 5])
async def test_a_shielding_body_that_times_out_is_abandoned_and_timed_out(grace, autojump_clock):
    begun = trio.current_time()
    async with open_engine(with_body(stubborn_for(1000), grace=grace), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice", run_timeout=60)
        assert await ticket.wait(100)
        run = await engine.get_run(ticket.id)
        assert (run.status, run.reason) == ("timed_out", "abandoned")
        assert trio.current_time() == begun + 60 + grace


async def test_a_body_with_infinite_grace_is_never_abandoned(autojump_clock):
    async with open_engine(with_body(stubborn_for(1000), grace=math.inf), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await settled()
        await ticket.cancel()
        await trio.sleep(900)
        assert await status_of(engine, ticket) == "cancelling"


# Timeouts.


async def test_run_timeout_ends_a_run_that_executes_for_too_long(autojump_clock):
    begun = trio.current_time()
    async with open_engine(with_body(idle, run_timeout=60), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        with pytest.raises(RunTimedOut) as timed_out:
            await ticket.result()
    run = timed_out.value.run
    assert (run.status, run.reason) == ("timed_out", "run_timeout")
    assert trio.current_time() == begun + 60


async def test_run_timeout_is_half_an_hour_by_default(autojump_clock):
    begun = trio.current_time()
    async with open_engine(with_body(idle), store="memory:") as engine:
        with pytest.raises(RunTimedOut):
            await (await engine.submit("work", handle="alice", run_timeout=None)).result()
    assert trio.current_time() == begun + 1800


@pytest.mark.parametrize("limit", ["run_timeout", "queue_timeout", "deadline"])
async def test_none_uses_the_limit_of_the_job_and_inf_removes_it(limit, autojump_clock):
    executes = limit != "queue_timeout"
    jobs = with_body(idle, **{"run_timeout": math.inf, limit: 60})
    async with open_engine(jobs, store="memory:", max_concurrent=2 if executes else 0) as engine:
        as_declared = await engine.submit("work", handle="alice", **{limit: None})
        shorter = await engine.submit("work", handle="bob", **{limit: 30})
        await trio.sleep(31)
        assert (await engine.get_run(shorter.id)).reason == limit
        endless = await engine.submit("work", handle="carol", **{limit: math.inf})
        await trio.sleep(28)
        assert not (await engine.get_run(as_declared.id)).ended
        await trio.sleep(2)
        assert (await engine.get_run(as_declared.id)).reason == limit
        await trio.sleep(80_000)
        assert not (await engine.get_run(endless.id)).ended
        await endless.cancel()


async def test_waiting_in_the_queue_is_not_limited_by_default_nor_by_the_run_timeout(autojump_clock):
    async with open_engine(with_body(idle, run_timeout=60), store="memory:", max_concurrent=0) as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(80_000)
        assert await status_of(engine, ticket) == "queued"
        await ticket.cancel()


@pytest.mark.parametrize("where", ["lane", "handle"])
async def test_queue_timeout_ends_a_run_that_waits_for_too_long(where, autojump_clock):
    limit = 0 if where == "lane" else 3
    async with open_engine(with_body(idle), store="memory:", max_concurrent=limit) as engine:
        if where == "handle":
            await engine.submit("other", handle="alice")
        ticket = await engine.submit("work", handle="alice", queue_timeout=60, on_conflict="queue")
        begun = trio.current_time()
        with pytest.raises(RunTimedOut) as timed_out:
            await ticket.result()
        assert timed_out.value.run.reason == "queue_timeout"
        assert trio.current_time() == begun + 60
        snapshot = await engine.snapshot()
        assert snapshot.lanes["main"].queued == []
        assert snapshot.engine.queued == 0
        assert ticket.id not in snapshot.handles["alice"].waiting


async def test_queue_timeout_does_not_apply_to_a_run_that_has_begun(autojump_clock):
    async def body(run: Run):
        await trio.sleep(100)
        await run.sleep(100)
        if run.attempt == 1:
            raise ConnectionError

    async with open_engine(with_body(body, max_attempts=2), store="memory:") as engine:
        await (await engine.submit("work", handle="alice", queue_timeout=60)).result()


async def test_deadline_counts_from_the_submission_in_the_queue_and_while_executing(autojump_clock):
    begun = trio.current_time()
    async with open_engine(with_body(idle), store="memory:", max_concurrent=1) as engine:
        other = await engine.submit("other", handle="bob")
        executing = await engine.submit("work", handle="alice", deadline=60)
        queued = await engine.submit("work", handle="carol", deadline=50)
        await trio.sleep(40)
        await other.cancel()
        for ticket, at in ((queued, 50), (executing, 60)):
            with pytest.raises(RunTimedOut) as timed_out:
                await ticket.result()
            assert timed_out.value.run.reason == "deadline"
            assert trio.current_time() == begun + at
    assert timed_out.value.run.started_at is not None


async def test_deadline_counts_while_suspended_and_over_all_attempts(autojump_clock):
    async def body(run: Run):
        await run.sleep(20)
        raise ConnectionError

    begun = trio.current_time()
    async with open_engine(with_body(body, max_attempts=100, backoff=5), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice", deadline=60)
        with pytest.raises(RunTimedOut) as timed_out:
            await ticket.result()
    assert (timed_out.value.run.reason, timed_out.value.run.attempt) == ("deadline", 3)
    assert trio.current_time() == begun + 60


async def test_suspended_time_does_not_count_for_run_timeout(autojump_clock):
    async def body(run: Run):
        for _ in range(5):
            await trio.sleep(10)
            await run.sleep(10_000)
        return "done"

    async with open_engine(with_body(body, run_timeout=51), store="memory:") as engine:
        assert await (await engine.submit("work", handle="alice")).result() == "done"


async def test_the_executing_time_between_suspensions_adds_up(autojump_clock):
    async def body(run: Run):
        for _ in range(5):
            await trio.sleep(10)
            await run.sleep(1000)

    begun = trio.current_time()
    async with open_engine(with_body(body, run_timeout=45), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        with pytest.raises(RunTimedOut):
            await ticket.result()
    assert trio.current_time() == begun + 4 * 1010 + 5


async def test_each_attempt_has_its_own_run_timeout(autojump_clock):
    async def body(run: Run):
        await trio.sleep(50)
        if run.attempt < 3:
            raise ConnectionError

    async with open_engine(with_body(body, max_attempts=3, run_timeout=60), store="memory:") as engine:
        await (await engine.submit("work", handle="alice")).result()


async def test_executing_time_before_a_wait_does_not_count_for_the_next_attempt(autojump_clock):
    async def body(run: Run):
        await trio.sleep(50)
        await run.sleep(10)
        if run.attempt < 3:
            raise ConnectionError
        await trio.sleep(5)

    async with open_engine(with_body(body, max_attempts=3, run_timeout=60), store="memory:") as engine:
        await (await engine.submit("work", handle="alice")).result()


async def test_a_run_that_timed_out_is_not_retried(autojump_clock):
    async with open_engine(with_body(idle, max_attempts=3, run_timeout=60), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        with pytest.raises(RunTimedOut) as timed_out:
            await ticket.result()
    assert timed_out.value.run.attempt == 1


async def test_timed_out_is_committed_when_the_body_has_ended(autojump_clock):
    async with open_engine(with_body(stubborn_for(65)), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice", run_timeout=60)
        await trio.sleep(64)
        assert await status_of(engine, ticket) == "running"
        await trio.sleep(2)
        assert await status_of(engine, ticket) == "timed_out"


# Retries.


async def test_a_failed_attempt_is_followed_by_the_next_up_to_max_attempts(autojump_clock):
    attempts = []

    async def body(run: Run):
        attempts.append(run.attempt)
        raise ConnectionError(f"attempt {run.attempt}")

    async with open_engine(with_body(body, max_attempts=3), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        with pytest.raises(RunFailed, match="attempt 3") as failed:
            await ticket.result()
    assert attempts == [1, 2, 3]
    assert failed.value.run.attempt == 3


async def test_by_default_there_is_one_attempt(autojump_clock):
    async with open_engine(with_body(failing), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        with pytest.raises(RunFailed) as failed:
            await ticket.result()
    assert failed.value.run.attempt == 1


@pytest.mark.parametrize(
    ("backoff", "begins"),
    [(5, [0, 5, 10, 15]), (0, [0, 0, 0, 0]), (lambda attempt: 10.0**attempt, [0, 10, 110, 1110])],
    ids=["a number", "none", "a function of the attempt that failed"],
)
async def test_backoff_is_the_delay_before_the_next_attempt(backoff, begins, autojump_clock):
    begun_at = []

    async def body(run: Run):
        begun_at.append(trio.current_time() - start)
        raise ConnectionError

    start = trio.current_time()
    async with open_engine(with_body(body, max_attempts=4, backoff=backoff), store="memory:") as engine:
        await (await engine.submit("work", handle="alice")).wait(10_000)
    assert begun_at == pytest.approx(begins)


def broken_backoff(attempt):
    raise ZeroDivisionError("in backoff")


@pytest.mark.parametrize("backoff", [broken_backoff, lambda attempt: None, lambda attempt: math.nan])
async def test_an_invalid_backoff_affects_only_its_run(backoff, autojump_clock):
    async with open_engine(with_body(failing, max_attempts=2, backoff=backoff), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        other = await engine.submit("other", handle="bob")
        with pytest.raises(RunFailed):
            await ticket.result()
        assert await status_of(engine, other) == "running"
        await other.cancel()


async def test_between_attempts_a_run_is_suspended_keeps_its_handle_and_holds_no_slot(autojump_clock):
    jobs = with_body(failing, max_attempts=2, backoff=60)
    async with open_engine(jobs, store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="alice")
        other = await engine.submit("other", handle="bob")
        await settled()
        run = await engine.get_run(ticket.id)
        assert (run.status, run.reason, run.waiting_for) == ("suspended", "retry", "retry")
        assert await status_of(engine, other) == "running"
        with pytest.raises(Conflict):
            await engine.submit("other", handle="alice")
        await other.cancel()


async def test_a_retry_draws_a_new_place_after_the_waiting_runs(autojump_clock):
    order = []

    async def body(run: Run):
        order.append(f"{run.handle} {run.attempt}")
        await trio.sleep(10)
        if run.handle == "alice" and run.attempt == 1:
            raise ConnectionError

    jobs = with_body(body, max_attempts=2, backoff=1)
    async with open_engine(jobs, store="memory:", max_concurrent=1) as engine:
        first = await engine.submit("work", handle="alice")
        place = (await engine.get_run(first.id)).place
        for handle in ("bob", "carol"):
            await engine.submit("work", handle=handle)
        await first.result()
        assert (await engine.get_run(first.id)).place > place
    assert order == ["alice 1", "bob 1", "carol 1", "alice 2"]


async def test_the_history_contains_each_attempt_and_its_error(autojump_clock):
    async def body(run: Run):
        if run.attempt == 1:
            raise ConnectionError("no route")

    async with open_engine(with_body(body, max_attempts=2), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await ticket.result()
        history = [e for e in await engine.history(ticket.id) if e.type == "run_state_changed"]
        run = await engine.get_run(ticket.id)
    assert [(event.to, event.attempt, event.error) for event in history] == [
        ("queued", 0, None),
        ("running", 1, None),
        ("suspended", 1, "ConnectionError: no route"),
        ("running", 2, None),
        ("succeeded", 2, None),
    ]
    assert (run.attempt, run.error) == (2, None)


# Failures.


async def test_a_body_that_raises_fails_its_run_with_the_error_in_a_line(autojump_clock):
    async with open_engine(with_body(failing), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        with pytest.raises(RunFailed, match="no route") as failed:
            await ticket.result()
        run = await engine.get_run(ticket.id)
    assert failed.value.run == run
    assert (run.status, run.error, run.result) == ("failed", "ConnectionError: no route", None)


async def test_an_exception_without_a_text_is_named(autojump_clock):
    async def body(run: Run):
        raise ConnectionError

    async with open_engine(with_body(body), store="memory:") as engine:
        with pytest.raises(RunFailed) as failed:
            await (await engine.submit("work", handle="alice")).result()
    assert failed.value.run.error == "ConnectionError"


async def test_an_exception_group_is_readable_as_the_exceptions_in_it(autojump_clock):
    async def body(run: Run):
        async with trio.open_nursery() as nursery:
            for error in (ValueError("first"), ExceptionGroup("inner", [KeyError("second")])):
                nursery.start_soon(fail, error)

    async def fail(error):
        raise error

    async with open_engine(with_body(body), store="memory:") as engine:
        with pytest.raises(RunFailed) as failed:
            await (await engine.submit("work", handle="alice")).result()
    error = failed.value.run.error
    assert "ValueError: first" in error
    assert "KeyError: 'second'" in error
    assert "sub-exception" not in error


async def test_a_failure_is_logged_once_with_its_run_and_its_traceback(autojump_clock, caplog):
    async with open_engine(with_body(failing), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await ticket.wait()
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert ticket.id in record.message
    text = logging.Formatter().format(record)
    assert "\nTraceback (most recent call last):\n" in text
    assert text.endswith("\nConnectionError: no route")


@pytest.mark.parametrize("handle", ["auth-probe:x", "session:probe-x"])
async def test_a_failure_of_a_probe_is_no_logged_error_but_its_event_is_there(handle, autojump_clock, caplog):
    async with open_engine(with_body(failing), store="memory:") as engine:
        ticket = await engine.submit("work", handle=handle)
        await ticket.wait()
        assert (await transitions_of(engine, ticket))[-1][0] == "failed"
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_an_exception_whose_text_raises_fails_its_run_and_not_the_engine(autojump_clock):
    class Mute(Exception):
        def __str__(self):
            raise ZeroDivisionError

    async def body(run: Run):
        raise Mute

    async with open_engine(with_body(body), store="memory:") as engine:
        with pytest.raises(RunFailed, match="Mute"):
            await (await engine.submit("work", handle="alice")).result()


async def test_an_error_text_can_be_sent_to_clients_whatever_it_contains(autojump_clock):
    async def body(run: Run):
        raise FileNotFoundError(2, "No such file", b"caf\xe9.jpg".decode(errors="surrogateescape"))

    async with open_engine(with_body(body), store="memory:") as engine:
        with pytest.raises(RunFailed) as failed:
            await (await engine.submit("work", handle="alice")).result()
    assert failed.value.run.error.encode()


async def test_an_error_text_is_bounded_like_every_value(autojump_clock):
    async def body(run: Run):
        raise ConnectionError("x" * 3_000_000)

    async with open_engine(with_body(body), store="memory:") as engine:
        with pytest.raises(RunFailed) as failed:
            await (await engine.submit("work", handle="alice")).result()
    assert len(failed.value.run.error) <= 1 << 20


async def test_a_stray_cancelled_fails_its_run_and_no_other(autojump_clock):
    async def body(run: Run):
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.sleep(1)
            except trio.Cancelled as cancelled:
                caught = cancelled
        raise caught

    async with open_engine(with_body(body), store="memory:") as engine:
        other = await engine.submit("other", handle="bob")
        with pytest.raises(RunFailed):
            await (await engine.submit("work", handle="alice")).result()
        assert await status_of(engine, other) == "running"
        await other.cancel()
