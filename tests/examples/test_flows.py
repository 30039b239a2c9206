"""The flow files produce the results in the table of their folder, with a real server and real workers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom import Client, connect
from greenroom.protocol.flow.check import check
from greenroom.protocol.flow.model import KINDS, Graph, Subflow
from tests.cli.served import PATIENCE, Served, Worker

FOLDER = Path(__file__).parent / "flows"
FILES = sorted([*FOLDER.glob("*.yaml"), *FOLDER.glob("*.json")])
REFERRED = {"flow_ref": ["choice"], "everything": ["timer"]}


def table() -> Iterator[tuple[str, Any, list[tuple[str, ...]], Any]]:
    """The rows of the table: file, parameters, actions during the run, result."""
    for line in (FOLDER / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| ["):
            file, _, params, meanwhile, result = (cell.strip() for cell in line.strip("|").split("|"))
            steps = re.findall(r"(signal) `(.*?)` `(.*?)`|(answer) `(.*?)`", meanwhile)
            yield (
                re.findall(r"\((.*)\)", file)[0],
                json.loads(params.strip("`")),
                [tuple(filter(None, step)) for step in steps],
                json.loads(result.strip("`")),
            )


ROWS = list(table())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with both kinds of workers."""
    folder = tmp_path_factory.mktemp("server")
    app = (FOLDER / "functions.py").read_text(encoding="utf-8")
    with (
        Served(folder, "--allow-scripts", app=app) as served,
        Worker(folder, served.url),
        Worker(folder, served.url, "--queue"),
    ):
        yield served


async def publish(client: Client, name: str) -> None:
    [file] = [file for file in FILES if file.stem == name]
    await client.flows.publish(name, file.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("file", "params", "meanwhile", "result"), ROWS, ids=[f"{row[0]}-{n}" for n, row in enumerate(ROWS)]
)
async def test_a_flow_has_the_result_in_the_table(
    server: Served, file: str, params: Any, meanwhile: list[tuple[str, ...]], result: Any
):
    name = Path(file).stem
    with trio.fail_after(PATIENCE):
        async with connect(server.url) as client:
            for one in [*REFERRED.get(name, []), name]:
                await publish(client, one)
            ticket = await client.flows.start(name, params=params)
            for what, *arguments in meanwhile:
                if what == "answer":
                    interrupt = await opened(client, ticket.id)
                    assert await client.answer(interrupt, json.loads(arguments[0])) == "resolved"
                else:
                    await client.signal(ticket.id, arguments[0], json.loads(arguments[1]))
            assert shortened(await ticket.result()) == result


def shortened(value: Any) -> Any:
    """A result as in the table: of an error only its name."""
    if isinstance(value, dict):
        return {
            key: f"{part.partition(':')[0]}: …" if key == "error" else shortened(part)
            for key, part in value.items()
        }
    return [shortened(part) for part in value] if isinstance(value, list) else value


async def opened(client: Client, run_id: str) -> str:
    """The id of the interrupt of a run, as soon as it is open."""
    events = client.events(after=client.state.seq)
    while True:
        for id, interrupt in client.state.interrupts.items():
            if interrupt.run == run_id:
                return id
        await anext(events)


async def test_the_node_runs_of_errors_contain_each_attempt(server: Served):
    with trio.fail_after(PATIENCE):
        async with connect(server.url) as client:
            await publish(client, "errors")
            ticket = await client.flows.start("errors", params={"text": "hello"})
            await ticket.result()
            rows = await client.flows.node_runs(ticket.id)
    assert [(row.node, row.attempt, row.status, (row.error or "").partition(":")[0]) for row in rows] == [
        ("shout", 1, "error", "service_error"),
        ("shout", 2, "error", "service_error"),
        ("call", 1, "error", "no_worker"),
        ("outcome", 1, "ok", ""),
    ]


def test_the_table_has_each_file():
    assert {row[0] for row in ROWS} == {file.name for file in FILES}


def kinds_of(graph: Graph) -> Iterator[str]:
    for node in graph.nodes.values():
        yield node.kind
        if isinstance(node, Subflow):
            yield from kinds_of(node.subflow)


def test_there_is_a_file_for_each_kind_of_node_and_one_with_all_of_them():
    kinds = {}
    for file in FILES:
        checked = check(file.read_text(encoding="utf-8"), allow_scripts=True)
        assert (checked.errors, checked.warnings) == ([], []), file.name
        kinds[file.stem] = set(kinds_of(checked.graph))
    assert kinds["everything"] == set(KINDS)
    assert [kind for kind in KINDS if kind not in kinds.get(kind, ())] == []
