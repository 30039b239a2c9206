"""The JavaScript client in a real browser: a page imports it from the gateway, and does what pages do."""

from __future__ import annotations

from pathlib import Path

import trio

from greenroom.gateway import GatewayConfig, Role, add_token

from .browser import browse, needs_browser, pages
from .proxy import proxy
from .test_javascript import serving

pytestmark = needs_browser

IMPORT = """
    const { connect, GreenroomError } = await import(argument.url.replace("ws", "http") + "/greenroom.js");
"""


async def test_a_page_follows_and_gives_commands(tmp_path: Path):
    program = (
        IMPORT
        + """
        const client = await connect(argument.url, { token: argument.token });
        const heard = [];
        client.onEvent((event) => heard.push(event.type), { handles: ["alice"] });
        const ticket = await client.submit("add", { handle: "alice", params: { a: 1, b: 2 } });
        const result = await ticket.result();
        const refusal = await client.drain().catch((error) => [error instanceof GreenroomError, error.code]);
        const truth = await client.snapshot();
        const same = JSON.stringify(truth) === JSON.stringify(client.state.snapshot());
        client.close();
        answer({ result, refusal, same, heard: [...new Set(heard)], seq: truth.seq, role: client.role });
    """
    )
    file = tmp_path / "tokens"
    token = add_token(file, "page", Role.OPERATOR)
    async with pages() as its:
        config = GatewayConfig(port=0, token_file=str(file), allowed_origins=(its.origin,))
        async with serving(config) as (engine, _, url):
            told = await browse(its, program, {"url": url, "token": token}, tmp_path)
            assert told == {
                "result": 3,
                "refusal": [True, "forbidden"],
                "same": True,
                "heard": ["run_state_changed"],
                "seq": (await engine.snapshot()).seq,
                "role": "operator",
            }


async def test_a_page_reconnects_when_its_connection_is_cut(tmp_path: Path):
    program = (
        IMPORT
        + """
        const client = await connect(argument.url);
        const heard = [];
        client.onEvent((event) => heard.push(event.seq));
        await client.setParams("cut me", {}).catch(() => {});
        while (!heard.includes(12)) await new Promise((resolve) => setTimeout(resolve, 10));
        const truth = await client.snapshot();
        answer({ heard, same: JSON.stringify(truth) === JSON.stringify(client.state.snapshot()) });
    """
    )
    async with pages() as its:
        config = GatewayConfig(port=0, allowed_origins=(its.origin,))
        async with (
            serving(config) as (engine, gateway, _),
            proxy(gateway.port) as between,
            trio.open_nursery() as nursery,
        ):

            async def disturb() -> None:
                async for event in engine.events():
                    if getattr(event, "handle", None) == "cut me":
                        break
                between.cut()
                for number in range(11):
                    await engine.set_params("someone", {"number": number})

            nursery.start_soon(disturb)
            told = await browse(its, program, {"url": f"ws://127.0.0.1:{between.port}"}, tmp_path)
            assert told == {"heard": list(range(1, 13)), "same": True}


async def test_a_page_of_another_origin_is_not_let_in(tmp_path: Path):
    program = """
        const { connect } = await import("/greenroom.js"); // a copy of its own
        const http = argument.replace("ws", "http");
        answer({
            imported: await import(http + "/greenroom.js").then(() => true, () => false),
            fetched: await fetch(http + "/api/state").then(() => true, () => false),
            connected: await connect(argument).then(() => true, (error) => error.code),
        });
    """
    async with pages() as its, serving() as (_, _, url):
        told = await browse(its, program, url, tmp_path)
        assert told == {"imported": False, "fetched": False, "connected": "unavailable"}
