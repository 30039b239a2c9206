"""An executor and its engine: bodies, sessions, and lost connections."""

import msgspec
import pytest
import trio

from greenroom import Jobs, Run
from greenroom.errors import RunAbandoned, Unauthorized
from greenroom.persistence.folder import folder_id
from greenroom.protocol.executors import (
    AwaitChild,
    CallChild,
    CallFunction,
    CancelBody,
    CancelCall,
    CancelFunction,
    CloseBody,
    DeleteFiles,
    Drain,
    Draining,
    DropChild,
    FilesDeleted,
    FinishFile,
    FunctionEnded,
    LiveBody,
    Message,
    OpenInterrupt,
    Progress,
    Refused,
    ReleaseSlot,
    SaveCheckpoint,
    Settled,
    TakeSlot,
    TookMessages,
    WithdrawInterrupt,
    WriteLog,
)

from .engine import ScriptedEngine, answer, attached, new_executor, order


async def test_a_body_executes_and_its_result_is_kept_until_it_is_settled(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def double(run: Run, params: dict) -> int:
        return 2 * params["x"]

    async with attached(jobs, tmp_path) as engine:
        assert engine.first.jobs[0].name == "double"
        assert (engine.first.slots, engine.first.labels) == (8, ("gpu",))
        await engine.send(order("double", params={"x": 4}))
        ended = await engine.receive()
        assert (ended.outcome, ended.value) == ("returned", 8)
        await engine.cut()
        assert (await engine.attach(engine.nursery)).bodies == (LiveBody("r1", 1, 1),)
        await engine.send(Settled("r1", 1))
        await trio.sleep(1)
        await engine.cut()
        assert (await engine.attach(engine.nursery)).bodies == ()


@pytest.mark.parametrize("reconnects", [True, False])
async def test_a_lost_connection_is_logged_only_if_it_can_be_opened_again(
    autojump_clock, tmp_path, caplog: pytest.LogCaptureFixture, reconnects: bool
):
    async with attached(Jobs(), tmp_path, reconnects=reconnects) as engine:
        await engine.cut()
        await engine.attach(engine.nursery)
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert ["connecting again" in record.message for record in warnings] == [True] * reconnects


async def test_a_body_that_raises_reports_its_error_and_the_delay_that_its_job_computes(
    autojump_clock, tmp_path
):
    jobs = Jobs()

    @jobs.job(max_attempts=3, backoff=lambda attempt: 7.0 * attempt)
    async def fails(run: Run) -> None:
        raise ValueError("no")

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("fails", attempt=2))
        ended = await engine.ended()
        assert (ended.outcome, ended.error, ended.retry_after) == ("raised", "ValueError: no", 14.0)
        assert ended.retries
        assert 'raise ValueError("no")' in ended.traceback


async def test_a_body_that_cannot_be_executed_here_is_refused(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def numbers(run: Run, params: dict[str, int]) -> None:
        pass

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("missing"), order("numbers", "r2", params={"x": "y"}))
        first, second = await engine.ended(), await engine.ended()
        assert (first.run, first.outcome, first.error) == (
            "r1",
            "refused",
            'job "missing" not found; registered jobs: numbers',
        )
        assert (second.run, second.outcome) == ("r2", "refused")
        assert "params.x" in second.error


async def test_calls_are_answered_and_errors_are_raised_in_the_body(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def calls(run: Run) -> str:
        await run.log("hello")
        await run.save_checkpoint(1)
        try:
            await run.log("again")
        except RunAbandoned as error:
            return str(error)
        return "not reached"

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("calls"))
        log = await engine.call(WriteLog)
        assert (log.request.text, log.call) == ("hello", 1)
        await engine.send(answer(log))
        saved = await engine.call(SaveCheckpoint)
        assert (saved.request.value, saved.request.interrupts, saved.request.calls) == (1, 0, 0)
        await engine.send(answer(saved))
        await engine.send(answer(await engine.call(WriteLog), code="abandoned", message="another body"))
        assert (await engine.ended()).value == "run r1, attempt 1: another body"


