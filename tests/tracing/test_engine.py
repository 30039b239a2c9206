"""The spans of runs in an embedded engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from opentelemetry import trace
from opentelemetry.trace import StatusCode

import greenroom.aio
from greenroom import BlockingRun, Jobs, Run, open_engine
from greenroom.actors.tracing import untraced
from greenroom.errors import Conflict, Invalid, RunFailed
from greenroom.persistence.memory import MemoryStore

from .spans import PARENT, SPAN_ID, TRACE_ID, Spans, own_span

jobs = Jobs()


@jobs.job
async def plain(run: Run) -> None:
    own_span("inner")


@jobs.job
def threaded(run: BlockingRun) -> None:
    own_span("inner")


@jobs.job(loop="asyncio")
async def in_asyncio(run: Run) -> None:
    own_span("inner")


@jobs.job
async def parent(run: Run) -> None:
    with trace.get_tracer("app").start_as_current_span("step"):
        await run.call(plain, handle="child")


@jobs.job
def threaded_parent(run: BlockingRun) -> None:
    run.call(plain, handle="child")


@jobs.job(max_attempts=2, backoff=10)
async def fails_once(run: Run) -> None:
    if run.attempt == 1:
        raise ValueError("not yet")


@jobs.job
async def fails(run: Run) -> None:
    raise ValueError("broken")


@jobs.job
async def sleeps(run: Run) -> None:
    await run.sleep(100)


def seconds(span: Any) -> float:
    return (span.end_time - span.start_time) / 1e9


async def test_a_run_has_a_span_for_its_submit_its_wait_and_its_body(spans: Spans, autojump_clock: Any):
    async with open_engine(jobs, "memory:", max_concurrent=1) as engine:
        first = await engine.submit(sleeps, handle="a", lane="slow")
        with spans.tracer.start_as_current_span("request"):
            ticket = await engine.submit(plain, handle="b", lane="slow")
        await first.result()
        await ticket.result()
    assert spans.path(spans.one("inner")) == ["inner", "execute plain", "submit plain", "request"]
    assert spans.path(spans.one("wait plain")) == ["wait plain", "submit plain", "request"]
    assert {span.context.trace_id for span in spans.named("execute plain")} == {
        spans.one("request").context.trace_id
    }
    about = {"run": ticket.id, "handle": "b", "lane": "slow", "job": "plain"}
    shown = {f"greenroom.{name}": value for name, value in about.items()}
    assert dict(spans.one("submit plain").attributes or {}) == {**shown, "greenroom.joined": False}
    assert dict(spans.one("wait plain").attributes or {}) == {**shown, "greenroom.attempt": 1}
    assert dict(spans.one("execute plain").attributes or {}) == {
        **shown,
        "greenroom.attempt": 1,
        "greenroom.outcome": "succeeded",
    }


async def test_the_wait_lasts_until_the_run_has_its_slot(spans: Spans, autojump_clock: Any):
    async with open_engine(jobs, "memory:") as engine:
        await engine.pause_lane("slow")
        ticket = await engine.submit(plain, handle="a", lane="slow")
        await trio.sleep(50)
        await engine.resume_lane("slow")
        await ticket.result()
    assert seconds(spans.one("wait plain")) == pytest.approx(50, abs=0.1)


@pytest.mark.parametrize("job", [plain, threaded, in_asyncio])
async def test_the_spans_of_a_body_are_below_its_own(spans: Spans, job: Any):
    async with open_engine(jobs, "memory:") as engine:
        ticket = await engine.submit(job, handle="a")
        await ticket.result()
    name = job.__name__
    assert spans.path(spans.one("inner")) == ["inner", f"execute {name}", f"submit {name}"]


@pytest.mark.parametrize(
    ("job", "above"),
    [
        (parent, ["step", "execute parent", "submit parent"]),
        (threaded_parent, ["execute threaded_parent", "submit threaded_parent"]),
    ],
)
async def test_a_child_run_is_below_the_body_that_calls_it(spans: Spans, job: Any, above: list[str]):
    async with open_engine(jobs, "memory:") as engine:
        await (await engine.submit(job, handle="a")).result()
    assert spans.path(spans.one("execute plain")) == ["execute plain", "submit plain", *above]


async def test_each_attempt_has_its_own_wait_and_body(spans: Spans, autojump_clock: Any):
    async with open_engine(jobs, "memory:") as engine:
        await (await engine.submit(fails_once, handle="a")).result()
    first, second = spans.named("execute fails_once")
    assert [dict(span.attributes or {})["greenroom.attempt"] for span in (first, second)] == [1, 2]
    assert [dict(span.attributes or {})["greenroom.outcome"] for span in (first, second)] == [
        "failed",
        "succeeded",
    ]
    assert first.status.status_code is StatusCode.ERROR
    assert [event.name for event in first.events] == ["exception"]
    assert second.status.status_code is StatusCode.UNSET
    assert spans.path(first)[1:] == spans.path(second)[1:] == ["submit fails_once"]
    waits = spans.named("wait fails_once")
    assert [dict(span.attributes or {})["greenroom.attempt"] for span in waits] == [1, 2]
    assert all(seconds(wait) < 1 for wait in waits)  # the pause before the retry is no wait in the queue


async def test_a_cancelled_body_has_no_error(spans: Spans, autojump_clock: Any):
    async with open_engine(jobs, "memory:") as engine:
        ticket = await engine.submit(sleeps, handle="a")
        await trio.sleep(1)
        await ticket.cancel()
    span = spans.one("execute sleeps")
    assert dict(span.attributes or {})["greenroom.outcome"] == "cancelled"
    assert span.status.status_code is StatusCode.UNSET


async def test_a_refused_submit_records_its_error(spans: Spans, autojump_clock: Any):
    async with open_engine(jobs, "memory:") as engine:
        await engine.submit(sleeps, handle="a")
        with pytest.raises(Conflict):
            await engine.submit(plain, handle="a")
    assert spans.one("submit plain").status.status_code is StatusCode.ERROR


async def test_the_submit_of_a_joined_run_names_it(spans: Spans, autojump_clock: Any):
    async with open_engine(jobs, "memory:") as engine:
        first = await engine.submit(sleeps, handle="a")
        await engine.submit(sleeps, handle="a", on_conflict="join")
    shown = [dict(span.attributes or {}) for span in spans.named("submit sleeps")]
    assert [span["greenroom.run"] for span in shown] == [first.id, first.id]
    assert [span["greenroom.joined"] for span in shown] == [False, True]


async def test_each_run_of_a_batch_has_its_spans(spans: Spans):
    async with open_engine(jobs, "memory:") as engine:
        with spans.tracer.start_as_current_span("request"):
            await engine.submit(sleeps, handle="taken")
            outcomes: list[Any] = await engine.submit_many(
                [
                    {"job": "plain", "handle": "a"},
                    {"job": "fails", "handle": "taken"},
                    {"job": "threaded", "handle": "b", "traceparent": PARENT},
                ],
                all_or_nothing=False,
            )
        await outcomes[0].result()
        await outcomes[2].result()
        await engine.cancel((await engine.list_runs(handle="taken"))[0].id)
    assert spans.path(spans.one("execute plain")) == ["execute plain", "submit plain", "request"]
    assert spans.path(spans.one("execute threaded")) == ["execute threaded", "submit threaded", SPAN_ID]
    assert spans.one("submit fails").status.status_code is StatusCode.ERROR


async def test_a_refused_batch_ends_all_spans_of_its_submits(spans: Spans):
    async with open_engine(jobs, "memory:") as engine:
        with pytest.raises(Conflict):
            await engine.submit_many([{"job": "plain", "handle": "a"}, {"job": "fails", "handle": "a"}])
    for name in ("submit plain", "submit fails"):
        assert spans.one(name).status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("bad", ["", "00-x", f"ff-{TRACE_ID}-{SPAN_ID}-01", f"{PARENT}-more", "é" * 100_000])
async def test_a_bad_traceparent_is_ignored(spans: Spans, bad: str):
    async with open_engine(jobs, "memory:") as engine:
        await (await engine.submit(plain, handle="a", traceparent=bad, tracestate="a=b")).result()
    assert spans.path(spans.one("execute plain")) == ["execute plain", "submit plain"]


async def test_a_tracestate_reaches_the_body(spans: Spans):
    states = []

    @(others := Jobs()).job
    async def shows(run: Run) -> None:
        states.append(trace.get_current_span().get_span_context().trace_state.to_header())

    async with open_engine(others, "memory:") as engine:
        await (await engine.submit(shows, handle="a", traceparent=PARENT, tracestate="a=1,b=2")).result()
    assert states == ["a=1,b=2"]


async def test_the_trace_is_no_part_of_what_a_request_id_stands_for(spans: Spans):
    async with open_engine(jobs, "memory:") as engine:
        first = await engine.submit(plain, handle="a", request_id="r")
        again = await engine.submit(plain, handle="a", request_id="r", traceparent=PARENT)
        assert (again.id, again.joined) == (first.id, True)


async def test_the_trace_of_a_run_survives_a_restart(spans: Spans):
    store = MemoryStore()
    async with open_engine(jobs, store, max_concurrent=0) as engine:
        ticket = await engine.submit(plain, handle="a", traceparent=PARENT)
    async with open_engine(jobs, store, max_concurrent=3) as engine:
        assert (await engine.wait(ticket.id)).ended
    assert spans.path(spans.one("execute plain")) == ["execute plain", "submit plain", SPAN_ID]
    assert spans.path(spans.one("wait plain")) == ["wait plain", "submit plain", SPAN_ID]


async def test_the_trace_survives_a_restart_on_disk(spans: Spans, tmp_path: Path):
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with open_engine(jobs, store, max_concurrent=0) as engine:
        ticket = await engine.submit(plain, handle="a", traceparent=PARENT)
    async with open_engine(jobs, store, max_concurrent=3) as engine:
        assert (await engine.wait(ticket.id)).ended
    assert f"{spans.one('execute plain').context.trace_id:032x}" == TRACE_ID


async def test_a_run_that_had_begun_has_no_second_wait_after_a_restart(spans: Spans):
    others = Jobs()

    @others.job(resumable=True)
    async def waits(run: Run) -> None:
        if not run.checkpoint:
            await run.save_checkpoint(True)
            await trio.sleep_forever()

    store = MemoryStore()
    async with open_engine(others, store, shutdown_timeout=0) as engine:
        ticket = await engine.submit(waits, handle="a", traceparent=PARENT)
        async for event in engine.events(after=0):
            if event.type == "run_state_changed" and event.to == "running":
                break
        await trio.testing.wait_all_tasks_blocked()
    async with open_engine(others, store) as engine:
        assert (await engine.wait(ticket.id)).ended
    assert len(spans.named("execute waits")) == 2
    assert len(spans.named("wait waits")) == 1


async def test_a_rerun_and_the_runs_of_a_schedule_begin_their_own_traces(spans: Spans, autojump_clock: Any):
    async with open_engine(jobs, "memory:") as engine:
        with spans.tracer.start_as_current_span("request"):
            first = await engine.submit(plain, handle="a", traceparent=PARENT)
            await first.result()
            await (await engine.rerun(first.id)).result()
            await engine.schedules.put("tick", job=plain, every=3600)
            await engine.schedules.trigger("tick")
            await trio.sleep(1)
            failed = await engine.submit(fails, handle="b", traceparent=PARENT)
            await engine.wait(failed.id)
            await engine.wait((await engine.retry(failed.id)).id)
    paths = [spans.path(span) for span in spans.named("execute plain")]
    assert paths == [["execute plain", "submit plain", SPAN_ID], *[["execute plain", "submit plain"]] * 2]
    assert [spans.path(span) for span in spans.named("execute fails")] == [
        ["execute fails", "submit fails", SPAN_ID],
        ["execute fails", "submit fails"],
    ]


async def test_a_schedule_cannot_have_a_trace():
    async with open_engine(jobs, "memory:") as engine:
        with pytest.raises(Invalid, match="traceparent and tracestate cannot be set for a schedule"):
            await engine.schedules.put("s", job="plain", every=60, traceparent=PARENT)


async def test_nothing_is_traced_in_an_untraced_block(spans: Spans):
    with untraced():
        async with open_engine(jobs, "memory:") as engine:
            await (await engine.submit(plain, handle="a", traceparent=PARENT)).result()
    assert [span.name for span in spans] == ["inner"]


async def test_without_a_provider_the_body_has_the_context_of_the_caller():
    seen = []

    @(others := Jobs()).job
    async def shows(run: Run) -> None:
        seen.append(trace.get_current_span().get_span_context())
        if run.handle == "a":
            await run.call(shows, handle="b")

    async with open_engine(others, "memory:") as engine:
        await (await engine.submit(shows, handle="a", traceparent=PARENT)).result()
    assert [f"{context.trace_id:032x}-{context.span_id:016x}" for context in seen] == [
        f"{TRACE_ID}-{SPAN_ID}"
    ] * 2


def test_the_current_span_of_asyncio_is_carried(spans: Spans):
    import asyncio

    async def main() -> None:
        async with greenroom.aio.open_engine(jobs, "memory:") as engine:
            with spans.tracer.start_as_current_span("request"):
                ticket = await engine.submit(plain, handle="a")
            await ticket.result()

    asyncio.run(main())
    assert spans.path(spans.one("execute plain")) == ["execute plain", "submit plain", "request"]


async def test_an_error_of_a_body_is_as_without_tracing(spans: Spans):
    async with open_engine(jobs, "memory:") as engine:
        with pytest.raises(RunFailed, match="ValueError: broken"):
            await (await engine.submit(fails, handle="a")).result()


_PLAIN = """
import sys, trio
from greenroom import Jobs, Run, open_engine

