"""The options `--notify` and `--notify-type`, on each command that has them, at a real server."""

from __future__ import annotations

from typing import Any

import trio

from greenroom import Jobs, Run, open_engine
from greenroom.gateway import GatewayConfig, open_gateway
from greenroom.protocol.notify import Notify
from greenroom.protocol.webhooks import webhook_id
from tests.cli.at_server import Silent, greenroom
from tests.webhooks.receiving import SECRET, URL

PATIENCE = 60.0
TYPES = ("run_log", "interrupt_opened")
OPTIONS = ("--notify", URL, "--notify-type", TYPES[0], "--notify-type", TYPES[1])


async def test_the_types_to_deliver_are_given_on_the_command_line():
    jobs = Jobs()

    @jobs.function("hang")
    async def hang(params: dict[str, Any]) -> None:
        await trio.sleep_forever()

    @jobs.job("wait")
    async def wait(run: Run, params: dict[str, Any]) -> None:
        await trio.sleep_forever()

    options: dict[str, Any] = {"webhook_secret": SECRET, "push": Silent(), "shutdown_timeout": 0}
    with trio.fail_after(PATIENCE):
        async with (
            open_engine(jobs, "memory:", **options) as engine,
            open_gateway(engine, GatewayConfig(port=0)) as gateway,
        ):
            at = ("--url", gateway.url)

            async def types_of(run: str) -> tuple[str, ...]:
                webhook = await engine._store.webhook(webhook_id(run, URL))
                assert webhook is not None
                return webhook.types

            given = ("submit", "wait", "--handle", "a", "--params", "{}")
            run = (await greenroom(*given, *OPTIONS, *at)).stdout.strip()
            assert await types_of(run) == tuple(sorted(TYPES))

            definition = {"start": "a", "nodes": {"a": {"kind": "local", "func": "hang"}}, "edges": []}
            await engine.flows.publish("tell", definition)
            run = (await greenroom("flow", "run", "tell", "--handle", "f", *OPTIONS, *at)).stdout.strip()
            assert await types_of(run) == tuple(sorted(TYPES))

            scheduled = ("schedules", "put", "tick", "--job", "wait", "--every", "1h", "--params", "{}")
            await greenroom(*scheduled, *OPTIONS, *at)
            ticket = await engine.schedules.trigger("tick")
            assert await types_of(ticket.id) == tuple(sorted(TYPES))

            shown = await greenroom("lanes", "rules", "images", *OPTIONS, *at)
            assert shown.stdout == f"images: notify={URL} (interrupt_opened, run_log).\n"
            shown = await greenroom("lanes", "rules", "images", *at)
            assert shown.stdout == f"images: notify={URL} (interrupt_opened, run_log).\n"
            rules = (await engine.snapshot()).lanes["images"].rules
            assert rules.notify == Notify(URL, tuple(sorted(TYPES)))

            refused = await greenroom(*given, "--notify-type", "run_log", *at, code=2)
            assert "--notify-type requires --notify with a URL" in refused.output
            refused = await greenroom(*given, *OPTIONS, "--notify-type", "run_logs", *at, code=2)
            assert "'run_logs' is not one of" in refused.output
            refused = await greenroom(
                "lanes", "rules", "x", "--notify", "none", "--notify-type", "run_log", *at, code=2
            )
            assert "requires --notify with a URL" in refused.output
