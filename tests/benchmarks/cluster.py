"""Clusters of three nodes on PostgreSQL: take-over, hand-over, and what followers' clients cost the leader.

A leader that is killed is one on another machine: the other nodes cannot see that its process has ended, and
wait until its lease expires. Where they can see it, because all run on one machine, they do not wait.

The cost of events is the processor time of the leader's process for the same commands, in turns: with two
subscribers of its own, and with many that its followers serve.

Requires PostgreSQL (on Debian: `apt-get install postgresql`).
"""

from __future__ import annotations

import logging
import resource
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import msgspec
import trio

from greenroom import Client as OurClient
from greenroom import Jobs, Run, connect
from greenroom.errors import GreenroomError, Unavailable
from greenroom.gateway.background import background
from tests.cluster.chaos.world import Node, World, world
from tests.servers import PostgreSQL, Server

from .figures import Figure
from .processes import processor_time
from .sockets import Client, crowd, exchange, frame

PENDING = 10_000
TTL = 5.0
TAKEOVERS = 3
HANDOVERS = 5
CLIENTS = 1_000
COMMANDS = 2_000  # in each round
AT_ONCE = 64
ROUNDS = 5

QUICK = {"PENDING": 2_000, "TAKEOVERS": 1, "HANDOVERS": 2, "CLIENTS": 200, "ROUNDS": 3}

_SEQ = b'"seq":'  # once in every event, and not in the message around them
_BETWEEN = 0.5
"""Seconds of commands before and after a hand-over."""

jobs = Jobs()


@jobs.job("nothing")
async def nothing(run: Run) -> None:
    pass


@jobs.job("stays", resumable=True)
async def stays(run: Run) -> None:
    await trio.sleep_forever()


def measure() -> Iterator[Figure]:
    """All figures."""
    logging.getLogger("greenroom").setLevel(logging.CRITICAL)
    server = PostgreSQL()
    try:
        server.initialize()
        server.start()
        yield trio.run(measure_takeover, server, {}, f"SIGKILL → next command, ttl {TTL:g} s", TTL + 2)
        same = "the same, the process seen to have ended"
        yield trio.run(measure_takeover, server, {"CHAOS_MACHINE": ""}, same, None)
        yield from trio.run(measure_handover, server)
        yield from trio.run(measure_events, server)
    finally:
        server.close()


# Take-over and hand-over.


async def measure_takeover(
    server: Server, variables: dict[str, str], name: str, most: float | None
) -> Figure:
    took = []
    async with opened(server, variables=variables) as made:
        await make_pending(made)
        for _ in range(TAKEOVERS):
            leader = await made.leader()
            async with connect(made.others(leader)[0].url, follow=False) as client:
                start = time.perf_counter()
                leader.program.signal(signal.SIGKILL)
                await submit(client, f"after {start}")
                took.append(time.perf_counter() - start)
            await leader.program.ended()
            made.start(leader, jobs=f"{__name__}:jobs", **variables)
            await made.ready()
    note = f"{PENDING:,} pending runs; in turn: {', '.join(f'{seconds:.2f}' for seconds in took)}"
    return Figure(name, max(took), "s", None if most is None else "<=", most, note=note)


async def submit(client: OurClient, request: str) -> None:
    """Submit a run, and repeat that until a leader has accepted it."""
    while True:
        try:
            await client.submit("stays", handle=request, request_id=request)
        except Unavailable:
            continue
        return


class Commands(msgspec.Struct):
    """The commands of clients: when each was sent, how long it took, and which failed."""

    took: list[tuple[float, float]] = []
    failed: list[str] = []

    async def send_for_ever(self, node: Node, *, task_status: trio.TaskStatus[None]) -> None:
        """Send commands to a node, one after the other."""
        async with connect(node.url, follow=False) as client:
            task_status.started()
            while True:
                start = time.perf_counter()
                try:
                    await client.set_params(node.name, {"at": start})
                except GreenroomError as error:
                    self.failed.append(str(error))
                self.took.append((start, time.perf_counter() - start))


