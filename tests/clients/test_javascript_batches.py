"""Batches with the JavaScript client."""

from __future__ import annotations

from typing import Any

import trio

from .javascript import needs_node, run_node
from .proxy import proxy
from .test_javascript import serving

pytestmark = needs_node


async def test_the_tickets_are_in_the_order_of_the_runs():
    program = """
        const client = await connect(argument);
        const runs = [1, 2, 3].map((a) => ({ job: "add", handle: `handle ${a}`, params: { a, b: 1 } }));
        const tickets = await client.submitMany(runs);
        const results = await Promise.all(tickets.map((ticket) => ticket.result()));
        client.close();
        answer([results, tickets.map((ticket) => ticket.joined)]);
    """
    async with serving() as (_, _, url):
        assert await run_node(program, url) == [[2, 3, 4], [False] * 3]


async def test_one_refusal_refuses_all_or_only_that_run():
    program = """
        const client = await connect(argument);
        const add = (handle, options) => ({ job: "add", handle, params: { a: 1, b: 1 }, ...options });
        const runs = [add("a"), add("a", { requestId: "x" }), add("b", { onConflict: "queue" })];
        const before = client.state.seq;
        const refused = await client.submitMany(runs).catch((error) => error);
        const unchanged = client.state.seq === before;
        const outcomes = await client.submitMany(runs, { allOrNothing: false });
        client.close();
        const codes = outcomes.map((outcome) => outcome.code ?? "accepted");
        const active = outcomes[1].details.active_run === outcomes[0].id;
        answer([refused.code, refused.message.slice(0, 8), refused.details.index, unchanged, codes, active]);
    """
    async with serving() as (_, _, url):
        found = await run_node(program, url)
    assert found == ["conflict", "runs[1]:", 1, True, ["accepted", "conflict", "accepted"], True]


async def test_a_batch_that_is_sent_again_after_a_lost_connection_is_carried_out_once():
    program = """
        const client = await connect(argument);
        const runs = ["a", "b"].map((handle) => ({ job: "wait", handle, params: {} }));
        const tickets = await client.submitMany(runs);
        const { queued, executing } = (await client.snapshot()).lanes.main;
        client.close();
        const ids = tickets.map(({ id }) => id);
        answer([tickets.map((ticket) => ticket.joined), ids, [...executing, ...queued]]);
    """
    async with serving() as (engine, gateway, _), proxy(gateway.port) as between:
        found: list[Any] = []

        async def run() -> None:
            found.extend(await run_node(program, f"ws://127.0.0.1:{between.port}"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await anext(engine.events())
            between.cut()
    joined, tickets, runs = found
    assert joined == [False, False]
    assert tickets == runs


async def test_what_is_no_batch_is_refused():
    program = """
        const client = await connect(argument);
        const entry = { job: "add", handle: "a", params: { a: 1, b: 1 } };
        const batches = [entry, [entry, { ...entry, handel: "b" }], Array(10_001).fill(entry)];
        const told = [];
        for (const runs of batches) await client.submitMany(runs).catch((error) => told.push(error.message));
        const text = "x".repeat(3_000_000);
        await client.submitMany([{ ...entry, params: text }]).catch((error) => told.push(error.message));
        client.close();
        answer(told);
    """
    async with serving() as (_, _, url):
        no_list, unknown, too_many, too_long = await run_node(program, url)
    assert no_list == "submitMany: runs must be an array (got [object Object])"
    assert unknown == 'submitMany: runs[1]: unknown option "handel"; did you mean handle?'
    assert too_many == (
        "submitMany: runs must have at most 10000 entries (got 10001): divide them among several calls"
    )
    assert too_long.startswith("submit_many: message must have at most 2097152 bytes")
    assert too_long.endswith(": divide its runs among several calls")
