"""The pages about the command line and the configuration agree with the code."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from greenroom import Keep
from greenroom.config.mistakes import ConfigMistakes
from greenroom.config.reading import SETTINGS, read_config
from greenroom.config.settings import Config
from tests.cli.reference import PAGE, page
from tests.gateway.clustered import cluster

CONFIGURATION = PAGE.with_name("configuration.md")
METRICS = PAGE.with_name("metrics.md")


def test_the_page_about_the_command_line_is_current():
    assert PAGE.read_text(encoding="utf-8") == page(), "write it again: python -m tests.cli.reference"


def test_the_page_lists_every_setting_with_its_default():
    told = []
    table = ""
    for line in CONFIGURATION.read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"## `\[(.*)\]`", line):
            table = heading[1]
            if (table,) in SETTINGS:  # a table of names that the user chooses
                told.append((table, ""))
        elif row := re.match(r"\| `(\w+)` \| (?:`(.*?)`)? ?\|", line):
            told.append((f"{table}.{row[1]}", row[2] or ""))
    assert told == [(".".join(path), _default(path)) for path in SETTINGS]


def _default(path: tuple[str, ...]) -> str:
    value: Any = Config()
    for name in path:
        value = getattr(value, name)
    if value in (None, (), {}, Keep()):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_the_examples_are_a_valid_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    examples = re.findall(r"```toml\n(.*?)```", CONFIGURATION.read_text(encoding="utf-8"), re.DOTALL)
    file, text = tmp_path / "greenroom.toml", "".join(examples)
    file.write_text(text, encoding="utf-8")
    config, written = read_config(str(file), environ={}).config, tomllib.loads(text)
    assert config.engine.max_concurrent == written["engine"]["max_concurrent"]
    assert config.schedules.keys() == written["schedules"].keys() == {"nightly", "prices"}


def test_the_example_of_errors_is_the_real_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    text = "[engine]\n\nmax_concurent = 3\n\n\n\n[gateway]\nport = 'http'\n"
    Path("greenroom.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigMistakes) as caught:
        read_config(environ={"GREENROOM_LOGS_LEVEL": "loud"})
    shown = CONFIGURATION.read_text(encoding="utf-8")
    assert [str(mistake) in shown for mistake in caught.value.mistakes] == [True] * 3


async def test_the_table_of_metrics_matches_the_gateway_of_a_node(tmp_path: Path):
    async with cluster(tmp_path, 1) as [node]:
        await node.engine.set_concurrency("images", 2)
        exposition = (await node.http("GET", "/metrics")).body.decode()
    given = dict(re.findall(r"^# TYPE (\w+) (\w+)$", exposition, re.MULTILINE))
    labels = dict(re.findall(r"^(\w+)\{(\w+)=", exposition, re.MULTILINE))
    table = re.findall(r"^\| `(\w+)` \| (\w+) \|(?: `(\w+)`)? \|", METRICS.read_text("utf-8"), re.MULTILINE)
    assert {name: kind for name, kind, _ in table} == {
        name: kind for name, kind in given.items() if not name.endswith("_created")
    }
    counted = set(
        re.findall(r"^(\w+)[{ ]", exposition, re.MULTILINE)
    )  # metrics that only events create are missing
    assert {name: label for name, _, label in table if name in counted} == {
        name: labels.get(name, "") for name, _, _ in table if name in counted
    }
