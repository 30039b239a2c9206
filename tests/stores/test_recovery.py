"""A restart in every state: which runs continue, from where, and which end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.abc import Clock

from greenroom import Jobs, Run
from greenroom.errors import Conflict
from greenroom.persistence import files
from greenroom.persistence.files import DiskFiles
from greenroom.protocol.events import InterruptOpened, RunStateChanged
from tests.support import Bodies

from .conftest import Place
from .lives import PATIENCE, Lives, ended, wait_for, wait_until

SOON = 0.3
"""Seconds: short enough to wait for in real time, long enough for a crash before its end."""


@pytest.fixture
def lives(place: Place, tmp_path: Path) -> Lives:
    return Lives(place, tmp_path / "data")


class Diary:
    """A registry whose bodies record their run, attempt and checkpoint, and wait on demand."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.begun: list[tuple[str, int, Any]] = []  # run id, attempt, checkpoint
        self.saw: list[Any] = []
        self.hold = True

    def begin(self, run: Run) -> None:
        self.begun.append((run.id, run.attempt, run.checkpoint))

    async def wait(self) -> None:
        """Wait in the first life; later bodies continue."""
        if self.hold:
            await trio.sleep_forever()


def clinging(lives: Lives) -> Bodies:
    """Bodies of the job `clings` ignore their cancellation until the process dies."""
    bodies = Bodies()

    @bodies.jobs.job("clings", grace=math.inf)
    async def clings(run: Run) -> None:
        bodies.begun.append(run.id)
        await lives.cling()

    return bodies


def transitions(lives: Lives, run: str) -> list[tuple[str, str | None]]:
    """The statuses of a run, with reasons, as clients saw them in all lives."""
    return [
        (str(event.to), event.reason)
        for event in lives.seen
        if isinstance(event, RunStateChanged) and event.run == run
    ]


# Queued.


async def test_queued_runs_start_in_the_order_of_their_places(lives: Lives, clock: Clock) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs, max_concurrent=1, lanes={"b": 5, "c": 5}) as engine:
        first = await engine.submit("wait", handle="first")
        tickets = [
            await engine.submit("wait", handle=f"h{9 - n}", lane=("main", "b", "c")[n % 3]) for n in range(8)
        ]
        await wait_for(engine, first, "running")
        queued = (await engine.snapshot()).lanes["main"].queued
    async with lives.clean(bodies.jobs, max_concurrent=1) as engine:
        snapshot = await engine.snapshot()
        assert [run for run in queued if run in snapshot.lanes["main"].queued] == snapshot.lanes[
            "main"
        ].queued
        bodies.end(*tickets)
        await ended(engine, *tickets)
    assert bodies.begun == [first.id, *(ticket.id for ticket in tickets)]


async def test_the_runs_of_a_batch_continue_in_their_order_after_a_restart(
    lives: Lives, clock: Clock
) -> None:
    bodies = Bodies()
    runs: Any = [
        {"job": "wait", "handle": f"h{n % 50}", "lane": ("main", "b")[n % 2], "on_conflict": "queue"}
        | ({"request_id": f"r{n}"} if n % 3 else {})
        for n in range(150)
    ]
    async with lives.crash(bodies.jobs, max_concurrent=0) as engine:
        tickets = await engine.submit_many(runs)
        before = await engine.snapshot()
        again = await engine.submit_many([run for run in runs if "request_id" in run])
        assert all(ticket.joined for ticket in again)
    async with lives.crash(bodies.jobs, max_concurrent=0) as engine:
        snapshot = await engine.snapshot()
        assert list(snapshot.runs) == [ticket.id for ticket in tickets]
        assert (snapshot.lanes, snapshot.handles) == (before.lanes, before.handles)
        joined = await engine.submit_many([run for run in runs if "request_id" in run])
        assert [ticket.id for ticket in joined] == [ticket.id for ticket in again]


async def test_places_continue_after_a_restart(lives: Lives, clock: Clock) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs, max_concurrent=0) as engine:
        one = await engine.submit("wait", handle="one")
    async with lives.crash(bodies.jobs, max_concurrent=0) as engine:
        two = await engine.submit("wait", handle="two")
        runs = (await engine.snapshot()).runs
        assert runs[one.id].place < runs[two.id].place  # type: ignore[operator]


async def test_runs_that_wait_in_a_handle_keep_their_order_after_a_replacement(
    lives: Lives, clock: Clock
) -> None:
    bodies = clinging(lives)
    async with lives.crash(bodies.jobs) as engine:
        first = await engine.submit("clings", handle="h")
        second = await engine.submit("wait", handle="h", on_conflict="queue")
        third = await engine.submit("wait", handle="h", on_conflict="queue")
        await wait_until(engine, lambda now: bodies.begun)
        last = await engine.submit("wait", handle="h", on_conflict="replace")
        await wait_for(engine, first, "cancelling")
        order = [last.id, second.id, third.id]
        assert (await engine.snapshot()).handles["h"].waiting == order
    async with lives.clean(bodies.jobs) as engine:
        bodies.end(second, third, last)
        await ended(engine, third)
        assert (await engine.get_run(first.id)).status == "cancelled"
    assert bodies.begun[1:] == order


async def test_a_replacement_is_still_superseded_by_a_newer_one_after_a_restart(
    lives: Lives, clock: Clock
) -> None:
    bodies = clinging(lives)
    async with lives.crash(bodies.jobs, max_concurrent=0) as engine:
        await engine.submit("wait", handle="other")
    async with lives.crash(bodies.jobs, max_concurrent=3) as engine:
        await engine.submit("clings", handle="h")
        waits = await engine.submit("wait", handle="h", on_conflict="queue")
        await wait_until(engine, lambda now: len(bodies.begun) == 2)
        replacement = await engine.submit("wait", handle="h", on_conflict="replace")
    async with lives.clean(bodies.jobs, max_concurrent=0) as engine:
        newer = await engine.submit("wait", handle="h", on_conflict="replace")
        await wait_for(engine, replacement.id, "cancelled")
        assert (await engine.get_run(replacement.id)).reason == "replaced"
        await engine.set_max_concurrent(3)
        bodies.end(waits, newer)
        await ended(engine, waits)
    assert [id for id in bodies.begun if id in (waits.id, newer.id)] == [newer.id, waits.id]


