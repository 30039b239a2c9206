"""Remove what Windows lacks from this process, then execute the action that the argument names.

Modules and attributes are removed after the imports of the standard library and of dependencies, because
their code for Windows cannot execute here. `msvcrt` is replaced by a module that locks with `flock`; like the
real one, it refuses a second open file in any process.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging.handlers
import os
import pkgutil
import signal
import socket
import sys
import tomllib
import types
from functools import partial
from importlib import import_module
from pathlib import Path

import click.testing
import httpx
import pytest
import rich.live
import sqlalchemy.dialects.mysql
import sqlalchemy.dialects.postgresql
import sqlalchemy.dialects.sqlite
import trio
import trio_websocket

ROOT = Path(__file__).parents[2]
MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")
ATTRIBUTES = {
    os: "O_DIRECTORY O_NOFOLLOW O_NONBLOCK fchmod fork forkpty geteuid getgid getpgid getuid initgroups "
    "killpg mkfifo pread preadv pwrite pwritev sched_getaffinity setsid sync sysconf uname wait3 wait4",
    signal: "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGUSR1 SIGUSR2 alarm pthread_sigmask "
    "setitimer sigwait",
    socket: "AF_UNIX SO_REUSEPORT",
}

flock = fcntl.flock


def hide() -> None:
    """Remove what Windows lacks."""
    family = socket.AF_UNIX
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment] # so that its import raises
    for module, names in ATTRIBUTES.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    socket.socketpair = partial(socket.socketpair, family)  # its default uses a removed name
    sys.modules["msvcrt"] = fake = types.ModuleType("msvcrt")

    def locking(file: int, mode: int, size: int) -> None:
        assert (mode, size) == (2, 1)
        try:
            flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(13, "Permission denied") from None

    vars(fake).update(LK_NBLCK=2, locking=locking)


def import_everything() -> None:
    """Import every module of each package."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    count = 0
    for package, folder in setuptools["package-dir"].items():
        for found in pkgutil.iter_modules([str(ROOT / folder)], f"{package}."):
            if not found.name.endswith(".__main__"):
                import_module(found.name)
                count += 1
    print(f"{count} modules")


async def serve_and_connect() -> None:
    """Run an engine in memory with a gateway, and a client of it."""
    from greenroom import Jobs, Run, connect, open_engine
    from greenroom.gateway.server import open_gateway

    jobs = Jobs()

    @jobs.job("greet")
    async def greet(run: Run, params: str) -> str:
        async with run.open_file("greeting.txt") as file:
            await file.write(b"hello")
        return f"hello {params}"

    async with (
        open_engine(jobs, store="memory:") as engine,
        open_gateway(engine, listeners=await trio.open_tcp_listeners(0, host="127.0.0.1")) as gateway,
        connect(gateway.url) as client,
    ):
        ticket = await client.submit("greet", handle="a", params="Alice")
        print(await ticket.result())


async def share_a_file() -> None:
    """Run an engine on a SQLite file, which a second one cannot open, and then another one."""
    from greenroom import Conflict, Jobs, Run, open_engine

    jobs = Jobs()

    @jobs.job("greet")
    async def greet(run: Run) -> str:
        return "hello"

    store = "sqlite:///shared.db"
    async with open_engine(jobs, store) as engine:
        print(await (await engine.submit("greet", handle="a")).result())
        try:
            async with open_engine(jobs, store):
                print("opened twice")
        except Conflict as error:
            print(error.message)
    async with open_engine(jobs, store) as engine:
        print(len(await engine.list_runs()), "run")


def open_a_unix_socket() -> None:
    """Connect to MySQL by a Unix socket, which Windows does not have."""
    from greenroom.persistence.addresses import parse_addresses
    from greenroom.persistence.drivers import _socket

    [address] = parse_addresses("mysql://user@/db?unix_socket=/run/mysqld.sock")
    try:
        _socket(address)
    except OSError as error:
        print(error)


def serve() -> None:
    """`greenroom serve`, until SIGTERM."""
    from greenroom.cli import main

    Path("app.py").write_text("from greenroom import Jobs\njobs = Jobs()\n")
    main(["serve", "app:jobs", "--port", "0", "--log-format", "text"])


PRELOADED = (asyncio, logging.handlers, click.testing, httpx, pytest, rich.live, trio_websocket, sqlalchemy)


if __name__ == "__main__":
    hide()
    what = globals()[sys.argv[1]]
    if asyncio.iscoroutinefunction(what):
        trio.run(what)
    else:
        what()
