"""The JavaScript client in Node, with the global WebSocket and with the package `ws`, against a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom import Engine, Jobs, Run, open_engine
from greenroom.gateway import Gateway, GatewayConfig, Role, add_token, open_gateway

from .javascript import WS, needs_node, run_node
from .proxy import proxy

pytestmark = needs_node

CLASSES = ["the global one", pytest.param("ws", marks=pytest.mark.skipif(not WS.exists(), reason="no ws"))]
"""Which WebSocket the client uses."""


def make_jobs() -> Jobs:
    jobs = Jobs()

    @jobs.job("add")
    async def add(run: Run, params: dict[str, Any]) -> Any:
        return params["a"] + params["b"]

    @jobs.job("wait")
    async def wait(run: Run, params: dict[str, Any]) -> Any:
        return await run.next_message()

    @jobs.job("brief", run_timeout=0.05)
    async def brief(run: Run, params: dict[str, Any]) -> Any:
        return await run.next_message()

    @jobs.job("ask")
    async def ask(run: Run, params: dict[str, Any]) -> Any:
        return await run.interrupt({"may": "I?"})

    @jobs.job("log")
    async def log(run: Run, params: dict[str, Any]) -> None:
        for number in range(params["lines"]):
            await run.log(f"line {number}")

    return jobs


@asynccontextmanager
async def serving(config: GatewayConfig | None = None) -> AsyncIterator[tuple[Engine, Gateway, str]]:
    config = config or GatewayConfig(port=0)
    async with open_engine(make_jobs(), "memory:") as engine, open_gateway(engine, config) as gateway:
        yield engine, gateway, f"ws://127.0.0.1:{gateway.port}"


@pytest.mark.parametrize("which", CLASSES)
async def test_every_command_does_what_the_engine_does(which: str):
    program = """
        const options = argument.ws ? { WebSocket: (await import(argument.ws)).default } : {};
        const client = await connect(argument.url, options);
        const found = {};
        const add = await client.submit("add", { handle: "alice", params: { a: 1, b: 2 } });
        found.result = await add.result();
        found.again = await (await client.rerun(add.id)).result();
        const big = await client.submit("add", { handle: "dora", params: {}, needs: ["big"] });
        await big.cancel();
        const bigAgain = await client.rerun(big.id);
        found.needs = (await client.getRun(bigAgain.id)).needs;
        await bigAgain.cancel();
        const wait = await client.submit("wait", { handle: "bob", params: {}, runTimeout: Infinity });
        found.waited = await wait.wait(0.05);
        while (client.state.runs.get(wait.id).status !== "running") await client.getRun(wait.id);
        found.injected = await client.inject("bob", { hello: "✓" });
        found.message = await wait.result();
        const after = client.state.seq;
        const ask = await client.submit("ask", { handle: "carol", params: {} });
        for await (const event of client.events({ after })) if (event.type === "interrupt_opened") break;
        const [interrupt] = client.state.interrupts.keys();
        found.answered = await client.answer(interrupt, "yes");
        found.answer = await ask.result();
        const asks = await client.submit("ask", { handle: "carol", params: {} });
        while (client.state.interrupts.size === 0) await client.snapshot();
        const [{ key }] = client.state.interrupts.values();
        found.byHandle = [
          (await client.getRun("carol")).id === asks.id,
          (await client.wait("carol", 0.01)).status,
          await client.answer("carol", "no", { key: "another" }),
          await client.answer("carol", "no", { key }),
          (await client.wait(asks.id)).result,
          await client.cancel("carol").catch((error) => error.code),
        ];
        await client.setConcurrency("side", 0);
        const queued = await client.submit("add", { handle: "dave", lane: "side", params: {} });
        found.cleared = await client.clearLane("side");
        found.how = await queued.result().catch((error) => [error.name, error.run.reason]);
        await client.setParams("alice", { a: 5, b: 6 });
        found.draft = await (await client.submit("add", { handle: "alice" })).result();
        await client.setMaxConcurrent(7);
        await client.drain();
        found.draining = await client.submit("add", { handle: "x" }).catch((error) => error.code);
        await client.resetLanes();
        await client.resume();
        found.released = await client.releaseHandle("alice");
        found.none = await client.clearHandle("alice");
        const last = await client.submit("wait", { handle: "erin", params: {} });
        found.cancelled = (await last.cancel()).status;
        await last.result().catch(() => {});
        found.listed = (await client.listRuns({ status: ["succeeded"], limit: 2 })).length;
        found.jobs = (await client.listJobs()).map(({ name, lane }) => `${name} in ${lane}`);
        found.history = (await client.history(add.id)).map((event) => event.to);
        found.same = [await client.snapshot(), client.state.snapshot()];
        found.role = client.role;
        client.close();
        answer(found);
    """
    async with serving() as (engine, _, url):
        found = await run_node(program, {"url": url, "ws": WS.as_uri() if which == "ws" else None})
        snapshot = await engine.snapshot()
    first, second = found.pop("same")
    assert first == second
    assert first["seq"] == snapshot.seq
    assert found == {
        "result": 3,
        "again": 3,
        "needs": ["big"],
        "waited": False,
        "injected": "accepted",
        "message": {"hello": "✓"},
        "answered": "resolved",
        "answer": "yes",
        "byHandle": [True, "running", "not_found", "resolved", "no", "no_active_run"],
        "cleared": 1,
        "how": ["RunEnded", "lane_cleared"],
        "draft": 11,
        "draining": "draining",
        "released": False,
        "none": 0,
        "cancelled": "cancelled" if found["cancelled"] == "cancelled" else "cancelling",
        "listed": 2,
        "jobs": ["add in main", "ask in main", "brief in main", "log in main", "wait in main"],
        "history": ["queued", "running", "succeeded"],
        "role": "admin",
    }


async def test_runs_are_found_by_tags_and_handled_many_at_once():
    program = """
        const client = await connect(argument);
        const begun = Date.now() / 1000 - 60;
        const submit = (handle, a, tags) => client.submit("add", { handle, params: { a, b: 1 }, tags });
        const tickets = [];
        for (const [n, customer] of [["1", "Über=42"], ["2", "Über=42"], ["3", "43"]]) {
            tickets.push(await submit(n, Number(n), { customer, some_name: n }));
            await tickets.at(-1).result();
        }
        const broken = await submit("4", null, {});
        await broken.wait();
        const ids = (runs) => runs.map((run) => Number(run.handle));
        const tags = { customer: "Über=42" };
        const found = {
            tagged: ids(await client.listRuns({ tags })),
            both: ids(await client.listRuns({ tags: { ...tags, some_name: "2" }, job: "add" })),
            failed: ids(await client.listRuns({ error: "None", since: begun })),
            none: ids(await client.listRuns({ until: new Date(begun * 1000) })),
            tags: client.state.runs.get(tickets[0].id).tags,
            counted: await client.rerunMany({ tags, dryRun: true }),
            done: [1, 2].map(() => client.rerunMany({ tags, requestId: "r" })),
            retried: await client.retryMany({ handle: "4" }),
            refused: await client.retry(tickets[0].id).catch((error) => error.code),
            unlimited: await client.cancelMany().catch((error) => error.code),
        };
        found.done = await Promise.all(found.done);
        await client.setConcurrency("side", 0);
        await client.submit("add", { handle: "5", lane: "side", params: {} });
        found.cancelled = await client.cancelMany({ lane: "side", files: "delete" });
        found.runs = (await client.listRuns()).length;
        client.close();
        answer(found);
    """
    async with serving() as (_, _, url):
        found = await run_node(program, url)
    two = {"matched": 2, "done": 2, "refused": 0, "refusals": []}
    one = {**two, "matched": 1, "done": 1}
    assert found == {
        "tagged": [2, 1],
        "both": [2],
        "failed": [4],
        "none": [],
        "tags": {"customer": "Über=42", "some_name": "1"},
        "counted": {**two, "done": 0},
        "done": [two, two],
        "retried": one,
        "refused": "conflict",
        "unlimited": "invalid",
        "cancelled": one,
        "runs": 8,
    }


async def test_flows_and_workers_do_what_the_engine_does():
    program = """
        const client = await connect(argument.url);
        const found = {};
        const node = { kind: "executor", exec_type: "queue", service: "sum", prep: { input_key: "$params.n" },
                       post: { output_key: "sum" } };
        const wait = { kind: "wait_event", params: { signal_key: "$shared.flag" } };
        const edges = [{ from: "a", action: "default", to: "w" }];
        const graph = { start: "a", nodes: { a: node, w: wait }, edges };
        found.mistakes = (await client.flows.check({ start: "x" })).errors.length > 0;
        found.right = await client.flows.check(graph);
        found.made = (await client.flows.create("order", "d")).description;
        found.published = (await client.flows.publish("order", graph)).version;
        found.draft = (await client.flows.addVersion("order", graph, { status: "draft", version: 7 })).status;
        const { flows, total } = await client.flows.list({ limit: 5 });
        found.listed = [flows.map((flow) => flow.name), total];
        const versions = await client.flows.versions("order");
        found.versions = versions.map((version) => version.version);
        found.graph = JSON.parse((await client.flows.version(versions[0].id)).definition);
        const ticket = await client.flows.start("order", { params: { n: [1, 2] }, deadline: Infinity });
        found.worker = (await client.workers.register("w", "", ["sum"], { kind: "queue" })).status;
        await client.workers.heartbeat("w", 1);
        found.load = (await client.workers.list({ service: "sum" }))[0].load;
        found.nobody = await client.workers.allocate("sum");
        const item = await client.workers.poll("w", ["sum"]);
        found.input = item.input;
        await client.workers.extend(item.id, "w");
        await client.workers.complete(item.id, 3, { workerId: "w" });
        found.late = await client.workers.complete(item.id, 3).catch((error) => error.code);
        found.nothing = await client.workers.poll("w", ["sum"], 0);
        await client.signal(ticket.id, "flag", true);
        found.result = await ticket.result();
        found.rows = (await client.flows.nodeRuns(ticket.id)).map((row) => [row.node, row.status]);
        found.shared = (await client.flows.task(ticket.id)).shared;
        const page = await client.flows.tasks({ status: "succeeded" });
        found.tasks = [page.tasks.map((task) => task.run.id === ticket.id), page.total];
        client.close();
        answer([found, graph]);
    """
    async with serving() as (_, _, url):
        found, graph = await run_node(program, {"url": url})
    assert found == {
        "mistakes": True,
        "right": {"errors": [], "warnings": []},
        "made": "d",
        "published": 1,
        "draft": "draft",
        "listed": [["order"], 1],
        "versions": [1, 7],
        "graph": graph,
        "worker": "online",
        "load": 1,
        "nobody": None,
        "input": [1, 2],
        "late": "conflict",
        "nothing": None,
        "result": {"sum": 3, "flag": True},
        "rows": [["a", "ok"], ["w", "ok"]],
        "shared": {"sum": 3, "flag": True},
        "tasks": [[True], 1],
    }


async def test_a_refused_command_has_a_code_and_details():
    program = """
        const client = await connect(argument);
        const busy = await client.submit("wait", { handle: "busy", params: {} });
        const refusals = [
            () => client.submit("nope", { handle: "x", params: {} }),
            () => client.submit("wait", { handle: "busy", params: {} }),
            () => client.submit("wait", { params: {} }),
            () => client.getRun("nobody"),
            () => client.setParams("busy", {}),
            () => client.inject("nobody", 1),
            () => client.submit("wait", { handle: "y", params: { text: "x".repeat(3_000_000) } }),
            () => client.events({ filter: { colours: [] } }),
            () => client.inject("busy", "half \\ud83d"),
            () => client.inject("busy", { "\\udc00": 1 }),
            () => client.getRun("no half: \\u{1f600} \\\\ud83d"),
        ];
        const found = [];
        for (const refused of refusals) {
            try {
                await refused();
            } catch (error) {
                found.push([error instanceof GreenroomError, error.code, Object.keys(error.details)]);
            }
        }
        await busy.cancel();
        client.close();
        found.push(await client.getRun("x").catch((error) => [error.code, error.message]));
        answer(found);
    """
    async with serving() as (_, _, url):
        assert await run_node(program, url) == [
            [True, "invalid", ["value"]],
            [True, "conflict", ["active_run"]],
            [True, "invalid", ["path"]],
            [True, "not_found", ["value"]],
            [True, "handle_locked", ["active_run"]],
            [True, "no_active_run", []],
            [True, "too_large", ["size", "limit"]],
            [True, "invalid", ["field", "known"]],
            [True, "invalid", []],
            [True, "invalid", []],
            [True, "not_found", ["value"]],
            ["unavailable", "the client is closed"],
        ]


async def test_events_before_the_connection_and_filtered_events_are_available():
    program = """
        const client = await connect(argument);
        const early = [];
        for await (const event of client.events({ after: 2 })) {
            early.push(event.seq);
            if (event.seq === client.state.seq) break;
        }
        const stop = new AbortController();
        const filtered = [];
        const heard = [];
        const off = client.onEvent((event) => heard.push(event.seq), { types: ["handle_changed"] });
        const reading = (async () => {
            const filter = { handles: ["a"], types: ["handle_changed"] };
            const events = client.events({ filter, signal: stop.signal });
            for await (const event of events) filtered.push(event.seq);
        })();
        for (const handle of ["a", "b", "a"]) await client.setParams(handle, { n: 1 });
        off();
        await client.setParams("b", null);
        const late = await client.events({ after: 10_000 }).next();
        const narrow = await connect(argument, { filter: { handles: ["b"] } });
        const handles = Object.keys(narrow.state.snapshot().handles);
        setTimeout(() => stop.abort(), 50);
        await reading;
        client.close();
        narrow.close();
        answer({ early, filtered, heard, late: late.value.type, handles });
    """
    async with serving() as (engine, _, url):
        for number in range(10):
            await engine.set_params("b", {"number": number})
        assert await run_node(program, url) == {
            "early": [3, 4, 5, 6, 7, 8, 9, 10],
            "filtered": [11, 13],
            "heard": [11, 12, 13],
            "late": "snapshot",
            "handles": [],
        }


async def test_a_long_history_is_read_from_its_end():
    program = """
        const client = await connect(argument.url);
        const whole = await client.history(argument.run);
        const seqs = async (options) => (await client.history(argument.run, options)).map(({ seq }) => seq);
        answer({
            whole: whole.map(({ seq }) => seq),
            fromTheEnd: await seqs({ before: client.state.seq + 1 }),
            page: await seqs({ before: whole[1500].seq, limit: 1200 }),
            between: await seqs({ after: whole[9].seq, before: whole[12].seq }),
            none: await seqs({ before: whole[0].seq }),
            notGiven: (await seqs({ before: null, limit: 2 })).length,
        });
        client.close();
    """
    async with serving() as (engine, _, url):
        ticket = await engine.submit("log", handle="bob", params={"lines": 1600})
        await ticket.result()
        found = await run_node(program, {"url": url, "run": ticket.id})
    whole = found["whole"]
    assert len(whole) == 1603
    assert whole == sorted(set(whole))
    assert found["fromTheEnd"] == whole
    assert found["page"] == whole[300:1500]
    assert found["between"] == whole[10:12]
    assert found["none"] == []
    assert found["notGiven"] == 2


async def test_schedules():
    program = """
        const client = await connect(argument);
        const times = { cron: "0 3 * * *", timezone: "Europe/Berlin" };
        const options = { job: "add", handle: "h", params: { a: 1, b: 2 }, missedLimit: 7, ...times };
        const more = { runTimeout: Infinity, onConflict: "queue" };
        const put = await client.schedules.put("tick", { ...options, ...more });
        const ticket = await client.schedules.trigger("tick", { requestId: "1" });
        const again = await client.schedules.trigger("tick", { requestId: "1" });
        const found = { put: [put.missed_limit, put.options, put.next.length] };
        found.result = await ticket.result();
        found.again = [again.id === ticket.id, ticket.joined, again.joined];
        found.paused = (await client.schedules.pause("tick")).paused;
        found.state = client.state.schedules.get("tick").paused;
        found.resumed = (await client.schedules.resume("tick")).paused;
        found.got = (await client.schedules.get("tick")).name;
        found.listed = (await client.schedules.list()).length;
        await client.schedules.delete("tick");
        found.left = client.state.schedules.size;
        const refused = client.schedules.put("tick", { ...options, requestId: "r" });
        found.refused = await refused.catch((error) => error.message);
        client.close();
        answer(found);
    """
    async with serving() as (_, _, url):
        found = await run_node(program, url)
        assert found.pop("refused").startswith('schedules.put: unknown option "requestId"')
        assert found == {
            "put": [7, {"on_conflict": "queue", "run_timeout": "none"}, 3],
            "result": 3,
            "again": [True, False, True],
            "paused": True,
            "state": True,
            "resumed": False,
            "got": "tick",
            "listed": 1,
            "left": 0,
        }


async def test_the_client_retries_after_an_attempt_that_fires_an_error_only():
    """Node's WebSocket fires `error` for a refused attempt, but no `close`."""
    program = """
        const real = setTimeout;
        globalThis.setTimeout = (call, delay, ...rest) => real(call, delay < 5000 ? delay : 1e9, ...rest);
        let made = 0;
        let first;
        class Sometimes {
            constructor(...args) {
                made += 1;
                if (made === 1 || made > 3) return (first = new globalThis.WebSocket(...args));
                queueMicrotask(() => this.onerror({ message: "refused" }));
            }
            close() {}
        }
        const client = await connect(argument, { WebSocket: Sometimes });
        first.close();
        const ticket = await client.submit("add", { handle: "a", params: { a: 1, b: 2 } });
        const result = await ticket.result();
        client.close();
        answer({ made, result });
        process.exit(0);
    """
    async with serving() as (_, _, url):
        assert await run_node(program, url) == {"made": 4, "result": 3}