async def test_runs_with_unsorted_ids_keep_their_order_in_a_handle(lives: Lives, clock: Clock) -> None:
    names = (f"run {n}" for n in range(8, 100))
    bodies = Bodies()
    async with lives.crash(bodies.jobs, max_concurrent=0, ids=lambda: next(names)) as engine:
        for _ in range(4):
            await engine.submit("wait", handle="h", on_conflict="queue")
        waiting = (await engine.snapshot()).handles["h"].waiting
        assert waiting == ["run 9", "run 10", "run 11"]
    async with lives.clean(bodies.jobs, max_concurrent=0) as engine:
        assert (await engine.snapshot()).handles["h"].waiting == waiting


async def test_a_queued_run_whose_job_is_unknown_after_the_restart_is_rejected(
    lives: Lives, clock: Clock
) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs, max_concurrent=0) as engine:
        run = await engine.submit("wait", handle="h")
        behind = await engine.submit("wait", handle="h", on_conflict="queue")
    async with lives.clean(Jobs()) as engine:
        for ticket in (run, behind):
            found = await ended(engine, ticket)
            assert found.status == "rejected"
            assert '"wait"' in found.error
        assert (await engine.snapshot()).handles["h"].active_run is None


async def test_a_queued_run_whose_parameters_are_no_longer_valid_is_rejected(
    lives: Lives, clock: Clock
) -> None:
    before, after = Diary(), Diary()

    @before.jobs.job("job")
    async def job(run: Run, params: dict[str, Any]) -> None: ...

    @after.jobs.job("job")
    async def stricter(run: Run, params: dict[str, int]) -> None:
        after.begin(run)

    async with lives.crash(before.jobs, max_concurrent=0) as engine:
        bad = await engine.submit("job", handle="bad", params={"n": "text"})
        good = await engine.submit("job", handle="good", params={"n": 1})
    async with lives.clean(after.jobs, max_concurrent=3) as engine:
        found = await ended(engine, bad)
        assert found.status == "rejected"
        assert "n" in found.error
        assert (await ended(engine, good)).status == "succeeded"
    assert [id for id, _, _ in after.begun] == [good.id]


async def test_a_queued_run_can_be_cancelled_after_a_restart(lives: Lives, clock: Clock) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs, max_concurrent=0) as engine:
        one = await engine.submit("wait", handle="h")
        two = await engine.submit("wait", handle="h", on_conflict="queue")
        three = await engine.submit("wait", handle="g")
    async with lives.clean(bodies.jobs) as engine:
        await engine.set_max_concurrent(0)
        for ticket in (two, one):
            assert (await engine.cancel(ticket.id)).status == "cancelled"
        assert await engine.clear_lane("main") == 1
        assert (await engine.get_run(three.id)).reason == "lane_cleared"


# Executing.


async def test_a_resumable_run_continues_from_its_checkpoint_without_losing_an_attempt(
    lives: Lives, clock: Clock
) -> None:
    diary = Diary()

    @diary.jobs.job("job", resumable=True)
    async def job(run: Run) -> str:
        diary.begin(run)
        if run.checkpoint is None:
            await run.save_checkpoint({"page": 1})
            await run.save_checkpoint({"page": 2})
            await run.progress(2, 3)
        await diary.wait()
        return "done"

    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("job", handle="h")
        await wait_until(engine, lambda now: now.runs[run.id].progress)
    async with lives.crash(diary.jobs) as engine:
        await wait_until(engine, lambda now: len(diary.begun) == 2)
    diary.hold = False
    async with lives.clean(diary.jobs) as engine:
        found = await ended(engine, run)
        assert (found.status, found.result, found.attempt) == ("succeeded", "done", 1)
        assert found.progress == {"done": 2, "total": 3}
    assert diary.begun == [(run.id, 1, None), (run.id, 1, {"page": 2}), (run.id, 1, {"page": 2})]
    again = [("suspended", "recovered"), ("running", None)]
    assert transitions(lives, run.id)[1:] == [("running", None), *again, *again, ("succeeded", None)]


async def test_a_run_with_remaining_attempts_is_retried(lives: Lives, clock: Clock) -> None:
    diary = Diary()

    @diary.jobs.job("job", max_attempts=2)
    async def job(run: Run) -> None:
        diary.begin(run)
        if run.attempt == 1:
            await run.save_checkpoint("saved")
        await diary.wait()

    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("job", handle="h")
        await wait_until(engine, lambda now: diary.begun)
    async with lives.crash(diary.jobs) as engine:
        await wait_until(engine, lambda now: len(diary.begun) == 2)
    async with lives.clean(diary.jobs) as engine:
        found = await ended(engine, run)
        assert (found.status, found.reason, found.attempt) == ("failed", "crashed", 2)
    assert diary.begun == [(run.id, 1, None), (run.id, 2, "saved")]


async def test_a_run_that_must_not_be_repeated_has_crashed_and_its_handle_is_free(
    lives: Lives, clock: Clock
) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs) as engine:
        run = await engine.submit("wait", handle="h")
        await wait_for(engine, run, "running")
    async with lives.clean(bodies.jobs) as engine:
        found = await ended(engine, run)
        assert (found.status, found.reason, found.attempt) == ("failed", "crashed", 1)
        assert found.error
        assert (await engine.snapshot()).handles["h"].status == "Failed"
        again = await engine.submit("wait", handle="h")
        bodies.end(again)
        assert (await ended(engine, again)).status == "succeeded"
    assert bodies.begun == [run.id, again.id]


async def test_the_next_run_of_a_handle_starts_when_the_previous_one_has_crashed(
    lives: Lives, clock: Clock
) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs) as engine:
        run = await engine.submit("wait", handle="h")
        behind = await engine.submit("wait", handle="h", on_conflict="queue")
        await wait_for(engine, run, "running")
    bodies.end(behind)
    async with lives.clean(bodies.jobs) as engine:
        assert (await ended(engine, behind)).status == "succeeded"


async def test_a_recovered_run_starts_before_runs_with_later_places(lives: Lives, clock: Clock) -> None:
    diary = Diary()

    @diary.jobs.job("job", resumable=True)
    async def job(run: Run) -> None:
        diary.begin(run)
        await diary.wait()

    async with lives.crash(diary.jobs, max_concurrent=2) as engine:
        tickets = [await engine.submit("job", handle=f"h{n}") for n in range(5)]
        await wait_until(engine, lambda now: len(diary.begun) == 2)
    diary.begun.clear()
    diary.hold = False
    async with lives.clean(diary.jobs, max_concurrent=1) as engine:
        await ended(engine, *tickets)
    assert [id for id, _, _ in diary.begun] == [ticket.id for ticket in tickets]


