"""The metrics that only the nodes of a cluster have. They are set at each scrape."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from ..cluster.router import Router


class ClusterMetrics:
    """The metrics of the node of this router."""

    def __init__(self, router: Router, registry: CollectorRegistry) -> None:
        self._router = router
        self._leads = Gauge(
            "greenroom_leader",
            "1 while this node leads and its lease is valid",
            registry=registry,
        )
        self._term = Gauge(
            "greenroom_term", "The term of the last leader that this node knows", registry=registry
        )
        self._lag = Gauge(
            "greenroom_replica_lag_seconds",
            "The age of this node's state: how far it can be behind the leader's",
            registry=registry,
        )
        self._takeovers = Counter(
            "greenroom_takeovers", "Times that this node has become the leader", registry=registry
        )
        self._takeovers_before = 0
        self._remember_term()
        router.listen(self._remember_term)  # the leader can be lost before the next scrape

    def update(self) -> None:
        """Set the metrics to the current values."""
        router = self._router
        self._leads.set(router.leading is not None and router.leading.is_current)
        self._remember_term()
        self._lag.set(0 if router.leading is not None else router.replica.lag)
        self._takeovers.inc(router.takeovers - self._takeovers_before)
        self._takeovers_before = router.takeovers

    def _remember_term(self) -> None:
        leader = self._router.leader
        if leader is not None:
            self._term.set(leader.term)
