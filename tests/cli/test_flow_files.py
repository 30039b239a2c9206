"""`greenroom flow check` and `flow graph`: their output for a file, without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from greenroom.cli import main
from greenroom.commands.flow.group import flow
from greenroom.commands.lazy import LazyCommand
from tests.cli.runner import runner

GOOD = """
start: size
nodes:
  size: {kind: choice, choice_cases: [{action: large, expr: $params.n gt 3}]}
  shout: {kind: executor, service: transform}
edges:
  - {from: size, action: large, to: shout}
"""
MISTAKEN = """
start: size
nodes:
  size: {kind: choice, choice_cases: [{action: large, expr: $params.n equals 3}]}
  shout: {kind: executer, service: transform}
  alone: {kind: timer, params: {delay_ms: -1}}
edges:
  - {from: size, action: large, to: nowhere}
"""
SCRIPT = '{"start": "a", "nodes": {"a": {"kind": "executor", "exec_type": "local_script", "script": ["ls"]}}}'


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GREENROOM_ALLOW_SCRIPTS", raising=False)


def greenroom(*arguments: str, code: int = 0, stdin: str | None = None) -> Result:
    result = runner().invoke(main, ["flow", *arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result


def file(text: str, name: str = "order.yaml") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def test_a_valid_definition_is_accepted_and_doubtful_parts_are_warnings():
    assert greenroom("check", file(GOOD)).stdout == "The definition is valid.\n"
    doubtful = GOOD.replace("action: large, to", "action: huge, to").replace("to: shout", "to: size")
    result = greenroom("check", file(doubtful.replace("size, action: huge", "shout, action: huge")))
    assert result.stderr == 'Warning: order.yaml: nodes.shout: is unreachable from "size"\n'


def test_all_errors_are_reported_with_file_and_path_and_it_exits_with_2():
    result = greenroom("check", file(MISTAKEN), code=2)
    heading, *lines = result.stderr.splitlines()
    assert heading == "Error: 4 errors in the definition:"
    assert [line.split(": ")[:2] for line in lines] == [
        ["order.yaml", "nodes.size.choice_cases[0].expr"],
        ["order.yaml", "nodes.shout.kind"],
        ["order.yaml", "nodes.alone.params.delay_ms"],
        ["order.yaml", "edges[0].to"],
    ]
    assert greenroom("graph", file(MISTAKEN), code=2).stderr == result.stderr
    assert greenroom("publish", file(MISTAKEN), code=2).stderr == result.stderr  # no server was contacted


def test_with_json_the_errors_are_one_object():
    found = json.loads(greenroom("check", file(MISTAKEN), "--json", code=2).stdout)
    assert (found["ok"], len(found["mistakes"])) == (False, 4)
    assert json.loads(greenroom("check", file(GOOD), "--json").stdout) == {
        "ok": True,
        "mistakes": [],
        "warnings": [],
    }
    told = json.loads(greenroom("graph", file(MISTAKEN), "--json", code=2).stderr)
    assert (told["code"], told["details"]["errors"]) == ("invalid", found["mistakes"])


def test_a_definition_can_be_on_standard_input_and_json():
    assert greenroom("check", "-", stdin=GOOD).stdout == "The definition is valid.\n"
    broken = greenroom("check", "-", stdin='{"start": ', code=2).stderr
    assert "definition: is not valid JSON" in broken
    assert "--name is required" in greenroom("publish", "-", stdin=GOOD, code=2).stderr


def test_scripts_are_an_error_unless_they_are_allowed(monkeypatch: pytest.MonkeyPatch):
    assert "allow_scripts is off" in greenroom("check", file(SCRIPT, "a.json"), code=2).stderr
    greenroom("check", "a.json", "--allow-scripts")
    monkeypatch.setenv("GREENROOM_ALLOW_SCRIPTS", "true")
    greenroom("check", "a.json")


def test_a_graph_is_a_mermaid_flowchart():
    drawn = greenroom("graph", file(GOOD)).stdout
    assert drawn.startswith("flowchart TD\n")
    assert '-->|"large"|' in drawn
    assert json.loads(greenroom("graph", "order.yaml", "--json").stdout) == {"mermaid": drawn}


def test_a_file_that_is_missing_or_no_text_is_refused():
    assert "No such file" in greenroom("check", "absent.yaml", code=2).stderr
    Path("picture.yaml").write_bytes(b"\xff\xfe\x00")
    assert "cannot read picture.yaml: " in greenroom("check", "picture.yaml", code=1).stderr


def test_the_list_of_commands_has_the_first_sentences_of_their_help():
    for name, listed in flow.commands.items():
        assert isinstance(listed, LazyCommand)
        assert listed.get_short_help_str(200) == listed.load().get_short_help_str(200), name