async def test_messages_arrive_once_and_are_reported_when_they_are_taken(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def listens(run: Run) -> list:
        return [await run.next_message(), await run.next_message()]

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("listens"), Message("r1", 1, 5, "a"))
        assert await engine.told(TookMessages) == TookMessages(5)
        await engine.cut()
        assert (await engine.attach(engine.nursery)).bodies == (LiveBody("r1", 1, 1, received=5),)
        await engine.send(Message("r1", 1, 5, "a"), Message("r1", 1, 9, "b"))
        assert await engine.told(TookMessages) == TookMessages(9)
        assert (await engine.ended()).value == ["a", "b"]


async def test_an_interrupt_has_two_answers(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def asks(run: Run) -> object:
        return await run.interrupt({"question": "?"}, timeout=None, release_slot=True)

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("asks"))
        call = await engine.call(OpenInterrupt)
        assert (call.request.key, call.request.release_slot) == ("1", True)
        await engine.send(answer(call, True, more=True))
        await trio.sleep(5)
        assert not engine.pending
        await engine.send(answer(call, {"approved": True}))
        await engine.send(answer(await engine.call(TakeSlot)))
        assert (await engine.ended()).value == {"approved": True}


async def test_a_body_that_no_longer_waits_for_an_answer_withdraws_its_interrupt(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def asks(run: Run) -> str:
        with trio.move_on_after(3):
            await run.interrupt("?")
        return "done"

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("asks"))
        call = await engine.call(OpenInterrupt)
        await engine.send(answer(call, False, more=True))
        assert await engine.told(WithdrawInterrupt) == WithdrawInterrupt("1")
        await engine.send(answer(call, "too late"))
        assert (await engine.ended()).value == "done"


CHILD = {
    "id": "c1",
    "handle": "h2",
    "lane": "main",
    "job": "child",
    "kind": "start",
    "params": {},
    "status": "succeeded",
    "created_at": 1.0,
    "updated_at": 2.0,
    "result": 42,
}


async def test_a_child_is_called_awaited_and_its_record_returned(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def parent(run: Run) -> int:
        return await run.call("child", handle="h2", params={"x": 1}, lane="other", run_timeout=60)

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("parent"))
        call = await engine.call(CallChild)
        assert (call.request.position, call.request.job, call.request.handle) == (1, "child", "h2")
        assert call.request.params == {"x": 1}
        assert call.request.options == {
            "kind": "start", "lane": "other", "on_conflict": "queue", "run_timeout": 60, "warn_after": 2,
        }  # fmt: skip
        await engine.send(answer(call, "c1"))
        awaits = await engine.call(AwaitChild)
        await engine.send(answer(await engine.call(ReleaseSlot)))
        await engine.send(answer(awaits, CHILD))
        await engine.send(answer(await engine.call(TakeSlot)))
        assert (await engine.ended()).value == 42


async def test_a_child_that_the_body_no_longer_waits_for_is_dropped(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def parent(run: Run) -> str:
        for _ in range(2):
            with trio.move_on_after(3):
                await run.call("child", handle="h2")
        return "done"

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("parent"))
        call = await engine.call(CallChild)
        assert await engine.receive() == CancelCall("r1", 1, call.call)
        call = await engine.call(CallChild)
        await engine.send(answer(call, "c1"))
        await engine.call(AwaitChild)
        await engine.send(answer(await engine.call(ReleaseSlot)))
        await engine.send(answer(await engine.call(TakeSlot)))
        assert await engine.told(DropChild) == DropChild("c1")
        assert (await engine.ended()).value == "done"


async def test_a_body_that_is_stopped_to_resume_later_keeps_its_children(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def parent(run: Run) -> None:
        await run.call("child", handle="h2")

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("parent"))
        await engine.call(CallChild)
        await engine.send(CancelBody("r1", 1, stop=True, resumes_later=True))
        assert (await engine.ended()).outcome == "stopped"


async def test_a_cancel_can_be_obeyed_or_stop_the_body(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job(cancel="cooperative")
    async def obeys(run: Run) -> str:
        while not run.cancel_requested:
            await run.sleep(1, release_slot=False)
        return "obeyed"

    @jobs.job
    async def sleeps(run: Run) -> None:
        await trio.sleep_forever()

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("obeys"), order("sleeps", "r2"))
        await trio.sleep(2)
        await engine.send(CancelBody("r1", 1), CancelBody("r2", 1, stop=True))
        ends = {ended.run: ended for ended in [await engine.ended(), await engine.ended()]}
        assert (ends["r1"].value, ends["r1"].obeyed) == ("obeyed", True)
        assert ends["r2"].outcome == "stopped"


