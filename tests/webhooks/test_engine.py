"""Webhooks of an engine, in mock time."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import pytest
import trio

from greenroom import Conflict, Invalid, NotFound, Run
from greenroom.actors.webhooks.shares import MOST, Share
from greenroom.persistence.webhooks import WebhookSettled
from greenroom.protocol.events import Event, RunEvent
from greenroom.protocol.notify import TYPES
from tests.webhooks.receiving import DAY, URL, Receiver, delivering, some_jobs

pytestmark = pytest.mark.usefixtures("store_kind")

ALL = ["queued", "running", "succeeded"]


async def rows(engine):
    """The webhooks that have something to deliver."""
    return await engine._store.due_webhooks(100, [], [])


async def test_the_changes_of_a_run_are_delivered_in_order_and_its_webhook_is_removed(autojump_clock):
    receiver = Receiver()
    async with delivering(receiver) as engine:
        ticket = await engine.submit("quick", handle="a", params={}, notify=URL)
        await ticket.result()
        await trio.sleep(1)
        assert receiver.states(ticket.id) == ALL
        history = {event.seq: event.type for event in await engine.history(ticket.id)}
        assert [history[event["seq"]] for _, event in receiver.got] == ["run_state_changed"] * 3
        [id] = {webhook.webhook.id for webhook in await rows(engine)} or [None]
        assert id is None
        assert engine._journal.machine.webhooks == {}


async def test_a_run_without_notify_has_no_webhook(autojump_clock):
    receiver = Receiver()
    async with delivering(receiver) as engine:
        await (await engine.submit("quick", handle="a", params={})).result()
        await trio.sleep(1)
        assert receiver.attempts == []


async def test_only_the_types_of_events_that_were_asked_for_are_delivered(autojump_clock):
    receiver = Receiver()
    async with delivering(receiver) as engine:
        notify = {"url": URL, "types": ["run_log"]}
        ticket = await engine.submit("quick", handle="a", params={}, notify=notify)
        await ticket.result()
        await trio.sleep(1)
        assert [event["type"] for _, event in receiver.got] == ["run_log"]
        assert await rows(engine) == []
        assert await engine._store.webhook(ticket.id) is None


async def test_a_run_that_ends_in_the_commit_of_its_creation_is_delivered(autojump_clock):
    receiver = Receiver()
    async with delivering(receiver, max_concurrent=0) as engine:
        ticket = await engine.submit("quick", handle="a", params={}, notify=URL)
        await engine.cancel(ticket.id)
        await trio.sleep(1)
        assert receiver.states(ticket.id) == ["queued", "cancelled"]
        assert engine._journal.machine.webhooks == {}


async def test_runs_of_a_lane_are_delivered_to_the_url_of_the_lane(autojump_clock):
    receiver = Receiver()
    lanes = {"images": {"limit": 2, "notify": {"url": URL, "types": ["run_log"]}}}
    async with delivering(receiver, lanes=lanes) as engine:
        of_lane = await engine.submit("quick", handle="a", params={}, lane="images")
        both = await engine.submit("quick", handle="b", params={}, lane="images", notify=URL)
        other = await engine.submit("quick", handle="c", params={}, lane="images", notify=f"{URL}&b=1")
        neither = await engine.submit("quick", handle="d", params={})
        for ticket in (of_lane, both, other, neither):
            await ticket.result()
        await trio.sleep(1)
        got = [(url, event["run"], event["type"]) for url, event in receiver.got]
        assert [each for each in got if each[1] == of_lane.id] == [(URL, of_lane.id, "run_log")]
        assert len([each for each in got if each[1] == both.id]) == 4  # one webhook with the types of both
        assert sorted({url for url, run, _ in got if run == other.id}) == [URL, f"{URL}&b=1"]
        assert not [each for each in got if each[1] == neither.id]


async def test_a_failed_delivery_is_repeated_with_growing_pauses_and_holds_up_later_events(autojump_clock):
    failures = iter([500, 500, 302, 500])
    receiver = Receiver(lambda url, event: next(failures, 200))
    async with delivering(receiver) as engine:
        ticket = await engine.submit("quick", handle="a", params={}, notify=URL)
        await ticket.result()
        await trio.sleep(300)
        assert receiver.states(ticket.id) == ALL
        first = receiver.attempts[:5]
        pauses = [later - earlier for earlier, later in pairwise(first)]
        for pause, longest in zip(pauses, (5, 10, 20, 40), strict=True):
            assert longest / 2 <= pause <= longest + 0.1


async def test_a_webhook_that_fails_for_a_day_is_dead_until_it_is_redelivered(autojump_clock):
    receiver = Receiver(lambda url, event: 503)
    async with delivering(receiver) as engine:
        ticket = await engine.submit("quick", handle="a", params={}, notify=URL)
        await ticket.result()
        events = engine.events()
        await trio.sleep(DAY - 10)
        assert await engine.webhooks.dead() == []
        await trio.sleep(2 * 3600)
        [dead] = await engine.webhooks.dead()
        assert (dead.run, dead.url, dead.error) == (ticket.id, URL, "the receiver responded with status 503")
        told = await anext(events)
        assert (told.type, told.webhook, told.of_run, told.to) == (
            "webhook_changed",
            dead.id,
            ticket.id,
            "dead",
        )
        count = len(receiver.attempts)
        await trio.sleep(DAY)
        assert len(receiver.attempts) == count == dead.attempts

        receiver.respond = lambda url, event: 200
        await engine.webhooks.redeliver(dead.id, by="alice")
        told = await anext(events)
        assert (told.to, told.by) == ("redelivered", "alice")
        await trio.sleep(1)
        assert receiver.states(ticket.id) == ALL
        assert await engine.webhooks.dead() == []
        with pytest.raises(NotFound, match="all of its events are delivered, it was dropped or deleted"):
            await engine.webhooks.redeliver(dead.id)


async def test_a_dead_webhook_can_be_dropped(autojump_clock):
    receiver = Receiver(lambda url, event: 503)
    async with delivering(receiver) as engine:
        await (await engine.submit("quick", handle="a", params={}, notify=URL)).result()
        await trio.sleep(DAY + 7200)
        [dead] = await engine.webhooks.dead()
        receiver.respond = lambda url, event: 200
        assert (await engine.webhooks.drop(dead.id)).id == dead.id
        await trio.sleep(DAY)
        assert receiver.got == []
        assert await engine.webhooks.dead() == []


async def test_a_new_engine_delivers_what_an_earlier_one_could_not(autojump_clock, store):
    receiver = Receiver(lambda url, event: 200 if event["to"] == "queued" else 503)
    async with delivering(receiver, store=store()) as engine:
        ended = await engine.submit("quick", handle="a", params={}, notify=URL)
        await ended.result()
        pending = await engine.submit("wait", handle="b", params={}, notify=URL)
        await trio.sleep(2)
        assert receiver.states(ended.id) == ["queued"]
    receiver.respond = lambda url, event: 200
    async with delivering(receiver, store=store()):
        await trio.sleep(60)
    assert receiver.states(ended.id) == ALL
    # The shutdown has cancelled it, and the new engine tells so.
    assert receiver.states(pending.id) == ["queued", "running", "cancelling", "cancelled"]
    async with delivering(receiver, store=store()) as engine:
        assert await rows(engine) == []


async def test_a_slow_receiver_does_not_hold_up_others(autojump_clock):
    receiver = Receiver()
    receiver.slow, receiver.seconds = "slow.example.org", 60.0
    async with delivering(receiver, max_concurrent=50) as engine:
        for number in range(30):
            slow = "https://slow.example.org/hook"
            await engine.submit("quick", handle=f"slow {number}", params={}, notify=slow)
        await trio.sleep(0.5)
        ticket = await engine.submit("quick", handle="a", params={}, notify=URL)
        await trio.sleep(1)
        assert receiver.states(ticket.id) == ALL
        assert receiver.at_once == 1, "it has not accepted anything yet"
        receiver.seconds = 3.0
        await trio.sleep(60)
        assert receiver.at_once == 4
        receiver.seconds = 60.0
        await trio.sleep(15)  # it has timed out
        assert receiver.at_once == 1


@pytest.mark.parametrize(("seconds", "status"), [(60.0, 200), (0.0, 503), (7.0, 200)])
async def test_new_receivers_that_hang_fail_or_are_slow_do_not_hold_up_others(
    autojump_clock, seconds, status
):
    receiver = Receiver(lambda url, event: status if "bad" in url else 200)
    receiver.slow, receiver.seconds = "bad", seconds
    async with delivering(receiver, max_concurrent=50) as engine:
        await (await engine.submit("quick", handle="a", params={}, notify=URL)).result()
        await trio.sleep(1)
        for number in range(120):
            url = f"https://bad{number // 3}.example.org/hook"
            await engine.submit("quick", handle=f"bad {number}", params={}, notify=url)
            if number % 10 == 0:
                await trio.sleep(1)
                ticket = await engine.submit("quick", handle="a", params={}, notify=URL)
                await ticket.result()
                await trio.sleep(0.5)
                assert receiver.states(ticket.id) == ALL
                assert receiver.at_once <= MOST[Share.NEW] + MOST[Share.OTHERS]


@pytest.mark.parametrize("error", [OSError("no route"), KeyError("x"), ExceptionGroup("", [ValueError("x")])])
async def test_an_unexpected_error_of_a_custom_push_is_a_failed_attempt(autojump_clock, caplog, error):
    errors = iter([error])

    def respond(url, event):
        for each in errors:
            raise each
        return 200

    receiver = Receiver(respond)
    async with delivering(receiver) as engine:
        ticket = await engine.submit("quick", handle="a", params={}, notify=URL)
        await ticket.result()
        await trio.sleep(1)
        [due] = await rows(engine)
        assert due.webhook.attempts == 1
        assert due.webhook.error == f"the push raised {type(error).__name__}: {error}"
        await trio.sleep(10)
        assert receiver.states(ticket.id) == ALL
    [record] = [each for each in caplog.records if "not PushFailed" in each.getMessage()]
    assert record.exc_info[1] is error


async def test_events_that_are_not_wanted_do_not_delay_the_others(autojump_clock):
    receiver = Receiver()
    jobs = some_jobs()

    @jobs.job("logs")
    async def logs(run: Run) -> None:
        for number in range(500):
            await run.log(f"line {number}")

    async with delivering(receiver, jobs=jobs) as engine:
        commits, commit = [], engine._store.commit

        async def counted(batch):
            commits.extend(memo for memo in batch.memos if isinstance(memo, WebhookSettled))
            await commit(batch)

        engine._store.commit = counted
        ticket = await engine.submit("logs", handle="a", notify=URL)
        await ticket.result()
        await trio.sleep(1)
        assert receiver.states(ticket.id) == ALL
        assert len(commits) <= 5


async def test_the_deliveries_in_flight_are_limited(autojump_clock):
    receiver = Receiver()
    receiver.seconds = 5.0
    async with delivering(receiver, max_concurrent=50) as engine:
        for number in range(40):
            url = f"https://host{number}.example.org/hook"
            await engine.submit("quick", handle=f"h{number}", params={}, notify=url)
        await trio.sleep(100)
        assert receiver.most_at_once == sum(MOST.values()) - MOST[Share.NEW], "none of them is new any more"
        assert len(receiver.got) == 120


async def test_events_to_deliver_are_not_pruned(autojump_clock):
    receiver = Receiver(lambda url, event: 503)
    async with delivering(receiver, keep_events=0, keep_runs=0) as engine:
        ticket = await engine.submit("quick", handle="a", params={}, notify=URL)
        await ticket.result()
        other = await engine.submit("quick", handle="b", params={})
        await other.result()
        await trio.sleep(3600)
        receiver.respond = lambda url, event: 200
        await trio.sleep(3600)
        assert receiver.states(ticket.id) == ALL
        await (await engine.submit("quick", handle="b", params={})).result()
        await trio.sleep(600)
        assert await engine._store.run(ticket.id) is None


async def test_a_dead_webhook_is_pruned_with_its_run(autojump_clock):
    receiver = Receiver(lambda url, event: 503)
    async with delivering(receiver, keep_runs=0) as engine:
        ticket = await engine.submit("quick", handle="a", params={}, notify=URL)
        await ticket.result()
        await trio.sleep(DAY + 7200)
        await (await engine.submit("quick", handle="b", params={})).result()
        await trio.sleep(3600)
        assert await engine._store.run(ticket.id) is None
        assert await engine.webhooks.dead() == []


@pytest.mark.parametrize(
    ("notify", "text"),
    [
        ("ftp://example.org", "does not begin with http"),
        ("https://user:secret@example.org", "contains a user name"),
        ("https://example.org/#a", "has a fragment"),
        (7, "must be a URL, or"),
        ({"types": ["run_log"]}, "must be a URL, or"),
        ({"url": URL, "type": "run_log"}, 'unexpected field "type"'),
        ({"url": URL, "types": []}, "must be a list of event types"),
        ({"url": URL, "types": "run_log"}, "must be a list of event types"),
        ({"url": URL, "types": ["run_logs"]}, 'did you mean "run_log"'),
        ({"url": URL, "types": ["run_progress"]}, "progress is not stored"),
        ("http://169.254.169.254/latest", "is a link-local address, which is never called"),
        ("http://127.0.0.1/", "is not public, and in none of the webhook_networks"),
        ("http://10.0.0.1/", "is not public, and in none of the webhook_networks"),
        ("http://[::ffff:127.0.0.1]/", "webhook_networks"),
    ],
)
async def test_a_receiver_that_cannot_be_called_is_refused(autojump_clock, notify, text):
    async with delivering(Receiver()) as engine:
        with pytest.raises(Invalid, match=text.replace("[", r"\[")):
            await engine.submit("quick", handle="a", params={}, notify=notify)
        with pytest.raises(Invalid, match=text.replace("[", r"\[")):
            await engine.set_lane("images", notify=notify)
        assert await engine.list_runs() == []


async def test_an_internal_receiver_is_called_in_a_listed_network(autojump_clock):
    receiver = Receiver()
    url = "http://10.0.0.1:8080/"
    async with delivering(receiver, webhook_networks=["10.0.0.0/8"]) as engine:
        ticket = await engine.submit("quick", handle="a", params={}, notify=url)
        await ticket.result()
        await trio.sleep(1)
        assert receiver.states(ticket.id, url) == ALL


async def test_notify_requires_a_secret(autojump_clock):
    async with delivering(Receiver(), webhook_secret=None) as engine:
        with pytest.raises(Invalid, match=r"requires a secret .* set webhook_secret"):
            await engine.submit("quick", handle="a", params={}, notify=URL)
    with pytest.raises(Invalid, match=r"at least 16 characters .got 5 characters"):
        async with delivering(Receiver(), webhook_secret="short"):
            pass


@pytest.mark.parametrize(
    ("options", "notify", "text"),
    [
        (
            {},
            "http://10.0.0.1/",
            'notify of lane "images": url .* is not called: .*not public',
        ),
        ({}, "http://169.254.169.254/", 'notify of lane "images": .* is never called'),
        ({}, {"url": URL, "types": ["x"]}, 'notify of lane "images": "x" is not an event type'),
        ({"webhook_secret": None}, URL, 'notify of lane "images" requires a secret .* set webhook_secret'),
    ],
)
async def test_the_receivers_of_lanes_are_checked_at_the_start(autojump_clock, options, notify, text):
    lanes = {"images": {"limit": 4, "notify": notify}}
    with pytest.raises(Invalid, match=text):
        async with delivering(Receiver(), lanes=lanes, **options):
            pass


async def test_without_a_secret_the_engine_says_once_what_is_not_delivered(autojump_clock, store, caplog):
    receiver = Receiver(lambda url, event: 503)
    async with delivering(receiver, store=store()) as engine:
        await engine.set_lane("images", notify=URL)
        await engine.set_lane("films", notify=URL)
        await (await engine.submit("quick", handle="a", params={}, notify=URL)).result()
    assert "webhook_secret" not in caplog.text
    async with delivering(receiver, store=store(), webhook_secret=None) as engine:
        ticket = await engine.submit("quick", handle="b", params={}, lane="images")
        await ticket.result()
    [message] = [record.getMessage() for record in caplog.records if "webhook_secret" in record.getMessage()]
    assert message.startswith("webhooks of lanes with notify (films, images) and of earlier runs are stored")
    receiver.respond = lambda url, event: 200
    async with delivering(receiver, store=store()):
        await trio.sleep(60)
    assert receiver.states(ticket.id) == ALL, "what is stored is delivered when there is a secret"


async def test_the_same_request_id_with_another_receiver_is_a_conflict(autojump_clock):
    async with delivering(Receiver()) as engine:
        given = {"handle": "a", "params": {}, "request_id": "r"}
        first = await engine.submit("quick", **given, notify=URL)
        again = await engine.submit("quick", **given, notify={"url": URL, "types": ["run_state_changed"]})
        assert (again.id, again.joined) == (first.id, True)
        with pytest.raises(Conflict):
            await engine.submit("quick", **given)


async def test_a_run_that_is_joined_keeps_its_own_receiver(autojump_clock):
    receiver = Receiver()
    async with delivering(receiver) as engine:
        first = await engine.submit("wait", handle="a", params={}, notify=URL)
        joined = await engine.submit("wait", handle="a", params={}, notify=f"{URL}&b=1", on_conflict="join")
        assert joined.id == first.id
        await engine.cancel(first.id)
        await trio.sleep(1)
        assert {url for url, _ in receiver.got} == {URL}


async def test_a_schedule_notifies_for_each_run(autojump_clock):
    receiver = Receiver()
    async with delivering(receiver) as engine:
        notify = {"url": URL, "types": ["run_log"]}
        await engine.schedules.put("tick", job="quick", params={}, every=100, notify=notify)
        await trio.sleep(250)
        assert [event["type"] for _, event in receiver.got] == ["run_log"] * 2
        with pytest.raises(Invalid, match="is not public"):
            await engine.schedules.put("bad", job="quick", every=100, notify="http://10.1.2.3/")


def test_the_types_that_can_be_delivered_are_those_of_all_stored_events_of_runs():
    of_runs = {kind.__struct_config__.tag for kind in get_args(Event) if issubclass(kind, RunEvent)}
    assert set(TYPES) == of_runs - {"run_progress"}
