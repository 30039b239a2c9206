"""The order of replies and events: read your writes, batches without a gap, resuming, and restarting."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio

from greenroom import Jobs, Run
from greenroom.actors.journal.stream import RING_SIZE
from greenroom.gateway import Limits
from greenroom.gateway.stream.snapshots import filtered
from greenroom.protocol.codec import JSON
from greenroom.protocol.commands import Resync
from greenroom.protocol.events import Event, Filter
from greenroom.protocol.fold import Projection
from greenroom.protocol.parts import joined
from greenroom.protocol.records import Snapshot
from tests.support import Bodies, open_engine

from .support import House, Refused, Talk, house

AT_ONCE = 4096
"""Events in one turn: fewer than the ring has, so that a follower receives them as events."""


def check_batches(messages: list[dict[str, Any]], start: int) -> int:
    """Check that batches have no gap, and that replies follow the events up to their seq. Returns the last
    `to`."""
    to = start
    for message in messages:
        if message["type"] == "events":
            assert message["from"] == to
            to = message["to"]
            seqs = [event["seq"] for event in message["events"]]
            assert seqs == sorted(seqs)
            assert all(message["from"] < seq <= to for seq in seqs)
        elif message["type"] == "resync":
            to = message["snapshot"]["seq"]
        elif message["type"] == "ok":
            assert message["seq"] <= to
    return to


async def many_events(home: House, count: int, handle: str = "someone") -> None:
    for start in range(0, count, AT_ONCE):
        async with trio.open_nursery() as nursery:
            for number in range(start, min(start + AT_ONCE, count)):
                nursery.start_soon(home.engine.set_params, handle, {"number": number})


async def busy(talk: Talk) -> None:
    """Send a few commands of each kind."""
    runs = [
        (await talk.call("submit", job="wait", handle=f"h{number}", params={}))["run_id"]
        for number in range(6)
    ]
    await talk.call("set_concurrency", lane="main", n=2)
    for run in runs[:3]:
        await talk.call("cancel", run_id=run)
    await talk.call("clear_lane", lane="main")


@pytest.mark.parametrize("subprotocol", ["greenroom.v1.json", "greenroom.v1.msgpack", None])
async def test_everything_up_to_a_replys_seq_arrives_before_the_reply(subprotocol):
    async with house() as home, home.socket(subprotocol) as talk:
        start = (await talk.call("subscribe"))["seq"]
        await busy(talk)
        assert check_batches(talk.received[1:], start) == home.engine.stream.last_seq
        assert [event["seq"] for event in talk.events()] == list(range(1, home.engine.stream.last_seq + 1))


async def test_a_submission_is_among_the_events_before_its_reply():
    async with house() as home, home.socket() as talk:
        await talk.call("subscribe")
        run = (await talk.call("submit", job="wait", handle="alice", params={}))["run_id"]
        assert talk.events()[0]["run"] == run


async def test_under_a_filter_an_empty_batch_announces_the_seq():
    async with house() as home, home.socket() as talk:
        await talk.call("subscribe", filter={"handles": ["bob"]})
        await talk.call("submit", job="wait", handle="alice", params={})
        assert [message["type"] for message in talk.received] == ["welcome", "ok", "events", "ok"]
        assert talk.received[2]["events"] == []
        assert talk.received[2]["to"] >= talk.received[3]["seq"]


async def test_an_error_reply_follows_the_events_that_caused_it():
    async with house() as home, home.socket() as talk, home.socket() as other:
        await talk.call("subscribe")
        await other.call("submit", job="wait", handle="alice", params={})
        with pytest.raises(Refused):
            await talk.call("submit", job="wait", handle="alice", params={})
        assert talk.received[-2]["type"] == "events"
        assert {event["handle"] for event in talk.events()} == {"alice"}


async def test_commands_that_are_sent_without_waiting_take_effect_in_their_order():
    async with house() as home, home.socket() as talk:
        await talk.call("subscribe")
        for number in range(200):
            await talk.post("set_max_concurrent", n=number)
        await talk.call("snapshot")
        assert [event["max_concurrent"] for event in talk.events()] == list(range(200))


async def test_without_a_subscription_there_are_only_replies():
    async with house() as home, home.socket() as talk:
        await busy(talk)
        assert {message["type"] for message in talk.received} == {"welcome", "ok"}
        await talk.call("subscribe")
        await talk.call("unsubscribe")
        received = len(talk.received)
        await many_events(home, 3)
        await talk.call("set_max_concurrent", n=1)
        assert {message["type"] for message in talk.received[received:]} == {"ok"}


async def test_a_ping_is_answered_at_once():
    async with house() as home, home.socket() as talk:
        await talk.call("set_max_concurrent", n=7)
        assert (await talk.call("ping"))["seq"] == (await home.engine.snapshot()).seq


async def test_a_filter_lets_through_what_fits_and_leaves_no_gap():
    async with house() as home, home.socket() as talk:
        start = (await talk.call("subscribe", filter={"handles": ["h1", "h2"]}))["seq"]
        await busy(talk)
        assert check_batches(talk.received[1:], start) == home.engine.stream.last_seq
        seen = {event.get("handle") for event in talk.events()}
        assert seen == {"h1", "h2", None}


@pytest.mark.parametrize(
    ("filter", "kept"),
    [
        ({"types": ["lane_changed"]}, {"lane_changed"}),
        ({"lanes": ["other"]}, {"handle_changed"}),
        ({"handles": ["h1"], "types": ["run_state_changed"]}, {"run_state_changed"}),
    ],
)
async def test_filters_by_type_and_lane(filter, kept):
    async with house() as home, home.socket() as talk:
        await talk.call("subscribe", filter=filter)
        await talk.call("set_params", handle="x", params=1)
        await busy(talk)
        assert {event["type"] for event in talk.events()} == kept


async def test_a_second_subscription_takes_the_place_of_the_first():
    async with house() as home, home.socket() as talk:
        await talk.call("subscribe", filter={"types": ["run_log"]})
        await many_events(home, 3)
        start = (await talk.call("subscribe", after=1))["seq"]
        received = len(talk.received)
        await talk.call("set_max_concurrent", n=1)
        assert check_batches(talk.received[received:], start) == 4


# Resuming.


async def test_a_client_that_resumes_receives_the_missed_events():
    async with house() as home:
        async with home.socket() as talk:
            await talk.call("subscribe")
            await many_events(home, 5)
            await talk.call("set_max_concurrent", n=1)
            epoch = talk.received[0]["epoch"]
        await many_events(home, 500)
        async with home.socket() as talk:
            assert (await talk.call("subscribe", after=6, epoch=epoch))["seq"] == 6
            assert talk.events() == []
            await talk.call("set_max_concurrent", n=2)
            assert [event["seq"] for event in talk.events()] == list(range(7, 508))


@pytest.mark.parametrize("after", [{"after": 3, "epoch": "another"}, {"after": 99}])
async def test_a_number_that_is_not_in_the_stream_gives_a_snapshot(after):
    async with house() as home, home.socket() as talk:
        await many_events(home, 5)
        said = await talk.call("subscribe", **after)
        assert [message["type"] for message in talk.received] == ["welcome", "resync", "ok"]
        assert talk.received[1]["snapshot"] == msgspec.to_builtins(await home.engine.snapshot())
        assert said["seq"] == 5
        await talk.call("set_max_concurrent", n=2)
        assert check_batches(talk.received[1:], 0) == 6


async def test_resuming_before_the_start_of_the_ring_sends_a_snapshot():
    async with house() as home, home.socket() as talk:
        await many_events(home, RING_SIZE + 10)
        await talk.call("subscribe", after=9)
        assert [message["type"] for message in talk.received] == ["welcome", "resync", "ok"]
        await talk.call("subscribe", after=10)
        await talk.call("set_max_concurrent", n=2)
        assert len(talk.events()) == RING_SIZE + 1


async def test_simultaneous_clients_each_receive_a_snapshot_and_the_events_after_it():
    async with house() as home, trio.open_nursery() as nursery:
        await crowd(home, 500, 500)

        async def client(number: int) -> None:
            subprotocol = ["greenroom.v1.json", "greenroom.v1.msgpack"][number % 2]
            async with home.socket(subprotocol) as talk:
                await talk.call("subscribe", after=0, epoch="another")
                await talk.call("set_params", handle="h", params=number)
                parts = [message for message in talk.received if message["type"] == "resync"]
                whole = joined(msgspec.convert(part["snapshot"], Snapshot) for part in parts)
                assert check_batches(talk.received[1:], 0) >= whole.seq + 1
                projection = Projection.from_snapshot(whole)
                for event in talk.events():
                    projection.apply(msgspec.convert(event, Event))
                assert projection.snapshot().runs == (await home.engine.snapshot()).runs

        for number in range(20):
            nursery.start_soon(client, number)


async def test_the_fold_of_a_clients_events_is_the_engines_snapshot():
    async with house() as home, home.socket() as talk:
        await talk.call("subscribe", after=0, epoch="another")
        await busy(talk)
        projection = Projection.from_snapshot(msgspec.convert(talk.received[1]["snapshot"], Snapshot))
        for event in talk.events():
            projection.apply(msgspec.convert(event, Event))
        assert projection.snapshot() == await home.engine.snapshot()


# Batches.


async def test_under_load_events_share_a_batch_and_without_load_each_is_sent_immediately():
    async with house() as home, home.socket() as talk:
        await talk.call("subscribe")
        await many_events(home, 100)
        await talk.call("set_max_concurrent", n=1)
        batches = [message for message in talk.received if message["type"] == "events"]
        assert len(batches) < 20
        for number in range(3):
            await home.engine.set_max_concurrent(number)
            message = await talk.receive()
            assert (message["from"], message["to"]) == (101 + number, 102 + number)


async def test_batches_contain_at_most_max_batch_events():
    async with house(limits=Limits(max_batch=1)) as home, home.socket() as talk:
        start = (await talk.call("subscribe"))["seq"]
        await many_events(home, 100)
        await talk.call("set_max_concurrent", n=1)
        batches = [message for message in talk.received if message["type"] == "events"]
        assert [len(batch["events"]) for batch in batches] == [1] * 101
        assert check_batches(talk.received[1:], start) == 101


async def test_large_events_are_split_over_batches():
    async with house() as home, home.socket() as talk:
        start = (await talk.call("subscribe"))["seq"]
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(home.engine.set_params, f"h{number}", "x" * 100_000)
        await talk.call("set_max_concurrent", n=1)
        batches = [message for message in talk.received if message["type"] == "events"]
        assert len(batches) >= 4
        assert all(len(JSON.encode(batch)) < 270_000 for batch in batches)
        assert check_batches(talk.received[1:], start) == 9


async def test_a_filter_without_events_receives_an_empty_batch_now_and_then():
    async with house() as home, home.socket() as talk:
        await talk.call("subscribe", filter={"handles": ["nobody"]})
        await many_events(home, 3000)
        message = await talk.receive()
        assert (message["type"], message["events"], message["from"]) == ("events", [], 0)
        assert message["to"] >= 1024


# Large snapshots.


async def crowd(home: House, runs: int, size: int) -> None:
    await home.engine.set_max_concurrent(0)
    async with trio.open_nursery() as nursery:
        for number in range(runs):
            nursery.start_soon(submit, home, f"h{number % 50}", "x" * size)


async def submit(home: House, handle: str, params: Any) -> None:
    await home.engine.submit("wait", handle=handle, params={"x": params}, on_conflict="queue")


@pytest.mark.parametrize("subprotocol", ["greenroom.v1.json", "greenroom.v1.msgpack"])
async def test_a_large_snapshot_is_sent_in_parts(subprotocol):
    async with house() as home, home.socket(subprotocol) as talk:
        await crowd(home, 3000, 300)
        id = await talk.post("snapshot")
        await talk.call("get_run", run_id=next(iter((await home.engine.snapshot()).runs)))
        parts = [message for message in talk.received if message.get("id") == id]
        assert len(parts) > 4
        assert [part.get("more", False) for part in parts] == [True] * (len(parts) - 1) + [False]
        whole = joined(msgspec.convert(part["snapshot"], Snapshot) for part in parts)
        assert whole.runs.keys() == (await home.engine.snapshot()).runs.keys()


async def test_a_large_resync_is_sent_in_parts_and_events_follow_the_last():
    async with house() as home, home.socket() as talk:
        await crowd(home, 2000, 300)
        await talk.call("subscribe", after=0, epoch="another")
        parts = [message for message in talk.received if message["type"] == "resync"]
        assert len(parts) > 2
        assert not parts[-1].get("more", False)
        assert all(len(JSON.encode(part)) < 300_000 for part in parts)
        whole = joined(msgspec.convert(part, Resync).snapshot for part in parts)
        assert whole.runs.keys() == (await home.engine.snapshot()).runs.keys()
        await talk.call("set_max_concurrent", n=0)
        assert talk.received[-2]["from"] == whole.seq


async def test_long_lists_are_sent_in_parts():
    bodies = Bodies()
    async with house(bodies) as home, home.socket() as talk:
        await crowd(home, 1000, 1000)
        id = await talk.post("list_runs", limit=1000)
        await talk.call("get_run", run_id=next(iter((await home.engine.snapshot()).runs)))
        parts = [message for message in talk.received if message.get("id") == id]
        assert len(parts) > 3
        runs = [run["id"] for part in parts for run in part["runs"]]
        assert runs == [run.id for run in await home.engine.list_runs(limit=1000)]


# Filters and snapshots.


@pytest.mark.parametrize(
    "filter",
    [
        Filter(handles=frozenset({"h1", "h4"})),
        Filter(lanes=frozenset({"slow"})),
        Filter(handles=frozenset({"h1"}), lanes=frozenset({"main"})),
    ],
)
async def test_a_fold_under_a_filter_gives_the_next_snapshot_under_it(filter):
    async with house() as home, home.socket() as talk:
        wanted = msgspec.to_builtins(filter)
        await talk.call("subscribe", after=0, epoch="another", filter=wanted)
        for number in range(6):
            lane = "slow" if number % 2 else "main"
            await talk.call("submit", job="wait", handle=f"h{number}", params={}, lane=lane)
        await talk.call("submit", job="wait", handle="h1", params={}, lane="slow", on_conflict="queue")
        await talk.call("set_params", handle="draft", params={"x": 1})
        await talk.call("set_concurrency", lane="slow", n=2)
        await talk.call("clear_lane", lane="slow")
        projection = Projection.from_snapshot(msgspec.convert(talk.received[1]["snapshot"], Snapshot))
        for event in talk.events():
            projection.seq = event["seq"] - 1
            projection.apply(msgspec.convert(event, Event))
        projection.seq = home.engine.stream.last_seq
        assert projection.snapshot() == filtered(await home.engine.snapshot(), filter)


async def test_a_handle_that_a_forgotten_run_has_taken_is_shown_under_a_filter_by_handles(
    autojump_clock, monkeypatch
):
    """The body of an abandoned run continues, and the run was evicted from snapshots."""
    monkeypatch.setattr("greenroom.protocol.fold.KEPT_ENDED_RUNS", 4)
    jobs, stuck = Jobs(), trio.Event()

    @jobs.job("stuck", grace=1)
    async def ignore_cancel(run: Run) -> None:
        with trio.CancelScope(shield=True):
            await stuck.wait()

    @jobs.job("nothing")
    async def nothing(run: Run) -> None: ...

    async with open_engine(jobs, "memory:") as engine:
        ticket = await engine.submit("stuck", handle="ann")
        await trio.sleep(1)
        await ticket.cancel()
        await ticket.wait()
        for number in range(5):
            await (await engine.submit("nothing", handle=f"h{number}")).result()
        snapshot = await engine.snapshot()
        stuck.set()
    assert ticket.id not in snapshot.runs
    for filter in (Filter(handles=frozenset({"ann"})), Filter(runs=frozenset({ticket.id}))):
        seen = filtered(snapshot, filter)
        assert seen.handles == {"ann": snapshot.handles["ann"]}
        assert seen.handles["ann"].active_run == ticket.id
    assert "ann" not in filtered(snapshot, Filter(runs=frozenset({"another"}))).handles
