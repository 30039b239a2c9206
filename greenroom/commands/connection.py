"""The connection of commands to a server: its URL, the token, and the client."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click
import trio

from ..gateway.client import Client, connect
from ..gateway.client.connecting import parse_url
from ..protocol.errors import Invalid, NoActiveRun, Unauthorized, Unavailable
from ..protocol.events import Filter
from .exits import Exit, Stopped, report_errors

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8440"

token_file_option = click.option(
    "--token-file",
    metavar="FILE",
    envvar="GREENROOM_TOKEN_FILE",
    show_envvar=True,
    help="The file that contains your token; or set GREENROOM_TOKEN to the token itself.",
)


@attrs.frozen
class Server:
    """The server of a command, and the format of the output. `url` contains one URL, or several, separated by
    commas."""

    url: str
    token: str | None
    as_json: bool

    @property
    def addresses(self) -> str | list[str]:
        """The argument of `connect`."""
        return [part.strip() for part in self.url.split(",")] if "," in self.url else self.url

    def url_of(self, client: Client) -> str:
        """The URL to show for the server of this client, as it was given: of several, the one to which the
        client is connected."""
        if isinstance(self.addresses, str):
            return self.url
        given = {parse_url(address).geturl(): address for address in self.addresses}
        return given[client.url]

    def ask(
        self, talk: Callable[[Client], Awaitable[T]], *, follow: bool = False, filter: Filter | None = None
    ) -> T:
        """Connect, and call `talk` with the client. Raises `Stopped` if the server is unreachable."""
        return trio.run(self._ask, talk, follow, filter)

    async def _ask(self, talk: Callable[[Client], Awaitable[T]], follow: bool, filter: Filter | None) -> T:
        talking = False
        try:
            async with connect(self.addresses, token=self.token, follow=follow, filter=filter) as client:
                talking = True
                return await talk(client)
        except (Unavailable, Invalid) as error:
            if talking:
                raise
            code = Exit.UNREACHABLE if isinstance(error, Unavailable) else Exit.NOT_UNDERSTOOD
            raise Stopped(error.message, code) from error
        except Unauthorized as error:
            raise without_token(error, self.token) from error


def without_token(error: Unauthorized, token: str | None) -> Stopped:
    """The error of a command whose token is refused, or which has none."""
    needed = "token required: set GREENROOM_TOKEN, or use --token-file"
    return Stopped(error.message if token else needed, Exit.NOT_PERMITTED, error)


def for_server(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the server to a command, and pass it a `Server` as its first argument."""

    @click.option(
        "--url",
        metavar="URL",
        envvar="GREENROOM_URL",
        default=DEFAULT_URL,
        show_default=True,
        show_envvar=True,
        help="The URL of the server; of a cluster also several, separated by commas.",
    )
    @token_file_option
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, one value per line.")
    @report_errors
    @wraps(command)
    def call(*args: Any, url: str, token_file: str | None, as_json: bool, **kwargs: Any) -> None:
        command(Server(url, read_token(token_file), as_json), *args, **kwargs)

    return call


def read_token(file: str | None) -> str | None:
    """The token in a file, or in GREENROOM_TOKEN. An empty variable is no token: files for containers often
    set variables without a value. There is no option for the token itself, because all users of the machine
    can read arguments."""
    if file is None:
        return os.environ.get("GREENROOM_TOKEN", "").strip() or None
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Stopped(f"cannot read the token file: {error}", Exit.FAILED) from error
    if not token:
        raise Stopped(
            f"token file {file} is empty: write the output of `greenroom token add` into it", Exit.FAILED
        )
    return token


async def find_last_run(client: Client, run_or_handle: str) -> str:
    """The id of a run, given by its id, or by its handle: then the active run, or without one the last run.
    For commands that only read."""
    try:
        return (await client.get_run(run_or_handle)).id
    except NoActiveRun:
        latest = await client.list_runs(handle=run_or_handle, limit=1)
        if not latest:
            raise
        return latest[0].id


async def find_interrupt(client: Client, named: str) -> str:
    """The id of an open interrupt, given by its id, its run or its handle. Raises `Invalid` if the run or
    the handle has several."""
    snapshot = await client.snapshot()
    if named in snapshot.interrupts:
        return named
    open_ones = [
        id
        for id, interrupt in snapshot.interrupts.items()
        if named in (interrupt.run, snapshot.runs[interrupt.run].handle)
    ]
    if len(open_ones) > 1:
        ids = ", ".join(open_ones)
        raise Invalid(f"{named!r} has {len(open_ones)} open interrupts: use --key, or the id of one: {ids}")
    return open_ones[0] if open_ones else named