async def test_a_run_being_cancelled_is_cancelled(lives: Lives, clock: Clock) -> None:
    bodies = clinging(lives)
    async with lives.crash(bodies.jobs) as engine:
        run = await engine.submit("clings", handle="h")
        await wait_until(engine, lambda now: bodies.begun)
        await engine.cancel(run.id, by="alice")
    async with lives.clean(bodies.jobs) as engine:
        found = await ended(engine, run)
        assert (found.status, found.reason) == ("cancelled", "cancelled")
        assert bodies.begun == [run.id]


async def test_a_started_run_whose_job_is_unknown_after_the_restart_ends(lives: Lives, clock: Clock) -> None:
    diary = Diary()

    @diary.jobs.job("runs", resumable=True)
    async def runs(run: Run) -> None:
        diary.begin(run)
        await diary.wait()

    @diary.jobs.job("sleeps", resumable=True)
    async def sleeps(run: Run) -> None:
        diary.begin(run)
        await run.sleep(1000)

    async with lives.crash(diary.jobs) as engine:
        one = await engine.submit("runs", handle="one")
        two = await engine.submit("sleeps", handle="two")
        await wait_for(engine, two, "suspended")
        await wait_for(engine, one, "running")
    async with lives.clean(Jobs()) as engine:
        found = await ended(engine, one)
        assert found.status in ("failed", "rejected")
        assert '"runs"' in found.error
        found = await ended(engine, two)
        assert found.status == "rejected"
        assert '"sleeps"' in found.error


async def test_a_detached_run_ends_like_any_other_that_executed(lives: Lives, clock: Clock) -> None:
    bodies = clinging(lives)
    async with lives.crash(bodies.jobs, max_concurrent=1) as engine:
        run = await engine.submit("clings", handle="h")
        await wait_until(engine, lambda now: bodies.begun)
        await engine.reset_lanes()
        assert (await engine.get_run(run.id)).detached
    async with lives.clean(bodies.jobs, max_concurrent=1) as engine:
        found = await ended(engine, run)
        assert (found.status, found.reason, found.detached) == ("failed", "crashed", False)
        snapshot = await engine.snapshot()
        assert snapshot.engine.executing == 0
        assert snapshot.lanes["main"].generation == 1
        again = await engine.submit("wait", handle="h")
        bodies.end(again)
        await ended(engine, again)


# Suspended.


async def test_a_sleep_ends_at_the_same_time_as_without_the_restart(lives: Lives, clock: Clock) -> None:
    diary = Diary()

    @diary.jobs.job("job", resumable=True)
    async def job(run: Run) -> str:
        diary.begin(run)
        if run.checkpoint is None:
            await run.save_checkpoint("slept")
            await run.sleep(2 * SOON)
        return "woken"

    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("job", handle="h")
        asleep = (await wait_for(engine, run, "suspended")).runs[run.id].updated_at
    async with lives.clean(diary.jobs) as engine:
        assert (await engine.get_run(run.id)).waiting_for == "time"
        assert (await ended(engine, run)).result == "woken"
    assert diary.begun == [(run.id, 1, None), (run.id, 1, "slept")]
    [woken] = [
        event.at
        for event in lives.seen
        if isinstance(event, RunStateChanged) and event.to == "running" and event.from_ == "suspended"
    ]
    assert woken >= asleep + 2 * SOON - 0.01


async def test_a_sleep_that_expired_during_the_downtime_ends_immediately(lives: Lives, clock: Clock) -> None:
    diary = Diary()

    @diary.jobs.job("job", resumable=True)
    async def job(run: Run) -> str:
        diary.begin(run)
        if len(diary.begun) == 1:
            await run.sleep(SOON)
        return "woken"

    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("job", handle="h")
        await wait_for(engine, run, "suspended")
    await trio.sleep(SOON)
    async with lives.clean(diary.jobs) as engine:
        assert (await ended(engine, run)).result == "woken"


async def test_a_run_that_slept_and_must_not_be_repeated_has_crashed(lives: Lives, clock: Clock) -> None:
    diary = Diary()

    @diary.jobs.job("job")
    async def job(run: Run) -> None:
        diary.begin(run)
        await run.sleep(1000)

    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("job", handle="h")
        await wait_for(engine, run, "suspended")
    async with lives.clean(diary.jobs) as engine:
        found = await ended(engine, run)
        assert (found.status, found.reason) == ("failed", "crashed")
    assert len(diary.begun) == 1


async def test_a_retry_starts_at_the_same_time_as_without_the_restart(lives: Lives, clock: Clock) -> None:
    diary = Diary()

    @diary.jobs.job("job", max_attempts=2, backoff=2 * SOON)
    async def job(run: Run) -> str:
        diary.begin(run)
        if run.attempt == 1:
            await run.save_checkpoint("first")
            raise ValueError("no")
        return "yes"

    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("job", handle="h")
        failed_at = (await wait_for(engine, run, "suspended")).runs[run.id].updated_at
    async with lives.clean(diary.jobs) as engine:
        found = await ended(engine, run)
        assert (found.status, found.attempt, found.result) == ("succeeded", 2, "yes")
        assert found.ended_at >= failed_at + 2 * SOON - 0.01
    assert diary.begun == [(run.id, 1, None), (run.id, 2, "first")]


async def test_a_retry_that_already_had_its_place_keeps_it(lives: Lives, clock: Clock) -> None:
    diary = Diary()

    @diary.jobs.job("job", max_attempts=2, backoff=0)
    async def job(run: Run) -> None:
        diary.begin(run)
        if run.attempt == 1 and run.handle == "first":
            raise ValueError("no")
        await diary.wait()

    async with lives.crash(diary.jobs, max_concurrent=1) as engine:
        first = await engine.submit("job", handle="first")
        blocker = await engine.submit("job", handle="blocker")
        await wait_for(engine, blocker, "running")
        placed = await wait_until(engine, lambda now: now.runs[first.id].place == 3)
        assert placed.runs[first.id].status == "suspended"
        behind = await engine.submit("job", handle="behind")
        assert (await engine.get_run(behind.id)).place == 4
    diary.begun.clear()
    diary.hold = False
    async with lives.clean(diary.jobs, max_concurrent=1) as engine:
        await ended(engine, first, behind)
    order = [id for id, _, _ in diary.begun]
    assert order.index(first.id) < order.index(behind.id)


