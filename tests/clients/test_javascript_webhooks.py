"""Dead webhooks in the JavaScript client, at a real server."""

from __future__ import annotations

import trio

from greenroom import Jobs, Run, open_engine
from greenroom.actors.journal.change import Change
from greenroom.gateway import GatewayConfig, open_gateway
from greenroom.persistence.webhooks import WebhookFailed
from greenroom.protocol.webhooks import webhook_id

from .javascript import needs_node, run_node

pytestmark = needs_node

URL = "https://hooks.example.org/"


class Silent:
    """A receiver that does not respond, so that the engine changes nothing during the test."""

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        await trio.sleep_forever()
        raise AssertionError


async def test_runs_are_submitted_with_notify_and_dead_webhooks_are_redelivered_and_dropped() -> None:
    jobs = Jobs()

    @jobs.job("quick")
    async def quick(run: Run) -> None:
        pass

    submit = f"""
        const client = await connect(argument);
        const notify = {{ url: "{URL}", types: ["run_log", "run_state_changed"] }};
        const first = await client.submit("quick", {{ handle: "a", notify }});
        const second = await client.submit("quick", {{ handle: "b", notify: "{URL}" }});
        const bad = {{ handle: "c", notify: "http://10.0.0.1/" }};
        const refused = await client.submit("quick", bad).catch((error) => error.code);
        await client.setLane("images", {{ notify }});
        client.close();
        answer([first.id, second.id, refused]);
    """
    failing = """
        const client = await connect(argument);
        const [first] = await client.webhooks.failing({ limit: 1 });
        const later = await client.webhooks.failing({ after: first.id });
        await client.webhooks.redeliver(first.id);
        client.close();
        answer([first.id, first.attempts, first.error, first.failing_since, first.next_at, later]);
    """
    change = """
        const [url, first, second] = argument;
        const client = await connect(url);
        const ids = (page) => page.map((webhook) => webhook.id);
        const listed = await client.webhooks.dead();
        const page = await client.webhooks.dead({ limit: 1, after: listed[0].id });
        const revived = await client.webhooks.redeliver(first);
        const dropped = await client.webhooks.drop(second);
        const left = await client.webhooks.dead();
        const refused = await client.webhooks.drop(first).catch((error) => error.code);
        client.close();
        answer([ids(listed), ids(page), listed[0].error, revived.id, dropped.url, left, refused]);
    """
    async with (
        open_engine(jobs, "memory:", push=Silent(), webhook_secret="a secret of this test") as engine,
        open_gateway(engine, GatewayConfig(port=0)) as gateway,
    ):
        *runs, refused = await run_node(submit, gateway.url)
        assert refused == "invalid"
        assert (await engine.snapshot()).lanes["images"].rules.notify is not None
        first, second = (webhook_id(run, URL) for run in runs)
        failed = WebhookFailed(first, 9, 1.0, 9e9, "slow", 2.0)
        await engine._journal.ask(Change((), memos=(failed,)))
        assert await run_node(failing, gateway.url) == [first, 9, "slow", 1, 9e9, []]
        for id in (first, second):
            failed = WebhookFailed(id, 9, 1.0, None, "gone", 2.0)
            await engine._journal.ask(Change((), memos=(failed,)))
        listed = sorted([first, second])
        assert await run_node(change, [gateway.url, first, second]) == [
            listed, listed[1:], "gone", first, URL, [], "conflict"
        ]  # fmt: skip
