"""The traces of clients: fields of commands, headers of HTTP, and the current span of a client in Python."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from greenroom import Run, connect, sync
from greenroom.errors import Invalid
from tests.support import Bodies
from tests.tracing.spans import PARENT, SPAN_ID, Spans, spans

from .support import house

__all__ = ["spans"]

ABOVE = ["execute quick", "submit quick", SPAN_ID]
FLOW = {"start": "a", "nodes": {"a": {"kind": "choice"}}, "edges": []}


def make_bodies() -> Bodies:
    bodies = Bodies()

    @bodies.jobs.job("quick")
    async def quick(run: Run) -> str:
        return "done"

    return bodies


async def test_a_command_carries_the_trace(spans: Spans) -> None:
    async with house(make_bodies()) as home, home.socket() as talk:
        ok = await talk.call("submit", job="quick", handle="a", traceparent=PARENT, tracestate="a=1")
        await talk.call("wait", run_id=ok["run_id"])
    span = spans.one("execute quick")
    assert spans.path(span) == ABOVE
    assert span.context.trace_state.to_header() == "a=1"


async def test_each_run_of_a_batch_carries_its_trace(spans: Spans) -> None:
    async with house(make_bodies()) as home, home.socket() as talk:
        runs = [
            {"job": "quick", "handle": "a", "traceparent": PARENT},
            {"job": "quick", "handle": "b"},
        ]
        ok = await talk.call("submit_many", runs=runs)
        for submitted in ok["submitted"]:
            await talk.call("wait", run_id=submitted["run_id"])
    assert sorted(spans.path(span) for span in spans.named("execute quick")) == sorted([ABOVE[:2], ABOVE])


async def test_a_command_without_a_trace_begins_one(spans: Spans) -> None:
    async with house(make_bodies()) as home, home.socket() as talk:
        ok = await talk.call("submit", job="quick", handle="a")
        await talk.call("wait", run_id=ok["run_id"])
    assert spans.path(spans.one("execute quick")) == ABOVE[:2]


async def test_the_span_in_which_a_server_was_opened_is_not_that_of_its_clients(spans: Spans) -> None:
    with spans.tracer.start_as_current_span("main"):
        async with house(make_bodies()) as home, home.socket() as talk:
            ok = await talk.call("submit", job="quick", handle="a")
            await talk.call("wait", run_id=ok["run_id"])
    assert spans.path(spans.one("execute quick")) == ABOVE[:2]


@pytest.mark.parametrize("bad", ["", "nonsense", PARENT.upper(), f"{PARENT}\r\nX-Evil: 1"])
async def test_a_bad_traceparent_is_no_error(spans: Spans, bad: str) -> None:
    async with house(make_bodies()) as home, home.socket() as talk:
        ok = await talk.call("submit", job="quick", handle="a", traceparent=bad, tracestate=bad)
        await talk.call("wait", run_id=ok["run_id"])
    assert spans.path(spans.one("execute quick")) == ABOVE[:2]


async def run_over_http(home: Any, path: str, body: dict[str, Any], **headers: str) -> None:
    made = (await home.http("POST", path, body, **headers)).json
    ids = [made["run_id"]] if "run_id" in made else [one["run_id"] for one in made["submitted"]]
    for id in ids:
        await home.engine.wait(id)


async def test_the_headers_of_http_carry_the_trace(spans: Spans) -> None:
    async with house(make_bodies()) as home:
        headers = {"traceparent": PARENT, "tracestate": "a=1"}
        await run_over_http(home, "/api/runs", {"job": "quick", "handle": "a"}, **headers)
    span = spans.one("execute quick")
    assert spans.path(span) == ABOVE
    assert span.context.trace_state.to_header() == "a=1"


async def test_the_headers_of_http_carry_the_trace_of_a_batch(spans: Spans) -> None:
    own = PARENT.replace(SPAN_ID, "00000000000000aa")
    runs = [
        {"job": "quick", "handle": "a"},
        {"job": "quick", "handle": "b", "traceparent": own},
    ]
    async with house(make_bodies()) as home:
        await run_over_http(home, "/api/runs/batch", {"runs": runs}, traceparent=PARENT)
    found = sorted(spans.path(span) for span in spans.named("execute quick"))
    assert found == [[*ABOVE[:2], "00000000000000aa"], ABOVE]


async def test_a_field_of_the_body_precedes_the_header(spans: Spans) -> None:
    own = PARENT.replace(SPAN_ID, "00000000000000aa")
    async with house(make_bodies()) as home:
        body = {"job": "quick", "handle": "a", "traceparent": own}
        await run_over_http(home, "/api/runs", body, traceparent=PARENT, tracestate="a=1")
    span = spans.one("execute quick")
    assert spans.path(span) == [*ABOVE[:2], "00000000000000aa"]
    assert span.context.trace_state.to_header() == ""


@pytest.mark.parametrize("own", [None, PARENT.replace(SPAN_ID, "00000000000000aa")])
async def test_a_task_of_the_compatible_api_carries_the_trace(spans: Spans, own: str | None) -> None:
    async with house(make_bodies()) as home:
        await home.engine.flows.publish("f", FLOW)
        body = {"FlowID": "f", "ParamsJSON": "{}", **({} if own is None else {"traceparent": own})}
        made = await home.http("POST", "/api/tasks", body, traceparent=PARENT, tracestate="a=1")
        assert made.status == 200
        await home.engine.wait(made.json["id"])
    span = spans.one("execute flow")
    assert spans.path(span)[1:] == ["submit flow", SPAN_ID if own is None else "00000000000000aa"]
    assert span.context.trace_state.to_header() == ("a=1" if own is None else "")


async def test_a_bad_header_creates_a_task_all_the_same(spans: Spans) -> None:
    async with house(make_bodies()) as home:
        await home.engine.flows.publish("f", FLOW)
        for bad in ("nonsense", ""):
            body = {"FlowID": "f", "ParamsJSON": "{}"}
            made = await home.http("POST", "/api/tasks", body, traceparent=bad, tracestate="=")
            assert made.status == 200
            await home.engine.wait(made.json["id"])


async def test_the_current_span_of_a_client_is_carried(spans: Spans) -> None:
    async with house(make_bodies()) as home, connect(home.gateway.url) as client:
        with spans.tracer.start_as_current_span("request"):
            ticket = await client.submit("quick", handle="a")
            many = await client.submit_many([{"job": "quick", "handle": "b"}])
        await ticket.result()
        await many[0].result()
    for span in spans.named("execute quick"):
        assert spans.path(span) == [*ABOVE[:2], "request"]


async def test_the_current_span_of_a_synchronous_client_is_carried(spans: Spans) -> None:
    def submit(url: str) -> None:
        with sync.connect(url) as client, spans.tracer.start_as_current_span("request"):
            client.submit("quick", handle="a").result()

    async with house(make_bodies()) as home:
        await trio.to_thread.run_sync(submit, home.gateway.url)
    assert spans.path(spans.one("execute quick")) == [*ABOVE[:2], "request"]


async def test_a_flow_is_started_with_the_trace(spans: Spans) -> None:
    async with house(make_bodies()) as home, connect(home.gateway.url) as client:
        await client.flows.publish("f", FLOW)
        with spans.tracer.start_as_current_span("request"):
            ticket = await client.flows.start("f")
        await ticket.result()
        path = ["node a", "execute flow", "submit flow"]
        assert spans.path(spans.one("node a")) == [*path, "request"]


@pytest.mark.parametrize("bad", ["", "nonsense", "\ud800", "\0"])
async def test_the_python_client_ignores_a_bad_traceparent(bad: str) -> None:
    async with house(make_bodies()) as home, connect(home.gateway.url) as client:
        ticket = await client.submit("quick", handle="a", traceparent=bad, tracestate=bad)
        await ticket.result()


@pytest.mark.parametrize("value", [1, b"x"])
async def test_a_traceparent_that_is_not_text_is_refused(value: object) -> None:
    async with house(make_bodies()) as home, connect(home.gateway.url) as client:
        with pytest.raises(Invalid, match="traceparent must be a string"):
            await client.submit("quick", handle="a", traceparent=value)  # type: ignore[arg-type]
        made = await home.http("POST", "/api/runs", {"job": "quick", "handle": "a", "traceparent": 1})
        assert made.status == 400
        assert "traceparent" in str(made.json)
