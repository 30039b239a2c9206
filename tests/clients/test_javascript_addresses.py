"""The JavaScript client with several addresses: which one it uses, and how it moves to another."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio

from greenroom.gateway import GatewayConfig, open_gateway

from .javascript import PATIENCE, needs_node, run_node
from .mocked import play
from .test_javascript import serving

pytestmark = needs_node


# The first connection.


async def test_clients_begin_with_random_addresses():
    program = """
        for (const name of "abc") nodes[name] = serve;
        for (let count = 0; count < 300; count++) (await connecting("abc", { random: Math.random })).close();
        answer(attempts.map(([, node]) => node));
    """
    used = await play(program)
    assert len(used) == 300
    assert min(used.count(name) for name in "abc") >= 60


@pytest.mark.parametrize(
    "unusable",
    [
        "refuse",
        "(socket) => socket.accept({ ...noLeader(), id: null })",
        *(f"(socket) => {{ socket.onopen({{}}); socket.end({code}); }}" for code in (1001, 1012, 1013)),
    ],
)
async def test_an_unusable_address_is_skipped_and_named_if_all_are_unusable(unusable: str):
    program = f"""
        nodes.a = {unusable};
        nodes.b = serve;
        const client = outcome(connecting("ab"));
        await pass(0.05);
        const served = [client.value?.connection.status, [...states]];
        kill("b");
        const failed = outcome(connecting("ab"));
        await pass(0.05);
        answer({{ served, failed }});
    """
    found = await play(program)
    assert found["served"] == ["connected", ["connecting a", "connecting b", "connected b"]]
    assert (found["failed"]["name"], found["failed"]["code"]) == ("GreenroomError", "unavailable")
    [first, second] = found["failed"]["message"].split("; ")
    assert first.startswith("connection to every address failed: ws://a:8440: ")
    assert second.startswith("ws://b:8440: connection closed with code 1006")


@pytest.mark.parametrize(("patience", "limit"), [(60, 10), (30, 10), (15, 5), (2, 1)])
async def test_an_address_that_does_not_respond_takes_only_a_part_of_the_patience(
    patience: float, limit: float
):
    program = """
        nodes.a = beSilent;
        nodes.b = serve;
        const client = outcome(connecting("abc", argument));
        await pass(12);
        answer([client.at, client.value.connection.url]);
    """
    at, url = await play(program, {"patience": patience})
    assert limit <= at <= limit + 0.05
    assert url == "ws://b:8440"


async def test_an_address_with_a_path_that_does_not_respond_takes_no_longer():
    program = """
        nodes.a = beSilent;
        nodes.b = serve;
        const client = outcome(connect(["ws://a:8440/prefix", "ws://b:8440/prefix"], given));
        await pass(25);
        answer(client.at);
    """
    assert 10 <= await play(program) <= 10.05


async def test_an_address_for_which_no_websocket_can_be_made_is_skipped():
    program = """
        nodes.b = serve;
        class Strict extends Socket {
            constructor(url) {
                if (url.startsWith("ws://a")) throw new Error("insecure");
                super(url);
            }
        }
        const client = outcome(connecting("ab", { WebSocket: Strict }));
        const failed = outcome(connecting("a", { WebSocket: Strict }));
        await pass(0.05);
        answer([client.value.connection.url, failed.message]);
    """
    assert await play(program) == ["ws://b:8440", "invalid url ws://a:8440: insecure"]


async def test_a_bad_token_is_reported_without_trying_the_other_addresses():
    program = """
        nodes.b = serve;
        const found = [];
        for (const code of ["unauthorized", "forbidden"]) {
            const error = { type: "error", id: 0, code, message: "not you", details: {} };
            nodes.a = (socket) => socket.accept(error);
            found.push(outcome(connecting("ab", { token: "gr_wrong" })));
            await pass(0.05);
        }
        nodes.a = (socket) => { socket.onopen({}); socket.end(4401, "not you"); };
        found.push(outcome(connecting("ab", { token: "gr_wrong" })));
        await pass(10);
        answer([found.map(({ code, message }) => [code, message]), attempts.map(([, node]) => node)]);
    """
    found, tried = await play(program)
    assert found == [["unauthorized", "not you"], ["forbidden", "not you"], ["unauthorized", "not you"]]
    assert tried == ["a", "a", "a"]


# A lost connection.


async def test_every_other_address_is_tried_at_once_and_each_round_after_a_pause():
    program = """
        for (const name of "abc") nodes[name] = serve;
        const client = await connecting("abc");
        await pass(10);
        for (const name of "abc") kill(name);
        await pass(20);
        nodes.c = serve;
        await pass(6);
        answer({ attempts, states, url: client.connection.url });
    """
    found = await play(program)
    [_, *attempts] = found["attempts"]
    assert [name for _, name in attempts[:2]] == ["b", "c"]
    assert attempts[1][0] <= 10.05
    rounds = [attempts[start : start + 3] for start in range(2, len(attempts) - 2, 3)]
    times = [10.0]
    for names in rounds:
        assert [name for _, name in names] == ["a", "b", "c"]
        assert names[2][0] - names[0][0] <= 0.05
        times.append(names[0][0])
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5][: len(pauses)], abs=0.1)
    assert len(rounds) >= 8
    assert found["states"][:5] == [
        "connecting a",
        "connected a",
        "reconnecting b",
        "reconnecting c",
        "reconnecting a",
    ]
    assert found["states"][-2:] == ["reconnecting c", "connected c"]
    assert found["url"] == "ws://c:8440"


async def test_a_good_connection_begins_a_new_round():
    program = """
        nodes.b = nodes.c = serve;
        const client = outcome(connecting("abc"));
        await pass(10);
        nodes.a = serve;
        kill("c");
        kill("b");
        await pass(0.05);
        answer([client.value.connection.status, client.value.connection.url]);
    """
    assert await play(program) == ["connected", "ws://a:8440"]


async def test_addresses_whose_connections_do_not_last_are_not_tried_without_pauses():
    program = """
        for (const name of "ab") nodes[name] = serve;
        const client = await connecting("ab");
        await pass(10);
        for (const name of "ab") {
            nodes[name] = (socket) => {
                serve(socket);
                setTimeout(() => socket.end(), 20);
            };
        }
        for (const socket of [...open]) socket.end();
        await pass(60);
        answer(attempts.length);
    """
    assert 20 <= await play(program) <= 60


async def test_the_connection_moves_to_another_gateway_without_a_gap():
    program = """
        const url = (state) => `${state.status} ${state.url}`;
        const states = [];
        const options = { random: () => 0.999, onConnection: (state) => states.push(url(state)) };
        const client = await connect(argument, options);
        const seqs = [];
        const read = async () => {
            for await (const item of client.events()) {
                seqs.push(item.type === "snapshot" ? "snapshot" : item.seq);
                if (seqs.length === 101) return; // with the one that this program causes
            }
        };
        const reading = read();
        await client.setParams("ready", {});
        await reading;
        const same = JSON.stringify(client.state.snapshot()) === JSON.stringify(await client.snapshot());
        client.close();
        answer({ seqs, states, same });
    """
    found: dict[str, Any] = {}
    async with serving() as (engine, _, url), trio.open_nursery() as nursery:
        async with open_gateway(engine, GatewayConfig(port=0)) as first:
            addresses = [f"ws://127.0.0.1:{first.port}", url]

            async def run() -> None:
                found.update(await run_node(program, addresses))

            nursery.start_soon(run)
            with trio.fail_after(PATIENCE):
                async for event in engine.events():
                    if getattr(event, "handle", None) == "ready":
                        break
            for number in range(50):
                await engine.set_params("someone", {"number": number})
        for number in range(50):
            await engine.set_params("someone", {"number": number})
    assert found["seqs"] == list(range(1, 102))
    assert found["same"]
    [a, b] = addresses
    assert found["states"] == [
        f"connecting {a}",
        f"connected {a}",
        f"reconnecting {b}",
        f"connected {b}",
        f"closed {b}",
    ]


# Addresses.


@pytest.mark.parametrize(
    ("addresses", "message"),
    [
        ([], "connect: url must contain 1 to 100 URLs (got 0)"),
        (
            [f"ws://node-{number}" for number in range(101)],
            "connect: url must contain 1 to 100 URLs (got 101)",
        ),
        (
            ["ws://a", "b:8440"],
            'connect: each url must be like ws://127.0.0.1:8440 or wss://example.org (got "b:8440")',
        ),
        (["ws://a", 5], "connect: each url must be like ws://127.0.0.1:8440 or wss://example.org (got 5)"),
        (
            ["ws://a", "ws://x@b"],
            "connect: url must not contain a token, because URLs appear in logs: use the option token",
        ),
        (
            ["ws://a:80/x", "http://A/x/"],
            "connect: url contains the same address twice: ws://a:80/x and http://A/x/; remove one",
        ),
    ],
)
async def test_bad_addresses_are_refused_with_the_remedy(addresses: list[Any], message: str):
    program = """
        const { code, message } = await connect(argument, given).catch((error) => error);
        answer([code, message, attempts.length]);
    """
    assert await play(program, addresses) == ["invalid", message, 0]


async def test_objects_of_the_class_url_are_addresses():
    program = """
        nodes.b = serve;
        const client = outcome(connect([new URL("http://a:8440"), new URL("http://b:8440")], given));
        await pass(0.1);
        answer(client.value.connection.url);
    """
    assert await play(program) == "ws://b:8440/"
