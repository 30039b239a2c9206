"""Webhooks in every kind of store: each must change them exactly as the `memory:` store does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest
import trio
from trio.abc import Clock

from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.store import Retention, Store
from greenroom.persistence.webhooks import (
    WebhookAdded,
    WebhookCounts,
    WebhookDropped,
    WebhookFailed,
    WebhookMemo,
    WebhookRevived,
    WebhookSettled,
    WebhooksMarked,
)
from greenroom.protocol.states import Status
from greenroom.protocol.webhooks import Webhook, receiver_of, webhook_id

from .conftest import Place
from .story import NOW, Story, begin, created, every_kind, life, moved, opened

URL = "https://example.org/ünïcödé?漢字=1"
OTHER = "https://other.example.org/"
EVERYTHING = Retention(keep_runs=0, keep_events=0)


def added(run: str, url: str = URL, at: float = NOW, types: Sequence[str] = ("run_log",)) -> WebhookAdded:
    webhook = Webhook(id=webhook_id(run, url), run=run, url=url, types=tuple(types))
    return WebhookAdded(webhook, receiver_of(url), at)


async def due(store: Store, busy: Sequence[str] = (), without: Sequence[str] = ()) -> list[tuple[str, float]]:
    """The runs of webhooks that are due, and their times."""
    found = await store.due_webhooks(100, busy, without)
    return [(each.webhook.run, each.next_at) for each in found]


async def test_the_webhooks_that_are_due_first_come_first(place: Place) -> None:
    async with opened(place) as story:
        for run, at in (("late", NOW + 2), ("early", NOW), ("middle", NOW + 1)):
            await story.tell(created(run), memos=[added(run, at=at)])
        await story.tell(created("other"), memos=[added("other", OTHER, NOW + 0.5)])
        in_order = [("early", NOW), ("other", NOW + 0.5), ("middle", NOW + 1), ("late", NOW + 2)]
        assert await due(story.store) == in_order
        assert await due(story.store, busy=[receiver_of(URL)]) == [("other", NOW + 0.5)]
        assert [
            each.webhook.run for each in await story.store.due_webhooks(9, [], [], [receiver_of(OTHER)])
        ] == ["other"]
        assert await story.store.due_webhooks(9, [], [], []) == []
        assert await due(story.store, without=[webhook_id("early", URL)]) == in_order[1:]
        assert [each.webhook.run for each in await story.store.due_webhooks(2, [], [])] == ["early", "other"]


async def test_webhooks_with_and_without_failed_attempts_can_be_told_apart(place: Place) -> None:
    async with opened(place) as story:
        for number, (run, url) in enumerate({"failed": URL, "fresh": URL, "other": OTHER}.items()):
            await story.tell(created(run), memos=[added(run, url, NOW + number)])
        await story.tell(memos=[WebhookFailed(webhook_id("failed", URL), 1, NOW, NOW, "no", NOW)])

        async def found(among: list[str] | None, failed: bool | None) -> list[str]:
            webhooks = await story.store.due_webhooks(9, [], [], among, failed)
            return [each.webhook.run for each in webhooks]

        assert await found(None, False) == ["fresh", "other"]
        assert await found([receiver_of(URL)], False) == ["fresh"]
        assert await found([], True) == ["failed"]
        assert await found([receiver_of(OTHER)], True) == ["failed", "other"]
        assert await found([receiver_of(URL)], None) == ["failed", "fresh"]
        assert await story.store.due_webhooks(9, [receiver_of(URL)], [], [], True) == []


async def test_an_event_between_a_delivery_and_its_record_stays_due(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(created("r"), memos=[added("r"), WebhooksMarked("r", 1, NOW, False)])
        id = webhook_id("r", URL)
        await story.tell(memos=[WebhooksMarked("r", 4, NOW + 1, True), WebhookSettled(id, 1, NOW + 2)])
        assert await due(story.store) == [("r", NOW + 2)]
        [row] = await story.store.due_webhooks(1, [], [])
        assert (row.marked, row.webhook.delivered) == (4, 1)
        await story.tell(memos=[WebhookSettled(id, 4, NOW + 3)])
        assert await story.store.webhook(id) is None


async def test_a_dead_webhook_is_not_due_until_it_is_revived(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(created("r"), memos=[added("r"), added("r", OTHER)])
        id = webhook_id("r", URL)
        await story.tell(memos=[WebhookFailed(id, 30, NOW, None, "é 漢字", NOW + 9)])
        await story.tell(memos=[WebhooksMarked("r", 2, NOW + 10, False)])
        assert await due(story.store) == [("r", NOW)], "only that of the other receiver"
        [dead] = await story.store.dead_webhooks(10, None)
        assert (dead.error, dead.attempts, dead.failing_since, dead.dead_at) == ("é 漢字", 30, NOW, NOW + 9)
        assert await story.store.dead_webhooks(10, dead.id) == []
    async with opened(place) as story:
        assert story.stored.webhooks == {"r": frozenset({"run_log"})}
        await story.tell(memos=[WebhookRevived(id, NOW + 20), WebhookDropped(webhook_id("r", OTHER))])
        assert await due(story.store) == [("r", NOW), ("r", NOW + 20)], "one that is not dead is not dropped"
        await story.tell(memos=[WebhookFailed(id, 1, NOW, None, "no", NOW + 30)])
        await story.tell(memos=[WebhookDropped(id)])
        assert await story.store.webhook(id) is None


async def test_a_failing_webhook_is_listed_revived_and_dropped(place: Place) -> None:
    async with opened(place) as story:
        for run in ("r", "s", "t"):
            await story.tell(created(run), memos=[added(run)])
        r, s, t = (webhook_id(run, URL) for run in ("r", "s", "t"))
        fails = [WebhookFailed(id, 2, NOW, NOW + 50, "é 漢字", NOW + 9) for id in (r, s)]
        await story.tell(memos=[*fails, WebhookFailed(t, 30, NOW, None, "no", NOW + 9)])
        listed = await story.store.failing_webhooks(10, None)
        assert [each.id for each in listed] == sorted([r, s])
        assert (listed[0].error, listed[0].attempts, listed[0].next_at) == ("é 漢字", 2, NOW + 50)
        assert await story.store.failing_webhooks(10, min(r, s)) == listed[1:]
        assert await story.store.failing_webhooks(1, None) == listed[:1]
        assert await story.store.count_webhooks() == WebhookCounts(failing=2, dead=1)
        await story.tell(memos=[WebhookRevived(r, NOW + 20), WebhookDropped(s)])
        [revived] = await story.store.failing_webhooks(10, None)
        assert (revived.id, revived.attempts, revived.failing_since) == (r, 2, NOW), "its day continues"
        assert revived.next_at == NOW + 20
        await story.tell(memos=[WebhookSettled(r, 1, NOW + 30), WebhookDropped(r), WebhookRevived(t, NOW)])
        assert await story.store.failing_webhooks(10, None) == []
        assert await story.store.count_webhooks() == WebhookCounts(failing=0, dead=0)
        assert await story.store.webhook(r) is not None, "one that does not fail is not dropped"


async def test_webhooks_that_are_due_after_the_horizon_come_first(place: Place) -> None:
    async with opened(place) as story:
        for run, at in (("far", NOW + 9000), ("near", NOW), ("farther", NOW + 9999), ("later", NOW + 1)):
            await story.tell(created(run), memos=[added(run, at=at)])

        async def found(most: int, horizon: float, without: Sequence[str] = ()) -> list[str]:
            rows = await story.store.due_webhooks(most, [], without, None, None, horizon)
            return [row.webhook.run for row in rows]

        assert await found(9, NOW + 3600) == ["far", "farther", "near", "later"]
        assert await found(3, NOW + 3600) == ["far", "farther", "near"]
        assert await found(9, NOW + 9000) == ["farther", "near", "later", "far"]
        assert await found(9, NOW + 3600, [webhook_id("far", URL)]) == ["farther", "near", "later"]


async def test_runs_with_events_to_deliver_are_not_pruned(place: Place) -> None:
    async with opened(place) as story:
        for run in ("waits", "dead", "plain"):
            memos = [] if run == "plain" else [added(run)]
            await story.tell(*life(run), memos=memos)
        id = webhook_id("dead", URL)
        await story.tell(memos=[WebhookFailed(id, 1, NOW, None, "no", NOW)])
        await prune(story)
        assert await story.store.run("plain") is None
        assert await story.store.run("dead") is None
        assert await story.store.webhook(id) is None, "a dead webhook is deleted with its run"
        assert len(await story.store.history("waits")) == 3
        last = (await story.store.history("waits"))[-1].seq
        waits = webhook_id("waits", URL)
        await story.tell(memos=[WebhooksMarked("waits", last, NOW, True), WebhookSettled(waits, last, NOW)])
        await prune(story)
        assert await story.store.run("waits") is None


async def test_events_of_a_dead_webhook_are_kept_while_its_run_is_kept(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(*life("r"), memos=[added("r")])
        await story.tell(memos=[WebhookFailed(webhook_id("r", URL), 1, NOW, None, "no", NOW)])
        await story.store.prune(Retention(keep_events=0), NOW + 1, 100)
        assert len(await story.store.history("r")) == 3


async def test_the_types_of_pending_runs_are_known_after_a_restart(place: Place) -> None:
    async with opened(place) as story:
        types = ["run_log", "run_state_changed"]
        await story.tell(created("both"), memos=[added("both"), added("both", OTHER, types=types)])
        await story.tell(*life("ended"), memos=[added("ended")])
        await story.tell(created("plain"))
    async with opened(place) as story:
        assert story.stored.webhooks == {"both": frozenset(types)}


@pytest.mark.parametrize("seed", range(3))
async def test_every_store_changes_webhooks_in_the_same_way(place: Place, seed: int, clock: Clock) -> None:
    random = Random(seed)
    model = await begin(MemoryStore())
    async with opened(place) as story:
        for number in range(60):
            now = NOW + number
            known = {each.webhook.id: each.webhook for each in await model.store.due_webhooks(100, [], [])}
            run, id, memos = _some_changes(random, story, number, now, known)
            for each in (story, model):
                if run not in each.runs:
                    await each.tell(created(run), memos=memos)
                else:
                    await each.tell(memos=memos)
            if id is not None:
                assert await story.store.webhook(id) == await model.store.webhook(id)
            found = await story.store.due_webhooks(100, [], [])
            assert sorted(found, key=str) == sorted(await model.store.due_webhooks(100, [], []), key=str)
            for name in ("dead_webhooks", "failing_webhooks"):
                expected = await getattr(model.store, name)(100, None)
                assert await getattr(story.store, name)(100, None) == expected
            assert await story.store.count_webhooks() == await model.store.count_webhooks()
            await trio.lowlevel.checkpoint()


def _some_changes(
    random: Random, story: Story, number: int, now: float, due: Mapping[str, Webhook]
) -> tuple[str, str | None, list[WebhookMemo]]:
    """The changes of a batch, and the run and one webhook that they concern. Only those that are `due` are
    delivered."""
    if number % 4 == 0:
        run = f"r{number}"
        urls = random.sample([URL, OTHER], random.randint(1, 2))
        return run, None, [*(added(run, url, now) for url in urls), WebhooksMarked(run, number, now, False)]
    run = random.choice(sorted(story.runs))
    id = webhook_id(run, random.choice([URL, OTHER]))
    choices: list[WebhookMemo] = [WebhooksMarked(run, number, now, random.random() < 0.3)]
    if id in due:
        choices.append(WebhookSettled(id, random.randint(due[id].delivered, number - 1), now))
        choices.append(WebhookFailed(id, 1, now, random.choice([None, now + 5]), "no", now))
        choices += [WebhookRevived(id, now), WebhookDropped(id)]
    else:
        choices += [WebhookRevived(id, now), WebhookDropped(id)]
    memos = [random.choice(choices[1:])]
    return run, id, random.sample([*memos, choices[0]], random.randint(1, 2))


async def prune(story: Story) -> None:
    """Delete what retention allows, some days later."""
    for _ in range(3):
        await story.store.prune(EVERYTHING, NOW + 10 * 86_400, 100)


async def test_a_run_that_is_cancelled_in_the_commit_of_its_creation_is_removed(place: Place) -> None:
    async with opened(place) as story:
        first = created("r")
        memos = [added("r"), WebhooksMarked("r", 2, NOW, True)]
        await story.tell(first, moved(first, Status.CANCELLED), memos=memos)
        await story.tell(memos=[WebhookSettled(webhook_id("r", URL), 2, NOW)])
        assert await due(story.store) == []
        assert await story.store.webhook(webhook_id("r", URL)) is None


async def test_the_history_of_a_run_has_only_the_types_that_are_asked_for(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(*every_kind("r"))
        await story.tell(*life("other"))
        every = await story.store.history("r")
        kinds = sorted({event.type for event in every})
        assert len(kinds) == 7
        for types in ([], *([kind] for kind in kinds), kinds, ["run_state"], ["run%"]):
            wanted = [event for event in every if event.type in types]
            assert await story.store.history("r", types=types) == wanted
            assert (
                await story.store.history("r", every[0].seq, 1, types)
                == [event for event in wanted if event.seq > every[0].seq][:1]
            )