async def test_the_calls_of_a_closed_body_fail_and_its_unfinished_files_are_deleted(autojump_clock, tmp_path):
    jobs, seen = Jobs(), []

    @jobs.job
    async def writes(run: Run) -> None:
        try:
            async with run.open_file("x.txt") as file:
                await file.write(b"x")
                await run.log("x")
        except RunAbandoned as error:
            seen.append(str(error))
            raise

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("writes"))
        await engine.call(WriteLog)
        assert list(tmp_path.rglob("*.part"))
        await engine.send(CloseBody("r1", 1, "it was abandoned"))
        ended = await engine.ended()
        assert ended.outcome == "raised"
        assert seen == ["run r1, attempt 1: it was abandoned"]
        assert not list(tmp_path.rglob("*.*"))


async def test_what_is_decided_in_one_turn_is_sent_in_one_frame(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def logs(run: Run) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(run.log, "x")

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("logs"))
        calls = [await engine.call(WriteLog) for _ in range(100)]
        assert engine.frames <= 3
        await engine.send(*map(answer, calls))
        await engine.ended()


async def test_only_the_latest_progress_is_sent_after_a_disconnection(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def progresses(run: Run) -> None:
        for done in range(10_000):
            await run.progress(done)
            await trio.sleep(0.001)

    async with attached(jobs, tmp_path) as engine:
        engine.reachable = False
        await engine.cut()
        await engine.send(order("progresses"))
        engine.reachable = True
        await engine.attach(engine.nursery)
        assert (await engine.told(Progress)).done == 0
        engine.reachable = False
        await engine.cut()
        await trio.sleep(10)
        engine.reachable = True
        await engine.attach(engine.nursery)
        reports = []
        while not reports or reports[-1].done < 9999:
            reports.append(await engine.told(Progress))
        assert len(reports) <= 3
        assert (await engine.ended()).outcome == "returned"


async def test_a_lost_connection_loses_and_repeats_nothing(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def logs(run: Run) -> None:
        for number in range(50):
            await run.log(str(number))

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("logs"))
        for number in range(50):
            call = await engine.call(WriteLog)
            assert call.request.text == str(number)
            if number % 7 == 0:
                await engine.cut()
                await engine.send(answer(call))  # on the next connection
                await engine.attach(engine.nursery)
            else:
                await engine.send(answer(call))
        assert (await engine.ended()).outcome == "returned"
        assert engine.sessions == 1


async def test_a_restarted_engine_adopts_bodies_and_receives_their_unanswered_calls_and_ends_again(
    autojump_clock, tmp_path
):
    jobs = Jobs()

    @jobs.job
    async def works(run: Run) -> object:
        await run.progress(1)
        return await run.interrupt("?", timeout=None)

    @jobs.job
    async def ends(run: Run) -> int:
        return 1

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("works"), order("ends", "r2"))
        seen = [await engine.receive() for _ in range(3)]
        call = next(message for message in seen if getattr(message, "request", None) is not None)
        await engine.send(answer(call, False, more=True))
        await trio.sleep(1)
        await engine.cut()
        engine.restart()
        attach = await engine.attach(engine.nursery)
        assert {(body.run, body.fence) for body in attach.bodies} == {("r1", 1), ("r2", 1)}
        assert (await engine.told(Progress)).done == 1
        again = await engine.call(OpenInterrupt)
        assert again == call
        assert (await engine.ended()).run == "r2"
        await engine.send(answer(again, False, more=True), answer(again, "yes"))
        assert (await engine.ended()).value == "yes"


async def test_a_body_that_a_restarted_engine_does_not_adopt_is_cancelled_and_not_reported(tmp_path, caplog):
    jobs = Jobs()

    @jobs.job
    async def sleeps(run: Run) -> None:
        await trio.sleep_forever()

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("sleeps"))
        await trio.sleep(1)
        await engine.cut()
        engine.restart()
        await engine.attach(engine.nursery, adopts=False)
        await trio.sleep(1)
        assert engine.executor.remaining == []
        assert not engine.pending
        assert "run r1, attempt 1: the engine has restarted without this body" in caplog.text


