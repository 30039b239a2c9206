"""How long a receiver that accepts waits for its events, whatever others do, also after a restart."""

from __future__ import annotations

import json
from functools import partial

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from greenroom import Engine
from greenroom.actors.webhooks.shares import MOST, PATIENCE, Share, Shares
from greenroom.actors.workers.push import PushFailed
from greenroom.persistence.memory import MemoryStore
from tests.support import open_engine
from tests.webhooks.receiving import SECRET, some_jobs

ALL = ["queued", "running", "succeeded"]


class Crowd:
    """A `Push` whose receivers behave as the first part of their names says."""

    def __init__(self) -> None:
        self.got: dict[str, list[str]] = {}
        self.changed = trio.Event()
        self.at_once = 0
        self.most_at_once = 0

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        kind = url.removeprefix("https://").partition("-")[0]
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await trio.sleep({"hangs": 1e6, "slow": 7.0, "late": 0.9}.get(kind, 0.0))
        finally:
            self.at_once -= 1
        if kind == "breaks":
            raise PushFailed("reset", "connection lost")
        if kind == "fails":
            return 503, b""
        self.got.setdefault(url, []).append(json.loads(body)["to"])
        self.changed.set()
        return 204, b""


async def submit(engine: Engine, *names: str) -> None:
    for name in names:
        await engine.submit("quick", handle=name, params={}, notify=f"https://{name}.example.org/")


async def wait_for(crowd: Crowd, name: str, seconds: float) -> None:
    with trio.fail_after(seconds):
        while crowd.got.get(f"https://{name}.example.org/", [])[-3:] != ALL:
            crowd.changed = trio.Event()
            await crowd.changed.wait()
    del crowd.got[f"https://{name}.example.org/"]


async def deliver_among(others: list[str], restarts: bool) -> None:
    store, crowd = MemoryStore(), Crowd()
    names = [f"{kind}-{number}" for number, kind in enumerate(others)]
    opened = partial(
        open_engine, some_jobs(), webhook_secret=SECRET, push=crowd, max_concurrent=500, shutdown_timeout=0
    )
    async with opened(store=store) as engine:
        await submit(engine, *names, "accepts-1")
        await wait_for(crowd, "accepts-1", 2 + len(others) / MOST[Share.NEW] * PATIENCE)
        await submit(engine, *names, "accepts-1")
        await wait_for(crowd, "accepts-1", 3)  # nothing that fails is before it, and it is known
        await trio.sleep(len(others))
        await submit(engine, "accepts-2")
        await wait_for(crowd, "accepts-2", 2)
        if not restarts:
            return
    async with opened(store=store) as engine:
        await submit(engine, "accepts-1", "accepts-2", "accepts-3")
        for name in ("accepts-1", "accepts-2", "accepts-3"):
            await wait_for(crowd, name, 3)
    assert crowd.most_at_once <= sum(MOST.values())


kinds = st.sampled_from(["hangs", "fails", "breaks", "slow"])


@settings(max_examples=10, deadline=None)
@given(others=st.lists(kinds, min_size=30, max_size=80), restarts=st.booleans())
def test_a_receiver_that_accepts_gets_its_events_whatever_others_do(
    others: list[str], restarts: bool
) -> None:
    trio.run(deliver_among, others, restarts, clock=MockClock(autojump_threshold=0))


def test_receivers_that_hung_do_not_hold_up_others_after_a_restart() -> None:
    trio.run(deliver_among, ["hangs"] * 120, True, clock=MockClock(autojump_threshold=0))


def taken(shares: Shares, share: Share, count: int, now: float = 0.0) -> list[str]:
    """Send deliveries to as many receivers."""
    webhooks = [f"{share.value} {number}" for number in range(count)]
    for webhook in webhooks:
        assert shares.take(webhook, f"receiver of {webhook}", share)
        shares.sent(webhook, now)
    return webhooks


def test_each_kind_of_receivers_has_a_share_of_its_own() -> None:
    shares = Shares()
    for number in range(MOST[Share.PROMPT]):
        shares.rate(f"receiver of prompt {number}", prompt=True)
    for share in Share:
        taken(shares, share, MOST[share])
        assert shares.is_full(share)
        assert not shares.take("another", "another", share)
    assert shares.wanted(Share.OTHERS, 0.0) is None


def test_a_new_receiver_has_a_time_of_its_own_and_then_continues_among_the_others() -> None:
    shares = Shares()
    webhooks = taken(shares, Share.NEW, MOST[Share.NEW])
    assert shares.until_slow(0.25) == PATIENCE - 0.25
    assert shares.give_way(9, PATIENCE - 0.01) == []
    shares.wanted(Share.NEW, PATIENCE)
    assert shares.is_full(Share.OTHERS)
    assert not shares.is_full(Share.NEW)
    more = [f"more {number}" for number in range(MOST[Share.OTHERS])]
    for webhook in more:
        assert shares.take(webhook, webhook, Share.NEW)
        shares.sent(webhook, PATIENCE)
    shares.wanted(Share.NEW, PATIENCE)
    slow = sorted(webhooks)[MOST[Share.OTHERS] :]
    assert shares.give_way(2, PATIENCE) == slow[:2]
    assert shares.give_way(2, PATIENCE) == [], "two end already"
    assert shares.until_slow(9 * PATIENCE) == PATIENCE, "or the engine would look for others without a pause"
    assert shares.give_way(99, PATIENCE) == slow[2:]


def test_what_failed_has_no_share_with_what_is_new() -> None:
    shares = Shares()
    shares.rate("accepts", prompt=True)
    shares.rate("fails", prompt=False)
    prompt, new, others = (shares.wanted(share, 0.0) for share in Share)
    assert prompt is not None
    assert new is not None
    assert others is not None
    assert (prompt.among, prompt.failed) == (["accepts"], None)
    assert (sorted(new.busy), new.among, new.failed) == (["accepts", "fails"], None, False)
    assert (others.busy, others.among, others.failed) == (["accepts"], ["fails"], True)


def test_a_delivery_whose_response_has_arrived_does_not_give_way() -> None:
    shares = Shares()
    [webhook, *_] = taken(shares, Share.NEW, MOST[Share.NEW])
    shares.answered(webhook)
    taken(shares, Share.OTHERS, MOST[Share.OTHERS])
    ended = shares.give_way(MOST[Share.NEW], 99.0)
    assert len(ended) == MOST[Share.NEW] - 1
    assert webhook not in ended


@pytest.mark.parametrize("prompt", [True, False])
def test_what_is_known_of_receivers_is_bounded(prompt: bool) -> None:
    shares = Shares()
    for number in range(5000):
        shares.rate(str(number), prompt=prompt)
    wanted = shares.wanted(Share.NEW, 0.0)
    assert wanted is not None
    assert len(wanted.busy) == 1000