def asking(diary: Diary, *, release_slot: bool, timeout: float = 1000.0, keys: int = 1) -> None:
    @diary.jobs.job("asks", resumable=True)
    async def asks(run: Run) -> list[Any]:
        diary.begin(run)
        answers = []
        for n in range(keys):
            answers.append(await run.interrupt({"n": n}, timeout=timeout, release_slot=release_slot))
        await diary.wait()
        return answers


def opened(lives: Lives) -> list[str]:
    return [event.interrupt for event in lives.seen if isinstance(event, InterruptOpened)]


async def test_an_interrupt_remains_open_after_a_crash_and_can_be_answered(
    lives: Lives, clock: Clock
) -> None:
    diary = Diary()
    asking(diary, release_slot=True)
    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("asks", handle="h")
        [interrupt] = (await wait_for(engine, run, "suspended")).interrupts
    diary.hold = False
    async with lives.clean(diary.jobs) as engine:
        assert list((await engine.snapshot()).interrupts) == [interrupt]
        assert await engine.answer(interrupt, {"approved": True}) == "resolved"
        assert (await ended(engine, run)).result == [{"approved": True}]
        assert await engine.answer(interrupt, {"approved": False}) == "already_resolved"
    assert opened(lives) == [interrupt], "the same interrupt is not asked twice"
    assert len(diary.begun) == 2


async def test_an_interrupt_remains_open_after_a_shutdown_and_can_be_answered(
    lives: Lives, clock: Clock
) -> None:
    diary = Diary()
    asking(diary, release_slot=True)
    async with lives.clean(diary.jobs) as engine:
        run = await engine.submit("asks", handle="h")
        [interrupt] = (await wait_for(engine, run, "suspended")).interrupts
    diary.hold = False
    async with lives.clean(diary.jobs) as engine:
        assert list((await engine.snapshot()).interrupts) == [interrupt]
        assert await engine.answer(interrupt, "yes") == "resolved"
        assert (await ended(engine, run)).result == ["yes"]
    assert opened(lives) == [interrupt]


async def test_an_interrupt_times_out_at_the_same_time_as_without_the_restart(
    lives: Lives, clock: Clock
) -> None:
    diary = Diary()
    asking(diary, release_slot=True, timeout=SOON)
    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("asks", handle="h")
        await wait_for(engine, run, "suspended")
    diary.hold = False
    async with lives.clean(diary.jobs) as engine:
        assert (await ended(engine, run)).result == [None]
    assert len(opened(lives)) == 1


async def test_an_answer_is_kept_for_a_body_that_opens_the_interrupt_again(
    lives: Lives, clock: Clock
) -> None:
    diary = Diary()
    asking(diary, release_slot=False, keys=2)
    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("asks", handle="h")
        [first] = (await wait_until(engine, lambda now: now.interrupts)).interrupts
        await engine.answer(first, "one")
        await wait_until(engine, lambda now: now.interrupts and first not in now.interrupts)
    async with lives.crash(diary.jobs) as engine:
        now = await wait_until(engine, lambda now: now.interrupts and now.runs[run.id].status == "running")
        [second] = now.interrupts
        assert now.interrupts[second].data == {"n": 1}
        assert await engine.answer(second, "two") == "resolved"
    diary.hold = False
    async with lives.clean(diary.jobs) as engine:
        assert (await ended(engine, run)).result == ["one", "two"]
        assert (await engine.snapshot()).interrupts == {}


async def test_an_interrupt_that_timed_out_is_not_opened_again_after_two_restarts(
    lives: Lives, clock: Clock
) -> None:
    diary = Diary()
    asking(diary, release_slot=True, timeout=SOON)
    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("asks", handle="h")
        await wait_for(engine, run, "suspended")
    async with lives.crash(diary.jobs, max_concurrent=0) as engine:
        await wait_until(engine, lambda now: not now.interrupts)
    diary.hold = False
    async with lives.clean(diary.jobs, max_concurrent=3) as engine:
        assert (await ended(engine, run)).result == [None]
    assert len(opened(lives)) == 1


async def test_an_answer_received_without_a_slot_is_kept_over_another_restart(
    lives: Lives, clock: Clock
) -> None:
    diary = Diary()
    asking(diary, release_slot=True)
    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("asks", handle="h")
        [interrupt] = (await wait_for(engine, run, "suspended")).interrupts
    async with lives.crash(diary.jobs, max_concurrent=0) as engine:
        assert await engine.answer(interrupt, "yes") == "resolved"
    diary.hold = False
    async with lives.clean(diary.jobs, max_concurrent=1) as engine:
        assert await engine.answer(interrupt, "no") == "already_resolved"
        assert (await ended(engine, run)).result == ["yes"]
    assert len(opened(lives)) == 1


def calling(diary: Diary, **child: Any) -> None:
    @diary.jobs.job("parent", resumable=True)
    async def parent(run: Run) -> Any:
        diary.begin(run)
        return await run.call("child", handle="child")

    @diary.jobs.job("child", **child)
    async def body(run: Run) -> str:
        diary.saw.append(run.id)
        await diary.wait()
        return "from the child"


@pytest.mark.parametrize("leave", ["crash", "clean"])
async def test_a_parent_gets_the_result_of_the_child_that_it_called_before_the_restart(
    lives: Lives, clock: Clock, leave: str
) -> None:
    diary = Diary()
    calling(diary, resumable=True)
    async with getattr(lives, leave)(diary.jobs) as engine:
        run = await engine.submit("parent", handle="h")
        await wait_for(engine, run, "suspended")
        await wait_until(engine, lambda now: diary.saw)
    diary.hold = False
    async with lives.clean(diary.jobs) as engine:
        assert (await ended(engine, run)).result == "from the child"
        assert len(await engine.list_runs(handle="child")) == 1
    assert len(set(diary.saw)) == 1


async def test_a_parent_is_notified_of_a_child_that_crashed(lives: Lives, clock: Clock) -> None:
    diary = Diary()
    calling(diary)
    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("parent", handle="h")
        await wait_until(engine, lambda now: diary.saw)
    async with lives.clean(diary.jobs) as engine:
        found = await ended(engine, run)
        assert found.status == "failed"
        [child] = await engine.list_runs(handle="child")
        assert (child.status, child.reason) == ("failed", "crashed")
    assert diary.saw == [child.id], "the child is not repeated"


