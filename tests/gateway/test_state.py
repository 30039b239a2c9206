"""The whole state is encoded once until the next event, in slices between which other tasks run."""

from __future__ import annotations

import json
import math

import pytest
import trio

from greenroom.gateway.http import state
from greenroom.gateway.http.state import PIECE, Body, States, slices
from greenroom.gateway.stream import snapshots
from greenroom.gateway.stream.feeds import Frames
from greenroom.gateway.stream.snapshots import Snapshots, filtered
from greenroom.protocol.codec import CODECS, JSON
from greenroom.protocol.events import Filter
from greenroom.protocol.records import Snapshot

from .support import House, house


@pytest.fixture
async def home():
    async with house() as home:
        await home.engine.set_max_concurrent(0)
        yield home


async def fill(home: House, count: int, size: int = 0) -> None:
    for number in range(count):
        params = {"n": number, "filled": "x" * size}
        lane = "slow" if number % 3 == 0 else "main"
        await home.engine.submit(
            "wait", handle=f"h{size}-{number}", params=params, lane=lane, warn_after=math.inf
        )


class Encoded:
    """Counts how often the state is encoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(state, "slices", self.slices)

    def slices(self, snapshot: Snapshot):
        self.count += 1
        return slices(snapshot)


async def test_the_state_is_encoded_once_until_the_next_event(home, monkeypatch):
    await fill(home, 20)
    encoded = Encoded(monkeypatch)
    answers = []

    async def ask() -> None:
        answers.append(await home.http("GET", "/api/state"))

    for _ in range(3):
        await ask()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(ask)
    assert encoded.count == 1
    expected = JSON.encode(await home.engine.snapshot())
    assert {answer.body for answer in answers} == {expected}

    await home.engine.set_params("draft", {"now": "other"})
    answer = await home.http("GET", "/api/state")
    assert encoded.count == 2
    assert answer.json["handles"]["draft"]["params"] == {"now": "other"}
    assert answer.headers["content-length"] == str(len(answer.body))
    head = await home.http("HEAD", "/api/state")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == answer.headers["content-length"]


async def test_requests_during_an_encoding_share_the_next_one(home, monkeypatch):
    await fill(home, 20)
    encoded = Encoded(monkeypatch)
    seqs = []

    async def ask() -> None:
        await home.engine.set_params(
            "draft", {"asked": len(seqs)}
        )  # so that no two requests can share a state
        seq = home.engine.stream.last_seq
        answer = (await home.http("GET", "/api/state")).json["seq"]
        assert answer >= seq
        seqs.append(answer)

    async with trio.open_nursery() as nursery:
        for _ in range(30):
            nursery.start_soon(ask)
    assert len(seqs) == 30
    assert encoded.count < 30


@pytest.mark.parametrize("count", [0, 1, 2, 500])
async def test_the_pieces_are_the_state_as_the_codec_has_it(home, count):
    await fill(home, count)
    snapshot = await home.engine.snapshot()
    assert b"".join(slices(snapshot)) == JSON.encode(snapshot)


async def test_a_large_state_is_encoded_in_slices(home):
    await fill(home, 2000)
    await fill(home, 30, 100_000)
    pieces = list(slices(await home.engine.snapshot()))
    assert max(map(len, pieces)) < PIECE + 16 * 101_000  # the last entries may be that long
    shared = Snapshots(home.engine)
    states, turns, going_on = States(shared), 0, True

    async def others() -> None:
        nonlocal turns
        while going_on:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(states.run)
        nursery.start_soon(others)
        body = await states.body()
        going_on = False
        nursery.cancel_scope.cancel()
    assert body.pieces == pieces
    assert turns >= len(pieces) > 20


async def test_the_memory_for_slow_clients_is_limited(home, monkeypatch):
    await fill(home, 5)
    monkeypatch.setattr(state, "MOST_BYTES", 3000)
    shared = Snapshots(home.engine)
    states = States(shared)
    held: list[Body] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(states.run)

        async def hold_one_more() -> None:
            await home.engine.set_params("draft", len(held))
            states.forget()
            held.append(await states.body())

        async def hold_many() -> None:
            for _ in range(10):
                await hold_one_more()

        with pytest.raises(state.RateLimited, match="slow clients"):
            await hold_many()
        assert 1 <= len(held) < 5
        held.clear()
        states.forget()
        await states.body()
        nursery.cancel_scope.cancel()


async def test_snapshots_under_equal_filters_are_made_once(home, monkeypatch):
    await fill(home, 50)
    made = []
    filtering = snapshots.filtering
    monkeypatch.setattr(snapshots, "filtering", lambda *args: made.append(args) or filtering(*args))
    shared = Snapshots(home.engine)
    forms = [Frames(codec) for codec in CODECS.values()]
    said: dict[str, list[list[bytes]]] = {}
    looking, all_look = 0, trio.Event()

    async def subscriber(form: Frames, lanes: frozenset[str]) -> None:
        nonlocal looking
        async with shared.recent() as taken, taken.view(Filter(lanes=lanes)) as view:
            looking += 1
            if looking == 40:
                all_look.set()
            await all_look.wait()  # a view is kept while it is used
            messages = []
            for message in view.messages(form):
                messages.append(message)
                await trio.lowlevel.checkpoint()
            said.setdefault(form.codec.name, []).append(messages)
            assert view.snapshot == filtered(taken.snapshot, Filter(lanes=lanes))

    made.clear()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            for form in forms:
                nursery.start_soon(subscriber, form, frozenset({"slow"}))
    whole = [args for args in made if args[1] == Filter(lanes=frozenset({"slow"}))]
    assert len(whole) - 40 == 1  # and one for each comparison
    for messages in said.values():
        assert len(messages) == 20
        assert all(one is other for one, other in zip(messages[0], messages[1], strict=True))


async def test_snapshot_commands_share_what_is_encoded(home, monkeypatch):
    await fill(home, 50)
    made = []
    encoded_parts = snapshots.encoded_parts
    monkeypatch.setattr(snapshots, "encoded_parts", lambda *a: made.append(a) or encoded_parts(*a))
    async with home.socket() as talk, home.socket() as other:
        first = (await talk.call("snapshot"))["snapshot"]
        assert (await other.call("snapshot"))["snapshot"] == first
        assert (await talk.call("snapshot"))["snapshot"] == first
        assert first == json.loads(JSON.encode(await home.engine.snapshot()))
        assert len(made) == 1
        await talk.call("set_params", handle="draft", params={"new": 1})
        assert (await other.call("snapshot"))["snapshot"]["handles"]["draft"]["params"] == {"new": 1}
        assert len(made) == 2


async def test_filtering_a_large_snapshot_lets_other_tasks_run(home):
    await fill(home, 2500)
    snapshot = await home.engine.snapshot()
    steps = list(snapshots.filtering(snapshot, Filter(lanes=frozenset({"main"}))))
    assert len(steps) > 6
    assert [step for step in steps if step is not None] == steps[-1:]
