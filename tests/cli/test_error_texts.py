"""Errors in settings and arguments contain their names, and no terms of Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from greenroom.cli import main
from greenroom.config.mistakes import ConfigMistakes
from greenroom.config.reading import SETTINGS, VARIABLES, read_config
from tests.texts import WRONG, python_in

TOML: list[Any] = [value for value in WRONG if "null" not in json.dumps(value)] + [{"a": 1}]
"""The wrong values that a file can contain."""
DATES = ["2026-01-01", "2026-01-01T00:00:00Z", "12:00:00", "inf", "nan"]
"""Values that only a file can contain."""


def mistakes(text: str, environ: dict[str, str]) -> list[Any]:
    Path("greenroom.toml").write_text(text, encoding="utf-8")
    try:
        read_config(environ=environ)
    except ConfigMistakes as error:
        return error.mistakes
    return []


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {toml(part)}' for key, part in value.items())} }}"
    return json.dumps(value)


@pytest.mark.parametrize("path", SETTINGS, ids=".".join)
def test_in_a_file(path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    *tables, name = path
    header = f"[{'.'.join(tables)}]\n" if tables else ""
    for written in [*map(toml, TOML), *DATES]:
        for one in mistakes(f"{header}{name} = {written}\n", {}):
            assert one.path.startswith(".".join(path))
            assert not python_in(one.text), one


@pytest.mark.parametrize("variable", VARIABLES)
def test_in_a_variable(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for wrong in WRONG:
        text = wrong if isinstance(wrong, str) else json.dumps(wrong)
        for one in mistakes("", {variable: text}):
            assert str(one).startswith(f"{variable}: {'.'.join(VARIABLES[variable])}")
            assert not python_in(str(one), text), one


def commands(command: click.Command, above: click.Context | None = None) -> Iterator[click.Context]:
    context = click.Context(command, parent=above, info_name=command.name)
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, context)


@pytest.mark.parametrize("context", list(commands(main)), ids=lambda context: context.command_path)
def test_on_a_command_line(context: click.Context):
    for option in context.command.params:
        if getattr(option, "is_flag", False):
            continue
        for text in ("", "x", "-1", "1e400", "[]", '{"a": null}'):
            try:
                option.type_cast_value(context, (text,) if option.nargs != 1 or option.multiple else text)
            except click.BadParameter as error:
                told = error.format_message()
                assert any(name in told for name in (*option.opts, option.make_metavar(ctx=context))), told
                assert not python_in(told), told