async def test_an_executor_reconnects_with_growing_pauses_until_the_engine_is_reachable(
    autojump_clock, tmp_path, caplog
):
    engine = ScriptedEngine()
    engine.reachable = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(new_executor(Jobs(), engine, tmp_path).run)
        await trio.sleep(60)
        engine.reachable = True
        await engine.attach(nursery)
        assert 12 <= caplog.text.count("engine unreachable") <= 40
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("retry", [False, True])
async def test_a_refused_executor_retries_or_ends_with_the_error(autojump_clock, tmp_path, retry):
    engine = ScriptedEngine()
    async with trio.open_nursery() as nursery:

        async def refuse():
            connection = await engine._arrivals[1].receive()
            await connection.receive()
            refused = Refused("unauthorized", "invalid or revoked token", retry)
            await connection.send(msgspec.json.encode(refused))
            if retry:
                await engine.attach(nursery)
                executor.drain()

        nursery.start_soon(refuse)
        executor = new_executor(Jobs(), engine, tmp_path)
        if retry:
            await executor.run()
        else:
            with pytest.raises(Unauthorized, match="invalid or revoked token"):
                await executor.run()
        nursery.cancel_scope.cancel()


# The end.


async def test_a_draining_executor_finishes_its_bodies_and_ends_when_their_ends_are_stored(
    autojump_clock, tmp_path
):
    jobs = Jobs()

    @jobs.job
    async def sleeps(run: Run) -> str:
        await trio.sleep(5)
        return "done"

    engine = ScriptedEngine()
    async with trio.open_nursery() as nursery:
        executor = new_executor(jobs, engine, tmp_path)
        nursery.start_soon(executor.run)
        await engine.attach(nursery)
        await engine.send(order("sleeps"))
        await trio.sleep(1)
        await engine.send(Drain())
        assert await engine.receive() == Draining()
        await engine.cut()
        assert (await engine.attach(nursery)).draining
        ended = await engine.receive()
        assert ended.value == "done"
        await trio.sleep(60)
        assert executor.draining
        assert not engine.pending  # the command sets no time limit
        await engine.send(Settled("r1", 1))


async def test_a_draining_executor_executes_a_body_that_was_sent_before_the_engine_knew_of_the_drain(
    autojump_clock, tmp_path
):
    jobs = Jobs()

    @jobs.job
    async def quick(run: Run) -> str:
        return "done"

    engine = ScriptedEngine()
    async with trio.open_nursery() as nursery:
        executor = new_executor(jobs, engine, tmp_path)
        nursery.start_soon(executor.run)
        await engine.attach(nursery)
        engine.acknowledges = False
        executor.drain()
        assert await engine.receive() == Draining()
        await trio.testing.wait_all_tasks_blocked()
        await engine.send(order("quick"))
        assert (await engine.receive()).value == "done"
        await engine.send(Settled("r1", 1))


async def test_at_the_end_of_its_time_limit_an_executor_does_not_wait_for_acknowledgements(
    autojump_clock, tmp_path
):
    engine = ScriptedEngine()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            executor = new_executor(Jobs(), engine, tmp_path, shutdown_timeout=5)
            nursery.start_soon(executor.run)
            await engine.attach(nursery)
            engine.acknowledges = False
            executor.exit_soon()


async def test_at_the_end_of_its_time_limit_a_draining_executor_has_its_bodies_suspended(
    autojump_clock, tmp_path
):
    jobs = Jobs()

    @jobs.job
    async def sleeps(run: Run) -> None:
        await trio.sleep_forever()

    engine = ScriptedEngine()
    async with trio.open_nursery() as nursery:
        executor = new_executor(jobs, engine, tmp_path, shutdown_timeout=20)
        nursery.start_soon(executor.run)
        await engine.attach(nursery)
        await engine.send(order("sleeps"))
        await trio.sleep(1)
        began = trio.current_time()
        executor.exit_soon()
        assert await engine.receive() == Draining()
        assert await engine.receive() == Draining(now=True)
        assert trio.current_time() - began == pytest.approx(20)
        await engine.send(CancelBody("r1", 1, stop=True, resumes_later=True))
        assert (await engine.ended()).outcome == "stopped"


async def test_an_executor_that_drains_executes_a_body_that_was_sent_before_the_engine_knew(
    autojump_clock, tmp_path
):
    jobs = Jobs()

    @jobs.job
    async def double(run: Run, params: dict) -> int:
        return 2 * params["x"]

    engine = ScriptedEngine()
    engine.acknowledges = False
    async with trio.open_nursery() as nursery:
        executor = new_executor(jobs, engine, tmp_path)
        nursery.start_soon(executor.run)
        await engine.attach(nursery)
        executor.exit_soon()
        assert await engine.receive() == Draining()
        await engine.send(order("double", params={"x": 4}))  # acknowledges, too
        assert (await engine.ended()).value == 8


