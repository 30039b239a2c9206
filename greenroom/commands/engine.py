"""Commands for the whole engine: state, drain, resume."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click
import trio
from rich.text import Text

from ..gateway.client import Client
from ..protocol.records import ExecutorInfo, Snapshot
from .connection import Server, for_server
from .durations import Timeout
from .executors import executor_table
from .exits import Exit, Stopped
from .output import STYLES, brief, console, echo, echo_json, fields, span, status, table


@click.command()
@for_server
def state(server: Server) -> None:
    """Show the state of the engine, its executors, its active runs and its open interrupts.

    With --json it prints the whole snapshot, as clients receive it.

    \b
    Examples:
      greenroom state
      greenroom state --json | jq .engine
    """

    async def talk(client: Client) -> tuple[Snapshot, Sequence[ExecutorInfo], str]:
        found = await client.snapshot()
        executors = await client.executors.list() if found.executors and not server.as_json else ()
        return found, executors, server.url_of(client)

    found, executors, url = server.ask(talk)
    if server.as_json:
        echo_json(found)
        return
    engine = found.engine
    counts = Counter(run.status for run in found.runs.values())
    fields(
        {
            "server": url,
            "executing": f"{engine.executing} of {engine.max_concurrent}",
            "queued": str(engine.queued),
            "draining": "yes" if engine.draining else "no",
            "runs": Text(", ").join(Text(f"{count} {one}", STYLES[one]) for one, count in counts.items()),
            "event": f"{found.seq} of {found.epoch}",
        }
    )
    if executors:
        console().print()
        executor_table(executors)
    pending = [run for run in found.runs.values() if not run.ended and run.status != "queued"]
    if pending:
        console().print()
    table(("run", "handle", "job", "status"), ((run.id, run.handle, run.job, status(run)) for run in pending))
    if found.interrupts:
        console().print()
    table(
        ("interrupt", "handle", "data"),
        (
            (id, found.runs[interrupt.run].handle, brief(interrupt.data))
            for id, interrupt in found.interrupts.items()
        ),
    )


@click.command()
@click.option("--wait", is_flag=True, help="Wait until no run executes.")
@click.option("--timeout", type=Timeout(), default="none", metavar="TIME", help="The longest time to wait.")
@for_server
def drain(server: Server, wait: bool, timeout: float) -> None:
    """Refuse and start no new runs until `greenroom resume`; executing runs continue.

    With --wait it exits with code 1 if a run still executes after the timeout.

    \b
    Examples:
      greenroom drain
      greenroom drain --wait --timeout 5m && systemctl stop greenroom
    """

    async def talk(client: Client) -> bool:
        await client.drain()
        with trio.move_on_after(timeout):
            if wait:
                await _until_nothing_executes(client)
            return True
        return False

    drained = server.ask(talk, follow=wait)
    if server.as_json:
        echo_json({"draining": True, "drained": drained} if wait else {"draining": True})
    if not drained:
        raise Stopped(f"timed out: runs still execute after {span(timeout)}; draining continues", Exit.FAILED)
    if not server.as_json:
        click.echo("No run executes." if wait else "Draining.")


async def _until_nothing_executes(client: Client) -> None:
    """Wait until no run executes, including children that start and bodies that resume in the meantime: until
    there is no event between two checks."""
    before = -1
    while True:
        await client.wait_for_active(None)
        seq = client.state.seq
        if client.state.counts().engine.executing:
            async for _ in client.events(after=seq):
                break
        elif seq == before:
            return
        before = seq


@click.command()
@for_server
def resume(server: Server) -> None:
    """Accept and start runs again after `greenroom drain`.

    \b
    Example:
      greenroom resume
    """
    server.ask(lambda client: client.resume())
    echo(server.as_json, {"draining": False}, "Accepting runs.")
