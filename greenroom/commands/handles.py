"""`greenroom handles`: who is busy, the parameters that handles keep, and freeing one that is stuck."""

from __future__ import annotations

import click
import msgspec

from .connection import Server, for_server
from .exits import Exit, Stopped
from .output import brief, cancelled, say, say_json, table


@click.group()
def handles() -> None:
    """Handles: the accounts, sessions or devices whose runs never overlap.

    \b
    Examples:
      greenroom handles list
      greenroom handles params alice '{"url": "https://example.org"}'
      greenroom handles release alice
    """


@handles.command("list")
@for_server
def list_(server: Server) -> None:
    """Show the handles that are busy, were lately, or keep parameters.

    \b
    Examples:
      greenroom handles list
      greenroom handles list --json | jq -r 'select(.status == "Failed") | .handle'
    """
    state = server.ask(lambda client: client.snapshot())
    if server.as_json:
        for name, handle in state.handles.items():
            say_json({"handle": name, **msgspec.to_builtins(handle)})
        return
    table(
        ("handle", "status", "run", "waiting", "params"),
        (
            (
                name,
                handle.status.value,
                handle.active_run or "",
                str(len(handle.waiting) or ""),
                "" if handle.params is None else brief(handle.params),
            )
            for name, handle in state.handles.items()
        ),
    )


@handles.command()
@click.argument("handle")
@click.argument("params", metavar="[JSON]", required=False)
@for_server
def params(server: Server, handle: str, params: str | None) -> None:
    """Show or set the parameters that a handle keeps for runs that bring none; `null` takes them away.

    They can't be changed while the handle is busy.

    \b
    Examples:
      greenroom handles params alice
      greenroom handles params alice '{"url": "https://example.org", "pages": 3}'
      greenroom handles params alice null
    """
    if params is None:
        found = server.ask(lambda client: client.snapshot()).handles.get(handle)
        kept = None if found is None else found.params
        say(server.as_json, kept, "It keeps none." if kept is None else brief(kept))
        return
    try:
        value = msgspec.json.decode(params)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"the parameters are no JSON: {error}") from error
    server.ask(lambda client: client.set_params(handle, value))
    say(server.as_json, {"handle": handle, "params": value}, f"{handle}: {brief(value)}")


@handles.command()
@click.argument("handle")
@for_server
def clear(server: Server, handle: str) -> None:
    """Cancel what waits in a handle; leave its active run.

    \b
    Example:
      greenroom handles clear alice
    """
    count = server.ask(lambda client: client.clear_handle(handle))
    say(server.as_json, {"count": count}, cancelled(count))


@handles.command()
@click.argument("handle")
@for_server
def release(server: Server, handle: str) -> None:
    """Free a handle that the body of an abandoned run still holds.

    From then on two bodies may execute for it, if the abandoned one still does anything. Exits with 1 if
    there is nothing to free it from.

    \b
    Example:
      greenroom handles release alice
    """
    released = server.ask(lambda client: client.release_handle(handle))
    if released or server.as_json:
        say(server.as_json, {"released": released}, f"{handle} is free.")
    if not released:
        raise Stopped(f"{handle!r} is not held by an abandoned body", Exit.FAILED)
