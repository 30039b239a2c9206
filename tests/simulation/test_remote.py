"""Clients on other machines: the real client and the real gateway, over connections that stall and break."""

import hashlib
import itertools
import logging
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from greenroom import Jobs, Run
from greenroom.errors import Unavailable
from greenroom.gateway import GatewayConfig
from greenroom.gateway.client.link import Link
from greenroom.gateway.stream import feeds
from greenroom.gateway.websocket import writer
from greenroom.protocol.commands import Submit
from greenroom.protocol.events import Filter
from greenroom.simulation import SimulationFailed, World, simulate
from greenroom.simulation.scenarios.connected import connected

ROOT = Path(__file__).resolve().parents[2]
jobs = Jobs()


@jobs.job("pages", resumable=True)
async def pages(run: Run, params: dict) -> int:
    for page in range(run.checkpoint or 0, params["pages"]):
        await run.log(f"page {page}")
        await run.sleep(1)
        await run.save_checkpoint(page + 1)
    return params["pages"]


@jobs.job("holds")
async def holds(run: Run) -> None:
    await trio.sleep_forever()


@pytest.fixture(autouse=True)
def _silent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, logger="greenroom")


def plays(scenario, seeds=range(1, 11), **options) -> None:
    """Play several seeds, because much of the network's behaviour is random."""
    for seed in seeds:
        simulate(seed, scenario, **options)


def fails(scenario, match: str) -> None:
    with pytest.raises(SimulationFailed, match=match):
        plays(scenario, range(1, 31))


# Clients and network faults.


def test_a_client_gets_its_results_despite_crashes_and_lost_connections():
    async def scenario(world: World) -> None:
        server = await world.serve(jobs, gateway=GatewayConfig())
        async with world.connect("ann") as ann, world.connect("bob", filter={"handles": ["b"]}) as bob:
            tickets = [
                await ann.submit("pages", handle="a", params={"pages": 3}),
                await bob.submit("pages", handle="b", params={"pages": 3}),
            ]
            await trio.sleep(1.5)
            bob.route.cut(after=10)
            await server.crash()
            await trio.sleep(1)
            await server.start()
            ann.route.stall()
            world.check([await ticket.result() for ticket in tickets] == [3, 3], "both have ended")
            world.check(
                {run.handle for run in bob.state.runs.values()} == {"b"},
                "bob receives only runs of his handle",
            )

    plays(scenario)


def test_calls_and_results_of_clients_on_other_machines_are_in_the_trace_and_the_story():
    async def scenario(world: World) -> None:
        await world.serve(jobs, gateway=GatewayConfig())
        async with world.connect("ann") as ann:
            ticket = await ann.submit("pages", handle="a", params={"pages": 1})
            await ticket.result()
            ann.route.cut()

    trace = simulate(1, scenario).trace

    assert 'ann #1: submit ["pages",{"handle":"a","params":{"pages":1}}]' in trace.text()
    assert "ann receives #1: run 1\n" in trace.story()
    assert "ann receives #2: 1\n" in trace.story()
    assert "ann: opens connection 1 to server\n" in trace.story()
    assert "!!!! ann: loses its connection\n" in trace.story()


def test_while_the_server_is_down_a_new_client_cannot_connect():
    async def scenario(world: World) -> None:
        server = await world.serve(jobs, gateway=GatewayConfig())
        await server.crash()
        with pytest.raises(Unavailable, match="failed: server is down"):
            async with world.connect("ann"):
                pass

    simulate(1, scenario)


def test_connecting_to_a_server_without_a_gateway_is_refused_with_the_remedy():
    async def scenario(world: World) -> None:
        await world.serve(jobs)
        async with world.connect("ann"):
            pass

    fails(scenario, r"server has no gateway: serve it with gateway=GatewayConfig\(\)")


def test_a_client_replaces_a_connection_that_is_silent_for_too_long():
    async def scenario(world: World) -> None:
        await world.serve(jobs, gateway=GatewayConfig())
        async with world.connect("ann") as ann:
            ann.route.stall()
            with pytest.raises(Unavailable, match="it may or may not have been carried out"):
                await ann.set_params("a", {"pages": 1})
            world.check(30 <= trio.current_time() <= 60, f"it took {trio.current_time()} s")
            await trio.sleep(10)
            world.check(ann.connected, "it has reconnected")

    plays(scenario)


def test_commands_wait_while_the_network_is_unreachable():
    async def scenario(world: World) -> None:
        await world.serve(jobs, gateway=GatewayConfig())
        async with world.connect("ann") as ann:
            ann.route.passable = False
            ann.route.cut()
            await trio.sleep(0.01)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ann.set_params, "a", {"pages": 1})
                await trio.sleep(5)
                ann.route.passable = True
            world.check(trio.current_time() > 5, "it waited")

    plays(scenario)


# Rules that are always checked.


def skip_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = feeds.Feed._prepare

    def skipping(self: feeds.Feed, announced: int, read: int) -> feeds.Chunk:
        return prepare(self, announced, min(read + 1, self._stream.last_seq - 1))

    monkeypatch.setattr(feeds.Feed, "_prepare", skipping)


