"""The pages about flows and workers agree with the code, and what they show works."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import attrs
import msgspec
import pytest
import trio

from greenroom import connect
from greenroom.actors.workers.states import FailureCode
from greenroom.gateway.tasks.calls import TABLE
from greenroom.protocol.flow.check import check
from greenroom.protocol.flow.grammar import parse_text
from greenroom.protocol.flow.mermaid import mermaid
from greenroom.protocol.flow.model import KINDS, Node, Post, Prep
from greenroom.protocol.flow.records import NodeRun
from greenroom.protocol.flow.terms import OPERATORS
from tests.cli.served import PATIENCE, Served

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
TUTORIAL = (DOCS / "tutorial" / "flows.md").read_text(encoding="utf-8")
FLOWS = (DOCS / "reference" / "flows.md").read_text(encoding="utf-8")
WORKERS = (DOCS / "how-to" / "workers.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def rows(text: str, *header: str) -> list[list[str]]:
    """The cells of the table below this header."""
    _, found, rest = text.partition(f"| {' | '.join(header)} |\n")
    assert found, header
    lines = rest.splitlines()[1:]
    end = next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[:end]]


def names(cell: str) -> list[str]:
    return re.findall(r"`([\w.]+)`", cell)


README = (DOCS.parent / "README.md").read_text(encoding="utf-8")
WHOLE = [block for text in (README, TUTORIAL) for block in blocks(text, "yaml") if block.startswith("start:")]


@pytest.mark.parametrize("definition", WHOLE, ids=range(len(WHOLE)))
def test_a_definition_that_is_shown_is_valid(definition: str):
    assert check(definition)[1:] == ([], [])


def test_the_drawing_is_that_of_the_last_definition():
    [drawing] = blocks(TUTORIAL, "mermaid")
    assert drawing == mermaid(check(WHOLE[-1]).graph)


def test_the_expressions_that_are_shown_mean_the_same():
    [written] = [block for block in blocks(FLOWS, "yaml") if block.startswith("- ")]
    cases = "".join(f"      - {{action: go, expr: {line[2:]}}}\n" for line in written.splitlines())
    cases = re.sub(r"expr: (\$.*)}", r"expr: '\1'}", cases)
    cases = re.sub(r"expr: (and\(.*)}", r"expr: '\1'}", cases)
    graph = check(f"start: a\nnodes:\n  a:\n    kind: choice\n    choice_cases:\n{cases}").graph
    first, second, third = [case.expr.term for case in graph.nodes["a"].choice_cases]
    assert first == second == third
    assert parse_text("a and b or c") == parse_text("(a and b) or c")
    assert parse_text("not a and b") == parse_text("(not a) and b")


def test_every_operator_is_documented():
    documented = [name for row in rows(FLOWS, "operator", "true if") for name in names(row[0])]
    assert sorted(documented) == sorted(OPERATORS)


def test_the_tables_of_fields_name_all_fields():
    common = {field.name for field in attrs.fields(Node)} - {"prep", "post"}
    common |= {f"prep.{field.name}" for field in attrs.fields(Prep)}
    common |= {f"post.{field.name}" for field in attrs.fields(Post)}
    documented = {names(row[0])[0] for row in rows(FLOWS, "field", "default", "meaning")}
    assert documented == common | {"kind"}
    kinds = {names(row[0])[0]: row[2] for row in rows(FLOWS, "kind", "what it does", "its own fields")}
    assert list(kinds) == list(KINDS)
    usual = {field.name for field in attrs.fields(Node)}
    for kind, cls in KINDS.items():
        own = {field.name for field in attrs.fields(cls)} - usual
        assert [name for name in own if f"`{name}`" not in kinds[kind]] == [], kind


def test_the_table_of_node_runs_names_their_fields():
    [table] = [text for text in FLOWS.split("### ") if text.startswith("Node runs")]
    documented = re.findall(r"^\| (.*?) \|.*$", table, re.MULTILINE)[1:]
    assert [name for cell in documented for name in names(cell)] == [
        name for name in NodeRun.__struct_fields__ if name != "last"
    ]


def test_the_errors_of_workers_are_documented():
    told = {name for row in rows(FLOWS, "name", "what has happened") for name in names(row[0])}
    assert set(get_args(FailureCode)) - {"stopped"} <= told


def test_the_calls_of_clients_are_documented():
    documented = {tuple(names_of_call(row[0])) for row in rows(FLOWS, "call", "body or query", "answer")}
    assert documented == {(call.method, call.path) for call in TABLE if not call.workers}
    for call in TABLE:
        if call.workers and call.path.count("/") > 1:
            assert call.path in WORKERS, call.path


def names_of_call(cell: str) -> list[str]:
    return cell.strip("`").split(" ")


def begin(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)


async def test_the_worker_that_is_shown_does_its_work(tmp_path: Path):
    [program] = [block for block in blocks(WORKERS, "python") if "urllib" in block]
    nodes = {
        "a": {
            "kind": "executor",
            "service": "upper",
            "exec_type": "queue",
            "prep": {"input_key": "$params.text"},
            "post": {"output_key": "text"},
        }
    }
    with Served(tmp_path) as server:
        program = program.replace("http://127.0.0.1:8440", server.url)
        worker = begin(program)
        try:
            with trio.fail_after(PATIENCE):
                async with connect(server.url) as client:
                    await client.flows.publish("shout", {"start": "a", "nodes": nodes})
                    good = await client.flows.start("shout", params={"text": "hello"})
                    assert await good.result() == {"text": "HELLO"}
                    bad = await client.flows.start("shout", params={"text": 3})
                    await bad.wait(None)
                    [row] = await client.flows.node_runs(bad.id)
                    assert row.error is not None
                    assert row.error.startswith("service_error: 'int' object has no attribute")
        finally:
            worker.kill()
            worker.communicate()


def test_what_the_transcripts_show_is_json():
    answers = re.findall(r"^(\{.*\}|\[.*\])$", WORKERS, re.MULTILINE)
    assert len(answers) >= 8
    for answer in answers:
        assert "…" in answer or json.loads(answer) is not None
    assert msgspec.json.decode(answers[0]) == {"ok": "1"}
