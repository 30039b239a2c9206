"""The headers of W3C Trace Context."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.tracecontext import TraceContext, trace_context

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_a_context_has_the_parts_of_its_traceparent() -> None:
    context = trace_context(PARENT, "a=1")
    assert context == TraceContext(PARENT, "a=1")
    assert (context.trace_id, context.span_id, context.flags) == (TRACE, SPAN, 1)
    assert context.headers == {"traceparent": PARENT, "tracestate": "a=1"}
    assert TraceContext(PARENT).headers == {"traceparent": PARENT}


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "",
        "00",
        PARENT.upper(),
        PARENT[:-1],
        f"{PARENT}0",
        f"{PARENT}-more",  # version 00 has nothing more
        f"{PARENT}\n",
        f" {PARENT}",
        f"ff-{TRACE}-{SPAN}-01",
        f"0x-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-0g",
        f"{PARENT}, {PARENT}",  # two headers
        f"00-{TRACE[:-1]}٣-{SPAN}-01",
    ],
)
def test_a_bad_traceparent_is_none(bad: str | None) -> None:
    assert trace_context(bad, "a=1") is None


@pytest.mark.parametrize("newer", [f"01-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what.the-future.has"])
def test_a_later_version_is_read_as_far_as_it_is_known(newer: str) -> None:
    assert trace_context(newer) == TraceContext(PARENT)


@pytest.mark.parametrize(
    ("given", "kept"), [("00", "00"), ("01", "01"), ("02", "02"), ("ff", "03"), ("fc", "00")]
)
def test_unknown_flags_are_dropped(given: str, kept: str) -> None:
    context = trace_context(f"00-{TRACE}-{SPAN}-{given}")
    assert context is not None
    assert context.parent == f"00-{TRACE}-{SPAN}-{kept}"


@pytest.mark.parametrize(
    "state", ["a=1", "a=1,b=2", "a=1, b=2 ,", "tenant@vendor=x:y;z", "1a=-", f"a={'x' * 256}"]
)
def test_a_tracestate_is_kept(state: str) -> None:
    assert trace_context(PARENT, state) == TraceContext(PARENT, state)


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "",
        "a",
        "a=",
        "=1",
        "A=1",
        "a=1=2",
        "a=é",
        "a=1\r\nX-Other: 1",
        "a=1\n",
        f"a={'x' * 257}",
        ",".join(f"k{number}=1" for number in range(33)),
        ",".join(f"k{number}={'x' * 200}" for number in range(3)),
    ],
)
def test_a_bad_tracestate_is_dropped_alone(bad: str | None) -> None:
    assert trace_context(PARENT, bad) == TraceContext(PARENT)


def test_white_space_around_a_tracestate_is_removed() -> None:
    assert trace_context(PARENT, " \ta=1, b=2\t ") == TraceContext(PARENT, "a=1, b=2")
    assert trace_context(PARENT, " ") == TraceContext(PARENT)


@given(st.text(), st.text())
def test_any_text_is_accepted_or_ignored(traceparent: str, tracestate: str) -> None:
    context = trace_context(traceparent, tracestate)
    assert context is None or len(context.parent) == 55
