"""Failing and dead webhooks over the gateway: the commands, HTTP, and limited tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.gateway import Role, add_token
from greenroom.persistence.webhooks import WebhookAdded, WebhookFailed
from greenroom.protocol.webhooks import Webhook, receiver_of, webhook_id

from .support import House, Refused, house

URL = "https://hooks.example.org/"


async def die(home: House, handle: str = "a") -> Webhook:
    """A dead webhook of a new run."""
    run = (await home.engine.submit("wait", handle=handle, params={})).id
    new = Webhook(id=webhook_id(run, URL), run=run, url=URL, types=("run_log",))
    failed = WebhookFailed(new.id, 3, 1.0, None, "the receiver responded with status 500", 2.0)
    await commit(home, WebhookAdded(new, receiver_of(URL), 0.0), failed)
    [dead] = [webhook for webhook in await home.engine.webhooks.dead() if webhook.run == run]
    return dead


async def commit(home: House, *memos: WebhookAdded | WebhookFailed) -> None:
    from greenroom.actors.journal.change import Change

    await home.engine._journal.ask(Change((), memos=memos))


@pytest.mark.at_engine
async def test_a_dead_webhook_is_listed_redelivered_and_dropped() -> None:
    async with house() as home, home.socket() as talk:
        first, second = sorted([await die(home), await die(home, "b")], key=lambda webhook: webhook.id)
        await talk.call("subscribe")
        listed = (await talk.call("dead_webhooks"))["webhooks"]
        assert [webhook["id"] for webhook in listed] == [first.id, second.id]
        assert listed[0]["error"] == "the receiver responded with status 500"
        page = (await talk.call("dead_webhooks", limit=1, after=first.id))["webhooks"]
        assert [webhook["id"] for webhook in page] == [second.id]
        assert (await talk.call("redeliver_webhook", webhook_id=first.id))["webhook"]["id"] == first.id
        assert (await talk.call("drop_webhook", webhook_id=second.id))["webhook"]["id"] == second.id
        assert [(event["webhook"], event["to"]) for event in talk.events() if "webhook" in event] == [
            (first.id, "redelivered"),
            (second.id, "dropped"),
        ]
        for id, code in ((first.id, "conflict"), (second.id, "not_found"), ("x", "invalid")):
            with pytest.raises(Refused) as refused:
                await talk.call("redeliver_webhook", webhook_id=id)
            assert refused.value.code == code


async def fail(home: House, handle: str = "a") -> Webhook:
    """A failing webhook of a new run."""
    run = (await home.engine.submit("wait", handle=handle, params={})).id
    new = Webhook(id=webhook_id(run, URL), run=run, url=URL, types=("run_log",))
    failed = WebhookFailed(new.id, 3, 1.0, 9e9, "the receiver responded with status 500", 2.0)
    await commit(home, WebhookAdded(new, receiver_of(URL), 0.0), failed)
    [failing] = [webhook for webhook in await home.engine.webhooks.failing() if webhook.run == run]
    return failing


@pytest.mark.at_engine
async def test_a_failing_webhook_is_listed_redelivered_and_dropped() -> None:
    async with house() as home, home.socket() as talk:
        first, second = sorted([await fail(home), await fail(home, "b")], key=lambda webhook: webhook.id)
        await die(home, "c")
        listed = (await talk.call("failing_webhooks"))["webhooks"]
        assert [webhook["id"] for webhook in listed] == [first.id, second.id]
        shown = {name: listed[0][name] for name in ("attempts", "failing_since", "next_at", "error")}
        assert shown == {
            "attempts": 3,
            "failing_since": 1.0,
            "next_at": 9e9,
            "error": "the receiver responded with status 500",
        }
        answer = await home.http("GET", f"/api/webhooks/failing?limit=1&after={first.id}")
        assert [webhook["id"] for webhook in answer.json["webhooks"]] == [second.id]
        assert (await talk.call("redeliver_webhook", webhook_id=first.id))["webhook"]["id"] == first.id
        assert (await talk.call("drop_webhook", webhook_id=second.id))["webhook"]["id"] == second.id
        [left] = (await talk.call("failing_webhooks"))["webhooks"]
        assert left["id"] == first.id
        assert left["next_at"] < 9e9


@pytest.mark.at_engine
async def test_every_call_over_http() -> None:
    async with house() as home:
        first, second = sorted([await die(home), await die(home, "b")], key=lambda webhook: webhook.id)
        listed = (await home.http("GET", f"/api/webhooks/dead?limit=1&after={first.id}")).json
        assert [webhook["id"] for webhook in listed["webhooks"]] == [second.id]
        revived = await home.http("POST", f"/api/webhooks/{first.id}/redeliver", body={})
        assert (revived.status, revived.json["run"]) == (200, first.run)
        dropped = await home.http("DELETE", f"/api/webhooks/{second.id}")
        assert (dropped.status, dropped.json["url"]) == (200, URL)
        assert (await home.http("DELETE", f"/api/webhooks/{second.id}")).status == 404
        assert (await home.http("DELETE", f"/api/webhooks/{first.id}")).status == 409


async def test_notify_is_checked_over_the_gateway() -> None:
    async with house() as home, home.socket() as talk:
        for notify, text in (
            (URL, "requires a secret"),
            ({"url": URL, "types": ["nothing"]}, "is not an event type of runs"),
            ("http://127.0.0.1/", "is not public"),
        ):
            with pytest.raises(Refused) as refused:
                await talk.call("submit", job="wait", handle="a", params={}, notify=notify)
            assert refused.value.code == "invalid"
            assert text in refused.value.message
        assert (await talk.call("list_runs"))["runs"] == []


@pytest.mark.at_engine
async def test_viewers_and_limited_tokens_do_not_see_receivers(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    viewer = add_token(file, "viewer", Role.VIEWER)
    limited = add_token(file, "limited", Role.OPERATOR, handles=["a"])
    async with house(token_file=str(file)) as home:
        dead = await die(home)
        for token in (viewer, limited):
            async with home.socket(headers={"authorization": f"Bearer {token}"}) as talk:
                for type, fields in (
                    ("dead_webhooks", {}),
                    ("failing_webhooks", {}),
                    ("redeliver_webhook", {"webhook_id": dead.id}),
                    ("drop_webhook", {"webhook_id": dead.id}),
                ):
                    with pytest.raises(Refused) as refused:
                        await talk.call(type, **fields)
                    assert refused.value.code == "forbidden"
        async with home.socket(headers={"authorization": f"Bearer {limited}"}) as talk:
            await talk.call("subscribe")
            await home.engine.webhooks.drop(dead.id)
            assert not [event for event in talk.events() if event["type"] == "webhook_changed"]