async def test_a_child_is_cancelled_with_its_parent_after_a_restart(lives: Lives, clock: Clock) -> None:
    diary = Diary()
    calling(diary, resumable=True)
    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("parent", handle="h")
        await wait_until(engine, lambda now: diary.saw)
    async with lives.clean(diary.jobs) as engine:
        await wait_until(engine, lambda now: len(diary.saw) == 2)
        await engine.cancel(run.id)
        [child] = await engine.list_runs(handle="child")
        found = await ended(engine, child.id)
        assert (found.status, found.reason) == ("cancelled", "parent_cancelled")


# The data of runs and handles.


async def test_messages_that_were_not_taken_are_kept_for_the_next_body(lives: Lives, clock: Clock) -> None:
    diary = Diary()

    @diary.jobs.job("job", resumable=True)
    async def job(run: Run) -> list[Any]:
        diary.begin(run)
        if len(diary.begun) == 1:
            diary.saw.append(await run.next_message())
            await trio.sleep_forever()
        return await run.messages()

    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("job", handle="h")
        await wait_until(engine, lambda now: diary.begun)
        for text in ("one", {"two": 2}, "three"):
            await engine.inject("h", text)
        assert diary.saw == ["one"]
    async with lives.clean(diary.jobs) as engine:
        assert (await ended(engine, run)).result == [{"two": 2}, "three"]


@pytest.mark.parametrize("leave", ["crash", "clean"])
@pytest.mark.parametrize("accepts", ["interactive", "streaming"])
@pytest.mark.parametrize("early", [False, True])
async def test_a_run_that_waited_for_a_message_continues_to_wait_without_a_body_and_resumes_with_one(
    lives: Lives, clock: Clock, leave: str, accepts: str, early: bool
) -> None:
    diary, heard = Diary(), []

    @diary.jobs.job("chat", resumable=True, accepts=accepts)
    async def chat(run: Run) -> Any:
        diary.begin(run)
        async with run.streaming():
            if run.checkpoint is None:
                await run.save_checkpoint(await run.next_message(release_slot=True))
                heard.append(run.checkpoint)
            return [run.checkpoint, await run.next_message(release_slot=True)]

    async with getattr(lives, leave)(diary.jobs) as engine:
        run = await engine.submit("chat", handle="h")
        await wait_until(engine, lambda now: now.runs[run.id].waiting_for == "message")
        await engine.inject("h", "one")
        await wait_until(engine, lambda now: heard and now.runs[run.id].waiting_for == "message")
        if early:
            await engine.set_max_concurrent(0)
            await engine.inject("h", "two")
    for _ in range(2):
        async with lives.crash(diary.jobs, max_concurrent=0) as engine:
            now = await engine.snapshot()
            assert (now.runs[run.id].status, now.runs[run.id].waiting_for) == ("suspended", "message")
            assert now.runs[run.id].interactive
    assert len(diary.begun) == 1
    async with lives.clean(diary.jobs, max_concurrent=1) as engine:
        if not early:
            assert await engine.inject("h", "two") == "accepted"
        assert (await ended(engine, run)).result == ["one", "two"]
    assert [checkpoint for _, _, checkpoint in diary.begun] == [None, "one"]


async def test_a_run_that_waits_for_a_message_without_a_body_can_be_cancelled(
    lives: Lives, clock: Clock
) -> None:
    diary = Diary()

    @diary.jobs.job("chat", resumable=True)
    async def chat(run: Run) -> None:
        await run.next_message(release_slot=True)

    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("chat", handle="h")
        await wait_for(engine, run, "suspended")
    async with lives.clean(diary.jobs) as engine:
        assert (await engine.cancel(run.id)).status == "cancelled"


async def test_drafts_and_locks_are_as_they_were(lives: Lives, clock: Clock) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs, max_concurrent=0) as engine:
        await engine.set_params("free", {"n": 1})
        await engine.set_params("gone", {"n": 2})
        await engine.set_params("gone", None)
        await engine.set_params("taken", {"n": 3})
        run = await engine.submit("wait", handle="taken")
    async with lives.clean(bodies.jobs, max_concurrent=0) as engine:
        handles = (await engine.snapshot()).handles
        assert (handles["free"].params, handles["free"].locked) == ({"n": 1}, False)
        assert (handles["taken"].params, handles["taken"].active_run) == ({"n": 3}, run.id)
        assert "gone" not in handles
        with pytest.raises(Exception, match="locked"):
            await engine.set_params("taken", {"n": 4})
        with pytest.raises(Conflict) as refused:
            await engine.submit("wait", handle="taken")
        assert refused.value.details["active_run"] == run.id
        from_draft = await engine.submit("wait", handle="free")
        assert (await engine.get_run(from_draft.id)).params == {"n": 1}


async def test_a_run_of_kind_continue_gets_the_checkpoint_of_a_run_from_before_the_restart(
    lives: Lives, clock: Clock
) -> None:
    diary = Diary()

    @diary.jobs.job("job")
    async def job(run: Run) -> None:
        diary.begin(run)
        if run.checkpoint is None:
            await run.save_checkpoint([1])

    async with lives.clean(diary.jobs) as engine:
        await ended(engine, await engine.submit("job", handle="h"))
    async with lives.clean(diary.jobs) as engine:
        await ended(engine, await engine.submit("job", handle="h", kind="continue"))
        await ended(engine, await engine.submit("job", handle="h"))
    assert [checkpoint for _, _, checkpoint in diary.begun] == [None, [1], None]


async def test_limits_are_kept_and_a_configured_limit_wins(lives: Lives, clock: Clock) -> None:
    jobs = Jobs()
    async with lives.crash(jobs, max_concurrent=4, lanes={"a": 2, "b": 3}) as engine:
        await engine.set_concurrency("a", 7)
        await engine.set_concurrency("c", None)
        await engine.set_concurrency("d", 5)
        await engine.set_concurrency("d", 1)  # the default of a lane
        await engine.set_max_concurrent(9)
    async with lives.crash(jobs) as engine:
        now = await engine.snapshot()
        assert now.engine.max_concurrent == 9
        assert [now.lanes[name].limit for name in "abc"] == [7, 3, None]
    async with lives.crash(jobs, max_concurrent=2, lanes={"a": 2, "b": None}) as engine:
        now = await engine.snapshot()
        assert now.engine.max_concurrent == 2
        assert [now.lanes[name].limit for name in "abc"] == [2, None, None]
    async with lives.clean(jobs) as engine:
        now = await engine.snapshot()
        assert now.engine.max_concurrent == 2
        assert [now.lanes[name].limit for name in "abc"] == [2, None, None]


