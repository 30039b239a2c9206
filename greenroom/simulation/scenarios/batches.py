"""A scenario with batches: many runs are submitted in one call, all or none of them, or each on its own.

It includes commands and faults of `commands.py`: the server crashes before, within and after commits, and its
disk fails. The rules check that one commit creates the runs of a batch (`rules/batches.py`). Here, the caller
checks the answer: the outcome of each run, in the order of the runs, and that a refused batch has created
none.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, cast

import trio

from ...protocol.batches import RunKeywords
from ...protocol.errors import Conflict, Draining, GreenroomError, Unavailable
from ..rules.batches import ModelBatch
from ..world.client import SimulatedTicket
from ..world.world import World
from .bodies import LANES, draw_short_step
from .callers import Caller
from .commands import CONTROLS, FAULTS, SUBMITS, Play, pause

_HANDLES = ("one", "two", "three", "four", "five", "six")
_CRASHES = ("crash_at_a_commit", "crash_at_a_commit", "crash", "lose_a_commit", "stop", "trouble_the_disk")
_DEEDS = (SUBMITS, CONTROLS, _CRASHES, FAULTS)


async def batches(world: World) -> None:
    """The scenario."""
    play = _BatchPlay(world)
    await play.go_through(play.step)


class _BatchPlay(Play):
    async def step(self, random: Random) -> None:
        if random.random() < 0.8:
            await self.start(random)
        if random.random() < 0.6:
            caller = Caller(self.world.client(self.new_name()), self.world, self.desk)
            self._nursery.start_soon(caller.call, submit_batch, random)
        else:
            deed = random.choice(random.choice(_DEEDS))
            await self.do(deed, random, wait=random.random() < 0.2)
        await pause(random)


async def submit_batch(caller: Caller, random: Random) -> None:
    """Submit a batch, and check the answer. One with request ids is sent again while the engine is
    unavailable."""
    all_or_nothing = random.random() < 0.6
    runs = [_draw_run(random) for _ in range(random.randint(1, 5))]
    repeats = all_or_nothing and random.random() < 0.5
    for number, run in enumerate(runs):
        if repeats:
            run["request_id"] = f"{caller.client.name}'s {number}"
        elif random.random() < 0.1:
            run["request_id"] = random.choice(("one", "two", "three"))
        if "request_id" in run:
            caller.desk.requests[run["request_id"]] += 1
    caller.rules.batches.submitted(caller.client.name, ModelBatch(runs, all_or_nothing))
    for _ in range(5 if repeats else 1):
        try:
            await _submit(caller, runs, all_or_nothing=all_or_nothing)
        except Unavailable:
            if not repeats:
                raise
            await trio.sleep(random.choice((0.0, 0.5, 3.0)))
        else:
            return


def _draw_run(random: Random) -> dict[str, Any]:
    attempts = [draw_short_step(random) for _ in range(random.randint(0, 2))]
    return {
        "job": random.choice(("plain", "plain", "retried")),
        "handle": random.choice(_HANDLES),
        "lane": random.choice(LANES),
        "on_conflict": random.choice(("reject", "reject", "queue", "queue", "replace", "join")),
        "params": {"attempts": [attempts]},
    }


async def _submit(caller: Caller, runs: list[dict[str, Any]], *, all_or_nothing: bool) -> None:
    try:
        given = cast(list[RunKeywords], runs)
        outcomes = await caller.client.submit_many(given, all_or_nothing=all_or_nothing)
    except Unavailable:
        raise
    except GreenroomError as error:
        index = error.details.get("index")
        known = all_or_nothing and isinstance(index, int) and 0 <= index < len(runs)
        caller.check(known, f"submitted a batch, but received {error!r} ({error.details})")
        caller.check(not caller.mine, f"received {error!r}, but {caller.mine} is committed")
        if known:
            _check_refusal(caller, runs, runs[error.details["index"]], error)
        return
    caller.check(len(outcomes) == len(runs), f"received {len(outcomes)} outcomes for {len(runs)} runs")
    accepted: list[tuple[dict[str, Any], SimulatedTicket[Any]]] = []
    for run, outcome in zip(runs, outcomes, strict=True):
        if isinstance(outcome, GreenroomError):
            caller.check(not all_or_nothing, f"received {outcome!r} for one run of a batch")
            _check_refusal(caller, runs, run, outcome)
        else:
            _check_ticket(caller, run, outcome, accepted)
            accepted.append((run, outcome))
    seqs = [caller.model.runs[ticket.id].created_in for _, ticket in accepted if not ticket.joined]
    caller.check(seqs == sorted(seqs), f"received runs that were not created in the order of {runs}")


def _check_refusal(
    caller: Caller, runs: Sequence[dict[str, Any]], run: dict[str, Any], error: GreenroomError
) -> None:
    if isinstance(error, Draining):
        drained = True in caller.model.drained_between(caller.since, caller.model.seq)
        caller.check(drained or not caller.same_life, "received draining from an engine that accepts runs")
        return
    caller.check(isinstance(error, Conflict), f"submitted {run}, but received {error!r}")
    if "other_index" in error.details:
        other = runs[error.details["other_index"]]
        same = other["handle"] == run["handle"] and run["on_conflict"] in ("reject", "join")
        caller.check(same, f"submitted {run}, but received a conflict with {other}")
        return
    if "active_run" not in error.details:
        known = caller.desk.requests[run.get("request_id", "")] > 1
        caller.check(known, f"received a conflict about a request id that no other caller has used: {error}")
        of_batch = [other for other in runs if other.get("request_id") == run["request_id"]]
        exists = "run" in error.details or len(of_batch) > 1  # or a run of this batch, which is refused
        caller.check(exists, f"received a conflict with a run that does not exist: {error}")
        return
    caller.check(run["on_conflict"] in ("reject", "join"), f"submitted {run}, but received {error!r}")
    caller.check_holder(run["handle"], error)


def _check_ticket(
    caller: Caller,
    run: dict[str, Any],
    ticket: SimulatedTicket[Any],
    accepted: Sequence[tuple[dict[str, Any], SimulatedTicket[Any]]],
) -> None:
    known = caller.model.runs.get(ticket.id)
    if known is None:
        caller.wrong(f"received run {ticket.id}, which is not committed")
        return
    same = (known.handle, known.job, known.params) == (run["handle"], run["job"], run["params"])
    caller.check(same, f"received {known} with {known.params} for {run}")
    if ticket.joined:
        may = run["on_conflict"] == "join" or "request_id" in run
        caller.check(may, f"joined {known}, although {run} does not permit it")
        return
    earlier = [ticket for other, ticket in accepted if other["handle"] == run["handle"]]
    busy = bool(earlier) and run["on_conflict"] in ("reject", "join")
    caller.check(not busy, f"received {known} although an earlier run of the batch has its handle")
