"""The options of the JavaScript client, in camelCase and with the protocol's names."""

from __future__ import annotations

import msgspec
import pytest

from greenroom.protocol import commands as wire
from greenroom.protocol.events import Filter
from greenroom.protocol.flow import commands as flow_wire

from .javascript import needs_node, run_node
from .test_javascript import serving

pytestmark = needs_node

COMMANDS: dict[str, tuple[type[msgspec.Struct], str]] = {
    "submit": (wire.Submit, "job"),
    "submitMany": (wire.SubmitMany, "runs"),
    "rerun": (wire.Rerun, "run_id"),
    "retry": (wire.Retry, "run_id"),
    "cancelMany": (wire.CancelMany, ""),
    "rerunMany": (wire.RerunMany, ""),
    "retryMany": (wire.RetryMany, ""),
    "answer": (wire.Answer, "interrupt_id data"),
    "listRuns": (wire.ListRuns, ""),
    "history": (wire.History, "run_id"),
    "onEvent": (Filter, ""),
    "flows.publish": (flow_wire.PublishFlow, "name definition"),
    "flows.addVersion": (flow_wire.AddFlowVersion, "flow definition"),
    "flows.list": (flow_wire.ListFlows, ""),
    "flows.versions": (flow_wire.ListFlowVersions, "flow"),
    "flows.start": (flow_wire.StartFlow, "flow needs"),
    "flows.tasks": (flow_wire.ListTasks, ""),
    "flows.nodeRuns": (flow_wire.NodeRuns, "run_id"),
    "workers.register": (flow_wire.RegisterWorker, "worker_id url services"),
    "workers.list": (flow_wire.ListWorkers, ""),
    "workers.complete": (flow_wire.CompleteWork, "item_id result"),
}
"""The command of each method with options, and the fields of it that are no options: arguments of their own,
and `needs`, which a flow always refuses."""


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


async def known_options() -> dict[str, list[str]]:
    """The options of each method that has any, from the error that it reports for an unknown one."""
    program = """
        const client = await connect(argument);
        const bad = { zzzzzzzzz: 1 };
        const calls = {
            connect: () => connect(argument, bad),
            submit: () => client.submit("add", bad),
            submitMany: () => client.submitMany([], bad),
            rerun: () => client.rerun("x", bad),
            retry: () => client.retry("x", bad),
            cancelMany: () => client.cancelMany(bad),
            rerunMany: () => client.rerunMany(bad),
            retryMany: () => client.retryMany(bad),
            answer: () => client.answer("x", "data", bad),
            listRuns: () => client.listRuns(bad),
            history: () => client.history("x", bad),
            events: async () => client.events(bad),
            onEvent: async () => client.onEvent(() => {}, bad),
            "flows.publish": () => client.flows.publish("x", {}, bad),
            "flows.addVersion": () => client.flows.addVersion("x", {}, bad),
            "flows.list": () => client.flows.list(bad),
            "flows.versions": () => client.flows.versions("x", bad),
            "flows.start": () => client.flows.start("x", bad),
            "flows.tasks": () => client.flows.tasks(bad),
            "flows.nodeRuns": () => client.flows.nodeRuns("x", bad),
            "workers.register": () => client.workers.register("x", "", ["s"], bad),
            "workers.list": () => client.workers.list(bad),
            "workers.complete": () => client.workers.complete("x", 1, bad),
        };
        const known = {};
        for (const [name, call] of Object.entries(calls)) {
            known[name] = await call().catch((error) => error.details.known);
        }
        client.close();
        answer(known);
    """
    async with serving() as (_, _, url):
        known: dict[str, list[str]] = await run_node(program, url)
    return known


