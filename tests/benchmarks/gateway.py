"""The gateway, compared with `websockets` and the embedded engine: delivery, latency, commands, idle clients.

Each server has its own process. The clients are plain sockets in this process. They parse as little as
possible, so that they never limit the result. The compared programs alternate in one execution, and medians
are taken.

Delivery is measured in processor time of the server, because that depends little on the load of the machine.
Latency is elapsed time. The gateway's events are those of real runs in its process, so its processor time
includes the engine; `websockets` only sends messages that are already encoded.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import msgspec
import trio

from greenroom import connect

from .figures import Figure
from .processes import Program, Taken, taking
from .sockets import Client, crowd, exchange, frame
from .store import percentile

SUBSCRIBERS = 100
RUNS = 1_000  # in each round; a multiple of the number of concurrent runs
EVENTS_OF_A_RUN = 3
ROUNDS = 5
ALONE = 300  # runs one at a time, in each round
COMMANDS = 20_000
CONNECTIONS = 50
AT_ONCE = 64
IDLE = 5_000

QUICK = {"ROUNDS": 3, "RUNS": 500, "COMMANDS": 5_000, "IDLE": 1_000}

_SEQ = b'"seq":'  # once in every event, and not in the message around them


def measure() -> Iterator[Figure]:
    """All figures."""
    yield from measure_delivery()
    yield from measure_latency()
    yield from measure_commands()
    yield from measure_idle()


# Events to many subscribers.


def measure_delivery() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="greenroom-") as folder, Program("serving", "memory:") as server:
        messages = Path(folder) / "messages"
        messages.write_bytes(b"\n".join(record(server)))
        with Program("broadcasting", str(messages)) as rival:
            took: dict[str, list[Taken]] = {"loaded": [], "single": [], "in turn": [], "rival": []}
            turns = [
                lambda: took["loaded"].append(deliver(server, f"together {RUNS}", 256)),
                lambda: took["single"].append(deliver(server, f"together {RUNS}", 1)),
                lambda: took["in turn"].append(deliver(server, f"in turn {RUNS}", 1)),
                lambda: took["rival"].append(deliver(rival, "broadcast")),
            ]
            for number in range(ROUNDS):
                for turn in turns if number % 2 else reversed(turns):
                    turn()
    deliveries = RUNS * EVENTS_OF_A_RUN * SUBSCRIBERS

    def pace(name: str, what: str) -> Figure:
        passed = median(deliveries / one.passed for one in took[name])
        rate = median(deliveries / one.computed for one in took[name])
        note = f"per second of the server's processor time; {passed:,.0f} per second that passed"
        return Figure(f"to {SUBSCRIBERS} subscribers: {what}", rate, "events/s", note=note)

    def compared(name: str, what: str, least: float, note: str = "") -> Figure:
        ratio = median(
            other.computed / one.computed for one, other in zip(took[name], took["rival"], strict=True)
        )
        passed = median(
            other.passed / one.passed for one, other in zip(took[name], took["rival"], strict=True)
        )
        note = f"by the time that passed, {passed:.2g}" + note
        return Figure(f"{what} / `websockets`", ratio, "", ">=", least, note=note)

    yield pace("rival", "`websockets` broadcasts")
    yield pace("loaded", "the gateway, under load")
    yield pace("single", "the gateway, under load, max_batch=1")
    yield pace("in turn", "the gateway, one event at a time")
    yield compared("loaded", "under load, batched", 3)
    yield compared("single", "under load, max_batch=1", 0.8, "; frames of one event, several in a write")
    yield compared("in turn", "one event at a time, each a write to each", 0.8)


def record(server: Program) -> list[bytes]:
    """The messages that a subscriber receives, with one event each."""
    server.ask("max_batch 1")
    with Client(server.port) as client:
        client.call(type="subscribe")
        server.ask(f"together {RUNS}")
        return [client.message() for _ in range(RUNS * EVENTS_OF_A_RUN)]


def deliver(server: Program, order: str, max_batch: int | None = None) -> Taken:
    """The time until every subscriber has received every event."""
    if max_batch is not None:
        server.ask(f"max_batch {max_batch}")
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(server.port)) for _ in range(SUBSCRIBERS)]
        for client in clients:
            if max_batch is not None:
                client.call(type="subscribe")
        with taking(server) as taken:
            server.tell(order)
            crowd(clients, _SEQ, RUNS * EVENTS_OF_A_RUN)
        server.answer()
    return taken


# One run at a time.


def measure_latency() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="greenroom-") as folder:
        rounds = [trio.run(measure_alone, f"sqlite:///{folder}/{number}") for number in range(ROUNDS)]
    for name, part, most in (("p50", 0.5, 2), ("p99", 0.99, 4)):
        at = partial(percentile, part=part)
        embedded = median(at(one.embedded) for one in rounds)
        yield Figure(f"SQLite: submit → result, embedded, {name}", embedded * 1e3, "ms")
        plain = median(at(one.plain) for one in rounds)
        yield Figure(f"submit → `succeeded` event at a client, {name}", plain * 1e3, "ms")
        ratio = median(at(one.plain) / at(one.embedded) for one in rounds)
        yield Figure(f"at a client / embedded, {name}", ratio, "", "<=", most)
        ours = median(at(one.ours) for one in rounds)
        yield Figure(f"submit → result with the Python client, {name}", ours * 1e3, "ms")


class Alone(msgspec.Struct):
    """Seconds that runs took, one at a time."""

    embedded: list[float]  # until `result` returns
    plain: list[float]  # until a subscriber on a plain socket has received the event
    ours: list[float]  # until `result` of the Python client returns


async def measure_alone(store: str) -> Alone:
    """The servers alternate after each run, so a disk that is slow for a while affects all of them
    equally."""
    alone = Alone([], [], [])
    with (
        Program("serving", f"{store}-embedded.db") as embedding,
        Program("serving", f"{store}-served.db") as server,
        Client(server.port) as plain,
    ):
        plain.call(type="subscribe")
        async with connect(f"ws://127.0.0.1:{server.port}") as client:
            for _ in range(ALONE):
                alone.embedded.append(float(embedding.ask("in turn 1")))

                start = time.perf_counter()
                plain.send({"type": "submit", "id": 1, "job": "nothing", "handle": "handle"})
                while b'"to":"succeeded"' not in plain.message():
                    pass
                alone.plain.append(time.perf_counter() - start)

                alone.embedded.append(float(embedding.ask("in turn 1")))

                start = time.perf_counter()
                ticket = await client.submit("nothing", handle="handle")
                await ticket.result()
                alone.ours.append(time.perf_counter() - start)
                plain.call(
                    type="list_runs", limit=1
                )  # after this reply it has received the events of that run, too
    return alone


# Commands.


def measure_commands() -> Iterator[Figure]:
    with Program("serving", "memory:") as server:
        for name, command in (
            ("set_params", {"type": "set_params", "handle": "handle", "params": {"pages": 10}}),
            ("submit", {"type": "submit", "job": "nothing", "on_conflict": "queue"}),
        ):
            for what, connections, at_once in (
                ("one connection, one at a time", 1, 1),
                (f"one connection, {AT_ONCE} at a time", 1, AT_ONCE),
                (f"{CONNECTIONS} connections, one at a time each", CONNECTIONS, 1),
            ):
                taken = [give(server, command, connections, at_once) for _ in range(ROUNDS)]
                rate = median(COMMANDS / one.passed for one in taken)
                computed = median(one.computed / COMMANDS for one in taken) * 1e6
                note = f"{computed:.0f} µs of the server's processor time each"
                yield Figure(f"{name}: {what}", rate, "per s", note=note)


def give(server: Program, command: Mapping[str, object], connections: int, at_once: int) -> Taken:
    """The time until all commands are answered."""
    each = COMMANDS // connections
    frames = [
        frame({"id": number, "handle": f"handle {number % 1_000}", **command})
        for number in range(each * connections)
    ]
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(server.port)) for _ in range(connections)]
        for client in clients:
            client.message()  # the welcome
        with taking(server) as taken:
            exchange(clients, frames, each, at_once)
    return taken


# Idle connections.


def measure_idle() -> Iterator[Figure]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the servers inherit it
    try:
        number = min(IDLE, hard - 200)
        for what, program, subscribe in (
            ("the gateway", ("serving", "memory:"), False),
            ("the gateway, each subscribed", ("serving", "memory:"), True),
            ("`websockets`", ("broadcasting", "/dev/null"), False),
        ):
            with Program(*program) as server:
                grown = connect_idle(server, number, subscribe) / number / 1024
            name = f"{what}: memory of an idle connection, {number:,}"
            yield Figure(name, grown, "KB", note="what the server's process grew by")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect_idle(server: Program, number: int, subscribe: bool) -> int:
    """Bytes by which this number of connections makes the server's process grow."""
    before = server.resident
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(server.port)) for _ in range(number)]
        if subscribe:
            for client in clients:
                client.call(type="subscribe")
        return server.resident - before