async def test_the_first_message_has_the_token(tmp_path: Path):
    program = """
        const found = [];
        for (const token of [null, "gr_wrong", argument.token]) {
            try {
                const client = await connect(argument.url, { token });
                found.push(client.role);
                found.push(await client.drain().catch((error) => error.code));
                client.close();
            } catch (error) {
                found.push(error.code);
            }
        }
        answer(found);
    """
    file = tmp_path / "tokens"
    token = add_token(file, "someone", Role.OPERATOR)
    async with serving(GatewayConfig(port=0, token_file=str(file))) as (_, _, url):
        found = await run_node(program, {"url": url, "token": token})
        assert found == ["unauthorized", "unauthorized", "operator", "forbidden"]
    async with serving() as (_, _, url):  # a gateway without tokens
        found = await run_node(program, {"url": url, "token": token})
        assert found == ["admin", None] * 3


async def test_a_limited_token_leaves_out_events_without_a_filter(tmp_path: Path):
    program = """
        const client = await connect(argument.url, { token: argument.token });
        const heard = [];
        client.onEvent((event) => heard.push(event.params.n));
        await client.setParams("b", { n: "ready" });
        while (heard.length < 5) await client.getRun("none").catch(() => {});
        client.close();
        answer({ heard, handles: Object.keys(client.state.snapshot().handles) });
    """
    file = tmp_path / "tokens"
    token = add_token(file, "bob", Role.OPERATOR, handles=["b"])
    async with serving(GatewayConfig(port=0, token_file=str(file))) as (engine, _, url):

        async def others() -> None:
            async for _ in engine.events():
                break
            for number, handle in enumerate("abcbabcb"):
                await engine.set_params(handle, {"n": number})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            found = await run_node(program, {"url": url, "token": token})
    assert found == {"heard": ["ready", 1, 3, 5, 7], "handles": ["b"]}


