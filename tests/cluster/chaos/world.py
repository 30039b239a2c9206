"""Three nodes as processes, their network and their database. All end with the block that started them."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import trio

from greenroom.persistence.migrating import upgrade
from greenroom.persistence.sqlstore import SqlStore
from tests.executors.chaos.world import Program, free_port, until
from tests.servers import Server

from .network import DATABASE, Direction, Network

_TIMEOUT = 2.0
"""Seconds that a node gets to answer a request of the tests."""


class Node:
    """One node: its ports, its data folder, and its current process."""

    def __init__(self, number: int, folder: Path) -> None:
        self.name = f"n{number}"
        self.port = free_port()
        self.log = folder / f"{self.name}.log"
        self.data = folder / f"{self.name}-files"
        self.address = ""  # for other nodes
        self.store = ""
        self.program: Program

    @property
    def url(self) -> str:
        """Its address for clients."""
        return f"ws://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.program.pid

    async def get(self, path: str) -> Any:
        """The JSON at a path; `None` if it does not answer."""
        return await trio.to_thread.run_sync(self._request, "GET", path)

    async def post(self, path: str, body: Any = None) -> Any:
        """Post JSON; the answer, or `None`."""
        return await trio.to_thread.run_sync(self._request, "POST", path, body)

    async def is_ready(self) -> bool:
        return await self.get("/readyz") is not None

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={} if body is None else {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
                text = response.read()
        except (urllib.error.URLError, OSError):
            return None
        try:
            return json.loads(text)
        except ValueError:
            return text.decode()


class World:
    """A cluster. `pauses` lists when processes were stopped and continued."""

    def __init__(
        self, folder: Path, server: Server, *, lease_ttl: float, executor_ttl: float, max_concurrent: int = 12
    ) -> None:
        self.folder = folder
        self.server = server
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.lease_ttl = lease_ttl
        self.executor_ttl = executor_ttl
        self.max_concurrent = max_concurrent
        self.store = server.fresh_database()
        """The address of the database, which is never cut off."""
        self.nodes: list[Node] = []
        self.network = Network(lambda: self._names)
        self.pauses: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
        self._secret = folder / "secret"
        self._secret.write_text("a secret that only nodes have\n")
        self._programs: list[Program] = []
        self._names: dict[int, str] = {}  # of all processes

    # Nodes.

    def start(
        self,
        node: Node,
        *options: str,
        jobs: str = "tests.executors.chaos.jobs:jobs",
        shutdown_timeout: float = 1,
        **variables: str,
    ) -> None:
        """Start the process of a node."""
        node.program = Program(
            node.log,
            *("serve", jobs, "--cluster", "--port", str(node.port), "--store", node.store),
            *("--max-concurrent", str(self.max_concurrent), "--data-dir", str(node.data)),
            *("--shutdown-timeout", str(shutdown_timeout), *options),
            **self._variables(node) | variables,
        )
        self._programs.append(node.program)
        self._names[node.pid] = node.name

    def _variables(self, node: Node) -> dict[str, str]:
        hooks = Path(__file__).parent / "hooks"
        return {
            "MARKS": str(self.marks),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(hooks), os.environ.get("PYTHONPATH")])),
            "CHAOS_MACHINE": node.name,
            "GREENROOM_CLUSTER_SECRET_FILE": str(self._secret),
            "GREENROOM_CLUSTER_NODE": node.name,
            "GREENROOM_CLUSTER_ADVERTISE": node.address,
            "GREENROOM_CLUSTER_LEASE_TTL": str(self.lease_ttl),
            "GREENROOM_EXECUTOR_TTL": str(self.executor_ttl),
        }

    async def ready(self, *nodes: Node, within: float = 60) -> None:
        """Wait until these nodes, or all, are ready."""
        for node in nodes or self.nodes:
            await until(node.is_ready, f"{node.name} is ready", within)

    async def leader(self, *among: Node, but: Node | None = None, within: float = 60) -> Node:
        """Wait for a leader, according to all of these nodes, which is none of the excluded ones."""
        asked = among or [node for node in self.nodes if node.program.runs]
        found: list[Node] = []

        async def agreed() -> bool:
            leaders = {await self._leader_of(node) for node in asked}
            found[:] = [node for node in self.nodes if leaders == {node.address} and node is not but]
            return bool(found)

        await until(agreed, "the nodes agree on a leader", within)
        return found[0]

    async def _leader_of(self, node: Node) -> str | None:
        known = await node.get("/api/cluster")
        leader = known and known["leader"]
        return leader and leader["address"]

    def others(self, *but: Node) -> list[Node]:
        """The other nodes."""
        return [node for node in self.nodes if node not in but]

    # What happens to them.

    async def kill(self, node: Node) -> None:
        await node.program.kill()

    async def terminate(self, node: Node, within: float = 30) -> int:
        """End a node with SIGTERM; the exit code."""
        node.program.signal(signal.SIGTERM)
        return await node.program.ended(within)

    async def stop(self, node: Node, seconds: float) -> None:
        """Stop a node with SIGSTOP for some time."""
        self.pause(node)
        await trio.sleep(seconds)
        self.resume(node)

    def pause(self, node: Node) -> None:
        """Stop a node with SIGSTOP."""
        node.program.stopped_at = time.monotonic()
        node.program.signal(signal.SIGSTOP)

    def resume(self, node: Node) -> None:
        """Continue a stopped node."""
        assert node.program.stopped_at is not None
        self.pauses[node.pid].append((node.program.stopped_at, time.monotonic()))
        node.program.signal(signal.SIGCONT)

    def around(self, node: Node) -> list[Direction]:
        """The directions between a node and the other nodes."""
        others = [other.name for other in self.others(node)]
        return [(node.name, name) for name in others] + [(name, node.name) for name in others]

    def to_store(self, *nodes: Node) -> list[Direction]:
        """The directions between nodes and the database."""
        names = [node.name for node in nodes]
        return [(name, DATABASE) for name in names] + [(DATABASE, name) for name in names]

    def logs(self, most: int = 8000) -> str:
        """The end of all logs."""
        return "\n".join(f"--- {node.name}\n{node.log.read_text()[-most:]}" for node in self.nodes)

    def end(self) -> None:
        """Kill all processes that were started here."""
        for program in self._programs:
            if program.runs:
                program.signal(signal.SIGKILL)
                program.signal(signal.SIGCONT)
            program.process.wait()

    # The store.

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[SqlStore]:
        """The store, to read it."""
        store = SqlStore(self.store, member="test")
        try:
            await store.open_to_read()
            yield store
        finally:
            with trio.CancelScope(shield=True):
                await store.close()

    def leases(self) -> tuple[int, str | None]:
        """The term and the address of the lease on the store."""
        query = "SELECT term, address FROM leases WHERE name = 'engine'"
        [(term, address)] = self.server.execute(query, urlsplit(self.store).path[1:])
        return term, address


@asynccontextmanager
async def world(
    folder: Path,
    server: Server,
    *,
    count: int = 3,
    lease_ttl: float = 3.0,
    executor_ttl: float = 6.0,
    start: bool = True,
    direct: bool = False,
    jobs: str = "tests.executors.chaos.jobs:jobs",
    variables: Mapping[str, str] | None = None,
    **given: Any,
) -> AsyncIterator[World]:
    """A running cluster whose nodes are ready. Its logs are shown if the block fails. With `direct`, there is
    no network that can be cut."""
    made = World(folder, server, lease_ttl=lease_ttl, executor_ttl=executor_ttl, **given)
    await upgrade(made.store)
    parts = urlsplit(made.store)
    async with trio.open_nursery() as nursery:
        try:
            for number in range(count):
                node = Node(number, folder)
                port, store_port = node.port, server.port
                if not direct:
                    port = await nursery.start(made.network.serve, node.name, port)
                    store_port = await nursery.start(made.network.serve, DATABASE, store_port, node.name)
                node.address = f"http://127.0.0.1:{port}"
                user = parts.netloc.rpartition("@")[0]
                node.store = parts._replace(netloc=f"{user}@127.0.0.1:{store_port}").geturl()
                made.nodes.append(node)
            if start:
                for node in made.nodes:
                    made.start(node, jobs=jobs, **(variables or {}))
                await made.ready()
            yield made
        except BaseException as error:
            error.add_note(made.logs())
            raise
        finally:
            made.end()
            nursery.cancel_scope.cancel()
