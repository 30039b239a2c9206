"""Commands for the definition of a flow in a file: check, graph, publish."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import click

from ...protocol.errors import Invalid
from ...protocol.flow.check import Checked
from ...protocol.flow.check import check as check_definition
from ...protocol.flow.mermaid import mermaid
from ..connection import Server, for_server
from ..exits import Exit, Stopped, told
from ..output import say_json

_file = click.argument("file", type=click.File("r", encoding="utf-8"))
_allow_scripts = click.option(
    "--allow-scripts",
    is_flag=True,
    envvar="GREENROOM_ALLOW_SCRIPTS",
    show_envvar=True,
    help="Let nodes start programs, as a server does that was started with it.",
)


@click.command()
@_file
@_allow_scripts
@click.option("--json", "as_json", is_flag=True, help="One JSON object: mistakes and warnings.")
@told
def check(file: IO[str], allow_scripts: bool, as_json: bool) -> None:
    """Check the definition of a flow, and show every mistake in it with its place.

    FILE is JSON or YAML; - reads it from standard input. No server is needed, so other flows that it refers
    to aren't looked for. What is doubtful is a warning. Exits with 2 if something is wrong.

    \b
    Examples:
      greenroom flow check order.yaml
      greenroom flow check order.json --json | jq -r '.mistakes[]'
    """
    found = check_definition(_text(file), allow_scripts=allow_scripts)
    if as_json:
        ok = not found.errors
        click.echo(json.dumps({"ok": ok, "mistakes": found.errors, "warnings": found.warnings}))
    if found.errors:
        raise _mistaken(file.name, found.errors)
    if not as_json:
        _warn(file.name, found)
        click.echo("The definition is in order.")


@click.command()
@_file
@_allow_scripts
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@told
def graph(file: IO[str], allow_scripts: bool, as_json: bool) -> None:
    """Draw a flow: the text of a Mermaid flowchart.

    FILE is JSON or YAML; - reads it from standard input. Many pages and programs show such a text as a
    drawing: in Markdown, as a block of code in the language `mermaid`.

    \b
    Examples:
      greenroom flow graph order.yaml
      (echo '```mermaid'; greenroom flow graph order.yaml; echo '```') > order.md
    """
    found = check_definition(_text(file), allow_scripts=allow_scripts)
    if found.graph is None:
        raise _mistaken(file.name, found.errors)
    drawn = mermaid(found.graph)
    if as_json:
        say_json({"mermaid": drawn})
    else:
        click.echo(drawn, nl=False)


@click.command()
@_file
@click.option("--name", metavar="NAME", help="The flow's name. [default: the file's, without its ending]")
@for_server
def publish(server: Server, file: IO[str], name: str | None) -> None:
    """Publish a definition as the next version of a flow.

    FILE is JSON or YAML; - reads it from standard input. The flow is made if there is none of this name. What
    is published never changes: runs that have begun stay with their version, new ones take the latest.

    \b
    Examples:
      greenroom flow publish order.yaml
      greenroom flow publish build/flow.json --name order
    """
    if name is None:
        if file.name in ("-", "<stdin>"):
            raise click.UsageError("say under which name: --name")
        name = Path(file.name).stem
    flow, text = name, _text(file)
    found = check_definition(text, allow_scripts=True)  # whether they are, only the server knows
    if found.errors:
        raise _mistaken(file.name, found.errors)
    try:
        version = server.ask(lambda client: client.flows.publish(flow, text))
    except Invalid as error:
        errors = error.details.get("errors")
        if not isinstance(errors, list):
            raise
        raise _mistaken(file.name, errors) from None
    if server.as_json:
        say_json(version)
        return
    _warn(file.name, found)
    click.echo(f"{flow}, version {version.version}")


def _text(file: IO[str]) -> str:
    try:
        return file.read()
    except UnicodeDecodeError as error:
        raise Stopped(f"{file.name}: it can't be read: {error}", Exit.FAILED) from None


def _mistaken(name: str, errors: Iterable[str]) -> Stopped:
    """How a command ends that was given a definition with mistakes."""
    mistakes = list(errors)
    count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    lines = "\n".join(f"{name}: {mistake}" for mistake in mistakes)
    error = Invalid(f"{count} in the definition", errors=mistakes)
    return Stopped(f"{error.message}:\n{lines}", Exit.NOT_UNDERSTOOD, error)


def _warn(name: str, found: Checked) -> None:
    for warning in found.warnings:
        click.echo(f"Warning: {name}: {warning}", err=True)
