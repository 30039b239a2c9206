"""The metrics for Prometheus: counts and durations."""

from __future__ import annotations

import json

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from trio_websocket import wrap_client_stream

from tests.support import until_status

from .flowing import DOUBLES, QUEUED, flow_house, until_run
from .support import House, Raw, house


async def figures(home: House) -> dict[str, float]:
    answer = await Raw(await home.stream()).http("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


async def test_runs_lanes_and_waiting_times(autojump_clock):
    async with house(listen=False) as home:
        await home.engine.set_max_concurrent(1)
        first = await home.engine.submit("wait", handle="a", params={})
        second = await home.engine.submit("wait", handle="b", params={})
        await home.engine.submit("wait", handle="c", params={}, lane="slow")
        await until_status(home.engine, first, "running")
        await trio.sleep(3)
        now = await figures(home)
        assert now["greenroom_runs{status=running}"] == 1
        assert now["greenroom_runs{status=queued}"] == 2
        assert now["greenroom_lane_executing{lane=main}"] == 1
        assert now["greenroom_lane_queued{lane=main}"] == 1
        assert now["greenroom_lane_queued{lane=slow}"] == 1
        assert now["greenroom_lane_limit{lane=slow}"] == 1
        assert now["greenroom_max_concurrent"] == 1
        assert now["greenroom_run_waiting_seconds_count"] == 1
        home.bodies.end(first)
        await until_status(home.engine, second, "running")
        now = await figures(home)
        assert now["greenroom_run_waiting_seconds_count"] == 2
        assert now["greenroom_run_waiting_seconds_sum"] == 3
        assert now["greenroom_runs_ended_total{status=succeeded}"] == 1


@pytest.mark.at_engine  # the leader commits
async def test_events_and_commits(autojump_clock):
    async with house(listen=False) as home:
        for number in range(5):
            await home.engine.set_params("h", number)
        now = await figures(home)
        assert now["greenroom_events_total{type=handle_changed}"] == 5
        assert now["greenroom_commit_events_count"] == 5
        assert now["greenroom_commit_events_sum"] == 5
        assert now["greenroom_commit_seconds_count"] == 5
        assert now["greenroom_seq"] == 5
        assert (now["greenroom_draining"], now["greenroom_store_down"]) == (0, 0)


@pytest.mark.at_engine  # the leader delivers
async def test_webhooks_and_their_deliveries(autojump_clock):
    class Receiver:
        status = 503
        accepted = 0

        async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
            self.accepted += self.status == 204
            return self.status, b""

    receiver = Receiver()
    async with house(
        listen=False, options={"push": receiver, "webhook_secret": "a secret of this test"}
    ) as home:
        now = await figures(home)
        assert now["greenroom_webhook_deliveries_total{outcome=failed}"] == 0
        for handle in "ab":
            notify = f"https://{handle}.example.org/"
            await home.engine.submit("wait", handle=handle, params={}, notify=notify)
        await trio.sleep(1)
        now = await figures(home)
        assert now["greenroom_webhook_deliveries_total{outcome=failed}"] == 2
        assert now["greenroom_webhook_deliveries_total{outcome=succeeded}"] == 0
        assert now["greenroom_webhooks{state=failing}"] == 2
        await trio.sleep(86_400 + 7200)
        now = await figures(home)
        assert (now["greenroom_webhooks{state=failing}"], now["greenroom_webhooks{state=dead}"]) == (0, 2)
        receiver.status = 204
        for webhook in await home.engine.webhooks.dead():
            await home.engine.webhooks.redeliver(webhook.id)
        await trio.sleep(1)
        now = await figures(home)
        assert now["greenroom_webhook_deliveries_total{outcome=succeeded}"] == receiver.accepted >= 4
        assert (now["greenroom_webhooks{state=failing}"], now["greenroom_webhooks{state=dead}"]) == (0, 0)


async def test_clients(autojump_clock):
    async with house(listen=False) as home:
        talk = await home.memory_socket()
        await talk.call("subscribe", after=99)
        source = await home.stream()
        await source.send_all(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await source.receive_some()
        now = await figures(home)
        assert now["greenroom_websockets"] == 1
        assert now["greenroom_event_sources"] == 1
        assert now["greenroom_resyncs_total"] == 1
        assert now["greenroom_lag_events"] == 0
        await source.aclose()
        await talk.socket.aclose()
        now = await figures(home)
        assert now["greenroom_websockets"] == 0
        assert now["greenroom_event_sources"] == 0


@pytest.mark.at_engine  # only the leader knows the workers
async def test_workers_the_queue_and_nodes(autojump_clock):
    async with flow_house(listen=False) as home:
        flows, workers = home.engine.flows, home.engine.workers
        for name, definition in (("doubles", DOUBLES), ("queued", QUEUED)):
            await flows.publish(name, definition)
        await workers.register("away", "http://127.0.0.1:9", ["sum"])
        await trio.sleep(20)
        await workers.register("here", "", ["slow"], kind="queue")
        for n in (1, None):
            run = await flows.start("doubles", params={"n": n})
            await until_run(home, run.id, "succeeded", "failed")
        for n in range(3):
            await flows.start("queued", params={"n": n})
        item = await workers.poll("here", ["slow"])
        assert item is not None
        now = await figures(home)
        assert now["greenroom_workers{status=online}"] == 1
        assert now["greenroom_workers{status=offline}"] == 1
        assert now["greenroom_queue_items{state=waiting}"] == 2
        assert now["greenroom_queue_items{state=leased}"] == 1
        assert now["greenroom_node_runs_total{status=ok}"] == 1
        assert now["greenroom_node_runs_total{status=error}"] == 1
        assert now["greenroom_node_runs_total{status=timeout}"] == 0
        await workers.complete(item.id, 1)
        now = await figures(home)
        assert now["greenroom_queue_items{state=leased}"] == 0
        assert now["greenroom_node_runs_total{status=ok}"] == 2


@pytest.mark.at_engine  # the leader counts the executors that are lost
async def test_executors_and_their_bodies(autojump_clock):
    async with house(listen=False) as home:
        socket = await wrap_client_stream(home.nursery, await home.stream(), "localhost", "/executor")
        attach = {"type": "attach", "executor": "gpu-1", "start": "1", "jobs": [{"name": "wait"}], "slots": 4}
        await socket.send_message(json.dumps(attach))
        await socket.get_message()
        now = await figures(home)
        assert now["greenroom_executors{status=attached}"] == 1
        assert now["greenroom_executors{status=disconnected}"] == 0
        assert now["greenroom_executor_bodies{executor=gpu-1}"] == 0
        assert now["greenroom_executors_lost_total"] == 0
        await home.engine.submit("wait", handle="a", params={})
        await socket.get_message()
        assert (await figures(home))["greenroom_executor_bodies{executor=gpu-1}"] == 1
        await trio.sleep(home.engine.executors.ttl + 1)
        now = await figures(home)
        assert now["greenroom_executors{status=attached}"] == 0
        assert "greenroom_executor_bodies{executor=gpu-1}" not in now
        assert now["greenroom_executors_lost_total"] == 1
