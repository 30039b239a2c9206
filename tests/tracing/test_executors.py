"""The spans of bodies and functions in child processes."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import trio
from opentelemetry import trace

from greenroom import Engine, Jobs, Run, open_engine
from greenroom.gateway import GatewayConfig, open_gateway

from .spans import PARENT, TRACE_ID, Spans, body_span

ROOT = Path(__file__).parents[2]

jobs = Jobs()
_child = Spans()
"""The spans of this process, if it is a child."""


@jobs.job
async def configure(run: Run) -> int:
    trace.set_tracer_provider(_child.provider)
    return os.getpid()


@jobs.job
async def traced(run: Run) -> str:
    return body_span()


@jobs.job
async def calls(run: Run) -> Any:
    return [body_span(), await run.call(traced, handle="child")]


@jobs.job
async def exported(run: Run) -> Any:
    return [
        (span.name, f"{span.context.span_id:016x}", span.parent and f"{span.parent.span_id:016x}")
        for span in _child
    ]


@jobs.function("where")
async def where(input: Any) -> str:
    return body_span()


async def test_the_span_of_a_body_is_made_by_its_child_process(spans: Spans):
    async with open_engine(jobs, "memory:", executors=1) as engine:
        await spans_cross_the_border(engine, spans)


async def test_the_span_of_a_body_is_made_by_an_executor_that_connects(spans: Spans, tmp_path: Path):
    async with (
        open_engine(jobs, "memory:", executors=0) as engine,
        open_gateway(engine, GatewayConfig(port=0)) as gateway,
    ):
        command = [
            *(sys.executable, "-m", "greenroom", "executor", "tests.tracing.test_executors:jobs"),
            *("--url", gateway.url, "--node", "e", "--data-dir", str(tmp_path), "--slots", "4"),
        ]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.run_process, command, cwd=ROOT))
            await spans_cross_the_border(engine, spans)
            nursery.cancel_scope.cancel()


async def spans_cross_the_border(engine: Engine, spans: Spans) -> None:
    """Check that bodies execute in another process, with the trace of their submits."""
    with trio.fail_after(30):

        async def result(job: Any, **options: Any) -> Any:
            return await (await engine.submit(job, handle="a", **options)).result()

        assert await result(configure) != os.getpid()
        own, of_child = await result(calls, traceparent=PARENT)
        made = {name: (id, parent) for name, id, parent in await result(exported)}
    assert own == f"{TRACE_ID}-{made['execute calls'][0]}"
    assert of_child == f"{TRACE_ID}-{made['execute traced'][0]}"
    submitted, submitted_child = spans.one("submit calls"), spans.one("submit traced")
    assert made["execute calls"][1] == f"{submitted.context.span_id:016x}"
    assert made["execute traced"][1] == f"{submitted_child.context.span_id:016x}"
    assert submitted_child.parent is not None
    assert f"{submitted_child.parent.span_id:016x}" == made["execute calls"][0]
    assert [span for span in spans if span.name.startswith("execute")] == []


async def test_a_function_in_a_child_process_has_the_trace_of_the_flow(spans: Spans):
    flow = {
        "start": "a",
        "nodes": {"a": {"kind": "local", "func": "where", "post": {"output_key": "out"}}},
        "edges": [],
    }
    async with open_engine(jobs, "memory:", executors=1) as engine:
        with trio.fail_after(20):
            await engine.flows.publish("f", flow)
            ticket = await engine.flows.start("f", traceparent=PARENT)
            made = (await ticket.result())["out"]
    assert made == f"{TRACE_ID}-{spans.one('node a').context.span_id:016x}"
