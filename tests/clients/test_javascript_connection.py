"""The state of the JavaScript client's connection, as `onConnection` and `connection` show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from greenroom.gateway import GatewayConfig, Role, add_token, remove_token

from .javascript import PATIENCE, needs_node, run_node
from .mocked import play
from .proxy import proxy
from .test_javascript import serving

pytestmark = needs_node


async def test_a_lost_connection_is_reported_with_each_attempt_until_it_is_back():
    program = """
        const states = [];
        const onConnection = (state) => {
            states.push({ ...state, now: Date.now(), frozen: Object.isFrozen(state) });
        };
        const client = await connect(argument, { onConnection });
        const late = [];
        client.onConnection((state) => late.push(state === client.connection && state.status));
        const back = new Promise((resolve) => {
            client.onConnection(({ status }) => status === "connected" && resolve(client.connected));
        });
        await client.setParams("cut me", {}).catch(() => {}); // the reply may be lost with the connection
        const connected = await back;
        await client.setParams("again", {});
        client.close();
        const { status } = client.connection;
        answer({ states, late, connected, closed: [status, client.connected] });
    """
    async with serving() as (engine, gateway, _), proxy(gateway.port) as between:
        found: dict[str, Any] = {}

        async def run() -> None:
            found.update(await run_node(program, f"ws://127.0.0.1:{between.port}"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            async for event in engine.events():
                if getattr(event, "handle", None) == "cut me":
                    break
            between.refuses = True
            before = between.opened
            between.cut()
            with trio.fail_after(PATIENCE):
                await between.wait_opened(before + 2)
            between.refuses = False
    states = found["states"]
    statuses = [state["status"] for state in states]
    lost = states[2:-2]
    assert statuses == ["connecting", "connected", *["reconnecting"] * len(lost), "connected", "closed"]
    assert [state["attempt"] for state in lost] == list(range(1, len(lost) + 1))
    assert len(lost) >= 3, "the loss, and two attempts that were refused"
    for state in lost:
        assert state["reason"]
        assert 0 < state["retryAt"] - state["now"] < 5_000
    assert states[-1]["reason"] == "the client is closed"
    assert states[-1]["error"] is None
    assert all(state["frozen"] for state in states)
    assert found["late"] == statuses[2:]
    assert (found["connected"], found["closed"]) == (True, ["closed", False])


async def test_a_refused_client_is_closed_with_the_error(tmp_path: Path):
    program = """
        const states = [];
        const onConnection = (state) => states.push([state.status, state.reason, state.error?.code]);
        const error = await connect(argument, { token: "gr_wrong", onConnection }).catch((error) => error);
        answer({ states, message: error.message, code: error.code });
    """
    add_token(tmp_path / "tokens", "someone", Role.VIEWER)
    async with serving(GatewayConfig(port=0, token_file=str(tmp_path / "tokens"))) as (_, _, url):
        found = await run_node(program, url)
    assert found["code"] == "unauthorized"
    assert found["states"] == [
        ["connecting", None, None],
        ["closed", found["message"], "unauthorized"],
    ]


async def test_a_client_whose_token_is_revoked_is_closed_with_the_error(tmp_path: Path):
    program = """
        let connecting;
        const statuses = [];
        const closed = new Promise((resolve) => {
            const onConnection = (state) => {
                statuses.push(state.status);
                if (state.status === "closed") resolve(state);
            };
            connecting = connect(argument.url, { token: argument.token, onConnection });
        });
        await (await connecting).setParams("ready", {}).catch(() => {});
        const { error, reason } = await closed;
        answer({ statuses, error: [error.name, error.code, reason === error.message] });
    """
    file = tmp_path / "tokens"
    token = add_token(file, "someone", Role.OPERATOR)
    found: dict[str, Any] = {}
    config = GatewayConfig(port=0, token_file=str(file))
    async with serving(config) as (engine, gateway, url):

        async def run() -> None:
            found.update(await run_node(program, {"url": url, "token": token}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            async for event in engine.events():
                if getattr(event, "handle", None) == "ready":
                    break
            remove_token(file, "someone")
            gateway.reconfigure(config)
    assert found == {
        "statuses": ["connecting", "connected", "closed"],
        "error": ["GreenroomError", "unauthorized", True],
    }


async def test_a_gateway_that_cannot_be_reached_ends_the_first_attempt():
    program = """
        const statuses = [];
        const onConnection = ({ status }) => statuses.push(status);
        const error = await connect(argument, { onConnection }).catch((error) => error);
        answer([statuses, error.code, error.message]);
    """
    statuses, code, message = await run_node(program, "ws://127.0.0.1:1")
    assert (statuses, code) == (["connecting", "closed"], "unavailable")
    assert message.startswith("connection to ws://127.0.0.1:1 failed: ")


async def test_every_listener_receives_the_changes_in_order_and_until_it_is_removed():
    program = """
        const heard = { first: [], second: [], removed: [] };
        const logged = [];
        console.error = (error) => logged.push(error.message);
        const onConnection = () => {
            throw new Error("in the listener");
        };
        const client = await connect(argument, { onConnection });
        client.onConnection(({ status }) => heard.first.push(status));
        client.onConnection(({ status }) => status === "reconnecting" && client.close());
        client.onConnection(({ status }) => heard.second.push(status));
        client.onConnection(({ status }) => heard.removed.push(status))();
        const closed = new Promise((resolve) => {
            client.onConnection(({ status }) => status === "closed" && resolve());
        });
        await client.setParams("cut me", {}).catch(() => {});
        await closed;
        answer({ ...heard, logged });
    """
    async with serving() as (engine, gateway, _), proxy(gateway.port) as between:
        found: dict[str, Any] = {}

        async def run() -> None:
            found.update(await run_node(program, f"ws://127.0.0.1:{between.port}"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            async for event in engine.events():
                if getattr(event, "handle", None) == "cut me":
                    break
            between.cut()
    assert found == {
        "first": ["reconnecting", "closed"],
        "second": ["reconnecting", "closed"],
        "removed": [],
        "logged": ["in the listener"] * 4,
    }


async def test_a_command_that_cannot_be_encoded_does_not_prevent_the_next_connections():
    program = """
        const client = await connect(argument);
        const options = { handle: "alice", params: { a: 1n } };
        const { message } = await client.submit("add", options).catch((error) => error);
        const back = new Promise((resolve) => {
            client.onConnection(({ status }) => status === "connected" && resolve());
        });
        await client.setParams("cut me", {}).catch(() => {}); // the reply may be lost with the connection
        await back;
        await client.setParams("again", {});
        client.close();
        answer(message);
    """
    async with serving() as (engine, gateway, _), proxy(gateway.port) as between:
        found: list[str] = []

        async def run() -> None:
            found.append(await run_node(program, f"ws://127.0.0.1:{between.port}"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            async for event in engine.events():
                if getattr(event, "handle", None) == "cut me":
                    break
            between.cut()
    assert found == ["submit: a: 1 is not a JSON value; use another number, null or a string"]


async def test_commands_wait_for_a_connection_no_longer_than_the_patience():
    program = """
        nodes.a = serve;
        const client = await connect("ws://a:8440", { ...given, patience: 8 });
        await pass(10);
        kill("a");
        const found = [outcome(client.drain()), outcome(client.getRun("r1"))];
        await pass(60);
        answer(found);
    """
    for found in await play(program):
        assert 18 <= found["at"] <= 18.05
        assert "no connection to ws://a:8440 for 8 seconds" in found["message"]


async def test_a_silent_connection_is_lost_and_the_report_says_since_when_nothing_was_heard():
    program = """
        nodes.a = serve;
        const seen = [];
        const report = (state) => seen.push([now(), state.status, (state.heardAt ?? 0) / 1000]);
        const client = await connecting("a", { onConnection: report });
        await pass(100);
        const before = seen.length;
        for (const socket of open) socket.deaf = true;
        const began = now();
        await pass(31);
        answer({ began, before: seen.slice(0, before).map(([, status]) => status), lost: seen[before] });
    """
    found = await play(program)
    assert found["before"] == ["connecting", "connected"], "a gateway that replies is not lost"
    at, status, heard_at = found["lost"]
    assert status == "reconnecting"
    assert 10 <= at - found["began"] <= 30
    assert found["began"] - 20 <= heard_at <= found["began"]
