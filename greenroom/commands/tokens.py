"""`greenroom token`: who may use the server. Of a token, the file holds only a hash."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..config.mistakes import ConfigMistakes
from ..config.reading import read_config
from ..gateway.tokens import Role, Tokens, add_token, remove_token
from .exits import Exit, Stopped, told

_ROLES = [role.value for role in Role]


def _configured(ctx: click.Context, param: click.Parameter, file: str | None) -> Path:
    """The file that is named, or the one of the configuration."""
    if file is not None:
        return Path(file)
    try:
        configured = read_config().config.gateway.token_file
    except ConfigMistakes as error:
        raise Stopped(error.message, Exit.NOT_UNDERSTOOD) from error
    if configured is None:
        raise click.UsageError(
            "say which file: --tokens FILE, or `token_file` under [gateway] in greenroom.toml"
        )
    return Path(configured)


_file = click.option(
    "--tokens",
    "file",
    metavar="FILE",
    callback=_configured,
    help="The file of tokens. [default: the configured one]",
)


@click.group()
def token() -> None:
    """Tokens: who may use the server, and for what.

    A viewer reads; an operator also starts, cancels, answers and clears runs; an admin also changes limits,
    resets and drains. A running server takes the file anew at SIGHUP.

    \b
    Examples:
      greenroom token add alice --role operator --tokens greenroom.tokens
      greenroom token list
      greenroom token remove alice && kill -HUP $(pidof greenroom)
    """


@token.command()
@click.argument("name")
@click.option("--role", type=click.Choice(_ROLES), required=True, help="What the token permits.")
@_file
@told
def add(name: str, role: str, file: Path) -> None:
    """Make a token, add it to the file, and print it: it is shown only now.

    NAME stands as `by` in the events that the token's holder causes.

    \b
    Examples:
      greenroom token add alice --role operator --tokens greenroom.tokens
      greenroom token add grafana --role viewer > grafana.token
    """
    click.echo(add_token(file, name, Role(role)))
    click.echo(f"{name} may use the server as {role}; {file} holds the token's hash.", err=True)


@token.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per token.")
@_file
@told
def list_(as_json: bool, file: Path) -> None:
    """Show whose tokens are in force, and their roles.

    \b
    Examples:
      greenroom token list
      greenroom token list --tokens greenroom.tokens --json
    """
    for holder in Tokens.load(file):
        shown = json.dumps({"name": holder.name, "role": holder.role})
        click.echo(shown if as_json else f"{holder.role:<9} {holder.name}")


@token.command()
@click.argument("name")
@_file
@told
def remove(name: str, file: Path) -> None:
    """Take a token out of the file. The running server goes by it after a SIGHUP.

    \b
    Example:
      greenroom token remove alice --tokens greenroom.tokens
    """
    remove_token(file, name)
    click.echo(f"{name} is out of {file}; the running server takes that in at SIGHUP.", err=True)
