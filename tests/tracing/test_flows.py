"""The spans of flows, and the traces of their workers."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from greenroom import Jobs, Services, open_engine
from greenroom.protocol.tracecontext import trace_context
from tests.flow.pushing import Workers
from tests.flow.walking import local, node, walk
from tests.gateway.support import house
from tests.worker.test_with_server import at_work, publish
from tests.worker.test_with_server import node as calling

from .spans import PARENT, SPAN_ID, TRACE_ID, Spans, own_span


class SeenHeaders(Workers):
    """Push workers that keep the headers of their calls."""

    def __init__(self) -> None:
        super().__init__()
        self.headers: list[dict[str, str]] = []

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        self.headers.append(headers)
        return await super().post(url, body, headers)


def make_jobs() -> Jobs:
    jobs = Jobs()

    @jobs.function("own")
    async def own(input: Any) -> Any:
        own_span("inner")
        return input

    @jobs.function("broken")
    async def broken(input: Any) -> Any:
        raise ValueError("broken")

    return jobs


CALLS = {
    "start": "a",
    "nodes": {"a": local("own"), "b": {"kind": "executor", "exec_type": "http", "service": "s"}},
    "edges": [{"from": "a", "action": "default", "to": "b"}],
}


async def test_nodes_and_calls_of_workers_are_below_the_body_of_the_flow(spans: Spans, autojump_clock: Any):
    workers = SeenHeaders()
    async with open_engine(make_jobs(), "memory:", push=workers) as engine:
        await workers.register(engine, "w1", "s")
        walked = await walk(engine, CALLS, traceparent=PARENT)
        assert walked.run.status == "succeeded"
    above = ["execute flow", "submit flow", SPAN_ID]
    assert spans.path(spans.one("inner")) == ["inner", "node a", *above]
    call = spans.one("call s")
    assert spans.path(call) == ["call s", "node b", *above]
    assert dict(call.attributes or {})["greenroom.worker"] == "w1"
    assert dict(spans.one("node b").attributes or {})["greenroom.outcome"] == "ok"
    [headers] = workers.headers
    assert headers["traceparent"] == f"00-{TRACE_ID}-{call.context.span_id:016x}-01"


async def test_a_failed_node_has_its_error(spans: Spans, autojump_clock: Any):
    flow = {"start": "a", "nodes": {"a": local("broken")}, "edges": []}
    async with open_engine(make_jobs(), "memory:") as engine:
        await walk(engine, flow)
    span = spans.one("node a")
    assert span.status.status_code is StatusCode.ERROR
    assert "ValueError: broken" in (span.status.description or "")


async def test_a_flow_that_waits_without_a_body_has_two_of_them(spans: Spans, autojump_clock: Any):
    flow = {"start": "t", "nodes": {"t": node("timer", params={"delay_ms": 5000})}, "edges": []}
    async with open_engine(make_jobs(), "memory:") as engine:
        walked = await walk(engine, flow)
        assert walked.run.status == "succeeded"
    first, second = (dict(span.attributes or {}) for span in spans.named("execute flow"))
    assert (first["greenroom.outcome"], second["greenroom.outcome"]) == ("paused", "succeeded")
    assert len(spans.named("wait flow")) == 1


async def test_a_worker_receives_the_trace_also_if_the_engine_makes_no_spans(autojump_clock: Any):
    workers = SeenHeaders()
    async with open_engine(make_jobs(), "memory:", push=workers) as engine:
        await workers.register(engine, "w1", "s")
        await walk(engine, CALLS, traceparent=PARENT, tracestate="a=1")
    [headers] = workers.headers
    assert trace_context(headers["traceparent"], headers["tracestate"]) == trace_context(PARENT, "a=1")


async def test_a_worker_without_a_trace_receives_no_header(autojump_clock: Any):
    workers = SeenHeaders()
    async with open_engine(make_jobs(), "memory:", push=workers) as engine:
        await workers.register(engine, "w1", "s")
        await walk(engine, CALLS)
    [headers] = workers.headers
    assert headers.keys() == {"Idempotency-Key"}


@pytest.mark.parametrize("exec_type", ["http", "queue"])
async def test_the_spans_of_a_service_are_below_the_call(spans: Spans, exec_type: str):
    services = Services()

    @services.service("s")
    async def serve(input: Any) -> Any:
        own_span("inner")
        return input

    async with house() as home, at_work(home, exec_type, services):
        await publish(home.engine, {"a": calling(exec_type, "s")})
        ticket = await home.engine.flows.start("f", traceparent=PARENT)
        await ticket.result()
    path = ["serve s", "call s", "node a", "execute flow", "submit flow", SPAN_ID]
    assert spans.path(spans.one("inner")) == ["inner", *path]


@pytest.mark.parametrize("exec_type", ["http", "queue"])
async def test_a_flow_without_a_trace_is_served_as_ever(exec_type: str):
    services = Services()

    @services.service("s")
    def serve(input: Any) -> Any:
        return "served"

    async with house() as home, at_work(home, exec_type, services):
        await publish(home.engine, {"a": calling(exec_type, "s", post={"output_key": "out"})})
        ticket = await home.engine.flows.start("f")
        assert (await ticket.result())["out"] == "served"
