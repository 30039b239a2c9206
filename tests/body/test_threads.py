"""Jobs that are plain functions: they run in a thread, with calls that block.

The clock does not advance here unless a test lets it jump. Threads wait for each other with events, at most
ten seconds.
"""

import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from greenroom import BlockingRun, Jobs, Run
from greenroom.errors import Conflict, Invalid, RunAbandoned, RunCancelled, RunFailed, RunTimedOut
from tests.support import open_engine

settled = trio.testing.wait_all_tasks_blocked
PATIENCE = 10


def with_body(body, **options):
    """A registry with one job, `work`."""
    jobs = Jobs()
    jobs.job("work", **options)(body)
    return jobs


async def result_of(body, **options):
    """The result of a run of `body`."""
    async with open_engine(with_body(body, **options), store="memory:") as engine:
        return await (await engine.submit("work", handle="alice")).result()


async def until(engine, predicate):
    """Follow the events until the predicate is true for a snapshot, and return that snapshot."""
    events = engine.events()
    while not predicate(snapshot := await engine.snapshot()):
        await anext(events)
    return snapshot


async def until_status(engine, ticket, status):
    return await until(engine, lambda snapshot: snapshot.runs[ticket.id].status == status)


class Gate:
    """Where a body in a thread waits until the test opens it. Leaving the block opens it too."""

    def __init__(self):
        self.reached = trio.Event()
        self._open = threading.Event()

    def pass_through(self):
        trio.from_thread.run_sync(self.reached.set)
        self._open.wait(PATIENCE)

    def open(self):
        self._open.set()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.open()


async def test_a_plain_function_runs_in_a_thread_of_its_own_with_a_blocking_run(mock_clock):
    def body(run: BlockingRun):
        return [type(run).__name__, threading.get_ident() != main]

    main = threading.get_ident()
    assert await result_of(body) == ["BlockingRun", True]


async def test_it_gets_the_same_attributes_as_a_body(mock_clock):
    def body(run: BlockingRun, params: dict):
        return [run.id, run.handle, run.lane, run.kind, run.attempt, run.params, params, run.checkpoint]

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice", lane="side", params={"n": 1}, kind="continue")
        assert await ticket.result() == [
            ticket.id, "alice", "side", "continue", 1, {"n": 1}, {"n": 1}, None
        ]  # fmt: skip


async def test_it_reports_from_its_thread(mock_clock):
    def body(run: BlockingRun):
        run.progress(1, 2, speed="fast")
        run.log("a line", level="warning")
        run.save_checkpoint({"page": 1})
        return run.checkpoint

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        assert await ticket.result() == {"page": 1}
        run = await engine.get_run(ticket.id)
        lines = [e for e in await engine.history(ticket.id) if e.type == "run_log"]
    assert run.progress == {"done": 1, "total": 2, "speed": "fast"}
    assert [(line.text, line.level) for line in lines] == [("a line", "warning")]


async def test_a_report_that_is_no_json_value_raises_in_the_thread(mock_clock):
    def body(run: BlockingRun):
        with pytest.raises(Invalid, match=r"checkpoint\.pages"):
            run.save_checkpoint({"pages": {1, 2}})
        return "went on"

    assert await result_of(body) == "went on"


async def test_it_takes_messages(mock_clock):
    def body(run: BlockingRun):
        first = run.next_message()
        gate.pass_through()
        return [first, run.messages(), run.messages()]

    with Gate() as gate:
        async with open_engine(with_body(body), store="memory:") as engine:
            ticket = await engine.submit("work", handle="alice")
            await until_status(engine, ticket, "running")
            await engine.inject("alice", "first")
            await gate.reached.wait()
            await engine.inject("alice", "second")
            await engine.inject("alice", "third")
            gate.open()
            assert await ticket.result() == ["first", ["second", "third"], []]


@pytest.mark.parametrize("release_slot", [False, True])
async def test_it_opens_interrupts(release_slot, mock_clock):
    def body(run: BlockingRun):
        return run.interrupt("may I?", timeout=60, key="permission", release_slot=release_slot)

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        [interrupt] = (await until(engine, lambda snapshot: snapshot.interrupts)).interrupts
        assert await engine.answer(interrupt, {"approved": True}) == "resolved"
        assert await ticket.result() == {"approved": True}


async def test_it_waits_for_a_message_without_its_slot(mock_clock):
    def body(run: BlockingRun):
        return run.next_message(release_slot=True)

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        snapshot = await until_status(engine, ticket, "suspended")
        assert (snapshot.runs[ticket.id].waiting_for, snapshot.engine.executing) == ("message", 0)
        assert await engine.inject("alice", "hello") == "accepted"
        assert await ticket.result() == "hello"