async def test_a_stored_limit_applies_after_a_restart(lives: Lives, clock: Clock) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs, max_concurrent=10) as engine:
        await engine.set_concurrency("a", 2)
        await engine.set_concurrency("b", 0)
        for n in range(5):
            await engine.submit("wait", handle=f"a{n}", lane="a")
            await engine.submit("wait", handle=f"b{n}", lane="b")
        await wait_until(engine, lambda now: len(now.lanes["a"].executing) == 2)
    async with lives.clean(bodies.jobs) as engine:
        await wait_until(engine, lambda now: len(now.lanes["a"].queued) == 1)  # three when it opened
        await trio.testing.wait_all_tasks_blocked(0.01)
        now = await engine.snapshot()
        assert len(now.lanes["a"].executing) == 2
        assert now.lanes["b"].executing == []
        assert len(now.lanes["b"].queued) == 5


async def test_draining_does_not_survive_a_restart(lives: Lives, clock: Clock) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs) as engine:
        await engine.drain()
    async with lives.clean(bodies.jobs) as engine:
        assert not (await engine.snapshot()).engine.draining
        run = await engine.submit("wait", handle="h")
        bodies.end(run)
        await ended(engine, run)


async def test_a_handle_held_by_an_abandoned_body_is_free_after_a_restart(lives: Lives, clock: Clock) -> None:
    diary = Diary()

    @diary.jobs.job("job", grace=0.05)
    async def job(run: Run) -> None:
        diary.begin(run)
        if len(diary.begun) == 1:
            await lives.cling()

    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("job", handle="h")
        await wait_until(engine, lambda now: diary.begun)
        await engine.cancel(run.id)
        await ended(engine, run)
        assert (await engine.snapshot()).handles["h"].active_run == run.id
        behind = await engine.submit("job", handle="h", on_conflict="queue")
    async with lives.clean(diary.jobs) as engine:
        assert (await ended(engine, behind)).status == "succeeded"
        assert (await engine.snapshot()).handles["h"].active_run is None
        [freed] = [event for event in lives.seen if getattr(event, "freed", None)]
        assert freed.freed == run.id  # type: ignore[union-attr]


# Files.


def writing(diary: Diary, lives: Lives) -> None:
    @diary.jobs.job("writes", grace=math.inf)
    async def writes(run: Run) -> None:
        for name in ("done.txt", "also/done.txt"):
            async with run.open_file(name) as file:
                await file.write(b"whole")
        diary.begin(run)
        if diary.hold:
            await lives.cling()


def left(lives: Lives) -> list[str]:
    return sorted(path.name for path in lives.folder.rglob("*") if path.is_file())


async def test_unfinished_files_of_a_crash_are_removed_and_finished_ones_stay(
    lives: Lives, clock: Clock
) -> None:
    diary = Diary()
    writing(diary, lives)
    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("writes", handle="h")
        await wait_until(engine, lambda now: diary.begun)
    folder = next(lives.folder.iterdir())
    (folder / f"x.txt.{run.id}.part").write_bytes(b"ha")  # as after the process was killed
    (folder / "also" / f"y.txt.{run.id}.part").write_bytes(b"ha")
    async with lives.clean(diary.jobs) as engine:
        await ended(engine, run)
    assert left(lives) == ["done.txt", "done.txt"]


async def test_a_delete_of_files_that_a_crash_interrupted_is_completed(lives: Lives, clock: Clock) -> None:
    diary = Diary()
    writing(diary, lives)
    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("writes", handle="h")
        await wait_until(engine, lambda now: diary.begun)
        await engine.cancel(run.id, files="delete")
    assert left(lives) == ["done.txt", "done.txt"]
    async with lives.clean(diary.jobs) as engine:
        assert (await ended(engine, run)).status == "cancelled"
    assert left(lives) == []


async def test_a_cancel_after_the_restart_deletes_the_files_from_before_it(
    lives: Lives, clock: Clock
) -> None:
    diary = Diary()

    @diary.jobs.job("writes", resumable=True)
    async def writes(run: Run) -> None:
        diary.begin(run)
        if run.checkpoint is None:
            async with run.open_file("a.txt") as file:
                await file.write(b"whole")
            await run.save_checkpoint(1)
        await run.sleep(1000)

    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("writes", handle="h")
        await wait_for(engine, run, "suspended")
    assert left(lives) == ["a.txt"]
    async with lives.clean(diary.jobs) as engine:
        await wait_for(engine, run, "suspended")
        await engine.cancel(run.id, files="delete")
        assert (await ended(engine, run)).status == "cancelled"
    assert left(lives) == []


