"""Commands for one run, or for all runs that match a filter: what cancel, rerun and retry have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import click

from ..gateway.client import Client
from ..protocol.bulk import HIGHEST_LIMIT, LIMIT
from ..protocol.records import BulkResult
from .connection import Server
from .exits import Exit, Stopped
from .output import echo
from .selecting import Command, selecting, selection

_OPTIONS = [
    click.option("--dry-run", is_flag=True, help="Only count the runs that match."),
    click.option(
        "--limit",
        type=click.IntRange(1, HIGHEST_LIMIT),
        default=LIMIT,
        show_default=True,
        metavar="N",
        help="Refuse if more than N runs match.",
    ),
    click.option("--yes", "-y", is_flag=True, help="Do not ask before the runs are changed."),
]


def for_one_or_many(command: Command) -> Command:
    """Add the argument RUN, and the options that select runs instead of it."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return click.argument("run", required=False)(selecting(command))


@attrs.frozen
class Bulk:
    """A bulk operation: the method of the client, and its words. The arguments are those of the method."""

    method: Callable[..., Awaitable[BulkResult]]
    question: str
    done: str
    arguments: dict[str, Any]
    asks: bool
    dry_run: bool

    def carry_out(self, server: Server) -> None:
        """Count the runs that match, ask, and work on them."""
        if self.asks or self.dry_run:
            found = self._call(server, dry_run=True)
            if self.dry_run:
                echo(server.as_json, found, f"{_runs(found.matched)} would be {self.done}.")
                return
            if found.matched:
                click.confirm(f"{self.question} {_runs(found.matched)}?", abort=True, err=True)
        result = self._call(server)
        echo(server.as_json, result, f"{_runs(result.done)} {self.done}.")
        if not server.as_json:
            for refusal in result.refusals:
                click.echo(f"{refusal.run}: {refusal.message}", err=True)
        if result.refused:
            raise Stopped(f"{_runs(result.refused)} of {result.matched:,} refused", Exit.FAILED)

    def _call(self, server: Server, **more: Any) -> BulkResult:
        async def talk(client: Client) -> BulkResult:
            return await self.method(client, **self.arguments, **more)

        return server.ask(talk)


def one_or_many(run: str | None, options: dict[str, Any]) -> dict[str, Any] | None:
    """The filter and the limit of a bulk operation; `None` for an operation on one run."""
    filter = selection(options)
    if run is None:
        if not filter:
            raise click.UsageError("RUN or a filter is required, such as --handle, --tag or --since")
        return {**filter, "limit": options["limit"]}
    if filter or options["dry_run"] or options["yes"]:
        raise click.UsageError("RUN cannot be combined with filters, --dry-run or --yes")
    return None


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"