async def test_a_start_time_is_a_date_or_unix_seconds():
    program = """
        const client = await connect(argument);
        const date = new Date("2096-12-01T08:00:00Z");
        const found = [];
        for (const startAt of [date, date.getTime() / 1000]) {
            const options = { handle: `${found.length}`, params: { a: 1 }, startAt };
            const ticket = await client.submit("add", options);
            found.push((await client.getRun(ticket.id)).not_before);
        }
        const soon = new Date("soon");
        for (const bad of [{ startAt: date.getTime() }, { startAt: soon }, { startAt: date, delay: 1 }]) {
            const refused = client.submit("add", { handle: "h", params: { a: 1 }, ...bad });
            await refused.catch((error) => found.push(error.code));
        }
        client.close();
        answer(found);
    """
    async with serving() as (_, _, url):
        found = await run_node(program, url)
    assert found == [4_005_187_200, 4_005_187_200, "invalid", "invalid", "invalid"]


async def test_a_method_takes_each_field_of_its_command_as_an_option():
    known = await known_options()
    assert known.keys() - COMMANDS.keys() == {"connect", "events"}
    assert {name: sorted(known[name]) for name in COMMANDS} == {
        name: sorted(
            camel_case(field)
            for field in command.__struct_fields__
            if field not in ("id", *arguments.split())
        )
        for name, (command, arguments) in COMMANDS.items()
    }


async def test_an_option_means_the_same_in_camel_case_and_in_snake_case():
    program = """
        const client = await connect(argument);
        const spelled = [
            { requestId: "one", runTimeout: Infinity, onConflict: "queue", queueTimeout: 9 },
            { request_id: "one", run_timeout: Infinity, on_conflict: "queue", queue_timeout: 9 },
            { requestId: "one", request_id: "one" },
            { requestId: "one", request_id: undefined },
        ];
        const tickets = [];
        for (const options of spelled) {
            tickets.push(await client.submit("add", { handle: "alice", params: { a: 1, b: 2 }, ...options }));
        }
        client.close();
        answer([new Set(tickets.map((ticket) => ticket.id)).size, tickets.map((ticket) => ticket.joined)]);
    """
    async with serving() as (_, _, url):
        assert await run_node(program, url) == [1, [False, True, True, True]]


async def test_a_submission_that_coalesces_has_joined_the_run_that_waits():
    program = """
        const client = await connect(argument);
        const tickets = [];
        for (const n of [1, 2, 3]) {
            const options = { handle: "alice", params: { n }, onConflict: "coalesce" };
            tickets.push(await client.submit("wait", options));
        }
        const run = await client.getRun(tickets[1].id);
        client.close();
        answer([tickets.map((ticket) => ticket.joined), tickets[2].id === run.id, run.params]);
    """
    async with serving() as (_, _, url):
        assert await run_node(program, url) == [[False, False, True], True, {"n": 3}]


async def test_infinity_is_no_limit_in_place_of_the_default_of_the_job():
    program = """
        const client = await connect(argument);
        const submit = (handle, options) => client.submit("brief", { handle, params: {}, ...options });
        const camel = await submit("a", { runTimeout: Infinity });
        const snake = await submit("b", { run_timeout: Infinity });
        const limited = await submit("c", {});
        const { status } = await client.ended(limited.id);
        for (const handle of ["a", "b"]) await client.inject(handle, handle).catch(() => {});
        const results = [camel, snake].map((ticket) => ticket.result().catch((error) => error.message));
        answer([status, await Promise.all(results)]);
        client.close();
    """
    async with serving() as (_, _, url):
        assert await run_node(program, url) == ["timed_out", ["a", "b"]]


