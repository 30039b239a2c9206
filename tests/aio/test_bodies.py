"""Jobs for asyncio: their bodies execute in an asyncio loop; their runs behave like all others."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

import greenroom
from greenroom import Engine, Jobs, errors
from greenroom.aio import Run
from greenroom.errors import Invalid, RunAbandoned
from greenroom.protocol.events import Event, InterruptOpened, RunLog
from tests.body.test_public import FOR_AUTHORS, public_names
from tests.support import open_engine, use_place

Body = Callable[..., Awaitable[Any]]


@pytest.fixture(autouse=True, params=["memory", "link"])
def place(request: pytest.FixtureRequest) -> Iterator[None]:
    use_place(request.param)
    yield
    use_place("memory")


def one_job(body: Body, **options: Any) -> Jobs:
    jobs = Jobs()
    jobs.job("job", loop="asyncio", **options)(body)
    return jobs


async def result_of(body: Body, params: Any = None, **options: Any) -> Any:
    """The outcome of a run with this body."""
    async with open_engine(one_job(body), "memory:", **options) as engine:
        ticket = await engine.submit("job", handle="a", params=params)
        return await ticket.result()


async def until(events: Any, kind: type[Event]) -> Any:
    while not isinstance(event := await anext(events), kind):
        pass
    return event


class Add(msgspec.Struct):
    a: int
    b: int = 2


async def test_a_body_executes_in_an_asyncio_loop_with_its_parameters():
    async def body(run: Run, params: Add) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"sum": params.a + params.b, "thread": threading.current_thread().name}

    jobs = Jobs()
    jobs.job("job", loop="asyncio")(body)
    async with open_engine(jobs, "memory:") as engine:
        ticket = await engine.submit("job", handle="a", params={"a": 1})
        assert await ticket.result() == {"sum": 3, "thread": "greenroom asyncio"}
    assert "greenroom asyncio" not in [thread.name for thread in threading.enumerate()]


async def test_all_bodies_of_an_engine_share_one_loop():
    met = asyncio.Event()

    async def body(run: Run, params: dict[str, Any]) -> int:
        if params["sets"]:
            met.set()
        await met.wait()
        return id(asyncio.get_running_loop())

    async with open_engine(one_job(body), "memory:") as engine:
        tickets = [
            await engine.submit("job", handle=f"h{sets}", params={"sets": sets}) for sets in (False, True)
        ]
        first, second = [await ticket.result() for ticket in tickets]
        assert first == second


async def test_a_run_has_the_same_public_names_as_in_trio():
    async def body(run: Run) -> list[str]:
        return public_names(run)  # type: ignore[arg-type]

    assert set(await result_of(body)) == FOR_AUTHORS


async def test_an_exception_of_a_body_fails_its_run():
    async def body(run: Run) -> None:
        await run.log("now")
        raise ValueError("as it should")

    with pytest.raises(errors.RunFailed, match="ValueError: as it should"):
        await result_of(body)


async def test_a_cancelled_error_without_a_cancel_fails_the_run():
    async def body(run: Run) -> None:
        raise asyncio.CancelledError

    with pytest.raises(errors.RunFailed, match="its run was not cancelled"):
        await result_of(body)


@pytest.mark.parametrize("in_a_task_of_its_own", [False, True])
async def test_sys_exit_ends_the_engine_and_is_raised(in_a_task_of_its_own: bool):
    async def exit() -> None:
        raise SystemExit(3)

    async def body(run: Run) -> None:
        if in_a_task_of_its_own:
            left_alone = asyncio.create_task(exit())
            await asyncio.sleep(60)
            del left_alone
        await exit()

    with pytest.raises(SystemExit):
        await result_of(body)


async def test_a_cancel_raises_cancelled_error_in_the_body_which_can_still_report():
    seen: list[str] = []

    async def body(run: Run, params: dict[str, Any]) -> None:
        try:
            await run.log("executing")
            await (asyncio.sleep(60) if params["own"] else run.sleep(60, release_slot=False))
        except asyncio.CancelledError:
            seen.append("cancelled")
            await run.log("last words")
            raise

    for own in (True, False):
        async with open_engine(one_job(body), "memory:") as engine:
            logs = engine.events(filter={"types": ["run_log"]})
            ticket = await engine.submit("job", handle="a", params={"own": own})
            await until(logs, RunLog)
            await ticket.cancel()
            with pytest.raises(errors.RunCancelled):
                await ticket.result()
            assert (await until(logs, RunLog)).text == "last words"
    assert seen == ["cancelled", "cancelled"]


async def test_a_body_that_returns_despite_a_cancel_has_succeeded():
    async def body(run: Run) -> str:
        try:
            await run.log("executing")
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "done all the same"
        return "never"

    async with open_engine(one_job(body), "memory:") as engine:
        logs = engine.events(filter={"types": ["run_log"]})
        ticket = await engine.submit("job", handle="a")
        await until(logs, RunLog)
        await ticket.cancel()
        assert await ticket.result() == "done all the same"


async def test_a_body_that_ignores_its_cancel_is_abandoned():
    may_end = threading.Event()
    refused: list[BaseException] = []

    async def body(run: Run) -> None:
        try:
            await run.log("executing")
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.to_thread(may_end.wait)
        try:
            await run.log("too late")
        except RunAbandoned as error:
            refused.append(error)

    async with open_engine(one_job(body, grace=0.05), "memory:") as engine:
        logs = engine.events(filter={"types": ["run_log"]})
        ticket = await engine.submit("job", handle="a")
        await until(logs, RunLog)
        await ticket.cancel()
        with pytest.raises(errors.RunCancelled) as caught:
            await ticket.result()
        assert caught.value.run.reason == "abandoned"
        may_end.set()
    assert refused


async def test_a_cooperative_body_sees_the_request():
    async def body(run: Run) -> str:
        await run.log("executing")
        for _ in range(10_000):
            if run.cancel_requested:
                break
            await asyncio.sleep(0.001)
        return "seen"

    async with open_engine(one_job(body, cancel="cooperative"), "memory:") as engine:
        logs = engine.events(filter={"types": ["run_log"]})
        ticket = await engine.submit("job", handle="a")
        await until(logs, RunLog)
        await ticket.cancel()
        with pytest.raises(errors.RunCancelled):
            await ticket.result()


async def test_checkpoints_messages_interrupts_and_children():
    async def body(run: Run) -> dict[str, Any]:
        if run.kind == "child":
            return {}
        before = run.checkpoint
        await run.save_checkpoint({"n": 1})
        async with run.streaming():
            message = await run.next_message()
        async with run.compacting():
            pass
        rest = await run.messages()
        answer = await run.interrupt({"may": "I?"}, timeout=None)
        sure = await run.confirm({"sure": "?"}, timeout=0.01)
        await run.sleep(0.01)
        child = await run.call("child", handle="b", params={"a": 4})
        await run.progress(1, 2, unit="pages")
        await run.end_interactive()
        return {
            "before": before,
            "after": run.checkpoint,
            "message": message,
            "rest": rest,
            "answer": answer,
            "sure": sure,
            "child": child,
        }

    jobs = one_job(body)

    @jobs.job("child", loop="asyncio")
    async def child(run: Run, params: Add) -> int:
        return params.a * params.b

    async with open_engine(jobs, "memory:") as engine:
        events = engine.events()
        ticket = await engine.submit("job", handle="a")
        await until_phase(engine, ticket.id, "streaming")
        await engine.inject("a", "hello")
        opened = await until(events, InterruptOpened)
        await engine.answer(opened.interrupt, {"approved": True})
        assert await ticket.result() == {
            "before": None,
            "after": {"n": 1},
            "message": "hello",
            "rest": [],
            "answer": {"approved": True},
            "sure": False,
            "child": 8,
        }
        run = await engine.get_run(ticket.id)
        assert run.progress == {"done": 1, "total": 2, "unit": "pages"}


async def test_an_asyncio_job_can_be_submitted_as_its_function():
    jobs = Jobs()

    @jobs.job(loop="asyncio")
    async def double(run: Run, params: Add) -> Add:
        return Add(params.a * 2, params.b * 2)

    @jobs.job(loop="asyncio")
    async def total(run: Run, params: Add) -> int:
        doubled = await run.call(double, handle="b", params=params)
        return doubled.a + doubled.b

    async with open_engine(jobs, "memory:") as engine:
        ticket = await engine.submit(total, handle="a", params=Add(1))
        assert await ticket.result() == 6
        assert (await engine.get_run(ticket.id)).job == "total"


async def until_phase(engine: Engine, run: str, phase: str) -> None:
    events = engine.events()
    while not getattr(await engine.get_run(run), phase):
        await anext(events)


async def test_a_failed_child_raises_in_its_parent():
    async def body(run: Run) -> str:
        try:
            await run.call("child", handle="b")
        except errors.RunFailed as error:
            return str(error.run.error)
        return "it did not fail"

    jobs = one_job(body)

    @jobs.job("child")
    async def child(run: greenroom.Run) -> None:
        raise ValueError("as it should")

    async with open_engine(jobs, "memory:") as engine:
        ticket = await engine.submit("job", handle="a")
        assert await ticket.result() == "ValueError: as it should"


async def test_files_are_complete_or_absent(tmp_path: Path):
    async def body(run: Run) -> None:
        async with run.open_file("good.txt") as file:
            await file.write(b"whole")
            assert file.path == "good.txt"
        async with run.open_file("bad.txt") as file:
            await file.write(b"half")
            raise ValueError("in the middle")

    with pytest.raises(errors.RunFailed, match="in the middle"):
        await result_of(body, data_dir=tmp_path)
    assert contents(tmp_path) == {"good.txt": b"whole"}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


async def test_a_phase_ends_when_the_body_is_cancelled_in_it():
    async def body(run: Run) -> str:
        try:
            async with asyncio.timeout(0.05), run.streaming():
                await run.log("streaming")
                await asyncio.sleep(60)
        except TimeoutError:
            await run.next_message()
        return "goes on"

    async with open_engine(one_job(body), "memory:") as engine:
        events = engine.events()
        ticket = await engine.submit("job", handle="a")
        await until_phase(engine, ticket.id, "streaming")
        while (await engine.get_run(ticket.id)).streaming:
            await anext(events)
        await engine.inject("a", 1)
        assert await ticket.result() == "goes on"


async def test_compacting_ends_at_its_timeout():
    async def body(run: Run) -> str:
        with pytest.raises(TimeoutError):
            async with run.compacting(timeout=0.01):
                await asyncio.sleep(60)
        return "in time"

    assert await result_of(body) == "in time"


async def test_calls_of_several_tasks_of_a_body_are_concurrent():
    async def body(run: Run) -> list[Any]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run.interrupt(n, key=str(n), timeout=None)) for n in range(3)]
            await run.log("asked")
        return [task.result() for task in tasks]

    async with open_engine(one_job(body), "memory:") as engine:
        events = engine.events(filter={"types": ["interrupt_opened"]})
        ticket = await engine.submit("job", handle="a")
        for _ in range(3):
            opened = await anext(events)
            assert isinstance(opened, InterruptOpened)
            await engine.answer(opened.interrupt, opened.key)
        assert await ticket.result() == ["0", "1", "2"]


async def test_each_body_has_its_own_context_variables():
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")

    async def body(run: Run) -> list[str]:
        before = name.get()
        name.set(run.handle)
        await run.log("a call keeps them")
        await asyncio.sleep(0.01)
        return [before, name.get()]

    async with open_engine(one_job(body), "memory:") as engine:
        tickets = [await engine.submit("job", handle=handle) for handle in "abc"]
        assert [await ticket.result() for ticket in tickets] == [["nobody", handle] for handle in "abc"]


async def test_calls_of_a_task_that_outlives_its_body_are_refused_and_the_task_ends_with_the_engine():
    raised: list[BaseException] = []
    left_behind: list[asyncio.Task[None]] = []
    refused = threading.Event()

    async def goes_on(run: Run) -> None:
        try:
            await run.next_message()
        except RunAbandoned as error:
            raised.append(error)
            refused.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            raised.append(error)
            raise

    async def body(run: Run) -> str:
        left_behind.append(asyncio.create_task(goes_on(run)))
        await asyncio.sleep(0.01)
        return "done"

    async with open_engine(one_job(body), "memory:") as engine:
        ticket = await engine.submit("job", handle="a")
        assert await ticket.result() == "done"
        await trio.to_thread.run_sync(refused.wait)
    abandoned, cancelled = raised
    assert "its body has ended" in str(abandoned)
    assert isinstance(cancelled, asyncio.CancelledError)


async def test_leaving_the_engine_cancels_bodies_that_do_not_end():
    seen: list[str] = []

    async def body(run: Run) -> None:
        try:
            await run.log("executing")
            await asyncio.sleep(60)
        finally:
            seen.append("cancelled")

    async with open_engine(one_job(body), "memory:", shutdown_timeout=0.01) as engine:
        logs = engine.events(filter={"types": ["run_log"]})
        await engine.submit("job", handle="a")
        await until(logs, RunLog)
    assert seen == ["cancelled"]


def test_a_plain_function_is_refused_when_it_is_registered():
    def body(run: Run) -> None: ...

    with pytest.raises(Invalid, match="requires an async def"):
        Jobs().job("job", loop="asyncio")(body)


def test_an_unknown_loop_is_refused():
    async def body(run: Run) -> None: ...

    with pytest.raises(Invalid, match=r"'trio' or 'asyncio' \(got 'curio'\)"):
        Jobs().job("job", loop="curio")(body)  # type: ignore[arg-type]
