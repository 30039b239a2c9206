"""Webhooks that fail and are not dead yet: they are listed, redelivered and dropped, and logged."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest
import trio

from greenroom import Conflict, NotFound
from greenroom.actors.webhooks import reports
from greenroom.actors.webhooks.uptime import Uptime
from greenroom.persistence.failures import StoreDown
from greenroom.persistence.webhooks import WebhookCounts
from greenroom.protocol.webhooks import Failure, Webhook, after_failure, webhook_id
from tests.webhooks.receiving import DAY, URL, Receiver, delivering

pytestmark = pytest.mark.usefixtures("store_kind")

HOUR = 3600.0


class SetClock:
    """A time of day that can be set; it begins at the real one, as the store's records do."""

    def __init__(self) -> None:
        self.offset = time.time() - trio.current_time()

    def __call__(self) -> float:
        return trio.current_time() + self.offset


def refused(url: str, event: dict[str, Any]) -> int:
    return 503


async def failing_run(engine: Any, handle: str = "a", url: str = URL) -> str:
    """The id of a run that has ended, of which no event could be delivered."""
    ticket = await engine.submit("quick", handle=handle, params={}, notify=url)
    await ticket.result()
    await trio.sleep(1)
    return ticket.id


async def test_a_failing_webhook_is_listed_with_its_error_and_its_next_attempt(autojump_clock):
    receiver = Receiver(refused)
    clock = SetClock()
    async with delivering(receiver, clock=clock) as engine:
        run = await failing_run(engine)
        await engine.submit("wait", handle="b", params={}, notify="https://accepts.example.org/")
        [failing] = await engine.webhooks.failing()
        assert (failing.run, failing.url, failing.attempts) == (run, URL, 1)
        assert failing.error == "the receiver responded with status 503"
        assert failing.failing_since is not None
        assert clock() - 2 < failing.failing_since < clock()
        assert failing.next_at is not None
        assert clock() < failing.next_at < clock() + 5
        assert failing.dead_at is None
        assert await engine.webhooks.failing(after=failing.id) == []
        receiver.respond = lambda url, event: 204
        await trio.sleep(10)
        assert await engine.webhooks.failing() == []


async def test_failing_webhooks_are_listed_in_pages(autojump_clock):
    async with delivering(Receiver(refused)) as engine:
        for handle in "abc":
            await failing_run(engine, handle, f"https://{handle}.example.org/")
        every = [webhook.id for webhook in await engine.webhooks.failing()]
        assert every == sorted(every)
        assert len(every) == 3
        assert [webhook.id for webhook in await engine.webhooks.failing(limit=1, after=every[0])] == [
            every[1]
        ]


async def test_a_dead_webhook_is_not_failing(autojump_clock):
    async with delivering(Receiver(refused)) as engine:
        await failing_run(engine)
        assert await engine.webhooks.counts() == WebhookCounts(failing=1, dead=0)
        await trio.sleep(DAY + 7200)
        assert await engine.webhooks.failing() == []
        assert len(await engine.webhooks.dead()) == 1
        assert await engine.webhooks.counts() == WebhookCounts(failing=0, dead=1)


async def test_a_failing_webhook_is_dropped(autojump_clock):
    receiver = Receiver(refused)
    async with delivering(receiver) as engine:
        events = engine.events()
        run = await failing_run(engine)
        [failing] = await engine.webhooks.failing()
        assert (await engine.webhooks.drop(failing.id, by="alice")).id == failing.id
        assert await engine.webhooks.failing() == []
        count = len(receiver.attempts)
        await trio.sleep(2 * DAY)
        assert len(receiver.attempts) == count
        while (told := await anext(events)).type != "webhook_changed":
            pass
        assert (told.webhook, told.of_run, told.to, told.by) == (failing.id, run, "dropped", "alice")
        for call in (engine.webhooks.drop, engine.webhooks.redeliver):
            with pytest.raises(NotFound, match="it was dropped or deleted with its run"):
                await call(failing.id)


async def test_a_webhook_that_has_not_failed_is_neither_dropped_nor_redelivered(autojump_clock):
    async with delivering(Receiver()) as engine:
        run = await engine.submit("wait", handle="a", params={}, notify=URL)
        await trio.sleep(1)
        id = webhook_id(run.id, URL)
        for call in (engine.webhooks.drop, engine.webhooks.redeliver):
            with pytest.raises(Conflict, match=f"no delivery of webhook {id} has failed"):
                await call(id)
        assert await engine._store.webhook(id) is not None


