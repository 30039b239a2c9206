"""The reports of a body: progress, log lines, checkpoints and its result; and which reports are refused."""

import math
from contextlib import contextmanager

import msgspec
import pytest
import trio
import trio.testing

from greenroom import Jobs, Run
from greenroom.errors import Invalid, RunAbandoned, RunFailed, TooLarge
from greenroom.persistence.memory import MemoryStore
from greenroom.protocol.events import RunLog, RunProgress
from tests.support import open_engine


class SlowStore(MemoryStore):
    """A store whose commits take some seconds."""

    def __init__(self, seconds):
        super().__init__()
        self._seconds = seconds

    async def commit(self, batch):
        await trio.sleep(self._seconds)
        await super().commit(batch)


def with_body(body, **options):
    """A registry with one job, `work`."""
    jobs = Jobs()
    jobs.job("work", **options)(body)
    return jobs


async def outcome_of(body, **options):
    """The result of a run of `body`, or what `result()` raises."""
    async with open_engine(with_body(body), store="memory:", **options) as engine:
        ticket = await engine.submit("work", handle="alice")
        return await ticket.result()


async def failure_of(body, **options):
    """The error text of a run of `body`, which has to fail."""
    with pytest.raises(RunFailed) as failed:
        await outcome_of(body, **options)
    return failed.value.run.error


# Progress and log lines.


async def test_progress_is_in_the_runs_record_with_its_statistics(autojump_clock):
    async def body(run: Run):
        await run.progress(3, 10, speed="fast", errors=[])

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await ticket.result()
        run = await engine.get_run(ticket.id)
    assert run.progress == {"done": 3, "total": 10, "speed": "fast", "errors": []}


async def test_progress_takes_done_and_total_by_name(autojump_clock):
    async def body(run: Run):
        await run.progress(done=1, total=2)

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await ticket.result()
        assert (await engine.get_run(ticket.id)).progress == {"done": 1, "total": 2}


async def test_a_later_progress_replaces_the_whole_earlier_one(autojump_clock):
    async def body(run: Run):
        await run.progress(1, 10, speed="fast")
        await trio.sleep(1)
        await run.progress(2, 10)

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await ticket.result()
        assert (await engine.get_run(ticket.id)).progress == {"done": 2, "total": 10}


async def test_progress_is_coalesced_and_the_latest_wins(autojump_clock):
    async def body(run: Run):
        for done in range(2000):
            await run.progress(done + 1, 2000)

    async with open_engine(with_body(body), store=SlowStore(0.5)) as engine:
        events = engine.events(filter={"types": ["run_progress"]})
        ticket = await engine.submit("work", handle="alice")
        await ticket.result()
        assert (await engine.get_run(ticket.id)).progress == {"done": 2000, "total": 2000}
    reported = [event.done async for event in events]
    assert reported[-1] == 2000
    assert reported == sorted(reported)
    assert len(reported) <= 2, "one that is being committed, and one that gathered the rest"


async def test_progress_that_got_its_number_is_not_lost(autojump_clock):
    async def body(run: Run):
        for done in range(5):
            await run.progress(done)
            await trio.sleep(1)

    async with open_engine(with_body(body), store="memory:") as engine:
        events = engine.events()
        ticket = await engine.submit("work", handle="alice")
        await ticket.result()
    seen = [event async for event in events]
    assert [event.done for event in seen if isinstance(event, RunProgress)] == [0, 1, 2, 3, 4]
    assert [event.seq for event in seen] == list(range(seen[0].seq, seen[-1].seq + 1))


async def test_progress_reported_just_before_the_end_is_there_at_the_end(autojump_clock):
    async def body(run: Run):
        await run.progress(7)

    async with open_engine(with_body(body), store=SlowStore(1)) as engine:
        ticket = await engine.submit("work", handle="alice")
        await ticket.result()
        assert (await engine.get_run(ticket.id)).progress["done"] == 7


@pytest.mark.parametrize("done", ["many", [1], {"n": 1}])
async def test_progress_that_is_no_number_fails_the_run_with_an_error(done, autojump_clock):
    async def body(run: Run):
        await run.progress(done, 10)

    assert "progress.done" in await failure_of(body)


async def test_a_log_line_is_an_event_with_its_text_and_level(autojump_clock):
    async def body(run: Run):
        await run.log("first")
        await run.log("second", level="warning")

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await ticket.result()
        lines = [event for event in await engine.history(ticket.id) if isinstance(event, RunLog)]
    assert [(line.text, line.level, line.by, line.attempt) for line in lines] == [
        ("first", "info", "body", 1),
        ("second", "warning", "body", 1),
    ]


