"""The traces of submissions: the context that is stored with a run, and the span of its submit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ...protocol.errors import GreenroomError
from ...protocol.submission import SubmitOptions
from ...protocol.tracecontext import trace_context
from .. import tracing
from ..messages import Accepted, Submission, Submit, SubmitMany

Outcomes = Sequence[Accepted | GreenroomError]


def begin_trace(submission: Submission, options: SubmitOptions) -> tracing.Span | None:
    """Start the span of a submit. The run keeps its context, or that of the caller if there is no span."""
    if options.traceparent is None and not tracing.in_use():
        return None
    given = trace_context(options.traceparent, options.tracestate)
    job = submission.job.name
    span = tracing.start(
        f"submit {job}", "producer", given, handle=submission.handle, lane=submission.lane, job=job
    )
    context = given if span is None else span.context or given
    if context is not None:
        submission.terms = replace(submission.terms, trace=context)
    return span


async def traced(span: tracing.Span, ask: Callable[[Any], Awaitable[Any]], submit: Submit) -> Accepted:
    """Submit a run while the span is the current one, and end the span."""
    with span:
        accepted: Accepted = await ask(submit)
        span.set(run=accepted.run, joined=accepted.joined)
        return accepted


async def all_traced(
    spans: Sequence[tracing.Span | None], ask: Callable[[Any], Awaitable[Any]], message: SubmitMany
) -> Outcomes:
    """Submit runs together, and end the span of each with its outcome."""
    try:
        outcomes: Outcomes = await ask(message)
    except BaseException as error:
        for begun in filter(None, spans):
            begun.end(error)
        raise
    for span, outcome in zip(spans, outcomes, strict=True):
        if span is None:
            continue
        if isinstance(outcome, Accepted):
            span.set(run=outcome.run, joined=outcome.joined)
            span.end()
        else:
            span.end(outcome)
    return outcomes