async def test_a_failing_webhook_is_attempted_at_once_and_its_day_continues(autojump_clock):
    receiver = Receiver(refused)
    async with delivering(receiver) as engine:
        await failing_run(engine)
        await trio.sleep(12 * HOUR)
        [before] = await engine.webhooks.failing()
        count = len(receiver.attempts)
        await engine.webhooks.redeliver(before.id)
        await trio.sleep(1)
        [after] = await engine.webhooks.failing()
        assert len(receiver.attempts) == count + 1
        assert (after.attempts, after.failing_since) == (before.attempts + 1, before.failing_since)
        await trio.sleep(14 * HOUR)
        assert len(await engine.webhooks.dead()) == 1
        with pytest.raises(NotFound):
            await engine.webhooks.drop("0" * 32)


@pytest.mark.parametrize("deed", ["drop", "redeliver"])
async def test_a_delivery_in_flight_does_not_undo_what_a_caller_decides(autojump_clock, deed):
    receiver = Receiver(refused)
    async with delivering(receiver) as engine:
        run = await failing_run(engine)
        [failing] = await engine.webhooks.failing()
        receiver.seconds = 8.0
        await trio.sleep(5)
        assert receiver.at_once == 1, "the second attempt is in flight"
        count = len(receiver.attempts)
        began = trio.current_time()
        await getattr(engine.webhooks, deed)(failing.id)
        assert trio.current_time() - began < 1, "it does not wait for the receiver"
        receiver.respond, receiver.seconds = (lambda url, event: 204), 0.0
        await trio.sleep(1)
        assert await engine.webhooks.failing() == []
        if deed == "drop":
            assert len(receiver.attempts) == count
            assert await engine._store.webhook(failing.id) is None
        else:
            assert receiver.states(run) == ["queued", "running", "succeeded"]


async def test_of_two_callers_at_the_same_time_one_is_refused(autojump_clock):
    async with delivering(Receiver(refused)) as engine:
        await failing_run(engine)
        [failing] = await engine.webhooks.failing()
        errors = []

        async def drop() -> None:
            try:
                await engine.webhooks.drop(failing.id)
            except (Conflict, NotFound) as error:
                errors.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drop)
            nursery.start_soon(drop)
        assert len(errors) == 1


# The clock, and stops of the engine.


async def test_a_stop_of_more_than_a_day_does_not_make_a_webhook_dead(autojump_clock, store):
    receiver, clock = Receiver(refused), SetClock()
    async with delivering(receiver, store=store(), clock=clock) as engine:
        run = await failing_run(engine)
    await trio.sleep(25 * HOUR)
    async with delivering(receiver, store=store(), clock=clock) as engine:
        count = len(receiver.attempts)
        await trio.sleep(HOUR - 60)
        assert len(receiver.attempts) > count + 5
        assert await engine.webhooks.dead() == []
        receiver.respond = lambda url, event: 204
        await trio.sleep(HOUR)
        assert receiver.states(run) == ["queued", "running", "succeeded"]


async def test_a_webhook_is_dead_an_hour_after_a_long_stop_if_it_still_fails(autojump_clock, store):
    receiver, clock = Receiver(refused), SetClock()
    async with delivering(receiver, store=store(), clock=clock) as engine:
        await failing_run(engine)
    await trio.sleep(25 * HOUR)
    async with delivering(receiver, store=store(), clock=clock) as engine:
        await trio.sleep(2.5 * HOUR)
        assert len(await engine.webhooks.dead()) == 1


async def test_a_clock_that_is_set_forward_does_not_make_a_webhook_dead(autojump_clock):
    receiver, clock = Receiver(refused), SetClock()
    async with delivering(receiver, clock=clock) as engine:
        await failing_run(engine)
        await trio.sleep(3 * HOUR)
        clock.offset += 25 * HOUR
        await trio.sleep(HOUR - 60)
        assert await engine.webhooks.dead() == []
        await trio.sleep(2 * HOUR)
        assert len(await engine.webhooks.dead()) == 1


@pytest.mark.parametrize("back", [HOUR, 365 * DAY])
async def test_a_clock_that_is_set_back_does_not_delay_an_attempt(autojump_clock, back):
    receiver, clock = Receiver(refused), SetClock()
    async with delivering(receiver, clock=clock) as engine:
        run = await failing_run(engine)
        await trio.sleep(6 * HOUR)
        receiver.respond = lambda url, event: 204 if event["run"] == run else 503
        clock.offset -= back
        for handle in "bcd":  # their attempts are due earlier than that of the first
            await failing_run(engine, handle, f"https://{handle}.example.org/")
        await trio.sleep(HOUR + 60)
        assert receiver.states(run) == ["queued", "running", "succeeded"]


async def test_a_clock_that_is_set_back_delays_no_attempt_behind_later_ones(autojump_clock):
    receiver, clock = Receiver(refused), SetClock()
    async with delivering(receiver, clock=clock) as engine:
        runs = [await failing_run(engine, handle) for handle in "ab"]
        await trio.sleep(6 * HOUR)
        receiver.respond = lambda url, event: 204 if event["run"] in runs else 503
        receiver.slow, receiver.seconds = URL, 8.0  # so the second webhook waits for the first
        clock.offset -= 365 * DAY
        for handle in "cdefghij":
            await failing_run(engine, handle, f"https://{handle}.example.org/")
        await trio.sleep(120)
        for run in runs:
            assert receiver.states(run) == ["queued", "running", "succeeded"]


