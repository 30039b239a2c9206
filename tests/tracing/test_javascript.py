"""The JavaScript client carries the trace that it is given."""

from __future__ import annotations

from tests.clients.javascript import needs_node, run_node
from tests.clients.test_javascript import serving

from .spans import PARENT, SPAN_ID, Spans

pytestmark = needs_node


async def test_a_submit_carries_its_trace(spans: Spans) -> None:
    program = f"""
        const client = await connect(argument);
        const trace = {{ traceparent: "{PARENT}", tracestate: "a=1" }};
        const ticket = await client.submit("add", {{ handle: "a", params: {{ a: 1, b: 2 }}, ...trace }});
        const schedule = {{ job: "add", every: 60, ...trace }};
        const refused = await client.schedules.put("s", schedule).catch((error) => error.code);
        const result = await ticket.result();
        client.close();
        answer([result, refused]);
    """
    async with serving() as (_, _, url):
        assert await run_node(program, url) == [3, "invalid"]
    span = spans.one("execute add")
    assert spans.path(span) == ["execute add", "submit add", SPAN_ID]
    assert span.context.trace_state.to_header() == "a=1"
