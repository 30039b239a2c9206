"""What executes the bodies of a node: its own process, child processes, or nothing.

They are ordinary executors, so their bodies continue while the leader changes.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from ..actors.executors.children import Children
from ..actors.executors.connection import Connection
from ..actors.executors.locating import locate
from ..actors.executors.spawning import check_supported, program
from ..actors.jobs import Jobs
from ..actors.scheduling.stored_bodies import is_child
from ..executor.executor import Executor, Identity
from ..gateway.cluster.router import Router
from ..persistence.files import DiskFiles
from ..persistence.folder import folder_id
from .dialing import LeaderBeats
from .to_leader import connecting_to_leader

logger = logging.getLogger("greenroom.cluster")

_ID_LENGTH = 8
_LAST_REPORTS = 1.0
"""Seconds in which the leader is told of the last processes that have ended."""


class Executing(Protocol):
    """See the module's docstring."""

    async def load(self) -> None:
        """Prepare. Raises `Invalid` if the jobs cannot be imported."""

    async def run(self) -> None:
        """Execute bodies until a drain has ended."""

    def drain(self) -> None:
        """Accept no new bodies, and end: bodies have the shutdown timeout to finish, and resumable ones then
        continue elsewhere."""

    async def only_abandoned_remain(self) -> None:
        """Wait until this process drains, and each of its bodies is abandoned."""

    @property
    def remaining(self) -> Sequence[str]:
        """The runs whose bodies execute in this process."""


def process_id(node: str, number: int | None = None) -> str:
    """An id for the executor of a node in a process that starts now; `number` is that of a child.

    No other process has it: one that starts after a crash must not wait until the last one counts as lost.
    """
    start = uuid.uuid4().hex[:_ID_LENGTH]
    prefix = f"node-{node}" if is_child(node) else node  # those ids are for the children of an engine
    return f"{prefix}-{start}" if number is None else f"{prefix}-{number}-{start}"


class Here:
    """The process of the node executes bodies. Its executor connects to the leader that the router knows."""

    def __init__(
        self,
        jobs: Jobs,
        node: str,
        version: str,
        router: Router,
        dial: Callable[[str], Awaitable[Connection]],
        *,
        secret: str,
        ca_file: str | None,
        data_dir: str,
        shutdown_timeout: float,
    ) -> None:
        self._router = router
        self._secret = secret
        self._ca_file = ca_file
        self._identity = Identity(
            node=process_id(node), start=uuid.uuid4().hex, folder=folder_id(data_dir), version=version
        )
        self._executor = Executor(
            jobs,
            connecting_to_leader(router, dial),
            self._identity,
            DiskFiles(data_dir, in_threads=True),
            random=random.Random(),
            shutdown_timeout=shutdown_timeout,
            beats=self._beats,
        )

    async def load(self) -> None:
        """The jobs are imported already."""

    async def run(self) -> None:
        """Execute bodies until a drain has ended. Raises `ProcessEnding` if a body raised what ends the
        process."""
        await self._executor.run()

    def drain(self) -> None:
        self._executor.exit_soon()

    async def only_abandoned_remain(self) -> None:
        await self._executor.until_only_abandoned_remain()

    @property
    def remaining(self) -> Sequence[str]:
        return self._executor.remaining

    def _leader(self) -> str | None:
        leader = self._router.leader
        return None if leader is None else leader.address

    def _beats(self, patience: float) -> LeaderBeats:
        identity = self._identity
        return LeaderBeats(
            identity.node,
            identity.start,
            patience,
            leader=self._leader,
            secret=self._secret,
            ca_file=self._ca_file,
        )


class InChildren:
    """Child processes execute bodies. The node relays their connections to the leader, and reports their end,
    so that their runs continue at once."""

    def __init__(
        self, jobs: Jobs, count: int, node: str, router: Router, *, data_dir: str, shutdown_timeout: float
    ) -> None:
        check_supported()
        self._router = router
        self._drains = trio.Event()
        self._children = Children(
            count,
            program(locate(jobs), data_dir, shutdown_timeout, reconnects=True),
            None,
            jobs,
            lambda number: process_id(node, number),
        )

    async def load(self) -> None:
        """Start the children; returns when they have imported the jobs."""
        try:
            await self._children.load()
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._children.aclose()
            raise

    async def run(self) -> None:
        """Execute bodies until the children have ended, which are drained or killed."""
        try:
            async with trio.open_nursery() as self._reports:
                self._reports.start_soon(self._end_children)
                await self._children.run(self)
                self._reports.cancel_scope.deadline = trio.current_time() + _LAST_REPORTS
        finally:
            with trio.CancelScope(shield=True):
                await self._children.aclose()

    def drain(self) -> None:
        self._drains.set()

    async def only_abandoned_remain(self) -> None:
        """Each child ends without such bodies."""
        await trio.sleep_forever()

    @property
    def remaining(self) -> Sequence[str]:
        return ()

    async def _end_children(self) -> None:
        await self._drains.wait()
        await self._children.drain()

    # For the children.

    async def serve(self, connection: Connection) -> None:
        """Relay a connection of a child to the leader."""
        await self._router.serve_executor(connection, "child process")

    def died(self, executor: str, how: str) -> Sequence[str]:
        """Report the end of a child to the leader, which knows its runs."""
        self._reports.start_soon(self._router.executor_ended, executor, how)
        return ()


class Nothing:
    """Only other executors execute bodies."""

    def __init__(self) -> None:
        self._drains = trio.Event()

    async def load(self) -> None:
        """Nothing is to be prepared."""

    async def run(self) -> None:
        await self._drains.wait()

    def drain(self) -> None:
        self._drains.set()

    async def only_abandoned_remain(self) -> None:
        """There are no bodies."""
        await trio.sleep_forever()

    @property
    def remaining(self) -> Sequence[str]:
        return ()
