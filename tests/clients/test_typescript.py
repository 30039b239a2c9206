"""The types of the JavaScript client: what they accept and refuse, and that they match the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from greenroom.gateway.description.typescript import updated
from greenroom.protocol.events import Event

from .javascript import ROOT, run_node
from .test_javascript import serving
from .test_javascript_options import known_options
from .typescript import TYPES, declarations, diagnose, needs_typescript

PROGRAM = Path(__file__).with_name("program.ts")

CONNECTED = """
    import { Client, Ticket, connect } from "greenroom";
    const client = await connect("ws://127.0.0.1:8440");
"""

REFUSED = {
    'await client.submit("add", { handle: "a", onConflct: "join" });': "'onConflct' does not exist",
    'await client.submit("add", { handle: "a", onConflict: "wait" });': "'\"wait\"' is not assignable",
    'await client.submit("add", { params: {} });': "Property 'handle' is missing",
    'const n: number = await (await client.submit("add", { handle: "a" })).result();': (
        "'unknown' is not assignable to type 'number'"
    ),
    'const s: string = await (await client.submit<number>("add", { handle: "a" })).result();': (
        "'number' is not assignable to type 'string'"
    ),
    'await connect("ws://x", { filter: { types: ["run_log"] } });': "'types' does not exist",
    'await connect("ws://x", { onconnection: () => {} });': "'onconnection' does not exist",
    'client.onEvent((event) => event.type === "run_stated");': "have no overlap",
    'client.onEvent((event) => event.type !== "snapshot" && event.text);': "'text' does not exist on type",
    'client.onEvent((event) => event.type === "run_log", { types: ["run_progress"] });': "have no overlap",
    'client.events({ filter: { types: ["run_logs"] } });': "'\"run_logs\"' is not assignable",
    "client.onConnection((state) => state.attempt);": "'attempt' does not exist on type",
    'await connect(["ws://x", 5]);': "'number' is not assignable",
    "client.state = null;": "Cannot assign to 'state'",
    '(await connect("ws://x", { follow: false })).state.runs;': "possibly 'null'",
    "new Client();": "Constructor of class 'Client<State>' is private",
    'new Ticket("x", false, client);': "Constructor of class 'Ticket<Result>' is private",
    "client.state.snapshot().createdAt;": "'createdAt' does not exist on type 'Snapshot'",
    "await client.setConcurrency(1, 'main');": "'number' is not assignable to parameter of type 'string'",
}


def snake_case(name: str) -> str:
    return (
        re.sub("(?<=[a-z])[A-Z]", lambda letter: f"_{letter[0].lower()}", name) if name[0].islower() else name
    )


@needs_typescript
@pytest.mark.parametrize("lib", [("es2022",), ("es2022", "dom")], ids=["without the DOM", "with the DOM"])
async def test_a_program_compiles_in_strict_mode(lib: tuple[str, ...], tmp_path: Path):
    program = tmp_path / "program.mts"
    text = PROGRAM.read_text(encoding="utf-8")
    if "dom" in lib:
        text += (
            "await connect(url, { WebSocket });\nclient.events({ signal: new AbortController().signal });\n"
        )
    else:
        text = "declare const globalThis: { URL: new (url: string) => { href: string } };\n" + text
    program.write_text(text, encoding="utf-8")
    assert await diagnose(program, lib=lib) == []


@needs_typescript
async def test_a_program_that_misuses_the_client_does_not_compile(tmp_path: Path):
    for number, statement in enumerate(REFUSED):
        text = f"{CONNECTED}{statement}\n"
        (tmp_path / f"{number}.mts").write_text(text, encoding="utf-8")
    files = [tmp_path / f"{number}.mts" for number in range(len(REFUSED))]
    found: dict[str | None, list[str]] = {}
    for file, line, message in await diagnose(*files):
        assert line == CONNECTED.count("\n") + 1
        found.setdefault(file, []).append(message)
    wrong = {
        statement: found.get(str(file))
        for file, (statement, expected) in zip(files, REFUSED.items(), strict=True)
        if len(found.get(str(file), ())) != 1 or expected not in found[str(file)][0]
    }
    assert wrong == {}


@needs_typescript
async def test_the_types_declare_what_the_module_exports():
    program = """
        const client = await connect(argument);
        const snapshot = await client.snapshot();
        const ticket = await client.submit("add", { handle: "alice", params: { a: 1, b: 2 } });
        const run = await client.wait(ticket.id);
        client.close();
        const samples = {
            Client: client,
            Ticket: ticket,
            Projection: new Projection(snapshot),
            GreenroomError: new GreenroomError("invalid", ""),
            OutcomeUnknown: new OutcomeUnknown("submit", ""),
            RunEnded: new RunEnded(run),
            ExactNumber: new greenroom.ExactNumber("1"),
        };
        const names = (value) => value === Object.prototype || value === Error.prototype || value === null
            ? []
            : [...Object.getOwnPropertyNames(value), ...names(Object.getPrototypeOf(value))];
        answer({
            exports: Object.keys(greenroom),
            members: Object.fromEntries(Object.entries(samples).map(([name, it]) => [name, names(it)])),
            flows: Object.keys(client.flows),
            workers: Object.keys(client.workers),
        });
    """
    async with serving() as (_, _, url):
        found = await run_node(program, url)
    declared = await declarations()
    assert sorted(declared["values"]) == sorted(found["exports"])
    of_errors = {"name", "message", "stack", "cause"}
    for name, members in declared["classes"].items():
        assert set(members) - of_errors == set(found["members"].pop(name)) - of_errors - {"constructor"}
    assert found["members"] == {}
    for group in ("flows", "workers"):
        methods = [name for name in declared["options"] if name.startswith(f"{group}.")]
        assert sorted(methods) == sorted(f"{group}.{name}" for name in found[group])


@needs_typescript
async def test_the_types_declare_the_options_that_the_module_knows():
    declared = {name: options for name, options in (await declarations())["options"].items() if options}
    known = await known_options()
    assert {name: sorted(option for option, _ in options) for name, options in declared.items()} == {
        name: sorted({*options, *map(snake_case, options)}) for name, options in known.items()
    }
    deprecated = {
        option for options in declared.values() for option, is_deprecated in options if is_deprecated
    }
    assert deprecated == {option for options in declared.values() for option, _ in options if "_" in option}


@needs_typescript
async def test_the_types_of_events_have_the_fields_of_the_python_types():
    declared = (await declarations())["events"]
    expected = {}
    for event in get_args(Event):
        fields = [["type", False]]
        fields += [[field.encode_name, not field.required] for field in msgspec.structs.fields(event)]
        expected[event.__struct_config__.tag] = fields
    assert declared == expected


def test_the_generated_types_are_current():
    text = TYPES.read_text(encoding="utf-8")
    file = TYPES.relative_to(ROOT)
    command = f".venv/bin/python -m greenroom.gateway.description.typescript {file}"
    assert updated(text) == text, f"run `{command}`"