REFUSED = {
    "submit('x', { onConflct: 'join' })": 'submit: unknown option "onConflct"; did you mean onConflict?',
    "submit('x', { request_ID: 'x' })": 'submit: unknown option "request_ID"; did you mean requestId?',
    "submit('x', { constructor: 'x' })": (
        'submit: unknown option "constructor"; known options: handle, params, kind, lane, onConflict, '
        "requestId, queueTimeout, runTimeout, deadline, warnAfter, needs, priority, key, startAt, delay, "
        "reserve, tags, notify, traceparent, tracestate"
    ),
    "submit('x', { requestId: 'x', request_id: 'y' })": (
        "submit: requestId and request_id are the same option and have different values; pass only requestId"
    ),
    "submit('x', null)": "submit: options must be an object (got null)",
    "listRuns({ handel: 'x' })": 'listRuns: unknown option "handel"; did you mean handle?',
    "workers.complete('x', 1, { worker: 'w' })": (
        'workers.complete: unknown option "worker"; did you mean workerId?'
    ),
    "events({ filter: { handle: ['x'] } })": 'filter: unknown field "handle"; did you mean handles?',
    "events({ filter: { handles: 'x' } })": 'filter.handles must be an array of strings (got "x")',
    "onEvent()": "onEvent: the listener must be a function (got undefined)",
    "onConnection('x')": 'onConnection: the listener must be a function (got "x")',
}


async def test_an_unknown_option_is_refused_with_the_nearest_known_one():
    calls = ",\n".join(f"() => client.{call}" for call in REFUSED)
    program = f"""
        const client = await connect(argument);
        const messages = [];
        for (const call of [{calls}]) {{
            try {{
                await call();
                messages.push("accepted");
            }} catch (error) {{
                messages.push(error.code === "invalid" ? error.message : error.stack);
            }}
        }}
        client.close();
        answer(messages);
    """
    async with serving() as (_, _, url):
        messages = await run_node(program, url)
    assert dict(zip(REFUSED, messages, strict=True)) == REFUSED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("{ tokn: 'x' }", 'connect: unknown option "tokn"; did you mean token?'),
        (
            "{ on_connection: () => {}, onConnection: () => {} }",
            "connect: onConnection and on_connection are the same",
        ),
        ("{ onConnection: 1 }", "onConnection: the listener must be a function (got 1)"),
        ("{ patience: '5' }", 'connect: patience must be a number of seconds, at least 0 (got "5")'),
        (
            "{ filter: { types: ['run_log'] } }",
            "connect: filter.types is not allowed: the state needs events of all",
        ),
    ],
)
async def test_connect_refuses_an_invalid_option_before_it_connects(options: str, message: str):
    program = f"""
        await connect("ws://127.0.0.1:1", {options}).catch((error) => answer([error.code, error.message]));
    """
    code, told = await run_node(program)
    assert code == "invalid"
    assert told.startswith(message)


async def test_a_value_that_json_cannot_represent_is_refused_and_changes_nothing():
    program = """
        const client = await connect(argument);
        await client.setConcurrency("x", 7);
        const cyclic = {};
        cyclic.itself = cyclic;
        const calls = [
            () => client.setConcurrency("x", NaN),
            () => client.setConcurrency("x", Infinity),
            () => client.setMaxConcurrent(10n),
            () => client.submit("add", { handle: "alice", params: { a: NaN, b: 1 } }),
            () => client.submit("add", { handle: "alice", params: { a: 1, b: 1 }, runTimeout: NaN }),
            () => client.submit("add", { handle: "alice", params: cyclic }),
        ];
        const errors = [];
        for (const call of calls) await call().catch((error) => errors.push([error.code, error.message]));
        const { lanes, runs } = await client.snapshot();
        client.close();
        answer({ errors, limit: lanes.x.limit, runs });
    """
    async with serving() as (_, _, url):
        found = await run_node(program, url)
    *numbers, [code, cyclic] = found["errors"]
    remedy = "is not a JSON value; use another number, null or a string"
    assert numbers == [
        ["invalid", f"set_concurrency: limit: NaN {remedy}"],
        ["invalid", f"set_concurrency: limit: Infinity {remedy}"],
        ["invalid", f"set_max_concurrent: limit: 10 {remedy}"],
        ["invalid", f"submit: a: NaN {remedy}"],
        ["invalid", f"submit: run_timeout: NaN {remedy}"],
    ]
    assert code == "invalid"
    assert cyclic.startswith("submit: Converting circular structure to JSON")
    assert (found["limit"], found["runs"]) == (7, {})
