"""Callers that submit runs, and what they are told of them."""

from __future__ import annotations

from random import Random
from typing import Any

import trio

from ...protocol.errors import (
    Conflict,
    Draining,
    GreenroomError,
    RunEnded,
    Unavailable,
)
from ...protocol.states import ENDED, Status
from ..world.client import SimulatedTicket
from .bodies import HANDLES, JOBS, LANES, draw_short_step, draw_tries
from .callers import Caller


async def submit(caller: Caller, random: Random) -> None:
    job, handle, lane = random.choice(JOBS), random.choice(HANDLES), random.choice((*LANES, None))
    options: dict[str, Any] = {
        "handle": handle,
        "lane": lane,
        "kind": random.choice(("start", "start", "continue")),
        "on_conflict": random.choice(("reject", "queue", "queue", "replace", "join")),
        "params": None if random.random() < 0.1 else {"tries": draw_tries(random)},
    }
    holder = caller.model.runs.get(caller.model.handle(handle).holder or "")
    if holder is not None and random.random() < 0.2:  # the same again
        job, options["params"], options["on_conflict"] = holder.job, holder.params, "join"
    if random.random() < 0.2:
        options["request_id"] = random.choice(("one", "two", "three"))
    if random.random() < 0.2:
        options[random.choice(("queue_timeout", "run_timeout", "deadline"))] = random.choice((0.5, 2.0, 6.0))
    if random.random() < 0.2:
        options |= {"warn_after": random.choice((0.5, 1.0)), "on_wait": _stumble}
    ticket = await _submit(caller, job, options)
    if ticket is not None and random.random() < 0.3:
        await _wait_for_end(caller, ticket)


async def _submit(caller: Caller, job: str, options: dict[str, Any]) -> SimulatedTicket | None:
    """Submit, and judge what comes of it. Returns the ticket, if there is one; raises `Unavailable`."""
    if "request_id" in options:
        caller.desk.requests[options["request_id"]] += 1
    try:
        ticket = await caller.client.submit(job, **options)
    except Conflict as error:
        _refused(caller, error, options)
    except Draining:
        drained = True in caller.model.drained_between(caller.since, caller.model.seq)
        caller.check(drained or not caller.same_life, "was refused by an engine that was not draining")
    except Unavailable:
        raise
    except GreenroomError as error:
        caller.check(options["params"] is None, f"was refused for {error}")
    else:
        _accepted(caller, ticket, job, options)
        return ticket
    return None


async def submit_short(caller: Caller, random: Random) -> None:
    job = random.choice(("plain", "retried"))
    steps = [draw_short_step(random) for _ in range(random.randint(0, 2))]
    options: dict[str, Any] = {
        "handle": f"crowd {random.randint(0, 9)}",
        "lane": random.choice(LANES),
        "on_conflict": "queue",
        "params": {"tries": [steps]},
    }
    await _submit(caller, job, options)


async def submit_clinging(caller: Caller, random: Random) -> None:
    """A run on one handle, whose body ignores its end for a while."""
    params = {"tries": [[["ignore", random.choice((0.5, 10.0))]]]}
    options: dict[str, Any] = {"handle": HANDLES[0], "on_conflict": "queue", "params": params}
    await _submit(caller, "plain", options)


async def submit_together(caller: Caller, random: Random) -> None:
    """The same from several at once, who join whoever is first and insist on it through outages, each with a
    request id of his own."""
    job, handle, params = random.choice(JOBS), random.choice(HANDLES), {"tries": draw_tries(random)}
    options: dict[str, Any] = {"handle": handle, "on_conflict": "join", "params": params}
    pause = random.choice((0.0, 0.5, 3.0))
    async with trio.open_nursery() as nursery:
        for number in range(random.randint(2, 3)):
            request_id = f"{caller.client.name}'s {number}"
            nursery.start_soon(_insist, caller, job, options | {"request_id": request_id}, pause)


async def _insist(caller: Caller, job: str, options: dict[str, Any], pause: float) -> None:
    for _ in range(5):
        try:
            await _submit(caller, job, options)
        except Unavailable:
            await trio.sleep(pause)
        else:
            return


def _refused(caller: Caller, error: Conflict, options: dict[str, Any]) -> None:
    if "request_id" in options and "active_run" not in error.details:
        known = caller.desk.requests[options["request_id"]] > 1
        caller.check(known, f"was refused for a request id that nobody else has used: {error}")
        return
    caller.check_holder(options["handle"], error)
    waits = options["on_conflict"] in ("queue", "replace")
    caller.check(not waits, f"would have waited, and was refused: {error}")


def _accepted(caller: Caller, ticket: SimulatedTicket, job: str, options: dict[str, Any]) -> None:
    known = caller.model.runs.get(ticket.id)
    if known is None:
        caller.wrong(f"got run {ticket.id}, which is not committed")
        return
    request = options.get("request_id")
    if request is not None:
        caller.check(caller.model.requests.get(request) == known.id, f"got {known}, which has not {request}")
    if options["params"] is not None:
        caller.check(known.params == options["params"], f"got {known} with {known.params}")
    holders = caller.model.handle(known.handle).held_by(caller.since, caller.model.seq)
    if ticket.joined:
        joins = options["on_conflict"] == "join" and known.id in holders
        caller.check(joins or request is not None, f"joined {known}, which did not hold the handle")
        went_on = known.statuses_between(caller.since, caller.model.seq) - ENDED - {Status.CANCELLING}
        caller.check(went_on or request is not None, f"joined {known}, which is being cancelled")
        caller.check(known.job == job, f"joined {known}, which is no {job}")
        return
    if options["on_conflict"] in ("reject", "join"):
        caller.check(None in holders, f"got {known} although the handle was held by {holders}")
    open_ = False in caller.model.drained_between(caller.since, caller.model.seq)
    caller.check(open_, f"got {known} while the engine was draining")


async def _wait_for_end(caller: Caller, ticket: SimulatedTicket) -> None:
    known = caller.model.runs[ticket.id]
    try:
        result = await ticket.result()
    except Unavailable:
        return
    except RunEnded as error:
        run = error.run
        caller.check(known.ended and run.status == known.status, f"was told that {known} is {run.status}")
    else:
        right = known.status is Status.SUCCEEDED and result == known.attempt
        caller.check(right, f"got the result {result} of {known}")


async def rerun(caller: Caller, random: Random) -> None:
    id = caller.some_run(random)
    try:
        ticket = await caller.client.rerun(id)
    except Unavailable:
        raise
    except GreenroomError:
        return
    one, other = caller.model.runs[id], caller.model.runs[ticket.id]
    same = (one.job, one.handle, one.lane, one.params) == (
        other.job,
        other.handle,
        other.lane,
        other.params,
    )
    caller.check(same, f"has {one} run again, and got {other}")


async def _stumble(waited: float, ahead: int, blockers: list[str]) -> None:
    await trio.lowlevel.checkpoint()
    raise ValueError("on_wait fails, as asked")
