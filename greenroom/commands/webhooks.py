"""`greenroom webhooks`: list, redeliver and drop failing and dead webhooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import click

from ..gateway.client import Client
from ..protocol.webhooks import Webhook
from .connection import Server, for_server
from .output import echo_json, moment, table

_PAGE = 1000


@click.group(invoke_without_command=True)
@click.option("--failing", is_flag=True, help="List webhooks that fail and are attempted again.")
@click.pass_context
@for_server
def webhooks(server: Server, ctx: click.Context, failing: bool) -> None:
    """List, redeliver or drop webhooks that could not deliver an event.

    Without --failing, it lists dead webhooks, which could not deliver an event for a day.

    \b
    Examples:
      greenroom webhooks
      greenroom webhooks --failing
      greenroom webhooks redeliver 5c0f3f0e7e3d4a1f9b1f6f2f8f9d7a10
      greenroom webhooks redeliver --all
      greenroom webhooks drop 5c0f3f0e7e3d4a1f9b1f6f2f8f9d7a10
    """
    if ctx.invoked_subcommand is not None:
        return
    found = server.ask(_all_failing if failing else _all_dead)
    if server.as_json:
        for webhook in found:
            echo_json(webhook)
        return
    table(
        ("webhook", "run", "url", "attempts", *_times(failing), "error"),
        (
            (
                webhook.id,
                webhook.run,
                webhook.url,
                str(webhook.attempts),
                *_times_of(webhook, failing),
                webhook.error or "",
            )
            for webhook in found
        ),
    )


@webhooks.command()
@click.argument("ids", nargs=-1, metavar="[WEBHOOK]...")
@click.option("--all", "all_", is_flag=True, help="All dead webhooks.")
@for_server
def redeliver(server: Server, ids: tuple[str, ...], all_: bool) -> None:
    """Deliver failing or dead webhooks now, from the first event that was not delivered on.

    \b
    Examples:
      greenroom webhooks redeliver 5c0f3f0e7e3d4a1f9b1f6f2f8f9d7a10
      greenroom webhooks redeliver --all
    """
    _change_each(server, ids, all_, lambda client, id: client.webhooks.redeliver(id), "is delivered again")


@webhooks.command()
@click.argument("ids", nargs=-1, metavar="[WEBHOOK]...")
@click.option("--all", "all_", is_flag=True, help="All dead webhooks.")
@for_server
def drop(server: Server, ids: tuple[str, ...], all_: bool) -> None:
    """Delete failing or dead webhooks: their events are not delivered.

    \b
    Examples:
      greenroom webhooks drop 5c0f3f0e7e3d4a1f9b1f6f2f8f9d7a10
      greenroom webhooks drop --all
    """
    _change_each(server, ids, all_, lambda client, id: client.webhooks.drop(id), "is dropped")


async def _all_dead(client: Client) -> list[Webhook]:
    return await _all(client.webhooks.dead)


async def _all_failing(client: Client) -> list[Webhook]:
    return await _all(client.webhooks.failing)


async def _all(listed: Callable[..., Awaitable[Sequence[Webhook]]]) -> list[Webhook]:
    found: list[Webhook] = []
    while True:
        page = await listed(limit=_PAGE, after=found[-1].id if found else None)
        found += page
        if len(page) < _PAGE:
            return found


def _times(failing: bool) -> tuple[str, ...]:
    return ("failing since", "next attempt") if failing else ("dead since",)


def _times_of(webhook: Webhook, failing: bool) -> tuple[str, ...]:
    times = (webhook.failing_since, webhook.next_at) if failing else (webhook.dead_at,)
    return tuple("" if time is None else moment(time) for time in times)


def _change_each(
    server: Server,
    ids: tuple[str, ...],
    all_: bool,
    change: Callable[[Client, str], Awaitable[Webhook]],
    what: str,
) -> None:
    """Change the named webhooks, or all dead ones, and print what has happened to each."""
    if bool(ids) == all_:
        raise click.UsageError("name webhooks by their ids, or all dead ones with --all")

    async def talk(client: Client) -> list[Webhook]:
        chosen = [webhook.id for webhook in await _all_dead(client)] if all_ else ids
        return [await change(client, id) for id in chosen]

    for webhook in server.ask(talk):
        if server.as_json:
            echo_json(webhook)
        else:
            click.echo(f"{webhook.id}: {what}.")
