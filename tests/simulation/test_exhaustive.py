"""Races of two or three commands, in every order in which the actors can receive their messages.

In each order all rules of the simulation are checked. The outcomes of a race must be exactly those that the
test lists, so a test without a real race fails, too. Every walk is complete: it ends when all orders that
differ have been explored, not at a limit.

`GREENROOM_WALKS=long` adds the largest races, and walks three others completely, of which otherwise only
random orders are tried. The counts are printed (`-s`).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from greenroom import Jobs, Run
from greenroom.errors import GreenroomError
from greenroom.protocol.records import RunRecord
from greenroom.simulation import World
from greenroom.simulation.search.exhaustive import Race, Scenario, sample, walk
from greenroom.simulation.world.client import SimulatedTicket
from greenroom.simulation.world.disk import SimulatedDisk

MOST = 10_000

long = pytest.mark.long("GREENROOM_WALKS")


@pytest.fixture
def prompt_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits without a scheduling point, for races that do not involve the journal."""

    async def reach(self: SimulatedDisk, owner: Any) -> None:
        if owner.dead:
            await trio.sleep_forever()

    monkeypatch.setattr(SimulatedDisk, "reach", reach)


class Stage:
    """A server, two clients, simple jobs, and the replies that the clients received."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.curtain = trio.Event()
        self.said: dict[str, Any] = {}
        self.jobs = Jobs()
        self.jobs.job("waits")(self._waits)
        self.jobs.job("clears up")(self._clears_up)
        self.jobs.job("brief", run_timeout=5)(self._hangs)
        self.jobs.job("asks", resumable=True)(self._asks)

    async def _waits(self, run: Run, params: dict[str, Any]) -> str:
        await self.curtain.wait()
        return "done"

    async def _clears_up(self, run: Run, params: dict[str, Any]) -> None:
        await run.end_interactive()
        await self.curtain.wait()

    async def _hangs(self, run: Run, params: dict[str, Any]) -> None:
        await trio.sleep_forever()

    async def _asks(self, run: Run, params: dict[str, Any]) -> Any:
        return await run.interrupt("?", timeout=params.get("timeout"))

    async def open(self, **options: Any) -> Stage:
        self.server = await self.world.serve(self.jobs, **options)
        self.ann, self.bob = self.world.client("ann"), self.world.client("bob")
        return self

    async def submit(self, job: str = "waits", handle: str = "h", **options: Any) -> SimulatedTicket:
        return await self.ann.submit(job, handle=handle, params=options.pop("params", {}), **options)

    # The racers.

    async def finish(self) -> None:
        self.curtain.set()

    async def tell(self, name: str, command: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        try:
            self.said[name] = await command(*arguments)
        except GreenroomError as error:
            self.said[name] = error.code

    async def tell_at(
        self, time: float, name: str, command: Callable[..., Awaitable[Any]], *arguments: Any
    ) -> None:
        await trio.sleep_until(time)
        await self.tell(name, command, *arguments)

    # The outcome.

    def answer(self, name: str) -> str:
        """The reply to a client, in a word."""
        said = self.said.get(name)
        if isinstance(said, RunRecord):
            return str(said.status)
        if isinstance(said, SimulatedTicket):
            return "joined" if said.joined else "accepted"
        return str(said)

    async def run(self, id: str) -> RunRecord:
        return await self.ann.get_run(id)

    async def status(self, id: str) -> str:
        return str((await self.run(id)).status)


def walked(scenario: Scenario, *outcomes: str) -> None:
    """Walk a scenario completely. It must have exactly these outcomes, and random orders must find no
    others."""
    seen = walk(scenario, most=MOST)
    print(f"\n{scenario.__name__}: {seen}")
    assert seen.complete
    assert set(seen.outcomes) == set(outcomes)
    by_chance = sample(scenario, 20)
    assert set(by_chance.outcomes) <= set(seen.outcomes)
    assert by_chance.deliveries <= seen.deliveries


def walked_if_long(scenario: Scenario, *outcomes: str) -> None:
    """Like `walked` in the long form; otherwise, random orders must find at least two of these
    outcomes and no others."""
    if os.environ.get("GREENROOM_WALKS") == "long":
        walked(scenario, *outcomes)
        return
    seen = sample(scenario, 300)
    print(f"\n{scenario.__name__}: {seen}")
    assert len(seen.outcomes) > 1
    assert set(seen.outcomes) <= set(outcomes)


def walked_in_part(scenario: Scenario, *outcomes: str) -> None:
    """Walk `MOST` executions of a scenario with too many orders, and the same number of random ones."""
    for seen in (walk(scenario, most=MOST), sample(scenario, MOST)):
        print(f"\n{scenario.__name__}: {seen}")
        assert set(seen.outcomes) <= set(outcomes)
    assert set(seen.outcomes) == set(outcomes)


async def cancel_against_finish(world: World, race: Race) -> str:
    stage = await Stage(world).open()
    ticket = await stage.submit()
    async with race.begins() as racers:
        racers.start_soon(stage.finish)
        racers.start_soon(stage.tell, "cancel", stage.bob.cancel, ticket.id)
    return f"{await stage.status(ticket.id)}; cancel: {stage.answer('cancel')}"


@pytest.mark.usefixtures("prompt_disk")
def test_a_cancel_against_the_end_of_the_body():
    walked(
        cancel_against_finish,
        "cancelled; cancel: cancelling",
        "succeeded; cancel: cancelling",  # the body returned before its scope was cancelled
        "succeeded; cancel: conflict",
    )


async def cancel_against_time_out(world: World, race: Race) -> str:
    stage = await Stage(world).open()
    ticket = await stage.submit("brief")
    async with race.begins() as racers:
        racers.start_soon(stage.tell_at, 5, "cancel", stage.bob.cancel, ticket.id)
    run = await stage.run(ticket.id)
    return f"{run.status} {run.reason}; cancel: {stage.answer('cancel')}"


@pytest.mark.usefixtures("prompt_disk")
def test_a_cancel_against_the_run_timeout():
    walked(
        cancel_against_time_out,
        "cancelled cancelled; cancel: cancelling",
        "timed_out run_timeout; cancel: cancelling",  # the timeout came first, but was not committed yet
        "timed_out run_timeout; cancel: conflict",
    )


async def answer_against_cancel(world: World, race: Race) -> str:
    stage = await Stage(world).open()
    ticket = await stage.submit("asks")
    async with race.begins() as racers:
        racers.start_soon(stage.tell, "answer", stage.ann.answer, f"{ticket.id}.1", "yes")
        racers.start_soon(stage.tell, "cancel", stage.bob.cancel, ticket.id)
    run = await stage.run(ticket.id)
    return f"{run.status} {run.result}; {stage.answer('answer')}; cancel: {stage.answer('cancel')}"


@pytest.mark.usefixtures("prompt_disk")
def test_an_answer_against_a_cancel():
    denied = {"approved": False, "reason": "cancelled"}
    walked(
        answer_against_cancel,
        "succeeded yes; resolved; cancel: cancelling",
        "succeeded yes; resolved; cancel: conflict",
        f"succeeded {denied}; already_resolved; cancel: cancelling",
    )


async def answer_against_answer(world: World, race: Race) -> str:
    stage = await Stage(world).open()
    ticket = await stage.submit("asks")
    async with race.begins() as racers:
        racers.start_soon(stage.tell, "ann", stage.ann.answer, f"{ticket.id}.1", "yes")
        racers.start_soon(stage.tell, "bob", stage.bob.answer, f"{ticket.id}.1", "no")
    run = await stage.run(ticket.id)
    return f"{run.status} {run.result}; {stage.answer('ann')}, {stage.answer('bob')}"


@pytest.mark.usefixtures("prompt_disk")
def test_an_answer_against_another():
    walked(
        answer_against_answer,
        "succeeded yes; resolved, already_resolved",
        "succeeded no; already_resolved, resolved",
    )


async def answer_against_time_out(world: World, race: Race) -> str:
    stage = await Stage(world).open()
    ticket = await stage.submit("asks", params={"timeout": 5})
    async with race.begins() as racers:
        racers.start_soon(stage.tell_at, 5, "answer", stage.ann.answer, f"{ticket.id}.1", "yes")
    run = await stage.run(ticket.id)
    return f"{run.status} {run.result}; {stage.answer('answer')}"


@pytest.mark.usefixtures("prompt_disk")
def test_an_answer_against_the_timeout_of_the_interrupt():
    walked(answer_against_time_out, "succeeded yes; resolved", "succeeded None; already_resolved")


def submit_against_finish(on_conflict: Any, lane: str = "paused") -> Scenario:
    """In a paused lane, the second run does not start, so its execution is not a part of the race."""

    async def scenario(world: World, race: Race) -> str:
        stage = await Stage(world).open(lanes={"paused": 0})
        first = await stage.submit()
        second = partial(stage.bob.submit, "waits", handle="h", lane=lane, params={}, on_conflict=on_conflict)
        async with race.begins() as racers:
            racers.start_soon(stage.finish)
            racers.start_soon(stage.tell, "submit", second)
        ticket = stage.said["submit"]
        then = f" {await stage.status(ticket.id)}" if isinstance(ticket, SimulatedTicket) else ""
        return f"{await stage.status(first.id)}; submit: {stage.answer('submit')}{then}"

    scenario.__name__ = f"submit ({on_conflict}, {lane} lane) against finish"
    return scenario


@pytest.mark.usefixtures("prompt_disk")
def test_a_submission_against_the_end_of_the_run_that_holds_its_handle():
    walked(
        submit_against_finish("reject"), "succeeded; submit: conflict", "succeeded; submit: accepted queued"
    )


@pytest.mark.usefixtures("prompt_disk")
def test_a_queued_submission_against_the_end_of_the_run_before_it():
    walked(submit_against_finish("queue"), "succeeded; submit: accepted queued")


@pytest.mark.usefixtures("prompt_disk")
def test_joining_a_run_against_its_end():
    walked(
        submit_against_finish("join"),
        "succeeded; submit: joined succeeded",
        "succeeded; submit: accepted queued",
    )


@pytest.mark.usefixtures("prompt_disk")
@pytest.mark.parametrize("on_conflict", ["reject", "queue", "join"])
def test_a_submission_that_starts_immediately_against_the_end_of_the_run_that_holds_its_handle(
    on_conflict: str,
):
    others = {
        "reject": ["succeeded; submit: conflict", "succeeded; submit: accepted succeeded"],
        "queue": ["succeeded; submit: accepted succeeded"],
        "join": ["succeeded; submit: joined succeeded", "succeeded; submit: accepted succeeded"],
    }
    walked(submit_against_finish(on_conflict, "main"), *others[on_conflict])


def replace_against_replace(job: str, lane: str) -> Scenario:
    async def scenario(world: World, race: Race) -> str:
        stage = await Stage(world).open(lanes={"paused": 0})
        first = await stage.submit(job, lane=lane)

        newer = {"handle": "h", "lane": lane, "params": {}, "on_conflict": "replace"}
        async with race.begins() as racers:
            racers.start_soon(stage.tell, "ann", partial(stage.ann.submit, "waits", **newer))
            racers.start_soon(stage.tell, "bob", partial(stage.bob.submit, "waits", **newer))
        runs = [first.id, stage.said["ann"].id, stage.said["bob"].id]
        return ", ".join([await stage.status(id) for id in runs])

    scenario.__name__ = f"replace against replace of one that {job} ({lane} lane)"
    return scenario


@pytest.mark.usefixtures("prompt_disk")
def test_two_replacements_of_a_run_in_post_processing():
    walked(
        replace_against_replace("clears up", "main"),
        "running, queued, cancelled",
        "running, cancelled, queued",
    )


@long
@pytest.mark.usefixtures("prompt_disk")
def test_a_replacement_against_another_of_a_run_that_is_queued():
    walked_in_part(
        replace_against_replace("waits", "paused"),
        "cancelled, queued, cancelled",
        "cancelled, cancelled, queued",
    )


@long
@pytest.mark.usefixtures("prompt_disk")
def test_a_replacement_against_another_of_a_run_that_executes():
    walked_in_part(
        replace_against_replace("waits", "main"),
        "cancelled, running, cancelled",
        "cancelled, cancelled, running",
    )


async def reset_against_finish(world: World, race: Race) -> str:
    stage = await Stage(world).open(max_concurrent=1)
    tickets = {"first": await stage.submit(), "next": await stage.submit("brief", handle="next")}
    async with race.begins() as racers:
        racers.start_soon(stage.finish)
        racers.start_soon(stage.tell, "reset", stage.bob.reset_lanes)
    detached = [
        name
        for name, ticket in tickets.items()
        if any(getattr(event, "detached", None) is True for event in await stage.ann.history(ticket.id))
    ]
    # There is still exactly one slot.
    later = [await stage.submit("brief", handle=f"later {number}") for number in range(2)]
    took = [await stage.status(ticket.id) for ticket in (tickets["next"], *later)]
    return f"detached: {', '.join(detached)}; {', '.join(took)}"


@pytest.mark.usefixtures("prompt_disk")
def test_a_reset_against_the_end_of_the_body_with_a_run_that_waits_for_its_slot():
    walked(
        reset_against_finish,
        "detached: first; running, queued, queued",
        "detached: next; running, running, queued",  # it had started before the reset
        "detached: ; running, queued, queued",
    )


def limits_against_grant(before: int, *after: int) -> Scenario:
    """A released slot is granted to a run in a lane whose limit changes."""

    async def scenario(world: World, race: Race) -> str:
        stage = await Stage(world).open(max_concurrent=1, lanes={"side": before})
        await stage.submit()
        waiting = await stage.submit("brief", handle="next", lane="side")
        async with race.begins() as racers:
            racers.start_soon(stage.finish)
            for limit in after:
                racers.start_soon(stage.tell, f"limit {limit}", stage.bob.set_concurrency, "side", limit)
        return await stage.status(waiting.id)

    scenario.__name__ = f"set_concurrency {after} against grant"
    return scenario


@pytest.mark.usefixtures("prompt_disk")
def test_a_lane_that_is_paused_against_the_grant_of_a_slot_to_its_head():
    walked(limits_against_grant(1, 0), "running", "queued")


@pytest.mark.usefixtures("prompt_disk")
def test_a_lane_that_is_opened_against_the_release_of_the_slot_for_its_head():
    walked(limits_against_grant(0, 1), "running")


@pytest.mark.usefixtures("prompt_disk")
def test_a_lane_that_is_paused_and_opened_against_the_grant_of_a_slot_to_its_head():
    walked_if_long(limits_against_grant(1, 0, 1), "running", "queued")


def crash_against(command: str) -> Scenario:
    """The server is killed at any moment of a command, and started again."""

    async def scenario(world: World, race: Race) -> str:
        stage = await Stage(world).open(lanes={"paused": 0}, max_concurrent=1)
        bob, lane = stage.bob, "paused" if command == "replace" else None
        job = {"answer": "asks", "time-out": "brief"}.get(command, "waits")
        id = "" if command == "submit" else (await stage.submit(job, lane=lane)).id
        if command == "next start":
            await stage.submit("brief", handle="next")
        newer = partial(bob.submit, "waits", handle="h", lane=lane, params={})
        commands: dict[str, Callable[[], Awaitable[Any]]] = {
            "cancel": partial(bob.cancel, id),
            "answer": partial(bob.answer, f"{id}.1", "yes"),
            "submit": newer,
            "replace": partial(newer, on_conflict="replace"),
            "reset": bob.reset_lanes,
            "set_concurrency": partial(bob.set_concurrency, "main", 7),
        }
        async with race.begins(crashing=stage.server, at=5 if command == "time-out" else 0) as racers:
            if command in ("finish", "next start"):
                racers.start_soon(stage.finish)
            elif command != "time-out":
                racers.start_soon(stage.tell, "call", commands[command])
        await stage.server.start()
        await trio.testing.wait_all_tasks_blocked()
        told = [f"{stage.answer('call')}:"] if command in commands else []
        runs = [f"{run.status} {run.result or run.reason}" for run in await stage.ann.list_runs()]
        lane_now = (await stage.ann.snapshot()).lanes["main"]
        limit = [f"limit {lane_now.limit}"] if command == "set_concurrency" else []
        return " ".join([*told, ", ".join(runs), *limit]).strip()

    scenario.__name__ = f"crash against {command}"
    return scenario


OUTCOMES = {
    "cancel": [
        "cancelling: cancelled cancelled",
        "unavailable: cancelled cancelled",
        "unavailable: failed crashed",
    ],
    "finish": ["failed crashed", "succeeded done"],
    "answer": [
        "resolved: succeeded yes",  # the body opens the interrupt again, and receives the answer
        "unavailable: succeeded yes",
        "unavailable: running None",
    ],
    "next start": [
        "running None, failed crashed",
        "running None, succeeded done",  # the next run had a slot, but its start was not committed
        "failed crashed, succeeded done",
    ],
    "submit": [
        "accepted: failed crashed",  # created and started in one commit
        "unavailable:",
        "unavailable: failed crashed",
    ],
    "replace": [
        "accepted: queued None, cancelled replaced",
        "unavailable: queued None, cancelled replaced",
        "unavailable: queued None",
    ],
    "reset": ["None: failed crashed", "unavailable: failed crashed"],
    "set_concurrency": [
        "None: failed crashed limit 7",
        "unavailable: failed crashed limit 7",
        "unavailable: failed crashed limit None",
    ],
    "time-out": ["failed crashed", "timed_out run_timeout"],
}


@pytest.mark.parametrize("command", OUTCOMES)
def test_a_crash_against(command: str):
    walked(crash_against(command), *OUTCOMES[command])


async def two_cancels_against_finish(world: World, race: Race) -> str:
    stage = await Stage(world).open()
    ticket = await stage.submit()
    async with race.begins() as racers:
        racers.start_soon(stage.finish)
        racers.start_soon(stage.tell, "ann", stage.ann.cancel, ticket.id)
        racers.start_soon(stage.tell, "bob", stage.bob.cancel, ticket.id)
    answers = sorted([stage.answer("ann"), stage.answer("bob")])
    return f"{await stage.status(ticket.id)}; {', '.join(answers)}"


@pytest.mark.usefixtures("prompt_disk")
def test_two_cancels_against_the_end_of_the_body():
    walked_if_long(
        two_cancels_against_finish,
        "cancelled; cancelling, conflict",  # one of them has cancelled it, never both
        "succeeded; cancelling, conflict",
        "succeeded; conflict, conflict",
    )


def three(lane: str) -> Scenario:
    async def scenario(world: World, race: Race) -> str:
        stage = await Stage(world).open(lanes={"paused": 0})
        first = await stage.submit()
        second = partial(stage.ann.submit, "waits", handle="h", lane=lane, params={}, on_conflict="queue")
        async with race.begins() as racers:
            racers.start_soon(stage.finish)
            racers.start_soon(stage.tell, "cancel", stage.bob.cancel, first.id)
            racers.start_soon(stage.tell, "submit", second)
        then = await stage.status(stage.said["submit"].id)
        return f"{await stage.status(first.id)}; cancel: {stage.answer('cancel')}; then {then}"

    scenario.__name__ = f"cancel, finish and submit ({lane} lane)"
    return scenario


@pytest.mark.usefixtures("prompt_disk")
def test_a_cancel_against_the_end_of_the_body_and_a_submission_that_waits_for_it():
    walked_if_long(
        three("paused"),
        "cancelled; cancel: cancelling; then queued",
        "succeeded; cancel: cancelling; then queued",
        "succeeded; cancel: conflict; then queued",
    )
