"""Figures for Prometheus. Counters and histograms follow the events; gauges are read when they are asked
for."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, generate_latest

from ..actors.engine import Engine
from ..protocol.events import Event


class Metrics:
    """The figures of one gateway and its engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.registry = CollectorRegistry()
        self.resyncs = Counter(
            "greenroom_resyncs", "Snapshots sent to clients that missed events", registry=self.registry
        )
        self.stalled = Counter(
            "greenroom_stalled_clients", "Clients dropped because they took nothing", registry=self.registry
        )

    def heard(self, event: Event) -> None:
        """Take an event into account."""

    async def exposition(self, shared: object) -> tuple[bytes, str]:
        """All figures as text, and the type of it."""
        return generate_latest(self.registry), "text/plain; version=0.0.4; charset=utf-8"
