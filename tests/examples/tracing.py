"""The trace of a request: its submission, the wait, the body, and a child run.

The spans are kept in memory and printed at the end, each below its parent. A real program exports them
to a collector instead, with the processor and the exporter of its choice.
"""

import trio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from greenroom import Jobs, Run, open_engine

jobs = Jobs()
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))


@jobs.job("report", max_attempts=2, backoff=0)
async def report(run: Run) -> str:
    with trace.get_tracer("app").start_as_current_span("query"):
        if run.attempt == 1:
            raise ConnectionError("the database restarts")
    return await run.call("render", handle="printer")


@jobs.job("render")
async def render(run: Run) -> str:
    return "done"


def show(parent: int | None, depth: int = 0) -> None:
    for span in sorted(exporter.get_finished_spans(), key=lambda span: span.end_time):
        if (span.parent.span_id if span.parent else None) == parent:
            attempt = span.attributes.get("greenroom.attempt")
            outcome = span.attributes.get("greenroom.outcome")
            print("  " * depth + span.name, *(value for value in (attempt, outcome) if value))
            show(span.context.span_id, depth + 1)


async def main() -> None:
    trace.set_tracer_provider(provider)
    async with open_engine(jobs, store="memory:") as engine:
        with trace.get_tracer("app").start_as_current_span("request"):
            ticket = await engine.submit("report", handle="alice")
        print(await ticket.result())
    show(None)


if __name__ == "__main__":
    trio.run(main)

# Output:
# done
# request
#   submit report
#     wait report 1
#     execute report 1 failed
#       query
#     wait report 2
#     execute report 2 succeeded
#       query
#       submit render
#         wait render 1
#         execute render 1 succeeded