async def test_a_snapshot_replaces_events_that_the_gateway_no_longer_has():
    program = """
        const client = await connect(argument);
        const events = client.events();
        const heard = [];
        client.onEvent((item) => heard.push(item.type));
        await client.setParams("someone", {});
        await client.setParams("ready", {}).catch(() => {}); // the reply may be lost with the connection
        const read = [];
        for await (const item of events) {
            read.push(item.type);
            if (item.type === "snapshot") break;
        }
        const truth = await client.snapshot();
        client.close();
        answer({ same: [truth, client.state.snapshot()], read, heard });
    """
    async with serving() as (engine, gateway, _), proxy(gateway.port) as between:
        found: dict[str, Any] = {}

        async def run() -> None:
            found.update(await run_node(program, f"ws://127.0.0.1:{between.port}"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            async for event in engine.events():
                if getattr(event, "handle", None) == "ready":
                    break
            between.refuses = True
            between.cut()
            async with trio.open_nursery() as changes:
                for number in range(8192 + 10):
                    changes.start_soon(engine.set_params, "someone", {"number": number})
            between.refuses = False
    assert found["same"][0] == found["same"][1]
    assert found["read"] == found["heard"]
    assert found["read"][:-1] in (["handle_changed"], ["handle_changed"] * 2)
