"""Replay: a body that resumes from a checkpoint gets the stored answers and children for the same interrupts
and calls, and never those of others."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.abc import Clock

from greenroom import Jobs, Run
from greenroom.actors.run.body_messages import Suspend
from greenroom.actors.run.machine import _HANDLERS
from greenroom.errors import Invalid, RunCancelled, RunFailed
from greenroom.protocol.events import InterruptClosed, InterruptOpened

from .conftest import Place
from .lives import Lives, ended, wait_for, wait_until


@pytest.fixture
def lives(place: Place, tmp_path: Path) -> Lives:
    return Lives(place, tmp_path / "data")


async def until_asked(engine: Any, data: Any) -> str:
    """Wait until an interrupt with this data is open; returns its id."""

    def asked(now: Any) -> list[str]:
        return [id for id, interrupt in now.interrupts.items() if interrupt.data == data]

    return asked(await wait_until(engine, asked))[0]


def opened(lives: Lives) -> list[Any]:
    return [event.data for event in lives.seen if isinstance(event, InterruptOpened)]


def outcomes(lives: Lives) -> list[str]:
    return [event.outcome for event in lives.seen if isinstance(event, InterruptClosed)]


# Interrupts.


@pytest.mark.parametrize("leave", ["crash", "clean"])
@pytest.mark.parametrize("release_slot", [False, True])
@pytest.mark.parametrize("data", [["delete A", "delete PRODUCTION"], ["delete?", "delete?"]])
@pytest.mark.parametrize("key", [None, "permission"])
async def test_an_answer_from_before_a_checkpoint_is_not_used_for_an_interrupt_after_it(
    lives: Lives, clock: Clock, leave: str, release_slot: bool, data: list[str], key: str | None
) -> None:
    jobs, deleted = Jobs(), []

    @jobs.job("deletes", resumable=True)
    async def deletes(run: Run) -> None:
        for n in range(run.checkpoint or 0, 2):
            answer = await run.interrupt(data[n], key=key, release_slot=release_slot)
            if answer == "yes":
                deleted.append(n)
            await run.save_checkpoint(n + 1)

    async with getattr(lives, leave)(jobs) as engine:
        run = await engine.submit("deletes", handle="h")
        assert await engine.answer(await until_asked(engine, data[0]), "yes") == "resolved"
        await wait_until(engine, lambda now: deleted)
        await until_asked(engine, data[1])
    async with lives.clean(jobs) as engine:
        await wait_until(engine, lambda now: now.runs[run.id].status in ("running", "suspended"))
        interrupt = await until_asked(engine, data[1])
        assert deleted == [0]
        assert await engine.answer(interrupt, "no") == "resolved"
        await ended(engine, run)
    assert deleted == [0]


@pytest.mark.parametrize("leave", ["crash", "clean"])
async def test_an_answer_is_spent_by_a_checkpoint_without_a_later_interrupt(
    lives: Lives, clock: Clock, leave: str
) -> None:
    jobs, life = Jobs(), [1]

    @jobs.job("asks", resumable=True)
    async def asks(run: Run) -> Any:
        if run.checkpoint is None:
            await run.interrupt("delete?", key="permission")
            await run.save_checkpoint("A is deleted")
        if life[0] == 1:
            await trio.sleep_forever()
        return await run.interrupt("delete?", key="permission")

    async with getattr(lives, leave)(jobs) as engine:
        run = await engine.submit("asks", handle="h")
        first = await until_asked(engine, "delete?")
        await engine.answer(first, "yes")
        await wait_until(engine, lambda now: not now.interrupts)
    life[0] = 2
    async with lives.clean(jobs) as engine:
        second = await until_asked(engine, "delete?")
        assert second != first
        await engine.answer(second, "no")
        assert (await ended(engine, run)).result == "no"


@pytest.mark.parametrize("leave", ["crash", "clean"])
@pytest.mark.parametrize("release_slot", [False, True])
@pytest.mark.parametrize("take", ["next_message", "messages"])
async def test_an_answer_about_one_message_is_never_used_for_another(
    lives: Lives, clock: Clock, leave: str, release_slot: bool, take: str
) -> None:
    jobs, deleted = Jobs(), []

    async def said(run: Run) -> Any:
        if take == "next_message":
            return await run.next_message(release_slot=True)
        while not (messages := await run.messages()):
            await run.sleep(0.01)
        return messages[0]

    @jobs.job("deletes", resumable=True)
    async def deletes(run: Run) -> None:
        while True:
            message = await said(run)
            if await run.confirm("really?", timeout=math.inf, release_slot=release_slot):
                deleted.append(message)
            await run.save_checkpoint(len(deleted))

    async with getattr(lives, leave)(jobs) as engine:
        run = await engine.submit("deletes", handle="h", run_timeout=math.inf)
        await wait_for(engine, run, "suspended")
        await engine.inject("h", "A")
        about_a = await until_asked(engine, "really?")
    async with lives.clean(jobs) as engine:
        await wait_for(engine, run, "suspended")
        if about_a in (await engine.snapshot()).interrupts:  # its message was taken by the previous body
            await engine.answer(about_a, True)
        await wait_until(engine, lambda now: now.runs[run.id].waiting_for in ("message", "time"))
        await engine.inject("h", "B")
        about_b = await until_asked(engine, "really?")
        assert (about_b != about_a, deleted) == (True, [])
        await engine.answer(about_b, True)
        await wait_until(engine, lambda now: now.runs[run.id].waiting_for in ("message", "time") and deleted)
        assert deleted == ["B"]
        await engine.cancel(run.id)


async def test_an_interrupt_after_the_checkpoint_of_a_message_is_opened_once(
    lives: Lives, clock: Clock
) -> None:
    jobs = Jobs()

    @jobs.job("asks", resumable=True)
    async def asks(run: Run) -> list[Any]:
        if run.checkpoint is None:
            await run.save_checkpoint(await run.next_message())
        return [run.checkpoint, await run.interrupt("really?", release_slot=True)]

    async with lives.crash(jobs) as engine:
        run = await engine.submit("asks", handle="h")
        await wait_for(engine, run, "running")
        await engine.inject("h", "A")
        interrupt = await until_asked(engine, "really?")
    async with lives.clean(jobs) as engine:
        await engine.answer(interrupt, "yes")
        assert (await ended(engine, run)).result == ["A", "yes"]
    assert opened(lives) == ["really?"]


@pytest.mark.parametrize("waits_for", ["an answer", "a child"])
async def test_a_checkpoint_during_cleanup_keeps_what_the_body_waited_for(
    lives: Lives, clock: Clock, waits_for: str
) -> None:
    jobs, begun = Jobs(), []

    @jobs.job("child", resumable=True)
    async def child(run: Run) -> Any:
        begun.append(run.id)
        return await run.interrupt("really?", release_slot=True)

    @jobs.job("parent", resumable=True)
    async def parent(run: Run) -> Any:
        try:
            if waits_for == "a child":
                return await run.call("child", handle="c")
            return await run.interrupt("really?", release_slot=True)
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await run.save_checkpoint("stopped")
            raise

    async with lives.clean(jobs) as engine:
        run = await engine.submit("parent", handle="h")
        interrupt = await until_asked(engine, "really?")
    async with lives.clean(jobs) as engine:
        await engine.answer(interrupt, "yes")
        assert (await ended(engine, run)).result == "yes"
    assert opened(lives) == ["really?"]
    assert len(set(begun)) == (waits_for == "a child")


async def test_an_open_interrupt_is_opened_once_and_its_answer_is_kept_over_restarts(
    lives: Lives, clock: Clock
) -> None:
    jobs, hold = Jobs(), [True]

    @jobs.job("asks", resumable=True)
    async def asks(run: Run) -> list[Any]:
        if run.checkpoint is None:
            await run.interrupt("first", release_slot=True)
            await run.save_checkpoint("half")
        answer = await run.interrupt("second", release_slot=True)
        if hold:
            await trio.sleep_forever()
        return [answer, await run.interrupt("third", release_slot=True)]

    async with lives.crash(jobs) as engine:
        run = await engine.submit("asks", handle="h")
        await engine.answer(await until_asked(engine, "first"), 1)
        second = await until_asked(engine, "second")
    async with lives.crash(jobs) as engine:
        assert await until_asked(engine, "second") == second
        assert await engine.answer(second, 2) == "resolved"
        await wait_for(engine, run, "running")
    hold.clear()
    async with lives.clean(jobs) as engine:
        third = await until_asked(engine, "third")
        assert (await engine.snapshot()).interrupts[third].key == "3", "it counts from the checkpoint"
        await engine.answer(third, 3)
        assert (await ended(engine, run)).result == [2, 3]
    assert opened(lives) == ["first", "second", "third"]


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("data", [("delete A", "delete B"), ({"delete": 1}, {"delete": True})])
async def test_other_data_under_the_same_key_opens_a_new_interrupt_and_withdraws_the_stored_one(
    lives: Lives, clock: Clock, answered: bool, data: Any, caplog: pytest.LogCaptureFixture
) -> None:
    jobs, life = Jobs(), [1]

    @jobs.job("asks", resumable=True)
    async def asks(run: Run) -> Any:
        answer = await run.interrupt(data[life[0] - 1])
        if life[0] == 1:
            await trio.sleep_forever()
        return answer

    async with lives.clean(jobs) as engine:
        run = await engine.submit("asks", handle="h")
        interrupt = await until_asked(engine, data[0])
        if answered:
            await engine.answer(interrupt, "one")
            await wait_until(engine, lambda now: not now.interrupts)
    life[0] = 2
    with caplog.at_level(logging.WARNING, "greenroom"):
        async with lives.clean(jobs) as engine:
            now = await wait_until(engine, lambda now: set(now.interrupts) - {interrupt})
            [other] = now.interrupts
            assert now.interrupts[other].data == data[1]
            assert await engine.answer(interrupt, "again") == "already_resolved"
            await engine.answer(other, "two")
            assert (await ended(engine, run)).result == "two"
    assert [
        record for record in caplog.records if "withdrawn" in record.message and interrupt in record.message
    ]
    assert outcomes(lives) == ["answered" if answered else "withdrawn", "answered"]


async def test_an_interrupt_that_the_next_body_does_not_open_again_is_withdrawn_at_its_checkpoint(
    lives: Lives, clock: Clock
) -> None:
    jobs, life = Jobs(), [1]

    @jobs.job("asks", resumable=True)
    async def asks(run: Run) -> None:
        if life[0] == 1:
            await run.interrupt("first")
        await run.save_checkpoint(1)
        await trio.sleep_forever()

    async with lives.clean(jobs) as engine:
        run = await engine.submit("asks", handle="h")
        interrupt = await until_asked(engine, "first")
    life[0] = 2
    async with lives.clean(jobs) as engine:
        await wait_until(engine, lambda now: not now.interrupts)
        assert await engine.answer(interrupt, "yes") == "already_resolved"
        await engine.cancel(run.id)
    assert outcomes(lives) == ["withdrawn"]


async def test_an_interrupt_that_was_open_when_another_task_saved_a_checkpoint_is_opened_once(
    lives: Lives, clock: Clock
) -> None:
    jobs, saved = Jobs(), []

    @jobs.job("asks", resumable=True)
    async def asks(run: Run) -> list[Any]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(save, run)
            first = await run.interrupt("first", release_slot=True)
        return [first, await run.interrupt("second", release_slot=True)]

    async def save(run: Run) -> None:
        if not saved:
            await trio.sleep(0.05)
            await run.save_checkpoint("beside")
            saved.append(True)

    async with lives.crash(jobs) as engine:
        run = await engine.submit("asks", handle="h")
        first = await until_asked(engine, "first")
        await wait_until(engine, lambda now: saved)
    async with lives.clean(jobs) as engine:
        assert await until_asked(engine, "first") == first
        await engine.answer(first, 1)
        await engine.answer(await until_asked(engine, "second"), 2)
        assert (await ended(engine, run)).result == [1, 2]
    assert opened(lives) == ["first", "second"]


async def test_a_run_of_kind_continue_does_not_count_from_the_checkpoint_of_another(
    lives: Lives, clock: Clock
) -> None:
    jobs = Jobs()

    @jobs.job("asks", resumable=True)
    async def asks(run: Run) -> list[Any]:
        answers = [await run.interrupt("first"), await run.interrupt("second")]
        await run.save_checkpoint(answers)
        return [*answers, await run.interrupt("third")]

    async with lives.clean(jobs) as engine:
        for kind in ("start", "continue"):
            run = await engine.submit("asks", handle="h", kind=kind)
            for n, data in enumerate(("first", "second", "third"), 1):
                interrupt = await until_asked(engine, data)
                assert (await engine.snapshot()).interrupts[interrupt].key == str(n)
                await engine.answer(interrupt, n)
            assert (await ended(engine, run)).result == [1, 2, 3]


# Children.


def shop(charged: list[Any], leave_at: int | None, total: int = 3, **options: Any) -> Jobs:
    """A parent that charges several times, with a checkpoint after each; it waits where the test says."""
    jobs = Jobs()

    @jobs.job("charge")
    async def charge(run: Run, params: dict[str, Any]) -> int:
        charged.append(params["amount"])
        return len(charged)

    @jobs.job("pays", **({"resumable": True} | options))
    async def pays(run: Run, params: dict[str, Any]) -> list[Any]:
        results = list(run.checkpoint or [])
        for n in range(len(results), total):
            amount = n if params["different"] else 1
            results.append(await run.call("charge", handle="card", params={"amount": amount}))
            if n == leave_at:
                await trio.sleep_forever()
            await run.save_checkpoint(results)
        return results

    return jobs


RESUMABLE: dict[str, Any] = {"resumable": True}
TRIED_AGAIN: dict[str, Any] = {"resumable": False, "max_attempts": 2}  # a shutdown cancels such a run


@pytest.mark.parametrize(
    ("leave", "options"), [("crash", RESUMABLE), ("crash", TRIED_AGAIN), ("clean", RESUMABLE)]
)
@pytest.mark.parametrize("different", [False, True])
@pytest.mark.parametrize("leave_at", [0, 1, 2])
async def test_each_charge_between_checkpoints_is_made_once(
    lives: Lives, clock: Clock, leave: str, different: bool, leave_at: int, options: dict[str, Any]
) -> None:
    charged: list[Any] = []
    async with getattr(lives, leave)(shop(charged, leave_at, **options)) as engine:
        run = await engine.submit("pays", handle="h", params={"different": different})
        await wait_until(engine, lambda now: len(charged) == leave_at + 1)
        await wait_for(engine, run, "running")
    async with lives.clean(shop(charged, None, **options)) as engine:
        found = await ended(engine, run)
        assert (found.status, found.result) == ("succeeded", [1, 2, 3]), found.error
    assert len(charged) == 3


@pytest.mark.parametrize("on_conflict", ["queue", "reject", "join", "replace"])
@pytest.mark.parametrize("ends", [False, True])
async def test_a_call_with_other_arguments_creates_a_new_child_and_cancels_the_stored_one(
    lives: Lives,
    clock: Clock,
    on_conflict: str,
    ends: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs, life, begun = Jobs(), [1], []

    @jobs.job("child", resumable=True)
    async def child(run: Run, params: dict[str, Any]) -> int:
        begun.append(params["n"])
        if params["n"] == 1 and not ends:
            await trio.sleep_forever()
        return params["n"]

    @jobs.job("parent", resumable=True)
    async def parent(run: Run) -> Any:
        return await run.call("child", handle="c", params={"n": life[0]}, on_conflict=on_conflict)

    with monkeypatch.context() as patched:
        patched.setitem(_HANDLERS, Suspend, die_before_suspending)
        async with lives.crash(jobs) as engine:
            run = await engine.submit("parent", handle="h")
            await wait_until(engine, lambda now: begun)
            first = (await engine.list_runs(handle="c"))[0]
            if ends:
                await ended(engine, first.id)
    life[0] = 2
    with caplog.at_level(logging.WARNING, "greenroom"):
        async with lives.clean(jobs) as engine:
            found = await ended(engine, run)
            assert (found.status, found.result) == ("succeeded", 2), found.error
            first = await ended(engine, first.id)
            assert first.status == ("succeeded" if ends else "cancelled")
    assert f"child {first.id} is withdrawn" in caplog.text


def die_before_suspending(run: Any, message: Suspend) -> None:
    """Crash after a child is created, and before its parent is suspended for it."""


@pytest.mark.parametrize("ends", ["before the restart", "after it"])
async def test_a_retry_after_a_crash_gets_the_child_of_the_previous_attempt(
    lives: Lives, clock: Clock, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    charged: list[str] = []
    go_on = trio.Event()
    jobs = Jobs()

    @jobs.job("charge", resumable=True)
    async def charge(run: Run) -> str:
        if ends == "after it":
            await go_on.wait()
        charged.append(run.id)
        return run.id

    @jobs.job("pays", max_attempts=2)
    async def pays(run: Run) -> Any:
        return await run.call("charge", handle="card")

    with monkeypatch.context() as patched:
        patched.setitem(_HANDLERS, Suspend, die_before_suspending)
        async with lives.crash(jobs) as engine:
            run = await engine.submit("pays", handle="h")
            await wait_until(engine, lambda now: len(now.runs) == 2)
            if ends == "before the restart":
                await wait_until(engine, lambda now: charged)
    async with lives.clean(jobs) as engine:
        if ends == "after it":
            await wait_until(engine, lambda now: now.runs[run.id].waiting_for == "child")
            go_on.set()
        found = await ended(engine, run)
        assert (found.result, found.attempt) == (charged[0], 2), found.error
        assert await engine.list_runs(handle="card", status="queued") == []
    assert len(charged) == 1


async def test_a_child_is_cancelled_with_its_parent_before_the_next_body_has_called_it_again(
    lives: Lives, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, life = Jobs(), [1]

    @jobs.job("child", resumable=True)
    async def child(run: Run) -> None:
        await trio.sleep_forever()

    @jobs.job("parent", resumable=True)
    async def parent(run: Run) -> None:
        if life[0] == 1:
            await run.call("child", handle="c")
        await trio.sleep_forever()

    with monkeypatch.context() as patched:
        patched.setitem(_HANDLERS, Suspend, die_before_suspending)
        async with lives.crash(jobs) as engine:
            run = await engine.submit("parent", handle="h")
            await wait_until(engine, lambda now: "c" in now.handles and now.handles["c"].active_run)
    life[0] = 2
    async with lives.clean(jobs) as engine:
        await wait_for(engine, run, "running")
        [child_run] = await engine.list_runs(handle="c")
        await engine.cancel(run.id)
        assert (await ended(engine, child_run.id)).reason == "parent_cancelled"


async def test_a_caller_cannot_take_the_request_id_of_a_call(lives: Lives, clock: Clock) -> None:
    jobs = Jobs()

    @jobs.job("child")
    async def child(run: Run, params: dict[str, Any]) -> str:
        return params["from"]

    @jobs.job("parent")
    async def parent(run: Run) -> Any:
        await run.next_message()
        return await run.call("child", handle="c", params={"from": "the parent"})

    async with lives.clean(jobs) as engine:
        run = await engine.submit("parent", handle="h")
        await wait_for(engine, run, "running")
        used = {"handle": "other", "params": {"from": "a stranger"}, "request_id": f"{run.id}.1.1"}
        with pytest.raises(Invalid, match="request_id"):
            await engine.submit("child", **used)
        await engine.inject("h", "go on")
        assert (await ended(engine, run)).result == "the parent"


async def test_a_child_that_was_given_up_is_called_again(lives: Lives, clock: Clock) -> None:
    jobs, life, begun = Jobs(), [1], []

    @jobs.job("child")
    async def child(run: Run) -> str:
        begun.append(run.id)
        if life[0] == 1:
            await trio.sleep_forever()
        return "done"

    @jobs.job("parent", resumable=True)
    async def parent(run: Run) -> Any:
        with trio.move_on_after(0.2):
            return await run.call("child", handle="c")
        return await trio.sleep_forever()

    async with lives.crash(jobs) as engine:
        run = await engine.submit("parent", handle="h")
        await wait_until(engine, lambda now: begun)
        await ended(engine, begun[0])
        await wait_for(engine, run, "running")
    life[0] = 2
    async with lives.clean(jobs) as engine:
        assert (await ended(engine, run)).result == "done"
    assert len(begun) == 2


async def test_a_retry_calls_a_failed_child_again_and_keeps_a_succeeded_one(
    lives: Lives, clock: Clock
) -> None:
    jobs, begun = Jobs(), []

    @jobs.job("child")
    async def child(run: Run, params: dict[str, Any]) -> str:
        begun.append(params["name"])
        if params["name"] == "bad" and begun.count("bad") == 1:
            raise ValueError("the first time")
        return params["name"]

    @jobs.job("parent", max_attempts=2, backoff=0.0)
    async def parent(run: Run) -> Any:
        return [await run.call("child", handle="c", params={"name": name}) for name in ("good", "bad")]

    async with lives.clean(jobs) as engine:
        run = await engine.submit("parent", handle="h")
        assert (await ended(engine, run)).result == ["good", "bad"]
    assert begun == ["good", "bad", "bad"]


async def test_a_resumed_body_does_not_call_a_failed_child_again(lives: Lives, clock: Clock) -> None:
    jobs, life, begun = Jobs(), [1], []

    @jobs.job("child")
    async def child(run: Run) -> None:
        begun.append(run.id)
        raise ValueError("always")

    @jobs.job("parent", resumable=True)
    async def parent(run: Run) -> str:
        try:
            await run.call("child", handle="c")
        except (RunFailed, RunCancelled):
            if life[0] == 1:
                await trio.sleep_forever()
        return "went on"

    async with lives.crash(jobs) as engine:
        run = await engine.submit("parent", handle="h")
        await wait_until(engine, lambda now: begun)
        await ended(engine, begun[0])
        await wait_for(engine, run, "running")
    life[0] = 2
    async with lives.clean(jobs) as engine:
        assert (await ended(engine, run)).result == "went on"
    assert len(begun) == 1


@pytest.mark.parametrize("place", ["memory", "sqlite_unthreaded"], indirect=True)
async def test_a_child_is_kept_while_its_parent_is_pending(lives: Lives, clock: Clock) -> None:
    charged: list[str] = []
    jobs = Jobs()

    @jobs.job("charge")
    async def charge(run: Run) -> str:
        charged.append(run.id)
        return run.id

    @jobs.job("pays", resumable=True)
    async def pays(run: Run) -> Any:
        child = await run.call("charge", handle="card")
        if charged == [child] and not waited.is_set():
            await run.sleep(25 * 3600)
        return child

    waited = trio.Event()
    async with lives.crash(jobs) as engine:
        run = await engine.submit("pays", handle="h")
        await wait_until(engine, lambda now: charged and now.runs[run.id].waiting_for == "time")
    waited.set()
    async with lives.clean(jobs) as engine:
        await trio.sleep(26 * 3600)
        assert (await ended(engine, run)).result == charged[0]
    assert len(charged) == 1


async def test_a_refused_call_counts_as_a_position(lives: Lives, clock: Clock) -> None:
    jobs, life, charged = Jobs(), [1], []

    @jobs.job("charge")
    async def charge(run: Run) -> str:
        charged.append(run.handle)
        return "charged"

    @jobs.job("parent", resumable=True)
    async def parent(run: Run) -> list[Any]:
        results: list[Any] = []
        for handle in ("h" if life[0] == 1 else "free", "card"):
            try:
                results.append(await run.call("charge", handle=handle))
            except Exception:
                results.append("refused")
        if life[0] == 1:
            await trio.sleep_forever()
        return results

    async with lives.crash(jobs) as engine:
        run = await engine.submit("parent", handle="h")
        await wait_until(engine, lambda now: charged)
        await wait_for(engine, run, "running")
    life[0] = 2
    async with lives.clean(jobs) as engine:
        assert (await ended(engine, run)).result == ["charged", "charged"]
    assert charged == ["card", "free"]
