"""A real engine whose executors are real processes, over WebSockets."""

import itertools
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio
from trio_websocket import ConnectionClosed, serve_websocket

from greenroom import open_engine
from greenroom.protocol.executors import PATH, SUBPROTOCOL

from .programs import jobs


class Frames:
    """The `Connection` of a WebSocket."""

    def __init__(self, socket):
        self.socket = socket

    async def send(self, frame):
        try:
            await self.socket.send_message(frame.decode())
        except ConnectionClosed:
            raise trio.BrokenResourceError from None

    async def receive(self):
        try:
            return (await self.socket.get_message()).encode()
        except ConnectionClosed:
            raise trio.EndOfChannel from None

    async def aclose(self):
        await self.socket.aclose()


class Server:
    """An engine that serves executors at a port."""

    def __init__(self, engine, folder):
        self.engine = engine
        self.folder = folder
        self.reachable = True
        self.sockets = set()
        self.started = []

    async def serve(self, request):
        assert request.path == PATH
        if not self.reachable:
            await request.reject(503)
            return
        socket = await request.accept(subprotocol=SUBPROTOCOL)
        self.sockets.add(socket)
        try:
            await self.engine.executors.serve(Frames(socket))
        finally:
            self.sockets.discard(socket)

    async def cut(self):
        """Close all connections, and refuse others."""
        self.reachable = False
        for socket in list(self.sockets):
            await trio.aclose_forcefully(socket._stream)

    def start(self, *options, cwd=Path(__file__).parents[2]):
        """Start an executor."""
        process = subprocess.Popen(
            [sys.executable, "-m", "greenroom", "executor", "tests.executors.programs:jobs",
             "--url", f"ws://127.0.0.1:{self.port}", "--data-dir", str(self.folder / "files"), *options],
            cwd=cwd, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"MARKS": str(self.marks)},
        )  # fmt: skip
        self.started.append(process)
        return process

    @property
    def marks(self):
        return self.folder / "marks"

    async def marked(self, what, count=1):
        """Wait for this number of marks."""

        async def is_marked():
            return self.read().count(what) >= count

        await until(is_marked)

    async def result(self, ticket):
        """The result of a run."""
        with trio.fail_after(30):
            return await ticket.result()

    def read(self):
        """What the bodies have marked."""
        lines = self.marks.read_text().splitlines() if self.marks.exists() else []
        return [line.split()[0] for line in lines]


async def until(is_met):
    """Check a condition several times per second until it is met."""
    with trio.fail_after(30):
        for _ in itertools.count():
            if await is_met():
                return
            await trio.sleep(0.05)


async def logged(process, text):
    """Wait until a process has logged this text."""
    with trio.fail_after(30):
        while text not in await trio.to_thread.run_sync(process.stderr.readline, abandon_on_cancel=True):
            assert process.poll() is None


async def ended(process):
    """The exit code of a process, and the rest of its log."""
    with trio.fail_after(30):
        log = await trio.to_thread.run_sync(process.stderr.read, abandon_on_cancel=True)
        return await trio.to_thread.run_sync(process.wait), log


@asynccontextmanager
async def serving(folder, ttl=30.0):
    """An engine without executors in its own process, and its port."""
    async with open_engine(jobs, "memory:", executors=0, executor_ttl=ttl, shutdown_timeout=0) as engine:
        server = Server(engine, folder)
        async with trio.open_nursery() as nursery:
            listener = await nursery.start(
                partial(serve_websocket, server.serve, "127.0.0.1", 0, ssl_context=None)
            )
            server.port = listener.port
            try:
                yield server
            finally:
                for process in server.started:
                    if process.poll() is None:
                        process.send_signal(signal.SIGCONT)
                        process.kill()
                    process.wait()
                    process.stderr.close()
            nursery.cancel_scope.cancel()
