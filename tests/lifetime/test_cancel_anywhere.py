"""An engine that is cancelled from outside, or whose store fails, shuts down in order at any moment.

The bodies sleep, open interrupts, call children, write files and ignore their cancellation. Hypothesis draws
the moment of the cancel, or the number of the commit at which the store fails, and the seed of a simulation.
The rules of the simulation are checked all the time.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom import Jobs, Run
from greenroom.errors import Conflict, Draining, Unavailable
from greenroom.persistence.failures import StoreBroken
from greenroom.protocol.events import RunEvent, RunProgress
from greenroom.simulation import World, simulate
from greenroom.simulation.world.client import Client
from greenroom.simulation.world.server import Server

COMMITS = 75  # a little more than the total number
WHOLE_FILES = {b"half of it, and the rest", b"never mind how it ends"}
AT_REST = {"queued", "suspended", "succeeded", "failed", "cancelled", "timed_out"}

jobs = Jobs()


@pytest.fixture(autouse=True)
def _silent(caplog: pytest.LogCaptureFixture) -> None:
    """Do not log the intended failures of thousands of bodies."""
    caplog.set_level(logging.CRITICAL + 1, logger="greenroom")


async def body(run: Run, params: dict[str, Any]) -> None:
    await _DOES[params["do"]](run)


for name, options in {
    "plain": {},
    "resumable": {"resumable": True},
    "retried": {"max_attempts": 2, "backoff": 1.0},
    "polite": {"cancel": "cooperative"},
}.items():
    jobs.job(name, grace=2, **options)(body)  # type: ignore[arg-type]


async def sleep(run: Run) -> None:
    await run.sleep(2)
    await run.progress(1, 2)
    await run.sleep(3, release_slot=False)


async def ask(run: Run) -> None:
    await run.interrupt("may I?", timeout=3, release_slot=True)
    await run.interrupt("sure?", timeout=2)


async def call(run: Run) -> None:
    await run.call("plain", handle=f"{run.handle}-child", params={"do": "write"})
    await run.log("it is done")


async def write(run: Run) -> None:
    for number in range(3):
        async with run.open_file(f"{number}.txt", overwrite=True) as file:
            await file.write(b"half of it, ")
            await trio.sleep(0.5)
            await file.write(b"and the rest")
        await run.save_checkpoint(number)


async def fail(run: Run) -> None:
    await trio.sleep(1)
    raise ValueError("as asked")


async def ignore(run: Run) -> None:
    with trio.CancelScope(shield=True):
        async with run.open_file("ignored.txt", overwrite=True) as file:
            await file.write(b"never mind ")
            await trio.sleep(4)
            await file.write(b"how it ends")
        await run.log("still here")


_DOES = {"sleep": sleep, "ask": ask, "call": call, "write": write, "fail": fail, "ignore": ignore}


async def use(ann: Client) -> None:
    """Submit and cancel runs of all kinds while the engine runs."""
    names = ("plain", "resumable", "retried", "polite")
    tickets = []
    with contextlib.suppress(Draining, Unavailable):
        for number, do in enumerate((*_DOES, *_DOES)):
            ticket = await ann.submit(
                names[(number + number // 6) % 4],
                handle=f"h{number % 8}",
                lane=("main", "side")[number % 2],
                params={"do": do},
                on_conflict="queue",
                deadline=20,
            )
            tickets.append(ticket)
        await trio.sleep(1)
        with contextlib.suppress(Conflict):  # it has ended
            await tickets[3].cancel(files="delete")


async def check_what_is_left(world: World, server: Server) -> None:
    """Check that nothing is half done, and that committed changes exist at the next start."""
    disk, model = server.disk, server.rules.model
    world.check(not disk.parts, f"unfinished files are left: {list(disk.parts)}")
    contents = {file.content for file in disk.files.values()}
    world.check(contents <= WHOLE_FILES, f"torn files are left: {contents}")
    kept: dict[str, list[Any]] = {id: [] for id in model.runs}
    for event in model.events:
        if isinstance(event, RunEvent) and not isinstance(event, RunProgress):
            kept[event.run].append(event)
    await server.start(max_concurrent=0)
    for id, events in kept.items():
        shown = await world.client("ann").history(id)
        world.check(shown[: len(events)] == events, f"run {id} had {events}, and has {shown}")


@settings(max_examples=max(250, settings().max_examples))
@given(moment=st.integers(0, 16), turns=st.integers(0, 120), seed=st.integers(0, 10_000))
def test_cancelled_at_any_moment_it_shuts_down_in_order_and_leaves_nothing_half_done(moment, turns, seed):
    async def scenario(world: World) -> None:
        server = await world.serve(jobs, lanes={"side": 2}, shutdown_timeout=2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(use, world.client("ann"))
            await trio.sleep(moment / 2)
            for _ in range(turns):
                await trio.lowlevel.checkpoint()
            await server.stop(at_once=True)
        statuses = {run.status for run in server.rules.model.runs.values()}
        world.check(statuses <= AT_REST, f"at rest are {statuses}")
        await check_what_is_left(world, server)

    simulate(seed, scenario)


@settings(max_examples=max(250, settings().max_examples))
@given(commit=st.integers(0, COMMITS), seed=st.integers(0, 10_000))
def test_losing_its_store_at_any_commit_it_stops_and_leaves_only_what_was_committed(commit, seed):
    async def scenario(world: World) -> None:
        server = await world.serve(jobs, lanes={"side": 2}, shutdown_timeout=2)
        server.disk.fail_commit("broken", after=commit)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(use, world.client("ann"))
            await trio.sleep(8)
            broken = not server.running
            await server.stop()
        server.disk.repair()
        world.check(
            isinstance(server.failure, StoreBroken) or not broken, f"it failed with {server.failure!r}"
        )
        await check_what_is_left(world, server)

    simulate(seed, scenario)