jobs = Jobs()

@jobs.job
async def plain(run: Run) -> int:
    return 1

async def main():
    async with open_engine(jobs, "memory:") as engine:
        ticket = await engine.submit(plain, handle="a")
        assert await ticket.result() == 1

trio.run(main)
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_a_plain_run_does_not_import_opentelemetry(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", _PLAIN], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


_ABSENT = f"""
import sys
sys.modules["opentelemetry"] = None  # as if it were not installed

import trio
from greenroom import Jobs, Run, open_engine
from greenroom.actors.run.api import body_of

jobs = Jobs()
seen = []
CALLS = {{"kind": "executor", "exec_type": "http", "service": "s"}}
FLOW = {{"start": "a", "nodes": {{"a": CALLS}}, "edges": []}}

@jobs.job
async def shows(run: Run) -> None:
    order = body_of(run).order
    seen.append((order.traceparent, order.tracestate))
    if run.handle == "a":
        await run.call(shows, handle="b")

class Push:
    async def post(self, url, body, headers):
        seen.append((headers["traceparent"], headers["tracestate"]))
        return 200, b'{{"result": 1}}'

async def main():
    trace = {{"traceparent": "{PARENT}", "tracestate": "a=1"}}
    async with open_engine(jobs, "memory:", push=Push()) as engine:
        await (await engine.submit(shows, handle="a", **trace)).result()
        await engine.workers.register("w", "http://127.0.0.1:80", ["s"])
        await engine.flows.publish("f", FLOW)
        await (await engine.flows.start("f", **trace)).result()

trio.run(main)
assert seen == [("{PARENT}", "a=1")] * 3, seen
"""


def test_without_the_package_bodies_child_runs_and_workers_receive_the_context(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", _ABSENT], cwd=tmp_path, timeout=60, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["traceparent", "tracestate"])
@pytest.mark.parametrize("value", [1, b"x", ["a"], float("nan")])
async def test_a_trace_that_is_not_text_is_refused(name: str, value: Any):
    async with open_engine(jobs, store="memory:") as engine:
        with pytest.raises(Invalid, match=f"{name} must be a string"):
            await engine.submit(plain, handle="a", **{name: value})
        with pytest.raises(Invalid, match=f"{name} must be a string"):
            await engine.submit_many([{"job": "plain", "handle": "a", name: value}])
        assert not await engine.list_runs()
