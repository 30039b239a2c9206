"""`greenroom token`: who may use the server. Of a token, the file holds only a hash."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..gateway.auth.tokens import Role, Tokens, add_token, remove_token
from .config import configured
from .exits import told

F = TypeVar("F", bound=Callable[..., Any])

_ROLES = [role.value for role in Role]


def _configured(ctx: click.Context, param: click.Parameter, file: str | None) -> Path:
    """The file that is named, or the one of the configuration."""
    if file is not None:
        return Path(file)
    named = configured().gateway.token_file
    if named is None:
        raise click.UsageError(
            "say which file: --tokens FILE, or `token_file` under [gateway] in greenroom.toml"
        )
    return Path(named)


_file = click.option(
    "--tokens",
    "file",
    metavar="FILE",
    callback=_configured,
    help="The file of tokens. [default: the configured one]",
)


def _limit(what: str, help: str) -> Callable[[F], F]:
    return click.option(f"--{what}", f"{what}s", multiple=True, metavar="PATTERN", help=help)


@click.group()
def token() -> None:
    """Tokens: who may use the server, and for what.

    A viewer reads; an operator also starts, cancels, answers and clears runs; an admin also changes limits,
    resets and drains. A running server takes the file anew at SIGHUP.

    \b
    Examples:
      greenroom token add alice --role operator --tokens greenroom.tokens
      greenroom token list
      greenroom token remove alice && systemctl reload greenroom
    """


@token.command()
@click.argument("name")
@click.option("--role", type=click.Choice(_ROLES), required=True, help="What the token permits.")
@_limit("handle", "Limit the token to this handle; `alice/*` is every handle that begins so. Repeatable.")
@_limit("lane", "Limit the token to this lane, likewise.")
@_limit("job", "Limit the token to this job, likewise.")
@_file
@told
def add(
    name: str,
    role: str,
    handles: tuple[str, ...],
    lanes: tuple[str, ...],
    jobs: tuple[str, ...],
    file: Path,
) -> None:
    """Make a token, add it to the file, and print it: it is shown only now.

    NAME stands as `by` in the events that the token's holder causes. A token that is limited sees and touches
    only runs of its handles, lanes and jobs.

    \b
    Examples:
      greenroom token add alice --role operator --tokens greenroom.tokens
      greenroom token add alice --role operator --handle 'alice/*' --job mirror
      greenroom token add grafana --role viewer > grafana.token
    """
    click.echo(add_token(file, name, Role(role), handles=handles, lanes=lanes, jobs=jobs))
    click.echo(f"{name} may use the server as {role}; {file} holds the token's hash.", err=True)


@token.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per token.")
@_file
@told
def list_(as_json: bool, file: Path) -> None:
    """Show whose tokens are in force, their roles, and what they are limited to.

    \b
    Examples:
      greenroom token list
      greenroom token list --tokens greenroom.tokens --json
    """
    for holder in Tokens.load(file):
        limits = {} if holder.scope is None else holder.scope.texts()
        if as_json:
            click.echo(json.dumps({"name": holder.name, "role": holder.role, **limits}))
        else:
            limited = "" if holder.scope is None else f"  (limited to {holder.scope})"
            click.echo(f"{holder.role:<9} {holder.name}{limited}")


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