@pytest.mark.parametrize("line", [("\ud800", "info"), ("text", "\ud800")], ids=["text", "level"])
async def test_a_log_line_that_is_not_valid_unicode_fails_the_run(line, autojump_clock):
    async def body(run: Run):
        await run.log(*line)

    assert "Invalid" in await failure_of(body)


# Checkpoints.


def saving_and_going_on():
    """A job that records its first checkpoint, and saves `params["saves"]` if present."""
    jobs, begun_with = Jobs(), []

    @jobs.job("work")
    async def work(run: Run, params: dict):
        begun_with.append(run.checkpoint)
        if "saves" in params:
            await run.save_checkpoint(params["saves"])
            assert run.checkpoint == params["saves"]

    jobs.job("other")(work)
    return jobs, begun_with


async def test_a_run_of_kind_continue_resumes_from_the_last_checkpoint_of_its_handle(autojump_clock):
    jobs, begun_with = saving_and_going_on()
    async with open_engine(jobs, store="memory:") as engine:
        for saves in ({"page": 1}, {"page": 2}):
            await (await engine.submit("work", handle="alice", params={"saves": saves})).result()
        await (await engine.submit("work", handle="alice", params={}, kind="continue")).result()
    assert begun_with == [None, None, {"page": 2}]


async def test_a_run_of_kind_start_starts_without_a_checkpoint(autojump_clock):
    jobs, begun_with = saving_and_going_on()
    async with open_engine(jobs, store="memory:") as engine:
        await (await engine.submit("work", handle="alice", params={"saves": 1})).result()
        await (await engine.submit("work", handle="alice", params={})).result()
    assert begun_with == [None, None]


async def test_a_run_of_kind_start_that_saves_nothing_leaves_the_last_checkpoint_for_a_later_continue(
    autojump_clock,
):
    jobs, begun_with = saving_and_going_on()
    async with open_engine(jobs, store="memory:") as engine:
        await (await engine.submit("work", handle="alice", params={"saves": 1})).result()
        await (await engine.submit("work", handle="alice", params={})).result()
        await (await engine.submit("work", handle="alice", params={}, kind="continue")).result()
    assert begun_with == [None, None, 1]


async def test_a_continue_with_nothing_saved_begins_with_none(autojump_clock):
    jobs, begun_with = saving_and_going_on()
    async with open_engine(jobs, store="memory:") as engine:
        await (await engine.submit("work", handle="alice", params={}, kind="continue")).result()
    assert begun_with == [None]


@pytest.mark.parametrize(("job", "handle"), [("work", "bob"), ("other", "alice")])
async def test_checkpoints_of_another_handle_or_job_are_not_taken(job, handle, autojump_clock):
    jobs, begun_with = saving_and_going_on()
    async with open_engine(jobs, store="memory:") as engine:
        await (await engine.submit("work", handle="alice", params={"saves": 1})).result()
        await (await engine.submit(job, handle=handle, params={}, kind="continue")).result()
    assert begun_with == [None, None]


@pytest.mark.parametrize("kind", ["start", "continue"])
async def test_a_retry_resumes_from_the_checkpoint_of_the_previous_attempt(kind, autojump_clock):
    begun_with = []

    async def body(run: Run):
        begun_with.append(run.checkpoint)
        if run.attempt < 3:
            await run.save_checkpoint(f"saved in attempt {run.attempt}")
            raise ConnectionError("try again")

    async with open_engine(with_body(body, max_attempts=3), store="memory:") as engine:
        await (await engine.submit("work", handle="alice", kind=kind)).result()
    assert begun_with == [None, "saved in attempt 1", "saved in attempt 2"]


async def test_a_checkpoint_of_a_run_that_failed_is_kept_for_the_next(autojump_clock):
    begun_with = []

    async def body(run: Run):
        begun_with.append(run.checkpoint)
        await run.save_checkpoint(5)
        raise ConnectionError

    async with open_engine(with_body(body), store="memory:") as engine:
        for _ in range(2):
            with pytest.raises(RunFailed):
                await (await engine.submit("work", handle="alice", kind="continue")).result()
    assert begun_with == [None, 5]


async def test_none_can_be_saved_to_start_without_a_checkpoint(autojump_clock):
    jobs, begun_with = saving_and_going_on()
    async with open_engine(jobs, store="memory:") as engine:
        for saves in (1, None):
            await (await engine.submit("work", handle="alice", params={"saves": saves})).result()
        await (await engine.submit("work", handle="alice", params={}, kind="continue")).result()
    assert begun_with[-1] is None


# Only JSON values, and not too large.


async def returning(value, run: Run):
    return value


async def saving(value, run: Run):
    await run.save_checkpoint(value)


async def progressing(value, run: Run):
    await run.progress(1, 2, value=value)


async def asking(value, run: Run):
    await run.interrupt(value)


