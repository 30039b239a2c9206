"""`greenroom token`: manage the tokens of a server. The token file contains only hashes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..gateway.auth.tokens import Role, Tokens, add_token, remove_token
from .config import configured
from .exits import report_errors

F = TypeVar("F", bound=Callable[..., Any])

_ROLES = [role.value for role in Role]


def _configured(ctx: click.Context, param: click.Parameter, file: str | None) -> Path:
    """The token file of the option, or of the configuration."""
    if file is not None:
        return Path(file)
    named = configured().gateway.token_file
    if named is None:
        raise click.UsageError(
            "no token file: use --tokens FILE, or set `token_file` under [gateway] in greenroom.toml"
        )
    return Path(named)


_file = click.option(
    "--tokens",
    "file",
    metavar="FILE",
    callback=_configured,
    help="The token file. [default: from the configuration]",
)


def _limit(what: str, help: str) -> Callable[[F], F]:
    return click.option(f"--{what}", f"{what}s", multiple=True, metavar="PATTERN", help=help)


@click.group()
def token() -> None:
    """Manage tokens, their roles and their limits.

    A viewer reads; an operator also starts, cancels, answers and clears runs; an admin also changes limits,
    resets and drains. A worker can only take and complete work; an executor can only execute bodies. A
    running server reloads the file at SIGHUP.

    \b
    Examples:
      greenroom token add alice --role operator --tokens greenroom.tokens
      greenroom token list
      greenroom token remove alice && systemctl reload greenroom
    """


@token.command()
@click.argument("name")
@click.option("--role", type=click.Choice(_ROLES), required=True, help="The role of the token.")
@_limit(
    "handle", "Limit the token to this handle; `alice/*` matches all handles with this prefix; repeatable."
)
@_limit("lane", "Limit the token to this lane or prefix; repeatable.")
@_limit("job", "Limit the token to this job or prefix; repeatable.")
@_file
@report_errors
def add(
    name: str,
    role: str,
    handles: tuple[str, ...],
    lanes: tuple[str, ...],
    jobs: tuple[str, ...],
    file: Path,
) -> None:
    """Create a token, add its hash to the file, and print the token.

    The token cannot be shown again. NAME is the `by` of events that the token causes. A limited token can see
    and change only runs of its handles, lanes and jobs.

    \b
    Examples:
      greenroom token add alice --role operator --tokens greenroom.tokens
      greenroom token add alice --role operator --handle 'alice/*' --job mirror
      greenroom token add grafana --role viewer > grafana.token
      greenroom token add gpu-1 --role executor > executor.token
    """
    click.echo(add_token(file, name, Role(role), handles=handles, lanes=lanes, jobs=jobs))
    click.echo(
        f"Added token {name} with the role {role} to {file}. Reload a running server with SIGHUP.", err=True
    )


@token.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per token.")
@_file
@report_errors
def list_(as_json: bool, file: Path) -> None:
    """List the tokens with their roles and limits.

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
@report_errors
def remove(name: str, file: Path) -> None:
    """Remove a token from the file. A running server revokes it at SIGHUP.

    \b
    Example:
      greenroom token remove alice --tokens greenroom.tokens
    """
    remove_token(file, name)
    click.echo(f"Removed token {name} from {file}. Reload a running server with SIGHUP.", err=True)
