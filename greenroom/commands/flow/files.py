"""Commands for a flow definition in a file: check, graph, publish."""

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
from ..exits import Exit, Stopped, report_errors
from ..output import echo_json

_file = click.argument("file", type=click.File("r", encoding="utf-8"))
_allow_scripts = click.option(
    "--allow-scripts",
    is_flag=True,
    envvar="GREENROOM_ALLOW_SCRIPTS",
    show_envvar=True,
    help="Allow script nodes, like a server with this flag.",
)


@click.command()
@_file
@_allow_scripts
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: errors and warnings.")
@report_errors
def check(file: IO[str], allow_scripts: bool, as_json: bool) -> None:
    """Check a flow definition, and show all errors with their locations.

    FILE is JSON or YAML; - reads standard input. The command needs no server, so it does not check that
    referenced flows exist. Exits with code 2 if there is an error; a warning does not change the exit code.

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
        click.echo("The definition is valid.")


@click.command()
@_file
@_allow_scripts
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@report_errors
def graph(file: IO[str], allow_scripts: bool, as_json: bool) -> None:
    """Print a flow as a Mermaid flowchart.

    FILE is JSON or YAML; - reads standard input. Many programs draw Mermaid text: in Markdown, use a code
    block with the language `mermaid`.

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
        echo_json({"mermaid": drawn})
    else:
        click.echo(drawn, nl=False)


@click.command()
@_file
@click.option(
    "--name", metavar="NAME", help="The flow's name. [default: the file's name without its extension]"
)
@for_server
def publish(server: Server, file: IO[str], name: str | None) -> None:
    """Publish a definition as the next version of a flow.

    FILE is JSON or YAML; - reads standard input. A flow of a new name is created. A published version never
    changes: existing runs keep their version, new runs use the latest.

    \b
    Examples:
      greenroom flow publish order.yaml
      greenroom flow publish build/flow.json --name order
    """
    if name is None:
        if file.name in ("-", "<stdin>"):
            raise click.UsageError("--name is required for standard input")
        name = Path(file.name).stem
    flow, text = name, _text(file)
    found = check_definition(text, allow_scripts=True)  # the server checks that
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
        echo_json(version)
        return
    _warn(file.name, found)
    click.echo(f"{flow}, version {version.version}")


def _text(file: IO[str]) -> str:
    try:
        return file.read()
    except UnicodeDecodeError as error:
        raise Stopped(f"cannot read {file.name}: {error}", Exit.FAILED) from None


def _mistaken(name: str, errors: Iterable[str]) -> Stopped:
    """The `Stopped` for a definition with errors."""
    mistakes = list(errors)
    count = "1 error" if len(mistakes) == 1 else f"{len(mistakes)} errors"
    lines = "\n".join(f"{name}: {mistake}" for mistake in mistakes)
    error = Invalid(f"{count} in the definition", errors=mistakes)
    return Stopped(f"{error.message}:\n{lines}", Exit.NOT_UNDERSTOOD, error)


def _warn(name: str, found: Checked) -> None:
    for warning in found.warnings:
        click.echo(f"Warning: {name}: {warning}", err=True)