async def test_an_executor_that_begins_to_drain_while_it_attaches_tells_the_engine(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def sleeps(run: Run) -> None:
        await trio.sleep(5)

    engine = ScriptedEngine()
    async with trio.open_nursery() as nursery:
        executor = new_executor(jobs, engine, tmp_path)
        nursery.start_soon(executor.run)
        await engine.attach(nursery)
        await engine.send(order("sleeps"))
        await trio.sleep(1)
        await engine.cut()
        engine.restart()
        attach = await engine.attach(nursery, before_answer=executor.exit_soon)
        assert not attach.draining
        assert await engine.receive() == Draining()
        await engine.ended()


async def test_a_draining_executor_that_cannot_reach_its_engine_ends_at_its_time_limit(
    autojump_clock, tmp_path
):
    jobs = Jobs()

    @jobs.job
    async def sleeps(run: Run) -> None:
        await trio.sleep(5)

    engine = ScriptedEngine(ttl=90)
    async with trio.open_nursery() as nursery:
        executor = new_executor(jobs, engine, tmp_path, shutdown_timeout=20)

        async def execute():
            await executor.run()
            nursery.cancel_scope.cancel()

        nursery.start_soon(execute)
        await engine.attach(nursery)
        await engine.send(order("sleeps"))
        await trio.sleep(1)
        engine.reachable = False
        await engine.cut()
        executor.exit_soon()
        began = trio.current_time()
        await trio.sleep(60)
    assert trio.current_time() - began == pytest.approx(20, abs=1)


# The lease.


async def test_a_body_is_cancelled_when_beats_were_not_acknowledged_for_two_thirds_of_the_ttl(
    autojump_clock, tmp_path
):
    jobs, ends = Jobs(), []

    @jobs.job
    async def sleeps(run: Run) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ends.append(trio.current_time())

    async with attached(jobs, tmp_path, ttl=30) as engine:
        await engine.send(order("sleeps"))
        await trio.sleep(12)
        assert not ends
        engine.answers_beats = False
        cut_at = trio.current_time()
        await engine.cut()
        engine.reachable = False
        await trio.sleep(25)
        assert len(ends) == 1
        assert 14 <= ends[0] - cut_at <= 20
        engine.reachable = engine.answers_beats = True
        await engine.attach(engine.nursery)
        assert (await engine.ended()).outcome == "lapsed"
        await engine.send(order("sleeps", fence=2, attempt=2))
        await trio.sleep(5)
        assert engine.executor.remaining == ["r1"]


async def test_the_connection_is_opened_again_if_beats_are_not_answered_on_it(autojump_clock, tmp_path):
    async with attached(Jobs(), tmp_path, ttl=30) as engine:
        engine.answers_beats = False
        with trio.fail_after(11):
            assert (await engine.attach(engine.nursery)).session == "s1"


async def test_a_body_has_at_most_a_thousand_calls_on_the_wire(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def logs(run: Run) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(1500):
                nursery.start_soon(run.log, "x")

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("logs"))
        await trio.sleep(1)
        calls = engine.pending
        assert len(calls) == 1000
        await engine.send(*map(answer, calls))
        await trio.sleep(1)
        rest = engine.pending[1000:]
        assert len(rest) == 500
        await engine.send(*map(answer, rest))
        await trio.sleep(1)
        assert engine.pending[-1].outcome == "returned"


async def test_a_call_over_the_limit_is_sent_after_the_report_that_ends_another_one(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def asks(run: Run) -> None:
        with trio.move_on_after(5):
            async with trio.open_nursery() as nursery:
                for number in range(1001):
                    nursery.start_soon(ask, run, 3 if number == 0 else 100)

    async def ask(run: Run, patience: float) -> None:
        with trio.move_on_after(patience):
            await run.interrupt("?", timeout=600)

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("asks"))
        await trio.sleep(1)
        opened = [await engine.call(OpenInterrupt) for _ in range(1000)]
        await engine.send(*(answer(call, False, more=True) for call in opened))
        await trio.sleep(3)
        await engine.told(WithdrawInterrupt)
        await engine.call(OpenInterrupt)


# Functions and files.


async def test_functions_are_called_cancelled_and_report_their_errors(tmp_path):
    jobs = Jobs()

    @jobs.function("double")
    async def double(value: int) -> int:
        return 2 * value

    @jobs.function("add")
    def add(value: int, params: dict) -> int:
        return value + params["to"]

    begun = trio.Event()

    @jobs.function("sleeps")
    async def sleeps(value: int) -> None:
        begun.set()
        await trio.sleep_forever()

    async with attached(jobs, tmp_path) as engine:
        assert engine.first.functions == ("double", "add", "sleeps")
        await engine.send(CallFunction(1, "r1", "double", 2))
        assert await engine.receive() == FunctionEnded(1, 4)
        await engine.send(CallFunction(2, "r1", "add", 2, {"to": 3}))
        assert await engine.receive() == FunctionEnded(2, 5)
        await engine.send(CallFunction(3, "r1", "missing", 2))
        assert await engine.receive() == FunctionEnded(
            3, error="LookupError: function 'missing' is not registered"
        )
        await engine.send(CallFunction(4, "r1", "sleeps", 2))
        await begun.wait()
        await engine.send(CancelFunction(4))
        assert await engine.receive() == FunctionEnded(4, error="cancelled", code="cancelled")


async def test_functions_of_an_engine_that_has_restarted_are_cancelled_and_announced_to_the_next_one(
    autojump_clock, tmp_path
):
    jobs, ends = Jobs(), []

    @jobs.function("sleeps")
    async def sleeps(value: int) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ends.append(value)

    async with attached(jobs, tmp_path) as engine:
        await engine.send(CallFunction(1, "r1", "sleeps", 7))
        await trio.sleep(1)
        await engine.cut()
        engine.restart()
        await engine.attach(engine.nursery)
        await trio.sleep(1)
        assert ends == [7]
        assert engine.pending == [FunctionEnded(-1)]


async def test_files_are_deleted_when_the_engine_requests_it(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def writes(run: Run) -> None:
        async with run.open_file("x.txt") as file:
            await file.write(b"x")

    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("writes"))
        await engine.send(answer(await engine.call(FinishFile)))
        await engine.ended()
        assert [file.name for file in tmp_path.rglob("*.*")] == ["x.txt"]
        await engine.send(DeleteFiles(1, "r1", "r1", ("x.txt", "missing.txt")))
        assert await engine.receive() == FilesDeleted(1)
        assert not list(tmp_path.rglob("*.*"))


async def test_a_body_begins_without_the_unfinished_files_of_the_body_before_it(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job(resumable=True)
    async def writes(run: Run) -> None:
        async with run.open_file("x.txt") as file:
            await file.write(b"new")

    (tmp_path / "r1").mkdir()
    (tmp_path / "r1" / "x.txt.r1.part").write_bytes(b"of a process that was killed")
    (tmp_path / "r1" / "y.txt.r1.part").write_bytes(b"of a process that was killed")
    async with attached(jobs, tmp_path) as engine:
        await engine.send(order("writes", again=True))
        await engine.send(answer(await engine.call(FinishFile)))
        assert (await engine.ended()).outcome == "returned"
        [file] = (tmp_path / "r1").iterdir()
        assert (file.name, file.read_bytes()) == ("x.txt", b"new")


def test_processes_that_use_the_same_data_folder_get_the_same_id(tmp_path):
    first = folder_id(tmp_path / "data")
    assert first == folder_id(tmp_path / "data")
    assert first != folder_id(tmp_path / "other")
    assert len(list((tmp_path / "data").iterdir())) == 1


async def test_it_connects_again_soon_enough_for_a_short_lease(autojump_clock, tmp_path):
    jobs = Jobs()

    @jobs.job
    async def sleeps(run: Run) -> str:
        await trio.sleep(30)
        return "not cancelled"

    async with attached(jobs, tmp_path, ttl=6.0) as engine:
        await engine.send(order("sleeps"))
        await trio.sleep(1)
        for _ in range(3):
            engine.reachable = False
            await engine.cut()
            await trio.sleep(2.5)
            engine.reachable = True
            began = trio.current_time()
            await engine.attach(engine.nursery)
            assert trio.current_time() - began <= 0.5
            await trio.sleep(1)
        assert (await engine.ended()).value == "not cancelled"
