"""Tracing: OpenTelemetry spans for what the engine does, in programs that use OpenTelemetry.

The package is optional. It is imported only for a run that carries a trace context; otherwise spans are made
only if the program itself has imported it. To start or end a span is neither I/O nor a wait: exporting is the
business of the program's tracer provider.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from ..protocol.batches import RunKeywords
from ..protocol.submission import CallKeywords, FlowKeywords, SubmitKeywords
from ..protocol.tracecontext import TraceContext, trace_context

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from opentelemetry.trace import Span as OpenTelemetrySpan
    from opentelemetry.trace import Tracer

Kind = Literal["internal", "server", "client", "producer", "consumer"]

Options = TypeVar("Options", SubmitKeywords, FlowKeywords, CallKeywords, RunKeywords)

API = "opentelemetry.trace"
"""The module that a program imports if it uses OpenTelemetry. What each plain run passes looks for it in
`sys.modules` itself, which is faster than a call of `in_use`."""
_NANOSECONDS = 1e9

_traced: ContextVar[bool] = ContextVar("greenroom_traced", default=True)


class Span:
    """A span that has started. As a block, it is the current span; an exception is recorded, and it ends."""

    __slots__ = ("_active", "_api", "_span")

    def __init__(self, api: ModuleType, span: OpenTelemetrySpan) -> None:
        self._api = api
        self._span = span

    @property
    def context(self) -> TraceContext | None:
        """What others need to make spans below this one; `None` without a tracer provider and a parent."""
        return _context_of(self._span)

    def set(self, **attributes: str | int | bool | None) -> None:
        """Set attributes, except those that are `None`. Their names get the prefix `greenroom.`."""
        self._span.set_attributes(_named(attributes))

    def fail(self, why: str) -> None:
        """Record an error that is not an exception."""
        self._span.set_status(self._api.StatusCode.ERROR, why)

    def end(self, error: BaseException | None = None) -> None:
        """End a span that is not a block; with what ended it, if that is not its normal end. As in a block,
        only an `Exception` is an error: a cancel is none."""
        if isinstance(error, Exception):
            self._span.record_exception(error)
            self.fail(f"{type(error).__name__}: {error}")
        self._span.end()

    def __enter__(self) -> Span:
        self._active: AbstractContextManager[Any] = self._api.use_span(self._span, end_on_exit=True)
        self._active.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._active.__exit__(kind, error, traceback)


def in_use() -> bool:
    """Whether the program uses OpenTelemetry. It costs nearly nothing: plain runs ask nothing else."""
    return API in sys.modules and _traced.get()


def start(
    name: str, kind: Kind, parent: TraceContext | None, /, **attributes: str | int | bool | None
) -> Span | None:
    """Start a span below `parent`, or without one at the root of a new trace; `None` if the program does not
    use OpenTelemetry."""
    api = _api()
    return None if api is None else _start(api, name, kind, _inside(api, parent), attributes)


def start_around_code(
    name: str, kind: Kind, parent: TraceContext | None, /, **attributes: str | int | bool | None
) -> Span | None:
    """The same for code of the application, which gets its context also if nothing has used OpenTelemetry
    before."""
    if parent is not None and API not in sys.modules and _traced.get():
        _load()
    return start(name, kind, parent, **attributes)


def start_below_current(name: str, kind: Kind, /, **attributes: str | int | bool | None) -> Span | None:
    """Start a span below the current one; `None` if there is none."""
    api = _api()
    if api is None or not api.get_current_span().get_span_context().is_valid:
        return None
    return _start(api, name, kind, None, attributes)


def record(
    name: str, parent: TraceContext | None, seconds: float, /, **attributes: str | int | bool | None
) -> None:
    """Make a span that ends now and has lasted this long."""
    api = _api()
    if api is None or parent is None:
        return
    now = time.time_ns()
    began = now - int(max(0.0, seconds) * _NANOSECONDS)
    span = _tracer(api).start_span(
        name, _inside(api, parent), attributes=_named(attributes), start_time=began
    )
    span.end(now)


def current() -> TraceContext | None:
    """The context of the current span, if there is one."""
    api = _api()
    return None if api is None else _context_of(api.get_current_span())


def carry(options: Options) -> Options:
    """Return the options of a submission with the current span, unless they name another one."""
    if API not in sys.modules or "traceparent" in options or (context := current()) is None:
        return options
    traced = {**options, "traceparent": context.parent, "tracestate": context.state}
    return cast(Options, traced)


@contextmanager
def untraced() -> Iterator[None]:
    """Make no spans in this block, and in tasks that are started in it."""
    token = _traced.set(False)
    try:
        yield
    finally:
        _traced.reset(token)


def _api() -> ModuleType | None:
    return _load() if in_use() else None


@cache
def _load() -> ModuleType | None:
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    api: ModuleType = trace
    return api


def _tracer(api: ModuleType) -> Tracer:
    tracer: Tracer = _tracer_of(api.get_tracer_provider())
    return tracer


@cache
def _tracer_of(provider: Any) -> Any:
    """The tracer of a provider; a program has one provider."""
    return provider.get_tracer("greenroom")


def _start(
    api: ModuleType,
    name: str,
    kind: Kind,
    context: Any,
    attributes: dict[str, str | int | bool | None],
) -> Span:
    span_kind = api.SpanKind[kind.upper()]
    span = _tracer(api).start_span(name, context, span_kind, _named(attributes))
    if not span.get_span_context().is_valid:  # old releases lose the context if there is no provider
        span = api.NonRecordingSpan(api.get_current_span(context).get_span_context())
    return Span(api, span)


def _inside(api: ModuleType, parent: TraceContext | None) -> Any:
    """A context of OpenTelemetry in which `parent` is the current span, and nothing else is set."""
    from opentelemetry.context import Context

    if parent is None:
        return Context()
    state = api.TraceState.from_header([parent.state]) if parent.state else None
    above = api.SpanContext(
        int(parent.trace_id, 16),
        int(parent.span_id, 16),
        is_remote=True,
        trace_flags=api.TraceFlags(parent.flags),
        trace_state=state,
    )
    return api.set_span_in_context(api.NonRecordingSpan(above), Context())


def _context_of(span: OpenTelemetrySpan) -> TraceContext | None:
    context = span.get_span_context()
    if not context.is_valid:
        return None
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return trace_context(parent, context.trace_state.to_header() or None)


def _named(attributes: dict[str, str | int | bool | None]) -> dict[str, str | int | bool]:
    return {f"greenroom.{name}": value for name, value in attributes.items() if value is not None}
