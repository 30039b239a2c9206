"""The metrics of the nodes of a cluster, also while the leader changes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from .clustered import NodeHouse, cluster
from .support import house

pytestmark = pytest.mark.at_engine  # they open the nodes that they need


async def figures(node: NodeHouse) -> dict[str, float]:
    answer = await node.http("GET", "/metrics")
    assert answer.status == 200, answer.body
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def role(now: dict[str, float]) -> tuple[float, ...]:
    return now["greenroom_leader"], now["greenroom_term"], now["greenroom_takeovers_total"]


async def test_each_node_shows_its_role_the_term_and_its_take_overs(tmp_path: Path) -> None:
    async with cluster(tmp_path) as [first, second]:
        assert role(await figures(first)) == (1, 1, 1)
        assert role(await figures(second)) == (0, 1, 0)
        for leaves, leads, term in ((first, second, 2), (second, first, 3)):
            await leaves.node.step_down()
            for node in (first, second):
                await node.finds_leader(leads.node.identity.id)
            assert role(await figures(leads))[:2] == (1, term)
            assert role(await figures(leaves))[:2] == (0, term)
        assert (await figures(first))["greenroom_takeovers_total"] == 2
        assert (await figures(second))["greenroom_takeovers_total"] == 1


async def test_a_leader_whose_lease_has_expired_does_not_count_as_the_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path) as [first, _]:
        good = True
        assert first.node.router.engine is not None
        first.node.router.engine._leasing.is_good = lambda: good  # type: ignore[method-assign]
        assert role(await figures(first)) == (1, 1, 1)
        good = False
        assert role(await figures(first)) == (0, 1, 1)


async def test_a_node_shows_the_term_of_a_leader_that_was_lost_before_it_was_scraped(tmp_path: Path) -> None:
    async with cluster(tmp_path) as [_, second]:
        second.node.router.follow(None)
        assert second.node.router.leader is None
        assert role(await figures(second)) == (0, 1, 0)


async def test_the_lag_is_0_at_the_leader_and_the_age_of_the_state_elsewhere(tmp_path: Path) -> None:
    async with cluster(tmp_path) as [first, second]:
        second.node.replica.confirmed_at = -math.inf
        assert (await figures(first))["greenroom_replica_lag_seconds"] == 0
        assert (await figures(second))["greenroom_replica_lag_seconds"] > 0


async def test_what_an_engine_has_counted_is_kept_when_its_node_follows(tmp_path: Path) -> None:
    async with cluster(tmp_path) as [first, second]:
        first.engine.executors._registry.lost = 3
        engine = first.node.router.engine
        assert engine is not None
        engine._watch.count, engine._watch.seconds = 2, 5.0
        assert faults(await figures(first)) == (3, 2, 5)
        await first.node.step_down()
        await first.finds_leader("n2")
        assert faults(await figures(first)) == (3, 2, 5)
        await second.node.step_down()
        await first.finds_leader("n1")
        first.engine.executors._registry.lost = 1
        assert faults(await figures(first)) == (4, 2, 5)


def faults(now: dict[str, float]) -> tuple[float, ...]:
    return (
        now["greenroom_executors_lost_total"],
        now["greenroom_loop_blocked_total"],
        now["greenroom_loop_blocked_seconds_total"],
    )


async def test_only_the_leader_counts_commits(tmp_path: Path) -> None:
    async with cluster(tmp_path) as [first, second]:
        commits = (await figures(first))["greenroom_commit_events_count"]
        await first.engine.set_params("h", 1)
        assert (await figures(first))["greenroom_commit_events_count"] == commits + 1
        answer = await second.http("PUT", "/api/handles/h/params", {"params": 2})
        assert answer.status == 200  # this node now has the event, too
        now = await figures(second)
        assert now["greenroom_seq"] == answer.json["seq"]
        assert now["greenroom_commit_events_count"] == 0


async def test_another_server_has_no_metrics_of_a_cluster() -> None:
    async with house() as home:
        assert b"greenroom_leader" not in (await home.http("GET", "/metrics")).body