async def measure_handover(server: Server) -> list[Figure]:
    longest, usual, failed = [], [], []
    async with opened(server) as made:
        await make_pending(made)
        for _ in range(HANDOVERS):
            leader = await made.leader()
            commands = Commands([], [])
            async with background() as nursery:
                for node in made.others(leader):
                    await nursery.start(commands.send_for_ever, node)
                await trio.sleep(_BETWEEN)
                start = time.perf_counter()
                await leader.post("/api/cluster/step-down")
                await made.leader(but=leader)
                await trio.sleep(_BETWEEN)
            usual += [took for sent, took in commands.took if sent + took < start]
            longest.append(max(took for sent, took in commands.took if sent + took >= start))
            failed += commands.failed
    note = f"{PENDING:,} pending runs; in turn: {', '.join(f'{seconds:.2f}' for seconds in longest)}"
    note += f"; before it, a command takes {median(usual) * 1e3:.1f} ms"
    return [
        Figure("hand-over: the longest wait of a command", max(longest), "s", "<=", 1, note=note),
        Figure("hand-over: failed commands", len(failed), "", "<=", 0),
    ]


async def make_pending(made: World) -> None:
    """Submit runs: some execute, the others are queued behind them."""
    await trio.to_thread.run_sync(give, (await made.leader()).port, "submit", PENDING)


# Events.


async def measure_events(server: Server) -> list[Figure]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the nodes inherit it
    try:
        async with opened(server, count=1) as one, opened(server) as three:
            leader = await three.leader()
            return await trio.to_thread.run_sync(compare, one.nodes[0], leader, three.others(leader))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def compare(alone: Node, leader: Node, followers: list[Node]) -> list[Figure]:
    """The processor time of each leader for each event."""
    number = min(CLIENTS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    took: dict[str, list[float]] = {"alone": [], "none": [], "two": [], "many": []}
    turns = [
        lambda: took["alone"].append(deliver(alone, [alone, alone])),
        lambda: took["none"].append(deliver(leader, [])),
        lambda: took["two"].append(deliver(leader, [leader, leader])),
        lambda: took["many"].append(deliver(leader, (followers * number)[:number])),
    ]
    for round in range(ROUNDS):
        for turn in turns if round % 2 else reversed(turns):
            turn()
    cost = {name: median(each) * 1e6 for name, each in took.items()}

    def ratio(name: str) -> float:
        return median(many / two for many, two in zip(took["many"], took[name], strict=True))

    return [
        Figure("events: one node, two subscribers", cost["alone"], "µs"),
        Figure("events: leader of two followers, no subscribers", cost["none"], "µs"),
        Figure("events: leader of two followers, two subscribers of its own", cost["two"], "µs"),
        Figure(f"events: leader, {number:,} subscribers of its followers", cost["many"], "µs"),
        Figure(
            f"events: {number:,} subscribers of followers / two of the leader",
            ratio("two"),
            "",
            "<=",
            1.05,
            note="the leader's processor time for an event, from the command to its delivery; at most 1, and "
            f"0.05 for the measurement; compared with one node and two subscribers: {ratio('alone'):.2f}",
        ),
    ]


def deliver(leader: Node, nodes: list[Node]) -> float:
    """Seconds of the leader's processor time for each event that a client of each of these nodes receives."""
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(node.port)) for node in nodes]
        for client in clients:
            client.call(type="subscribe")
        computed = processor_time(leader.pid)
        give(leader.port, "set_params", COMMANDS)
        if clients:
            crowd(clients, _SEQ, COMMANDS)
        return (processor_time(leader.pid) - computed) / COMMANDS


def give(port: int, command: str, number: int) -> None:
    """Send commands over one connection, and wait for the answers."""
    fields: dict[str, dict[str, object]] = {
        "submit": {"job": "stays"},
        "set_params": {"params": {"pages": 10}},
    }
    frames = (
        frame({"id": each, "type": command, "handle": f"handle {each}", **fields[command]})
        for each in range(number)
    )
    with Client(port) as client:
        client.message()  # the welcome
        exchange([client], frames, number, AT_ONCE)


def opened(server: Server, **options: object):
    """A cluster in a new folder."""
    folder = Path(tempfile.mkdtemp(prefix="greenroom-"))
    given = {"lease_ttl": TTL, "executor_ttl": 2 * TTL, "max_concurrent": 4, "direct": True}
    return partial(world, folder, server, jobs=f"{__name__}:jobs")(**given | options)