REPORTS = [
    pytest.param(returning, "result", id="result"),
    pytest.param(saving, "checkpoint", id="checkpoint"),
    pytest.param(progressing, "progress.value", id="progress"),
    pytest.param(asking, "interrupt", id="interrupt"),
]


@pytest.mark.parametrize(("report", "where"), REPORTS)
async def test_a_value_that_is_no_json_fails_the_run_with_an_error_that_names_the_position(
    report, where, autojump_clock
):
    async def body(run: Run):
        return await report({"pages": [1, {2, 3}]}, run)

    error = await failure_of(body)
    assert f"{where}.pages[1]" in error
    assert "set is not a JSON value" in error


@pytest.mark.parametrize("value", [math.nan, math.inf, b"bytes", object(), {1: 2}, 2**70, "\ud800"])
async def test_no_kind_of_unfit_result_is_let_through(value, autojump_clock):
    async def body(run: Run):
        return {"here": value}

    assert "result.here" in await failure_of(body)


@pytest.mark.parametrize(("report", "where"), REPORTS)
async def test_a_value_that_is_too_large_fails_the_run_and_the_error_names_the_position(
    report, where, autojump_clock
):
    async def body(run: Run):
        return await report("x" * 2000, run)

    error = await failure_of(body, max_value_bytes=1000)
    assert where.partition(".")[0] in error
    assert "1000" in error


@pytest.mark.parametrize(("report", "where"), REPORTS)
async def test_a_value_of_exactly_the_maximum_size_is_accepted(report, where, autojump_clock):
    async def body(run: Run):
        with trio.move_on_after(1):
            return await report("x" * 900, run)

    await outcome_of(body, max_value_bytes=1000)


async def test_the_limit_counts_bytes_of_json_and_not_characters(autojump_clock):
    async def body(run: Run):
        return "ü" * 999

    assert "2000 bytes" in await failure_of(body, max_value_bytes=1999)
    assert await outcome_of(body, max_value_bytes=2000) == "ü" * 999


async def test_a_body_can_catch_the_refusal_and_continue(autojump_clock):
    async def body(run: Run):
        with pytest.raises(Invalid):
            await run.save_checkpoint({1, 2})
        with pytest.raises(TooLarge):
            await run.progress(1, text="x" * 2000)
        return run.checkpoint

    assert await outcome_of(body, max_value_bytes=1000) is None


async def test_a_refused_value_has_no_effect(autojump_clock):
    async def body(run: Run):
        for report in (returning, saving, progressing):
            value = await report({1, 2}, run)
        return value

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        with pytest.raises(RunFailed):
            await ticket.result()
        run = await engine.get_run(ticket.id)
    assert (run.progress, run.result) == (None, None)


async def test_a_result_whose_reading_raises_fails_the_run_and_not_the_engine(autojump_clock):
    class Lazy(dict):
        def items(self):
            raise LookupError("the session is closed")

    async def body(run: Run):
        return Lazy(a=1)

    assert "the session is closed" in await failure_of(body)


# Changes of a value after the call have no effect.


async def test_changes_after_a_report_have_no_effect(autojump_clock):
    begun_with = []

    async def body(run: Run):
        begun_with.append(run.checkpoint)
        if run.attempt == 1:
            value = {"pages": [1]}
            await run.save_checkpoint(value)
            await run.progress(1, 2, value=value)
            value["pages"].append(2)
            raise ConnectionError

    async with open_engine(with_body(body, max_attempts=2), store=SlowStore(1)) as engine:
        ticket = await engine.submit("work", handle="alice")
        await ticket.result()
        run = await engine.get_run(ticket.id)
    assert begun_with == [None, {"pages": [1]}]
    assert run.progress["value"] == {"pages": [1]}


async def test_a_result_that_the_body_keeps_and_changes_stays_as_it_was_returned(autojump_clock):
    result = {"pages": [1]}

    async def body(run: Run):
        return result

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await ticket.wait()
        result["pages"].append(2)
        assert (await engine.get_run(ticket.id)).result == {"pages": [1]}


async def test_a_body_that_changes_its_checkpoint_in_place_has_saved_nothing(autojump_clock):
    begun_with = []

    async def body(run: Run):
        begun_with.append(msgspec.to_builtins(run.checkpoint))
        if run.attempt == 1:
            await run.save_checkpoint({"pages": [1]})
            run.checkpoint["pages"].append(2)
            raise ConnectionError

    async with open_engine(with_body(body, max_attempts=2), store="memory:") as engine:
        await (await engine.submit("work", handle="alice")).result()
        await (await engine.submit("work", handle="alice", kind="continue")).result()
    assert begun_with == [None, *[{"pages": [1]}] * 3]  # two attempts of each run