class SlowDeletes(DiskFiles):
    """Files whose deletes wait for the test."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, in_threads=False)
        self.goes_on = trio.Event()

    async def delete(self, handle: str, paths: Sequence[str]) -> None:
        await self._wait()
        await super().delete(handle, paths)

    async def _wait(self) -> None:
        with trio.move_on_after(60):  # so that a failing test ends
            await self.goes_on.wait()

    async def remove_parts(self, handle: str, run: str) -> None:
        await self._wait()
        await super().remove_parts(handle, run)


async def test_slow_deletes_after_a_crash_delay_only_the_runs_of_these_files(
    lives: Lives, clock: Clock
) -> None:
    diary = Diary()
    writing(diary, lives)

    @diary.jobs.job("resumes", resumable=True)
    async def resumes(run: Run) -> str:
        diary.begin(run)
        await diary.wait()
        async with run.open_file("x.txt") as file:
            await file.write(b"whole")
        return "done"

    @diary.jobs.job("quick")
    async def quick(run: Run) -> None: ...

    async with lives.crash(diary.jobs) as engine:
        cancelled = await engine.submit("writes", handle="h")
        resumed = await engine.submit("resumes", handle="i")
        crashed = await engine.submit("writes", handle="j")
        await wait_until(engine, lambda now: len(diary.begun) == 3)
        await engine.cancel(cancelled.id, files="delete")
    (lives.folder / "i").mkdir()
    (lives.folder / "i" / f"x.txt.{resumed.id}.part").write_bytes(b"ha")
    (lives.folder / "j" / f"y.txt.{crashed.id}.part").write_bytes(b"ha")
    diary.hold = False
    diary.begun.clear()
    disk = SlowDeletes(lives.folder)
    async with lives.clean(diary.jobs, data_dir=disk) as engine:
        with trio.fail_after(PATIENCE):
            for handle in "abcde":
                await (await engine.submit("quick", handle=handle)).result()
        await wait_for(engine, resumed, "running")
        assert {id for id, *_ in diary.begun}.isdisjoint({cancelled.id, resumed.id, crashed.id})
        runs = (await engine.snapshot()).runs
        assert (runs[cancelled.id].status, runs[crashed.id].status) == ("cancelling", "running")
        disk.goes_on.set()
        assert (await ended(engine, cancelled)).status == "cancelled"
        assert (await ended(engine, crashed)).reason == "crashed"
        assert (await ended(engine, resumed)).status == "succeeded"
    assert sorted(path.name for path in (lives.folder / "i").iterdir()) == ["x.txt"]
    assert not list((lives.folder / "h").rglob("*.txt"))
    assert not list(lives.folder.rglob("*.part"))


async def test_a_restart_that_cannot_list_unfinished_files_deletes_no_file_of_an_older_run(
    lives: Lives, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Jobs()

    @jobs.job("writes", resumable=True)
    async def writes(run: Run, params: dict[str, bool]) -> None:
        async with run.open_file("a.txt", overwrite=True) as file:
            await file.write(b"whole")

    async def unfinished(*_: Any) -> list[str]:
        raise OSError("the folder cannot be read")

    async with lives.clean(jobs) as engine:
        await ended(engine, await engine.submit("writes", handle="h", params={}))
    with monkeypatch.context() as patched:
        hangs = await hang(lives, patched, "finish")
        async with lives.crash(jobs) as engine:
            run = await engine.submit("writes", handle="h", params={})
            with trio.fail_after(20):
                await hangs.wait()
    monkeypatch.setattr(files.DiskFiles, "unfinished", unfinished)
    async with lives.clean(jobs, max_concurrent=0) as engine:
        await engine.cancel(run.id, files="delete")
        assert (await ended(engine, run)).status == "cancelled"
    assert "a.txt" in left(lives)


async def hang(lives: Lives, monkeypatch: pytest.MonkeyPatch, name: str) -> trio.Event:
    """Make this method hang until the process dies. Returns an event that is set when a call hangs."""
    hangs = trio.Event()

    async def method(part: Any) -> None:
        hangs.set()
        part._file.close()
        await lives.cling()

    monkeypatch.setattr(files._DiskPart, name, method)
    return hangs


@pytest.mark.parametrize("restarts", [0, 1, 2])
@pytest.mark.parametrize("where", ["before the new name", "while it is given up"])
async def test_a_file_of_an_older_run_whose_replacement_was_interrupted_is_never_deleted(
    lives: Lives, clock: Clock, restarts: int, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    diary = Diary()

    @diary.jobs.job("writes", resumable=True, grace=math.inf)
    async def writes(run: Run, params: dict[str, bool]) -> None:
        if run.checkpoint is None:
            await run.save_checkpoint("begun")
            async with run.open_file("a.txt", overwrite=True) as file:
                await file.write(b"whole")
        diary.begin(run)
        if params["stay"]:
            await run.sleep(1000)

    async with lives.clean(diary.jobs) as engine:
        await ended(engine, await engine.submit("writes", handle="h", params={"stay": False}))
    async with lives.crash(diary.jobs) as engine:
        with monkeypatch.context() as patched:
            hangs = await hang(lives, patched, "discard" if where == "while it is given up" else "finish")
            if where == "while it is given up":
                patched.setattr(files._DiskPart, "_close_and_rename", fail)
            run = await engine.submit("writes", handle="h", params={"stay": True})
            with trio.fail_after(20):
                await hangs.wait()
    if where == "while it is given up":  # its body had reached this point
        for part in lives.folder.rglob("*.part"):
            part.unlink()
    for _ in range(restarts):
        async with lives.crash(diary.jobs) as engine:
            await wait_for(engine, run, "suspended")
    async with lives.clean(diary.jobs) as engine:
        await wait_for(engine, run, "suspended")
        await engine.cancel(run.id, files="delete")
        assert (await ended(engine, run)).status == "cancelled"
    assert left(lives) == ["a.txt"], "it was the older run's"


def fail(part: Any) -> None:
    raise OSError("as asked")


# Requests and deadlines.


async def test_a_request_id_is_known_after_a_restart_while_the_run_is_pending_and_after_its_end(
    lives: Lives, clock: Clock
) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs, max_concurrent=0) as engine:
        run = await engine.submit("wait", handle="h", request_id="once")
        joined = await engine.submit("wait", handle="h", on_conflict="join", request_id="joined")
        assert joined.id == run.id
    bodies.end(run)
    async with lives.clean(bodies.jobs, max_concurrent=3) as engine:
        again = await engine.submit("wait", handle="h", request_id="once")
        assert (again.id, again.joined) == (run.id, True)
        assert (await engine.submit("wait", handle="h", request_id="joined")).id == run.id
        with trio.fail_after(30):
            assert await again.result() == "done for h"
    async with lives.clean(bodies.jobs) as engine:
        for request in ("once", "joined"):
            again = await engine.submit("wait", handle="h", request_id=request)
            assert again.id == run.id
            with trio.fail_after(30):
                assert await again.result() == "done for h"
        with pytest.raises(Conflict):
            await engine.submit("wait", handle="other", request_id="once")


async def test_parameters_that_a_waiting_run_has_taken_are_kept_over_a_restart(
    lives: Lives, clock: Clock
) -> None:
    bodies, begun = Bodies(), []

    @bodies.jobs.job("notes")
    async def notes(run: Run, params: dict[str, int]) -> None:
        begun.append(params)

    async with lives.crash(bodies.jobs, max_concurrent=0) as engine:
        for handle, count in (("queued in its lane", 2), ("waits", 3)):
            for n in range(count):
                how = "queue" if (handle, n) == ("waits", 1) else "coalesce"
                run = await engine.submit(
                    "notes", handle=handle, params={"n": n}, on_conflict=how, request_id=f"{handle} {n}"
                )
    async with lives.clean(bodies.jobs, max_concurrent=0) as engine:
        again = await engine.submit("notes", handle="waits", params={"n": 2}, request_id="waits 2")
        assert (again.id, again.joined) == (run.id, True)
        for n in (7, 8):
            later = await engine.submit("notes", handle="waits", params={"n": n}, on_conflict="coalesce")
            assert (later.id, later.joined) == (run.id, True)
    async with lives.clean(bodies.jobs, max_concurrent=1) as engine:
        await ended(engine, run)
        history = await engine.history(run.id)
        assert [event.params for event in history if getattr(event, "params", None)] == [
            {"n": 1},
            {"n": 2},
            {"n": 7},
            {"n": 8},
        ]
    assert begun == [{"n": 1}, {"n": 0}, {"n": 8}]


@pytest.mark.parametrize("place", ["memory", "sqlite_unthreaded"], indirect=True)
async def test_all_request_ids_of_a_run_from_before_a_restart_expire_a_day_after_its_end(
    lives: Lives, clock: Clock
) -> None:
    bodies, requests, day = Bodies(), ("first", "second", "third"), 24 * 3600
    async with lives.crash(bodies.jobs, max_concurrent=0) as engine:
        for request in requests:
            run = await engine.submit("wait", handle="h", on_conflict="join", request_id=request)
    bodies.end(run)
    async with lives.clean(bodies.jobs, max_concurrent=3) as engine:
        await ended(engine, run)
        await trio.sleep(day - 10)
        for request in requests:
            assert (await engine.submit("wait", handle="h", request_id=request)).id == run.id
        await trio.sleep(20)
        for request in requests:
            again = await engine.submit("wait", handle=f"after {request}", request_id=request)
            assert not again.joined
            await engine.cancel(again.id)


async def test_deadlines_continue_over_a_restart(lives: Lives, clock: Clock) -> None:
    diary = Diary()

    @diary.jobs.job("job", resumable=True)
    async def job(run: Run) -> None:
        await run.sleep(1000)

    async with lives.crash(diary.jobs, lanes={"paused": 0}) as engine:
        suspended = await engine.submit("job", handle="a", deadline=SOON)
        await wait_for(engine, suspended, "suspended")
        queued = await engine.submit("job", handle="b", lane="paused", deadline=SOON)
        waits = await engine.submit("job", handle="b", on_conflict="queue", deadline=SOON)
        late = await engine.submit("job", handle="c", lane="paused", queue_timeout=SOON)
    await trio.sleep(SOON / 2)
    async with lives.clean(diary.jobs) as engine:
        for run, reason in (
            (suspended, "deadline"),
            (queued, "deadline"),
            (waits, "deadline"),
            (late, "queue_timeout"),
        ):
            found = await ended(engine, run)
            assert (found.status, found.reason) == ("timed_out", reason)
            took = found.ended_at - found.created_at
            assert took >= SOON - 0.01
            assert took < 1.1 * SOON or clock is None  # in real time, opening a store may take longer


async def test_a_deadline_exceeded_during_the_downtime_ends_the_run_immediately(
    lives: Lives, clock: Clock
) -> None:
    bodies = Bodies()
    async with lives.crash(bodies.jobs, max_concurrent=0) as engine:
        run = await engine.submit("wait", handle="h", deadline=SOON)
    await trio.sleep(SOON)
    async with lives.clean(bodies.jobs, max_concurrent=3) as engine:
        assert (await ended(engine, run)).status == "timed_out"
    assert bodies.begun == []


# Shutdown.


async def test_after_a_shutdown_no_run_has_crashed(lives: Lives, clock: Clock) -> None:
    diary = Diary()

    @diary.jobs.job("resumable", resumable=True)
    async def resumable(run: Run) -> int:
        diary.begin(run)
        if run.checkpoint is None:
            await run.save_checkpoint(5)
            await trio.sleep_forever()
        return run.checkpoint  # type: ignore[no-any-return]

    @diary.jobs.job("plain")
    async def plain(run: Run) -> None:
        diary.begin(run)
        await trio.sleep_forever()

    async with lives.clean(diary.jobs, max_concurrent=2) as engine:
        one = await engine.submit("resumable", handle="one")
        two = await engine.submit("plain", handle="two")
        three = await engine.submit("resumable", handle="three")
        four = await engine.submit("resumable", handle="one", on_conflict="queue")
        await wait_until(engine, lambda now: len(diary.begun) == 2)
    assert diary.begun[2:] == []
    async with lives.clean(diary.jobs, max_concurrent=2) as engine:
        found = await ended(engine, one)
        assert (found.status, found.result, found.attempt) == ("succeeded", 5, 1)
        found = await ended(engine, two)
        assert (found.status, found.reason) == ("cancelled", "shutdown")
        await wait_until(engine, lambda now: len(diary.begun) == 5)
    assert transitions(lives, one.id)[2:4] == [("suspended", "shutdown"), ("running", None)]
    for run in (one, two, three, four):
        assert "crashed" not in [reason for _, reason in transitions(lives, run.id)]


async def test_the_history_of_a_run_contains_every_transition_with_its_cause_over_restarts(
    lives: Lives, clock: Clock
) -> None:
    diary = Diary()

    @diary.jobs.job("job", resumable=True)
    async def job(run: Run) -> None:
        diary.begin(run)
        await trio.sleep_forever()

    async with lives.crash(diary.jobs) as engine:
        run = await engine.submit("job", handle="h", by="alice")
        await wait_until(engine, lambda now: diary.begun)
    async with lives.clean(diary.jobs) as engine:
        await wait_until(engine, lambda now: len(diary.begun) == 2)
        await engine.cancel(run.id, by="bob")
        await ended(engine, run)
    async with lives.clean(diary.jobs) as engine:
        history = [event for event in await engine.history(run.id) if isinstance(event, RunStateChanged)]
        assert [(event.to, event.reason, event.by) for event in history] == [
            ("queued", None, "alice"),
            ("running", None, "engine"),
            ("suspended", "recovered", "engine"),
            ("running", None, "engine"),
            ("cancelling", "cancelled", "bob"),
            ("cancelled", "cancelled", "bob"),
        ]


async def test_seqs_have_no_gap_over_many_restarts(lives: Lives, clock: Clock) -> None:
    diary = Diary()

    @diary.jobs.job("job", max_attempts=100)
    async def job(run: Run) -> None:
        diary.begin(run)
        await run.log("hello")
        await trio.sleep_forever()

    for n in range(4):
        async with (lives.crash if n % 2 else lives.clean)(diary.jobs) as engine:
            await engine.submit("job", handle=f"h{n}")
            await engine.submit("job", handle="h", on_conflict="queue")
            await wait_until(engine, lambda now: now.engine.executing >= 2)
    async with lives.clean(diary.jobs, max_concurrent=0) as engine:
        last = (await engine.snapshot()).seq
    assert [event.seq for event in lives.seen][:last] == list(range(lives.seen[0].seq, last + 1))[:last]
