"""The spans that the OpenTelemetry SDK has exported, for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"
PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
"""The traceparent of a caller."""


class Spans:
    """The ended spans of a tracer provider."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("app")

    def __iter__(self) -> Iterator[ReadableSpan]:
        return iter(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    def path(self, span: ReadableSpan) -> list[str]:
        """The names of a span and of those above it, innermost first; the last is an id if it is not ours."""
        by_id = {other.context.span_id: other for other in self}
        names = [span.name]
        while span.parent is not None:
            above = by_id.get(span.parent.span_id)
            if above is None:
                return [*names, f"{span.parent.span_id:016x}"]
            span = above
            names.append(span.name)
        return names


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """Make the SDK the tracer provider of this test."""
    spans = Spans()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", spans.provider)
    return spans


def body_span() -> str:
    """The trace and the span that are current in the caller."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}-{context.span_id:016x}"


def own_span(name: str) -> None:
    """Make a span as application code does."""
    with trace.get_tracer("app").start_as_current_span(name):
        pass
