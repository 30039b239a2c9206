"""Commands that submit runs again: rerun, retry."""

from __future__ import annotations

from typing import Any

import click

from ..gateway.client import Client
from .bulk import Bulk, for_one_or_many, one_or_many
from .connection import Server, for_server
from .submit import echo_accepted

request_id_option = click.option(
    "--request-id",
    metavar="ID",
    help="A command repeated with the same id submits no run twice.",
)


@click.command()
@for_one_or_many
@request_id_option
@for_server
def rerun(server: Server, run: str | None, request_id: str | None, **options: Any) -> None:
    """Submit a run again, or all ended runs that match.

    RUN is the id of a run. The new run has the same job, handle, lane, kind, parameters, needs, tags,
    priority and key. With filters instead of RUN, the command shows how many runs match and asks; the new
    runs wait in their handles.

    \b
    Examples:
      greenroom rerun 01985a3c5f9d7f0e8a6d2b4c6e8f0a1b
      greenroom rerun --job mirror --tag customer=42 --since 2d --dry-run
      greenroom rerun --status cancelled --lane images --yes
    """
    many = one_or_many(run, options)
    if many is None:
        ticket = server.ask(lambda client: client.rerun(str(run), request_id=request_id))
        echo_accepted(ticket, server.as_json)
        return
    arguments = {**many, "request_id": request_id}
    asks, dry_run = not options["yes"], options["dry_run"]
    done = _done(request_id)
    Bulk(Client.rerun_many, "Submit again", done, arguments, asks, dry_run).carry_out(server)


@click.command()
@for_one_or_many
@request_id_option
@for_server
def retry(server: Server, run: str | None, request_id: str | None, **options: Any) -> None:
    """Submit a run again that failed, or all that failed and match.

    It is like `greenroom rerun`, but only for runs that failed, timed out or were rejected.

    \b
    Examples:
      greenroom retry 01985a3c5f9d7f0e8a6d2b4c6e8f0a1b
      greenroom retry --error "no route" --since 1h
    """
    many = one_or_many(run, options)
    if many is None:
        ticket = server.ask(lambda client: client.retry(str(run), request_id=request_id))
        echo_accepted(ticket, server.as_json)
        return
    arguments = {**many, "request_id": request_id}
    asks, dry_run = not options["yes"], options["dry_run"]
    done = _done(request_id)
    Bulk(Client.retry_many, "Submit again", done, arguments, asks, dry_run).carry_out(server)


def _done(request_id: str | None) -> str:
    """What has been done with runs: with a request id, perhaps by an earlier command."""
    done = "submitted again"
    return done if request_id is None else f"{done}, each once for request id {request_id!r}"
