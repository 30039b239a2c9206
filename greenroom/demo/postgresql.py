"""A private PostgreSQL server for the demo of a cluster: in a temporary folder, on a free port of the
loopback, with a random password."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import trio

from ..gateway.background import background
from ..protocol.errors import Unavailable
from .nodes import free_port

_STARTING = 60.0
_ON_DEBIAN = Path("/usr/lib/postgresql")
_USER = "greenroom"


def is_installed() -> bool:
    """Whether the server's programs and its driver are installed."""
    return _programs() is not None and find_spec("psycopg") is not None


@asynccontextmanager
async def run_postgresql(folder: Path) -> AsyncIterator[str]:
    """Run a server in a new folder within this one until the block ends. Yields the address of its
    database."""
    programs = _programs()
    assert programs is not None, "it is installed"
    owner = _owner()
    password, port = secrets.token_hex(16), free_port()
    folder = _own_folder(folder, owner, password)
    log = folder / "log"
    with log.open("wb") as file:
        initdb = [
            *("initdb", f"--pgdata={folder / 'data'}", f"--username={_USER}", "--auth=scram-sha-256"),
            *(f"--pwfile={folder / 'password'}", "--encoding=UTF8", "--no-sync"),
        ]
        made = await _run(programs, initdb, cwd=folder, stdout=file, stderr=file, check=False, **owner)
        if made.returncode:
            raise Unavailable(f"initdb of PostgreSQL has failed: {_end_of(log)}")
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": 200,
        }
        options = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
        async with background() as nursery:  # its cancellation terminates the server
            start = partial(
                trio.run_process,
                [str(programs / "postgres"), "-D", str(folder / "data"), *options],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                check=False,
                deliver_cancel=_stop,
                **owner,
            )
            await nursery.start(start)
            await _started(programs, port, log)
            yield f"postgresql://{_USER}:{password}@127.0.0.1:{port}/postgres"


async def _started(programs: Path, port: int, log: Path) -> None:
    """Wait until the server answers. Raises `Unavailable` after a timeout."""
    with trio.move_on_after(_STARTING):
        while True:
            ready = await _run(
                programs,
                ["pg_isready", "--host=127.0.0.1", f"--port={port}"],
                check=False,
                capture_stdout=True,
            )
            if ready.returncode == 0:
                return
            await trio.sleep(0.1)
    raise Unavailable(f"PostgreSQL did not start within {_STARTING:g} seconds: {_end_of(log)}")


async def _run(programs: Path, command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    return await trio.run_process([str(programs / command[0]), *command[1:]], **options)


async def _stop(process: trio.Process) -> None:
    """Stop the server without waiting for its clients."""
    process.send_signal(signal.SIGINT)
    await process.wait()


def _own_folder(within: Path, owner: dict[str, Any], password: str) -> Path:
    """A folder of the server's user, who may be another one, with a file that has the password."""
    folder = within / "postgresql"
    folder.mkdir(mode=0o700)
    file = folder / "password"
    file.touch(mode=0o600)
    file.write_text(password)
    if owner:
        within.chmod(0o711)
        for path in (folder, file):
            shutil.chown(path, owner["user"], owner["group"])
    return folder


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-500:]


def _owner() -> dict[str, Any]:
    """The user of the server's processes: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    import pwd  # not on Windows

    entry = pwd.getpwnam("postgres")
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _programs() -> Path | None:
    """The folder with the server's programs."""
    for folder in _folders():
        if all((folder / name).exists() for name in ("initdb", "postgres", "pg_isready")):
            return folder
    return None


def _folders() -> Iterator[Path]:
    found = shutil.which("initdb")
    if found is not None:
        yield Path(found).resolve().parent
    if _ON_DEBIAN.exists():
        versions = [path for path in _ON_DEBIAN.iterdir() if path.name.isdecimal()]
        for version in sorted(versions, key=lambda path: int(path.name), reverse=True):
            yield version / "bin"
