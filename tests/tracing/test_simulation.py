"""A simulation traces nothing, because the ids of spans would be random."""

from __future__ import annotations

from greenroom.simulation import simulate
from greenroom.simulation.scenarios.batches import batches

from .spans import Spans


def test_a_simulation_is_the_same_with_a_tracer_provider_and_makes_no_spans(spans: Spans) -> None:
    with spans.tracer.start_as_current_span("test"):
        traced = simulate(3, batches).trace.text()
    assert [span.name for span in spans] == ["test"]
    assert simulate(3, batches).trace.text() == traced
