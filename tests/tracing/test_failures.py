"""A tracer provider that raises: runs end as if there were none."""

from __future__ import annotations

import subprocess
import sys
from contextvars import ContextVar
from typing import Any

import pytest
import trio
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import Sampler

from greenroom import BlockingRun, Jobs, Run, open_engine
from greenroom.actors import tracing
from greenroom.errors import Conflict, RunFailed

from .spans import PARENT, TRACE_ID, Spans, body_span

jobs = Jobs()

variable: ContextVar[str] = ContextVar("variable", default="none")


@jobs.job
async def returns(run: Run) -> str:
    return "done"


@jobs.job
async def traced(run: Run) -> str:
    return body_span()


@jobs.job
async def raises(run: Run) -> None:
    raise ValueError("from the body")


@jobs.job
async def calls(run: Run) -> Any:
    return await run.call(returns, handle="child")


@jobs.job
async def waits(run: Run) -> None:
    await trio.sleep_forever()


@jobs.job
async def look(run: Run) -> list[Any]:
    return [dict(baggage.get_all()), variable.get()]


@jobs.job
def look_in_thread(run: BlockingRun) -> list[Any]:
    return [dict(baggage.get_all()), variable.get()]


@jobs.job(loop="asyncio")
async def look_in_asyncio(run: Run) -> list[Any]:
    return [dict(baggage.get_all()), variable.get()]


class Raises(SpanProcessor):
    """Raises in one of its methods, for all spans or those of one kind."""

    def __init__(self, method: str, name: str) -> None:
        self._method = method
        self._name = name

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self._raise("on_start", span.name)

    def on_end(self, span: ReadableSpan) -> None:
        self._raise("on_end", span.name)

    def _raise(self, method: str, name: str) -> None:
        if method == self._method and name.startswith(self._name):
            raise RuntimeError(f"{method} of {name}")


class RaisingSampler(Sampler):
    def should_sample(self, *args: Any, **keywords: Any) -> Any:
        raise RuntimeError("sampler")

    def get_description(self) -> str:
        return "raises"


class RaisingProvider:
    def get_tracer(self, *args: Any) -> Any:
        raise StopIteration


def provider(failure: str) -> Any:
    """A tracer provider with this failure."""
    if failure == "sampler":
        return TracerProvider(sampler=RaisingSampler())
    if failure == "provider":
        return RaisingProvider()
    provider = TracerProvider()
    method, _, name = failure.partition(" ")
    provider.add_span_processor(Raises(method, name))
    return provider


FAILURES = [
    *(f"{method} {span}" for method in ("on_start", "on_end") for span in ("submit", "wait", "execute")),
    *("on_start", "on_end", "sampler", "provider"),
]


@pytest.fixture(autouse=True)
def _nothing_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_failed", False)
    monkeypatch.setattr(tracing, "_has_provider", True)


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failure_of_tracing_changes_no_outcome_and_is_logged_once(
    failure: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider(failure))
    outside = context.get_current()
    async with open_engine(jobs, store="memory:") as engine:
        assert await (await engine.submit(returns, handle="a")).result() == "done"
        assert await (await engine.submit(calls, handle="b", traceparent=PARENT)).result() == "done"
        with pytest.raises(RunFailed, match="from the body"):
            await (await engine.submit(raises, handle="c")).result()
        waiting = await engine.submit(waits, handle="d")
        with pytest.raises(Conflict):
            await engine.submit(waits, handle="d")
        await waiting.cancel()
        assert await waiting.wait()
        [first, second] = await engine.submit_many(
            [{"job": "returns", "handle": "e"}, {"job": "returns", "handle": "f"}]
        )
        assert [await first.result(), await second.result()] == ["done", "done"]
    assert context.get_current() == outside
    [record] = [record for record in caplog.records if "tracing has failed" in record.getMessage()]
    assert record.exc_info is not None


async def test_a_body_has_the_context_of_its_caller_although_its_span_cannot_start(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider("sampler"))
    async with open_engine(jobs, store="memory:") as engine:
        ticket = await engine.submit(traced, handle="a", traceparent=PARENT)
        assert (await ticket.result()).startswith(TRACE_ID)


def test_a_broken_environment_of_opentelemetry_fails_no_run():
    program = f"""
import trio
from greenroom import Jobs, open_engine

jobs = Jobs()

@jobs.job
async def returns(run):
    return "done"

async def main():
    async with open_engine(jobs, store="memory:") as engine:
        for traceparent in ({PARENT!r}, None):
            ticket = await engine.submit("returns", handle="a", traceparent=traceparent)
            print(await ticket.result())

trio.run(main)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={"OTEL_PYTHON_TRACER_PROVIDER": "nope", "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.stdout.split() == ["done", "done"], ended.stderr
    assert ended.stderr.count("Failed to load configured provider") == 1


@pytest.mark.parametrize("job", [look, look_in_thread, look_in_asyncio])
async def test_a_body_has_the_baggage_of_nobody_and_the_variables_of_the_opener(job: Any, spans: Spans):
    token = context.attach(baggage.set_baggage("opener", "1"))
    variable.set("opener")
    try:
        async with open_engine(jobs, store="memory:") as engine:
            variable.set("caller")
            inner = context.attach(baggage.set_baggage("caller", "1"))
            try:
                ticket = await engine.submit(job, handle="a")
            finally:
                context.detach(inner)
            assert await ticket.result() == [{}, "opener"]
    finally:
        context.detach(token)