async def test_it_confirms(mock_clock):
    def body(run: BlockingRun):
        denied = run.interrupt("may I?", timeout=60)
        return [bool(denied), run.confirm("may I?", timeout=60, key="permission")]

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        for answer in ({"approved": False}, {"approved": True}):
            [interrupt] = (await until(engine, lambda snapshot: snapshot.interrupts)).interrupts
            await engine.answer(interrupt, answer)
        assert await ticket.result() == [False, True]


async def test_an_interrupt_from_a_thread_times_out(mock_clock):
    def body(run: BlockingRun):
        return run.interrupt("may I?", timeout=60)

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await until(engine, lambda snapshot: snapshot.interrupts)
        await settled()
        mock_clock.jump(60)
        assert await ticket.result() is None


async def test_it_sleeps_without_its_slot(mock_clock):
    def body(run: BlockingRun):
        run.sleep(60)
        return "woke"

    async with open_engine(with_body(body), store="memory:", max_concurrent=1) as engine:
        ticket = await engine.submit("work", handle="alice")
        await until_status(engine, ticket, "suspended")
        assert (await engine.snapshot()).engine.executing == 0
        await settled()
        mock_clock.jump(60)
        assert await ticket.result() == "woke"


async def test_it_calls_children(mock_clock):
    def body(run: BlockingRun):
        with pytest.raises(Conflict):
            run.call("child", handle=run.handle)
        return run.call("child", handle="of the child", params={"n": 2})

    jobs = with_body(body)

    @jobs.job("child")
    def child(run: BlockingRun, params: dict):
        return params["n"] * 2

    async with open_engine(jobs, store="memory:", max_concurrent=1) as engine:
        assert await (await engine.submit("work", handle="alice")).result() == 4


@pytest.mark.parametrize("phase", ["streaming", "compacting"])
async def test_it_marks_its_phases(phase, mock_clock):
    def body(run: BlockingRun):
        with getattr(run, phase)():
            gate.pass_through()
        run.end_interactive()

    with Gate() as gate:
        async with open_engine(with_body(body), store="memory:") as engine:
            ticket = await engine.submit("work", handle="alice")
            await gate.reached.wait()
            assert getattr(await engine.get_run(ticket.id), phase)
            gate.open()
            await ticket.result()
            assert not getattr(await engine.get_run(ticket.id), phase)


async def test_it_writes_files(mock_clock, tmp_path):
    def body(run: BlockingRun):
        with run.open_file("a/b.txt") as f:
            f.write(b"one ")
            f.write(b"two")
        return "written"

    async with open_engine(with_body(body), store="memory:", data_dir=tmp_path) as engine:
        await (await engine.submit("work", handle="alice")).result()
    [file] = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert (file.name, file.read_bytes()) == ("b.txt", b"one two")


async def test_a_file_whose_block_raises_in_a_thread_leaves_nothing(mock_clock, tmp_path):
    def body(run: BlockingRun):
        with run.open_file("b.txt") as f:
            f.write(b"half")
            raise ConnectionError("no route")

    async with open_engine(with_body(body), store="memory:", data_dir=tmp_path) as engine:
        with pytest.raises(RunFailed, match="no route"):
            await (await engine.submit("work", handle="alice")).result()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_a_thread_that_raises_fails_its_run_and_is_retried(mock_clock):
    def body(run: BlockingRun):
        if run.attempt == 1:
            raise ConnectionError("no route")
        return run.attempt

    assert await result_of(body, max_attempts=2, backoff=0) == 2


async def test_the_number_of_threads_is_limited_only_by_slots(mock_clock):
    barrier = threading.Barrier(60)  # more than trio allows threads by default

    def body(run: BlockingRun):
        barrier.wait(PATIENCE)

    async with open_engine(with_body(body), store="memory:", max_concurrent=60) as engine:
        tickets = [await engine.submit("work", handle=f"h{n}") for n in range(60)]
        for ticket in tickets:
            await ticket.result()


# Cancels.


@pytest.mark.parametrize("wait", ["next_message", "interrupt", "sleep", "call", "check_cancelled"])
async def test_a_cancel_interrupts_every_call_that_a_thread_waits_in(wait, mock_clock):
    raised = []

    def body(run: BlockingRun):
        trio.from_thread.run_sync(begun.set)
        try:
            if wait == "next_message":
                run.next_message()
            elif wait == "interrupt":
                run.interrupt("may I?")
                trio.from_thread.check_cancelled()
            elif wait == "sleep":
                run.sleep(60)
            elif wait == "call":
                run.call("idle", handle="of the child")
            else:
                gate.pass_through()
                trio.from_thread.check_cancelled()
        except trio.Cancelled:
            raised.append(wait)
            raise

    jobs = with_body(body)

    @jobs.job("idle")
    async def idle(run: Run):
        await trio.sleep_forever()

    begun = trio.Event()
    with Gate() as gate:
        async with open_engine(jobs, store="memory:") as engine:
            ticket = await engine.submit("work", handle="alice")
            await begun.wait()
            await settled()
            await ticket.cancel()
            await settled()
            gate.open()
            with pytest.raises(RunCancelled):
                await ticket.result()
    assert raised == [wait]