async def test_a_body_that_changes_its_parameters_changes_neither_the_run_nor_its_next_attempt(
    autojump_clock,
):
    begun_with = []

    async def body(run: Run, params: dict):
        begun_with.append(msgspec.to_builtins(params))
        params["pages"].append(2)
        run.params["more"] = True
        if run.attempt == 1:
            raise ConnectionError

    async with open_engine(with_body(body, max_attempts=2), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice", params={"pages": [1]})
        await ticket.result()
        run = await engine.get_run(ticket.id)
    assert begun_with == [{"pages": [1]}] * 2
    assert run.params == {"pages": [1]}


# Reports that arrive too late.


@contextmanager
def releasing(event):
    """Set the event in any case when the block ends: an engine that shuts down waits for a body that shields
    itself."""
    try:
        yield
    finally:
        event.set()


async def enter(manager):
    async with manager:
        pass


# Every call of a body.
CALLS = {
    "progress": lambda run: run.progress(99),
    "log": lambda run: run.log("too late"),
    "save_checkpoint": lambda run: run.save_checkpoint("too late"),
    "messages": lambda run: run.messages(),
    "next_message": lambda run: run.next_message(),
    "streaming": lambda run: enter(run.streaming()),
    "compacting": lambda run: enter(run.compacting()),
    "end_interactive": lambda run: run.end_interactive(),
    "interrupt": lambda run: run.interrupt("too late"),
    "sleep": lambda run: run.sleep(1),
    "sleep with the slot": lambda run: run.sleep(1, release_slot=False),
    "call": lambda run: run.call("work", handle="of the child"),
    "open_file": lambda run: enter(run.open_file("too late")),
}


@pytest.mark.parametrize("call", CALLS)
async def test_reports_after_the_end_are_refused_and_change_nothing(call, tmp_path, autojump_clock):
    runs = []

    async def body(run: Run):
        runs.append(run)

    async with open_engine(with_body(body), store="memory:", data_dir=tmp_path) as engine:
        await (await engine.submit("work", handle="alice")).result()
        before = await engine.snapshot()
        with pytest.raises(RunAbandoned):
            await CALLS[call](runs[0])
        assert await engine.snapshot() == before
    assert list(tmp_path.rglob("*.*")) == []


@pytest.mark.parametrize("call", CALLS)
async def test_reports_of_an_older_attempt_are_refused_and_change_nothing(call, tmp_path, autojump_clock):
    runs, second = [], trio.Event()

    async def body(run: Run):
        runs.append(run)
        if run.attempt == 1:
            raise ConnectionError
        await second.wait()

    jobs = with_body(body, max_attempts=2, backoff=1)
    async with open_engine(jobs, store="memory:", data_dir=tmp_path) as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.sleep(5)  # the second attempt has begun
        before = await engine.snapshot()
        with pytest.raises(RunAbandoned):
            await CALLS[call](runs[0])
        assert await engine.snapshot() == before
        second.set()
        await ticket.result()
    assert list(tmp_path.rglob("*.*")) == []


@pytest.mark.parametrize("call", CALLS)
async def test_reports_of_an_abandoned_body_are_refused_and_change_nothing(call, tmp_path, autojump_clock):
    told, refused = trio.Event(), []

    async def body(run: Run):
        with trio.CancelScope(shield=True):
            await told.wait()
            try:
                await CALLS[call](run)
            except RunAbandoned as error:
                refused.append(error)

    async with open_engine(with_body(body), store="memory:", data_dir=tmp_path) as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.testing.wait_all_tasks_blocked()
        with releasing(told):
            await ticket.cancel()
            await ticket.wait()
            before = (await engine.snapshot()).runs
        await trio.testing.wait_all_tasks_blocked()
        assert (await engine.snapshot()).runs == before
    assert len(refused) == 1
    assert list(tmp_path.rglob("*.*")) == []


async def test_a_report_that_waits_when_its_run_is_abandoned_is_refused(autojump_clock):
    refused = []

    async def body(run: Run):
        with trio.CancelScope(shield=True):
            try:
                await run.next_message()
            except RunAbandoned as error:
                refused.append(error)

    async with open_engine(with_body(body), store="memory:") as engine:
        ticket = await engine.submit("work", handle="alice")
        await trio.testing.wait_all_tasks_blocked()
        await ticket.cancel()
        await ticket.wait()
    assert len(refused) == 1


async def test_progress_of_the_attempt_before_is_not_taken_for_that_of_a_new_one(autojump_clock):
    seen = []

    async def body(run: Run):
        if run.attempt == 1:
            await run.progress(50)
            raise ConnectionError
        await run.log("begun")

    async with open_engine(with_body(body, max_attempts=2), store="memory:") as engine:
        events = engine.events(filter={"types": ["run_progress"]})
        await (await engine.submit("work", handle="alice")).result()
    seen = [(event.attempt, event.done) async for event in events]
    assert seen == [(1, 50)]