async def test_pauses_do_not_grow_beyond_an_hour(autojump_clock):
    receiver = Receiver(refused)
    async with delivering(receiver) as engine:
        await failing_run(engine)
        await trio.sleep(20 * HOUR)
        assert max(later - earlier for earlier, later in pairwise(receiver.attempts)) <= HOUR + 30


def test_a_webhook_is_dead_after_a_day_of_which_the_last_hour_was_not_interrupted():
    webhook = Webhook(id="0" * 32, run="r", url=URL, types=("run_log",), attempts=9, failing_since=0.0)
    for now, uninterrupted, dead in (
        (DAY - 1, DAY, False),
        (DAY, HOUR - 1, False),
        (DAY, HOUR, True),
    ):
        outcome = after_failure(webhook, now, 1.0, uninterrupted)
        assert outcome == Failure(10, 0.0, None if dead else now + 2560.0)


def test_the_uptime_begins_again_when_the_clock_is_set():
    uptime = Uptime(1000.0, 0.0)
    assert uptime.seconds(1500.0, 500.0) == 500
    assert uptime.seconds(1559.0, 500.0) == 500, "a correction of the clock"
    assert uptime.seconds(90_000.0, 600.0) == 0
    assert uptime.seconds(90_100.0, 700.0) == 100
    assert uptime.seconds(0.0, 800.0) == 0
    assert uptime.seconds(7.0, 807.0) == 7


# The log, and the counts.


def said(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if what in record.getMessage()]


async def test_a_receiver_that_begins_to_fail_is_logged_once_until_it_accepts_again(autojump_clock, caplog):
    receiver = Receiver(refused)
    async with delivering(receiver) as engine:
        run = await failing_run(engine)
        await failing_run(engine, "b")
        await trio.sleep(HOUR)
        [message] = said(caplog, "receiver https://hooks.example.org of webhooks fails")
        [first] = [webhook for webhook in await engine.webhooks.failing() if webhook.run == run]
        assert "the receiver responded with status 503" in message
        assert f"(webhook {first.id} of run {run}); deliveries are repeated for a day" in message
        assert "tenant" not in message, "the path and the query can contain a secret"
        receiver.respond = lambda url, event: 204
        await trio.sleep(HOUR)
        receiver.respond = refused
        await failing_run(engine, "c")
        assert len(said(caplog, "of webhooks fails")) == 2


def test_only_some_failing_receivers_are_remembered(monkeypatch):
    monkeypatch.setattr(reports, "_MOST_KNOWN", 3)
    found = reports.Reports()
    webhook = Webhook(id="0" * 32, run="r", url=URL, types=("run_log",))
    for number in range(9):
        found.failed(f"receiver {number}", webhook, "gone")
    assert list(found._failing) == ["receiver 6", "receiver 7", "receiver 8"]


async def test_dead_webhooks_are_logged_at_most_once_a_minute(autojump_clock, caplog):
    found = reports.Reports()
    webhook = Webhook(id="0" * 32, run="r", url=URL, types=("run_log",))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.run)
        for seconds in (1, 1, 1, 58, 200):
            found.died(webhook, 30, "gone")
            await trio.sleep(seconds)
        found.died(webhook, 30, "gone")
        await trio.sleep(1)
        found.died(webhook, 30, "gone")
        nursery.cancel_scope.cancel()
    counts = [message.partition(" more")[0].rpartition(" ")[2] for message in said(caplog, "are dead")]
    assert counts == ["1", "3", "1", "1", "1"]
    assert f"webhook {webhook.id} of run r after 30 failed attempts: gone" in said(caplog, "are dead")[0]


async def test_attempts_are_counted(autojump_clock):
    receiver = Receiver(refused)
    async with delivering(receiver) as engine:
        await failing_run(engine)
        assert engine.webhooks.attempted == (0, 1)
        receiver.respond = lambda url, event: 204
        await trio.sleep(10)
        assert engine.webhooks.attempted == (3, 1)
    async with delivering(Receiver(), webhook_secret=None) as engine:
        assert engine.webhooks.attempted == (0, 0)


async def test_the_last_counts_are_known_while_the_store_cannot_be_read(autojump_clock, monkeypatch):
    async with delivering(Receiver(refused)) as engine:
        await failing_run(engine)
        known = await engine.webhooks.counts()

        async def fail(*_: Any) -> None:
            raise StoreDown("the disk is full")

        monkeypatch.setattr(engine._store, "count_webhooks", fail)
        assert await engine.webhooks.counts() == known
