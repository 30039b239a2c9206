"""`greenroom handles`: status and draft parameters of handles, and release of a stuck one."""

from __future__ import annotations

import click
import msgspec

from .connection import Server, for_server
from .exits import Exit, Stopped
from .output import brief, cancelled, decoded, echo, echo_json, table


@click.group()
def handles() -> None:
    """Manage handles: the accounts, sessions or devices whose runs never overlap.

    \b
    Examples:
      greenroom handles list
      greenroom handles params alice '{"url": "https://example.org"}'
      greenroom handles release alice
    """


@handles.command("list")
@for_server
def list_(server: Server) -> None:
    """List the handles that are busy, were busy recently, or have draft parameters.

    \b
    Examples:
      greenroom handles list
      greenroom handles list --json | jq -r 'select(.status == "Failed") | .handle'
    """
    state = server.ask(lambda client: client.snapshot())
    if server.as_json:
        for name, handle in state.handles.items():
            echo_json({"handle": name, **msgspec.to_builtins(handle)})
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
    """Show or set a handle's draft parameters, for runs without parameters; `null` removes them.

    They cannot be changed while the handle has an active run.

    \b
    Examples:
      greenroom handles params alice
      greenroom handles params alice '{"url": "https://example.org", "pages": 3}'
      greenroom handles params alice null
    """
    if params is None:
        found = server.ask(lambda client: client.snapshot()).handles.get(handle)
        kept = None if found is None else found.params
        echo(server.as_json, kept, "No draft parameters." if kept is None else brief(kept))
        return
    value = decoded(params, "the argument JSON")
    server.ask(lambda client: client.set_params(handle, value))
    echo(server.as_json, {"handle": handle, "params": value}, f"{handle}: {brief(value)}")


@handles.command()
@click.argument("handle")
@for_server
def clear(server: Server, handle: str) -> None:
    """Cancel the runs that wait in a handle; its active run continues.

    \b
    Example:
      greenroom handles clear alice
    """
    count = server.ask(lambda client: client.clear_handle(handle))
    echo(server.as_json, {"count": count}, cancelled(count))


@handles.command()
@click.argument("handle")
@for_server
def release(server: Server, handle: str) -> None:
    """Release a handle that is still locked by the body of an abandoned run.

    From then on two bodies can execute for the handle, if the abandoned body has not ended. Exits with code
    1 if the handle is not locked by an abandoned body.

    \b
    Example:
      greenroom handles release alice
    """
    released = server.ask(lambda client: client.release_handle(handle))
    if released or server.as_json:
        echo(server.as_json, {"released": released}, f"Released {handle}.")
    if not released:
        raise Stopped(f"handle {handle!r} is not locked by an abandoned body", Exit.FAILED)
