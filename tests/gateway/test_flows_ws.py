"""Flows and workers over a WebSocket, and their commands that have their own paths in HTTP."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing

from greenroom.gateway import Limits

from .flowing import DOUBLES, QUEUED, WAITS, flow_house, until_run
from .support import House, Refused
from .test_commands import Skin, skin_of


@pytest.fixture
async def home() -> AsyncIterator[House]:
    async with flow_house() as home:
        yield home


@pytest.fixture(params=["json", "msgpack", "http"])
async def both(request: pytest.FixtureRequest) -> AsyncIterator[tuple[House, Skin]]:
    async with flow_house() as home, skin_of(request.param, home) as skin:
        yield home, skin


# What HTTP has, too.


async def test_a_flow_is_checked_published_started_and_ends(both):
    home, command = both
    checked = await command("check_flow", definition=DOUBLES)
    assert (checked["errors"], checked["warnings"]) == ([], [])
    checked = await command("check_flow", definition="start: a\nnodes: {}\n")
    assert checked["errors"]
    version = (await command("publish_flow", name="order", definition=DOUBLES))["version"]
    assert (version["version"], version["status"]) == (1, "published")
    said = await command("start_flow", flow="order", params={"n": 4})
    assert said["joined"] is False
    await until_run(home, said["run_id"], "succeeded")
    task = (await command("get_task", run_id=said["run_id"]))["task"]
    assert (task["run"]["status"], task["shared"], task["steps"]) == ("succeeded", {"out": 8}, 1)
    assert (task["flow"]["name"], task["version"]["version"], task["node"]) == ("order", 1, None)
    [row] = (await command("node_runs", run_id=said["run_id"]))["node_runs"]
    assert (row["node"], row["status"], row["prep"], row["output"]) == ("a", "ok", 4, 8)
    assert row["started_at"] <= row["finished_at"]


async def test_versions_are_added_and_listed(both):
    home, command = both
    flow = await home.engine.flows.create("order")
    for number in (1, 2):
        added = await command("add_flow_version", flow=flow.id, definition=json.dumps(WAITS))
        assert added["version"]["version"] == number
    draft = await command("add_flow_version", flow="order", definition=WAITS, version=9, status="draft")
    assert (draft["version"]["version"], draft["version"]["status"]) == (9, "draft")
    versions = (await command("list_flow_versions", flow="order"))["versions"]
    assert [(row["version"], row["status"]) for row in versions] == [
        (1, "published"),
        (2, "published"),
        (9, "draft"),
    ]
    assert {row["definition"] for row in versions} == {""}


async def test_a_run_takes_all_that_the_engine_takes(both):
    home, command = both
    await home.engine.flows.publish("order", WAITS)
    options = {
        "flow": "order",
        "version": 1,
        "params": {"n": 1},
        "handle": "alice",
        "lane": "slow",
        "kind": "continue",
        "on_conflict": "queue",
        "request_id": "one",
        "queue_timeout": 5,
        "run_timeout": "none",
        "deadline": 100.5,
    }
    said = await command("start_flow", **options)
    again = await command("start_flow", **options)
    assert (again["run_id"], again["joined"]) == (said["run_id"], True)
    run = await home.engine.get_run(said["run_id"])
    assert (run.handle, run.lane, run.kind) == ("alice", "slow", "continue")
    assert (await home.engine.flows.task(run.id)).request_id == "one"


async def test_a_signal_resumes_a_run(both):
    home, command = both
    await home.engine.flows.publish("order", WAITS)
    run = (await command("start_flow", flow="order"))["run_id"]
    await until_run(home, run, "suspended")
    await command("signal", run_id=run, key="$shared.flag", value={"by": "alice"})
    await until_run(home, run, "succeeded")
    with pytest.raises(Refused) as caught:
        await command("signal", run_id=run, key="flag", value=1)
    assert caught.value.code == "no_active_run"
    event = next(event for event in await home.engine.history(run) if event.type == "run_signal")
    assert event.by == "local"


async def test_a_definition_is_refused_with_all_of_its_errors(both):
    _, command = both
    with pytest.raises(Refused) as caught:
        await command("publish_flow", name="f", definition={"start": "x", "nodes": {"a": {"kind": "magic"}}})
    assert caught.value.code == "invalid"
    assert len(caught.value.details["errors"]) >= 2


async def test_workers_are_listed(both):
    home, command = both
    await home.engine.workers.register("w1", "http://127.0.0.1:9", ["sum"], load=1.5)
    [worker] = (await command("list_workers", service="sum"))["workers"]
    assert (worker["id"], worker["kind"], worker["load"], worker["status"]) == ("w1", "http", 1.5, "online")
    assert (await command("list_workers", service="route"))["workers"] == []


# Commands that only a WebSocket has; HTTP has other calls for them.


async def test_flows_and_runs_of_them_are_listed_by_pages(home):
    flows = home.engine.flows
    for n in range(3):
        await flows.publish(f"f{n}", WAITS)
    tickets = [await flows.start("f0") for _ in range(3)]
    async with home.socket() as talk:
        page = await talk.call("list_flows", limit=2, offset=1)
        assert ([row["name"] for row in page["flows"]], page["total"]) == (["f1", "f2"], 3)
        made = (await talk.call("create_flow", name="g", description="d"))["flow"]
        assert (made["name"], made["description"]) == ("g", "d")
        for ticket in tickets:
            await until_run(home, ticket.id, "suspended")
        await talk.call("cancel", run_id=tickets[0].id)
        page = await talk.call("list_tasks", status=["suspended"], limit=1)
        assert ([row["run"]["id"] for row in page["tasks"]], page["total"]) == ([tickets[2].id], 2)
        version = (await flows.versions("f0"))[0]
        assert (await talk.call("list_tasks", version=version.id))["total"] == 3
        shown = (await talk.call("get_flow_version", version_id=version.id))["version"]
        assert json.loads(shown["definition"]) == WAITS


async def test_a_worker_can_do_everything_over_a_websocket(home):
    await home.engine.flows.publish("f", QUEUED)
    async with home.socket() as talk:
        worker = await talk.call("register_worker", worker_id="w", url="", services=["slow"], kind="queue")
        assert worker["worker"]["status"] == "online"
        await talk.call("heartbeat_worker", worker_id="w", load=3)
        assert (await home.engine.workers.list())[0].load == 3
        ticket = await home.engine.flows.start("f", params={"n": 1})
        item = (await talk.call("poll_work", worker_id="w", services=["slow"]))["item"]
        assert (item["run"], item["node"], item["input"], item["params"]) == (
            ticket.id,
            "q",
            1,
            {"by": 3, "n": 1},
        )
        await talk.call("extend_work", item_id=item["id"], worker_id="w")
        await talk.call("complete_work", item_id=item["id"], result=[1], worker_id="w")
        with pytest.raises(Refused) as caught:
            await talk.call("complete_work", item_id=item["id"], result=[1])
        assert caught.value.code == "conflict"
        assert await ticket.result() == {"out": [1]}


async def test_the_least_busy_worker_is_allocated_if_there_is_one(home):
    async with home.socket() as talk:
        assert "worker" not in await talk.call("allocate_worker", service="sum")
        for id, load in (("a", 2), ("b", 1)):
            fields = {"url": "http://127.0.0.1:9", "services": ["sum"], "load": load}
            await talk.call("register_worker", worker_id=id, **fields)
        assert (await talk.call("allocate_worker", service="sum"))["worker"]["id"] == "b"


async def test_a_poll_is_answered_when_there_is_work_and_blocks_no_other_command(autojump_clock):
    async with flow_house(listen=False) as home:
        await home.engine.flows.publish("f", QUEUED)
        talk = await home.memory_socket()
        poll = await talk.post("poll_work", worker_id="w", services=["slow"])
        began = trio.current_time()
        for _ in range(20):
            await talk.call("list_flows")
        assert trio.current_time() == began
        await trio.sleep(5)
        ticket = await home.engine.flows.start("f", params={"n": 1})
        item = (await talk.reply(poll))["item"]
        assert (item["run"], trio.current_time()) == (ticket.id, began + 5)


async def test_a_poll_without_work_is_answered_without_any_after_its_wait(autojump_clock):
    async with flow_house(listen=False) as home:
        talk = await home.memory_socket()
        for fields, seconds in (({}, 25), ({"wait": 3}, 3), ({"wait": 0}, 0)):
            began = trio.current_time()
            said = await talk.call("poll_work", worker_id="w", services=["slow"], **fields)
            assert ("item" not in said, trio.current_time() - began) == (True, seconds)
        with pytest.raises(Refused) as caught:
            await talk.call("poll_work", worker_id="w", services=["slow"], wait=26)
        assert caught.value.code == "invalid"


async def test_polls_count_among_the_waits_of_a_connection(autojump_clock):
    async with flow_house(listen=False, limits=Limits(max_waits=2)) as home:
        talk = await home.memory_socket()
        for worker in ("a", "b"):
            await talk.post("poll_work", worker_id=worker, services=["slow"])
        with pytest.raises(Refused) as caught:
            await talk.call("poll_work", worker_id="c", services=["slow"])
        assert caught.value.code == "rate_limited"


async def test_the_polls_of_a_connection_end_with_it(autojump_clock):
    async with flow_house(listen=False) as home:
        await home.engine.flows.publish("f", QUEUED)
        talk = await home.memory_socket()
        await talk.post("poll_work", worker_id="w", services=["slow"])
        await trio.testing.wait_all_tasks_blocked()
        await talk.socket.aclose()
        await trio.testing.wait_all_tasks_blocked()
        ticket = await home.engine.flows.start("f", params={"n": 1})
        item = await home.engine.workers.poll("v", ["slow"])
        assert item is not None
        assert item.run == ticket.id


async def test_subscribers_receive_the_events_of_flows(home):
    await home.engine.flows.publish("f", DOUBLES)
    async with home.socket() as talk:
        await talk.call("subscribe")
        run = (await talk.call("start_flow", flow="f", params={"n": 1}))["run_id"]
        await talk.call("wait", run_id=run)
        types = [event["type"] for event in talk.events()]
        assert types[0] == "run_state_changed"
        assert "node_ran" in types


async def test_long_lists_go_out_in_parts(home):
    await home.engine.flows.publish("f", WAITS)
    text = "x" * 100_000
    for _ in range(4):
        await home.engine.flows.start("f", params={"text": text})
    async with home.socket("greenroom.v1.msgpack") as talk:
        id = await talk.post("list_tasks")
        parts = [await talk.reply(id)]
        while parts[-1].get("more"):
            parts.append(await talk.receive())
        assert len(parts) > 1
        assert sum(len(part["tasks"]) for part in parts) == 4
        assert {part["total"] for part in parts} == {4}


WRONG: dict[str, dict[str, Any]] = {
    "signal": {"run_id": "x", "key": "$params.a", "value": 1},
    "create_flow": {"name": ""},
    "publish_flow": {"name": "f", "definition": []},
    "add_flow_version": {"flow": "f", "definition": WAITS, "version": 10**12},
    "list_flows": {"limit": 0},
    "list_tasks": {"status": "happy"},
    "start_flow": {"flow": "f", "params": [1]},
    "list_workers": {"ttl": -1},
    "register_worker": {"worker_id": "w", "url": "", "services": []},
    "heartbeat_worker": {"worker_id": "w", "load": -1},
    "poll_work": {"worker_id": "w", "services": ["s"], "wait": -1},
    "extend_work": {"item_id": 5, "worker_id": "w"},
}


@pytest.mark.parametrize("type", WRONG)
async def test_invalid_commands_are_refused_and_the_connection_stays_open(home, type, caplog):
    async with home.socket() as talk:
        with pytest.raises(Refused) as caught:
            await talk.call(type, **WRONG[type])
        assert caught.value.code == "invalid"
        await talk.call("list_flows")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