def answer_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    async def send_reply(self: writer.Writer, message: writer.QueuedReply) -> None:
        await self._put(message.payloads, message.cost)

    monkeypatch.setitem(writer._HANDLERS, writer.QueuedReply, send_reply)


def drop_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    def predicate(filter):
        return lambda event: event.type != "run_log" and filter.passes(event)

    monkeypatch.setattr(feeds, "predicate", predicate)


def show_half_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    sees = Filter.sees
    monkeypatch.setattr(Filter, "sees", lambda filter, run: sees(filter, run) and not run.ended)


def forget_request_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    send, numbers = Link._send, itertools.count()

    def renamed(link: Link, socket, call) -> None:
        if isinstance(call.command, Submit) and call.sent:
            call.command = replace(call.command, request_id=f"another {next(numbers)}")
        send(link, socket, call)

    monkeypatch.setattr(Link, "_send", renamed)


MISTAKES = {
    skip_an_event: "missed|lost or repeated|although it had no fault",
    answer_too_soon: "received the reply to submit before event",
    drop_too_much: "but missed|is behind",
    show_half_a_snapshot: "a client received .*, but at seq",
    forget_request_ids: "created .* its caller received|was executed several times|which is of run",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake, monkeypatch: pytest.MonkeyPatch):
    mistake(monkeypatch)
    fails(connected, MISTAKES[mistake])


# Bugs that these rules have found.


def test_leaving_an_iterator_that_reads_past_events_does_not_close_the_connection():
    async def scenario(world: World) -> None:
        server = await world.serve(jobs, gateway=GatewayConfig())
        near = world.client("near")
        for number in range(3):
            await near.set_params("a", {"pages": number})
        async with world.connect("ann") as ann:
            ann.route.set_delay((0.1, 0.1))
            with trio.move_on_after(0.15):
                async for _ in ann.events(after=0):
                    pass
            await near.set_params("a", {"pages": 9})
            await trio.sleep(1)  # the simulation fails if the client closes the connection
            world.check(ann.state.seq == server.rules.model.seq, "it continues")

    plays(scenario)


def test_iterators_that_start_at_different_past_events_miss_nothing():
    async def scenario(world: World) -> None:
        await world.serve(jobs, gateway=GatewayConfig())
        near = world.client("near")
        for number in range(5):
            await near.set_params("a", {"pages": number})

        async def look_back(ann, after: int) -> None:
            async for item in ann.events(after=after):  # which checks that no event is missing
                if item.seq == 5:
                    return

        async with world.connect("ann") as ann, trio.open_nursery() as nursery:
            for after in (1, 3, 0, 2):
                nursery.start_soon(look_back, ann, after)

    plays(scenario)


def test_a_client_survives_if_on_wait_can_no_longer_be_called_for_a_run():
    async def scenario(world: World) -> None:
        server = await world.serve(jobs, gateway=GatewayConfig(), max_concurrent=0)
        async with world.connect("ann", patience=2) as ann:
            ann.route.set_delay((0.1, 0.1))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(ann.submit, "holds", handle="a", on_wait=print))
                await trio.sleep(0.15)  # it is executed, and the reply is in flight
                await server.crash()
                await server.start()
            await server.crash()
            await trio.sleep(10)
            await server.start()
            await trio.sleep(10)
            world.check(ann.connected, "it has reconnected")

    plays(scenario)


def test_a_client_with_a_filter_can_connect_while_the_store_is_down():
    async def scenario(world: World) -> None:
        server = await world.serve(jobs, gateway=GatewayConfig())
        server.disk.down = True
        async with world.connect("ann", filter={"handles": ["a"]}) as ann:
            world.check(ann.connected, "it is connected")
        server.disk.down = False

    plays(scenario)


def test_wait_for_active_raises_if_the_client_is_closed_meanwhile():
    told: list[object] = []

    async def scenario(world: World) -> None:
        await world.serve(jobs, gateway=GatewayConfig(), shutdown_timeout=0)

        async def wait(ann) -> None:
            try:
                told.append(await ann.wait_for_active(20))
            except Unavailable as error:
                told.append(error.message)

        async with trio.open_nursery() as nursery, world.connect("ann") as ann:
            await ann.submit("holds", handle="a")
            nursery.start_soon(wait, ann)
            await trio.sleep(1)

    simulate(1, scenario)

    assert told == ["the client is closed"]


# The scenario.


def test_no_rule_is_broken_for_clients_on_other_machines():
    plays(connected, range(1, 31))


def test_no_rule_is_broken_for_clients_on_other_machines_on_sqlite():
    plays(connected, range(1000, 1010), store="sqlite")


def test_a_seed_gives_the_same_trace_in_every_process_with_any_hash_seed():
    digests = {
        subprocess.run(
            [sys.executable, "-m", "tests.simulation.test_remote"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }

    assert len(digests) == 1


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    for seed in range(1, 6):
        print(hashlib.sha256(simulate(seed, connected).trace.text(messages=True).encode()).hexdigest())