async def test_a_thread_sees_that_a_cancel_is_requested(mock_clock):
    def body(run: BlockingRun):
        seen.append(run.cancel_requested)
        gate.pass_through()
        seen.append(run.cancel_requested)

    seen = []
    with Gate() as gate:
        async with open_engine(with_body(body, cancel="cooperative"), store="memory:") as engine:
            ticket = await engine.submit("work", handle="alice")
            await gate.reached.wait()
            await ticket.cancel()
            await settled()
            gate.open()
            with pytest.raises(RunCancelled):
                await ticket.result()
    assert seen == [False, True]


async def test_a_cooperative_thread_can_still_report_during_its_grace(mock_clock):
    def body(run: BlockingRun):
        gate.pass_through()
        assert run.cancel_requested
        run.save_checkpoint("where it was")

    with Gate() as gate:
        async with open_engine(with_body(body, cancel="cooperative"), store="memory:") as engine:
            ticket = await engine.submit("work", handle="alice")
            await gate.reached.wait()
            await ticket.cancel()
            await settled()
            gate.open()
            with pytest.raises(RunCancelled):
                await ticket.result()


async def test_a_thread_that_ignores_its_cancel_is_abandoned_and_keeps_its_handle_until_it_ends(mock_clock):
    refused = []

    def body(run: BlockingRun):
        gate.pass_through()
        for use in (lambda: run.progress(1), lambda: run.log("here"), run.messages, run.next_message):
            try:
                use()
            except RunAbandoned as error:
                refused.append(error)

    with Gate() as gate:
        async with open_engine(with_body(body), store="memory:") as engine:
            ticket = await engine.submit("work", handle="alice")
            await gate.reached.wait()
            await ticket.cancel()
            await settled()
            mock_clock.jump(10)
            with pytest.raises(RunCancelled) as cancelled:
                await ticket.result()
            assert cancelled.value.run.reason == "abandoned"
            with pytest.raises(Conflict):
                await engine.submit("work", handle="alice")
            gate.open()
            await until(engine, lambda snapshot: snapshot.handles["alice"].active_run is None)
    assert len(refused) == 4


async def test_an_abandoned_thread_that_writes_a_file_is_refused_and_leaves_nothing(mock_clock, tmp_path):
    refused = []

    def body(run: BlockingRun):
        with run.open_file("b.txt") as f:
            f.write(b"half")
            gate.pass_through()
            try:
                f.write(b"the rest")
            except RunAbandoned as error:
                refused.append(error)

    with Gate() as gate:
        async with open_engine(with_body(body), store="memory:", data_dir=tmp_path) as engine:
            ticket = await engine.submit("work", handle="alice")
            await gate.reached.wait()
            await ticket.cancel()
            await settled()
            mock_clock.jump(10)
            with pytest.raises(RunCancelled):
                await ticket.result()
            assert files_below(tmp_path) == []
            gate.open()
    assert files_below(tmp_path) == []
    assert len(refused) == 1


def files_below(folder: Path):
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_a_thread_times_out_like_any_body(mock_clock):
    def body(run: BlockingRun):
        run.next_message()

    async with open_engine(with_body(body, run_timeout=60), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await until_status(engine, ticket, "running")
        await settled()
        mock_clock.jump(60)
        with pytest.raises(RunTimedOut):
            await ticket.result()


async def test_calls_of_a_thread_after_its_function_has_returned_are_refused(mock_clock):
    runs = []

    def body(run: BlockingRun):
        runs.append(run)

    async with open_engine(with_body(body), store="memory:") as engine:
        await (await engine.submit("work", handle="alice")).result()
        with pytest.raises(RunAbandoned):
            await trio.to_thread.run_sync(runs[0].log, "too late")


async def test_leaving_the_engine_waits_for_a_thread(mock_clock):
    def body(run: BlockingRun):
        gate.pass_through()
        ended.append(True)

    ended = []
    with Gate() as gate:
        async with open_engine(with_body(body), store="memory:", shutdown_timeout=0) as engine:
            await engine.submit("work", handle="alice")
            await gate.reached.wait()
            gate.open()
    assert ended == [True]
