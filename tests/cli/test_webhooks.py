"""The command `webhooks` and `submit --notify`, at a real server."""

from __future__ import annotations

import json
from typing import Any

import trio

from greenroom import Jobs, Run, open_engine
from greenroom.actors.journal.change import Change
from greenroom.gateway import GatewayConfig, open_gateway
from greenroom.persistence.webhooks import WebhookFailed
from greenroom.protocol.webhooks import webhook_id
from tests.cli.at_server import Silent, greenroom

PATIENCE = 60.0
URL = "https://hooks.example.org/"


async def test_dead_webhooks_are_listed_redelivered_and_dropped():
    jobs = Jobs()

    @jobs.job("quick")
    async def quick(run: Run, params: dict[str, Any]) -> None:
        pass

    options: dict[str, Any] = {"webhook_secret": "a secret of this test", "push": Silent()}
    with trio.fail_after(PATIENCE):
        async with (
            open_engine(jobs, "memory:", **options) as engine,
            open_gateway(engine, GatewayConfig(port=0)) as gateway,
        ):
            at = ("--url", gateway.url)
            given = ("submit", "quick", "--handle", "a", "--params", "{}", "--notify", URL)
            run = (await greenroom(*given, *at)).stdout.strip()
            dead = webhook_id(run, URL)
            failed = WebhookFailed(dead, 9, 1.0, None, "gone", 2.0)
            fails = WebhookFailed(dead, 3, 1.0, 9e9, "slow", 2.0)
            await engine._journal.ask(Change((), memos=(fails,)))
            assert (await greenroom("webhooks", "--json", *at)).stdout == ""
            [line] = (await greenroom("webhooks", "--failing", "--json", *at)).stdout.splitlines()
            assert (json.loads(line)["attempts"], json.loads(line)["next_at"]) == (3, 9e9)
            shown = (await greenroom("webhooks", "--failing", *at)).stdout
            assert (dead in shown, "next attempt" in shown, "slow" in shown) == (True, True, True)
            await engine._journal.ask(Change((), memos=(failed,)))
            [line] = (await greenroom("webhooks", "--json", *at)).stdout.splitlines()
            assert (json.loads(line)["id"], json.loads(line)["error"]) == (dead, "gone")
            assert dead in (await greenroom("webhooks", *at)).stdout
            assert "--all" in (await greenroom("webhooks", "drop", *at, code=2)).output
            shown = await greenroom("webhooks", "redeliver", "--all", *at)
            assert shown.stdout == f"{dead}: is delivered again.\n"
            await engine._journal.ask(Change((), memos=(failed,)))
            shown = await greenroom("webhooks", "drop", dead, *at)
            assert shown.stdout == f"{dead}: is dropped.\n"
            assert await engine.webhooks.dead() == []
            rules = await greenroom("lanes", "rules", "images", "--notify", URL, *at)
            assert f"notify={URL}" in rules.stdout
            assert (
                "notify" not in (await greenroom("lanes", "rules", "images", "--notify", "none", *at)).stdout
            )
