"""Tracing: OpenTelemetry spans for what the engine does, in programs that use OpenTelemetry.

The package is optional. It is imported only for a run that carries a trace context; otherwise spans are made
only if the program itself has imported it. To start or end a span is neither I/O nor a wait: exporting is the
business of the program's tracer provider.

Span processors, samplers and the environment of the package can raise anything. No exception of theirs leaves
this module: the span is missing or incomplete, and the outcome of what it describes stays the same.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from functools import cache, wraps
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast

from ..protocol.batches import RunKeywords
from ..protocol.submission import CallKeywords, FlowKeywords, SubmitKeywords
from ..protocol.tracecontext import TraceContext, trace_context

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span as OpenTelemetrySpan
    from opentelemetry.trace import Tracer

logger = logging.getLogger("greenroom")

P = ParamSpec("P")
T = TypeVar("T")

Kind = Literal["internal", "server", "client", "producer", "consumer"]

Options = TypeVar("Options", SubmitKeywords, FlowKeywords, CallKeywords, RunKeywords)

API = "opentelemetry.trace"
"""The module that a program imports if it uses OpenTelemetry. What each plain run passes looks for it in
`sys.modules` itself, which is faster than a call of `in_use`."""
_NANOSECONDS = 1e9

_traced: ContextVar[bool] = ContextVar("greenroom_traced", default=True)


_failed = False
"""Whether OpenTelemetry has raised: only the first exception is logged."""

_has_provider = True
"""False after OpenTelemetry could not load its provider: each further attempt would log a traceback."""


def _contained(call: Callable[P, T]) -> Callable[P, T | None]:
    """Let a function that calls OpenTelemetry return `None` where OpenTelemetry raises."""

    @wraps(call)
    def contained(*args: P.args, **kwargs: P.kwargs) -> T | None:
        global _failed
        try:
            return call(*args, **kwargs)
        except Exception as error:
            if not _failed:
                _failed = True
                logger.error(
                    "tracing has failed, and runs continue without complete spans: check the OpenTelemetry "
                    "configuration of this program (logged once)",
                    exc_info=error,
                )
            return None

    return contained


class Span:
    """A span that has started. As a block, it is the current span; an exception is recorded, and it ends."""

    __slots__ = ("_api", "_around", "_span", "_token")

    def __init__(self, api: ModuleType, span: OpenTelemetrySpan, around: Context | None) -> None:
        self._api = api
        self._span = span
        self._around = around

    @property
    def context(self) -> TraceContext | None:
        """What others need to make spans below this one; `None` without a tracer provider and a parent."""
        return _context_of(self._span)

    @_contained
    def set(self, **attributes: str | int | bool | None) -> None:
        """Set attributes, except those that are `None`. Their names get the prefix `greenroom.`."""
        self._span.set_attributes(_named(attributes))

    @_contained
    def fail(self, why: str) -> None:
        """Record an error that is not an exception."""
        self._span.set_status(self._api.StatusCode.ERROR, why)

    def end(self, error: BaseException | None = None) -> None:
        """End a span that is not a block; with what ended it, if that is not its normal end. As in a block,
        only an `Exception` is an error: a cancel is none."""
        if isinstance(error, Exception):
            self._record(error)
        self._end()

    @_contained
    def _record(self, error: Exception) -> None:
        self._span.record_exception(error)
        self.fail(f"{type(error).__name__}: {error}")

    @_contained
    def _end(self) -> None:
        self._span.end()

    def __enter__(self) -> Span:
        self._token = self._attach()
        return self

    @_contained
    def _attach(self) -> Token[Context]:
        from opentelemetry import context

        token: Token[Context] = context.attach(self._api.set_span_in_context(self._span, self._around))
        return token

    @_contained
    def _detach(self, token: Token[Context]) -> None:
        from opentelemetry import context

        context.detach(token)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            self._detach(self._token)
        self.end(error)


def in_use() -> bool:
    """Whether the program uses OpenTelemetry. It costs nearly nothing: plain runs ask nothing else."""
    return API in sys.modules and _traced.get()


@_contained
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
    before. Inside its block, nothing else is in the context of OpenTelemetry: no baggage of this process."""
    if parent is not None and API not in sys.modules and _traced.get():
        _load()
    return start(name, kind, parent, **attributes)


@_contained
def start_below_current(name: str, kind: Kind, /, **attributes: str | int | bool | None) -> Span | None:
    """Start a span below the current one; `None` if there is none."""
    api = _api()
    if api is None or not api.get_current_span().get_span_context().is_valid:
        return None
    return _start(api, name, kind, None, attributes)


@_contained
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


@_contained
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
@_contained
def _load() -> ModuleType | None:
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    api: ModuleType = trace
    return api


def _tracer(api: ModuleType) -> Tracer:
    global _has_provider
    provider = _provider(api) if _has_provider else None
    if provider is None:
        _has_provider = False
        return cast("Tracer", api.NoOpTracerProvider().get_tracer("greenroom"))
    return cast("Tracer", _tracer_of(provider))


@_contained
def _provider(api: ModuleType) -> Any:
    return api.get_tracer_provider()


@cache
def _tracer_of(provider: Any) -> Any:
    """The tracer of a provider; a program has one provider."""
    return provider.get_tracer("greenroom")


def _start(
    api: ModuleType,
    name: str,
    kind: Kind,
    context: Context | None,
    attributes: dict[str, str | int | bool | None],
) -> Span:
    span = _begin(api, name, kind, context, attributes)
    # Old releases lose the context if there is no provider, and so does a span that could not start.
    if span is None or not span.get_span_context().is_valid:
        parent: OpenTelemetrySpan = api.NonRecordingSpan(api.get_current_span(context).get_span_context())
        return Span(api, parent, context)
    return Span(api, span, context)


@_contained
def _begin(
    api: ModuleType,
    name: str,
    kind: Kind,
    context: Context | None,
    attributes: dict[str, str | int | bool | None],
) -> OpenTelemetrySpan:
    return _tracer(api).start_span(name, context, api.SpanKind[kind.upper()], _named(attributes))


def _inside(api: ModuleType, parent: TraceContext | None) -> Context:
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
    inside: Context = api.set_span_in_context(api.NonRecordingSpan(above), Context())
    return inside


@_contained
def _context_of(span: OpenTelemetrySpan) -> TraceContext | None:
    context = span.get_span_context()
    if not context.is_valid:
        return None
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return trace_context(parent, context.trace_state.to_header() or None)


def _named(attributes: dict[str, str | int | bool | None]) -> dict[str, str | int | bool]:
    return {f"greenroom.{name}": value for name, value in attributes.items() if value is not None}
