"""Calls that submit runs, and checks of their results."""

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
from .bodies import HANDLES, JOBS, LANES, draw_attempts, draw_short_step
from .callers import Caller


async def submit(caller: Caller, random: Random) -> None:
    job, handle, lane = random.choice(JOBS), random.choice(HANDLES), random.choice((*LANES, None))
    options: dict[str, Any] = {
        "handle": handle,
        "lane": lane,
        "kind": random.choice(("start", "start", "continue")),
        "on_conflict": random.choice(("reject", "queue", "queue", "replace", "join")),
        "params": None if random.random() < 0.1 else {"attempts": draw_attempts(random)},
    }
    holder = caller.model.runs.get(caller.model.handle(handle).holder or "")
    if holder is not None and random.random() < 0.2:  # the same job and parameters, to join the holder
        job, options["params"], options["on_conflict"] = holder.job, holder.params, "join"
    if random.random() < 0.2:
        options["request_id"] = random.choice(("one", "two", "three"))
    if random.random() < 0.2:
        options[random.choice(("queue_timeout", "run_timeout", "deadline"))] = random.choice((0.5, 2.0, 6.0))
    if random.random() < 0.2:
        options |= {"warn_after": random.choice((0.5, 1.0)), "on_wait": _fail_on_wait}
    ticket = await _submit(caller, job, options)
    if ticket is not None and random.random() < 0.3:
        await _wait_for_end(caller, ticket)


async def _submit(caller: Caller, job: str, options: dict[str, Any]) -> SimulatedTicket | None:
    """Submit, and check the result. Returns the ticket, or `None` if refused; raises `Unavailable`."""
    if "request_id" in options:
        caller.desk.requests[options["request_id"]] += 1
    try:
        ticket = await caller.client.submit(job, **options)
    except Conflict as error:
        _refused(caller, error, options)
    except Draining:
        drained = True in caller.model.drained_between(caller.since, caller.model.seq)
        caller.check(
            drained or not caller.same_life, "received draining from an engine that was not draining"
        )
    except Unavailable:
        raise
    except GreenroomError as error:
        caller.check(options["params"] is None, f"submitted a run, but received {error!r}")
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
        "params": {"attempts": [steps]},
    }
    await _submit(caller, job, options)


async def submit_clinging(caller: Caller, random: Random) -> None:
    """Submit a run on one handle, whose body ignores its cancellation for a while."""
    params = {"attempts": [[["ignore", random.choice((0.5, 10.0))]]]}
    options: dict[str, Any] = {"handle": HANDLES[0], "on_conflict": "queue", "params": params}
    await _submit(caller, "plain", options)


async def submit_together(caller: Caller, random: Random) -> None:
    """Submit the same job several times concurrently, with `on_conflict="join"`. Each submission has its own
    request id, and is retried while the engine is unavailable."""
    job, handle, params = random.choice(JOBS), random.choice(HANDLES), {"attempts": draw_attempts(random)}
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
        caller.check(known, f"received a conflict about a request id that no other caller has used: {error}")
        return
    caller.check_holder(options["handle"], error)
    waits = options["on_conflict"] in ("queue", "replace")
    caller.check(not waits, f"submitted with {options['on_conflict']}, but received a conflict: {error}")


def _accepted(caller: Caller, ticket: SimulatedTicket, job: str, options: dict[str, Any]) -> None:
    known = caller.model.runs.get(ticket.id)
    if known is None:
        caller.wrong(f"received run {ticket.id}, which is not committed")
        return
    request = options.get("request_id")
    if request is not None:
        stored = caller.model.requests.get(request)
        caller.check(
            stored == known.id, f"received {known} for request id {request}, which is of run {stored}"
        )
    if options["params"] is not None:
        caller.check(known.params == options["params"], f"received {known} with parameters {known.params}")
    holders = caller.model.handle(known.handle).held_by(caller.since, caller.model.seq)
    if ticket.joined:
        joins = options["on_conflict"] == "join" and known.id in holders
        caller.check(joins or request is not None, f"joined {known}, which did not hold the handle")
        active = known.statuses_between(caller.since, caller.model.seq) - ENDED - {Status.CANCELLING}
        caller.check(active or request is not None, f"joined {known}, which is being cancelled")
        caller.check(known.job == job, f"joined {known}, whose job is not {job}")
        return
    if options["on_conflict"] in ("reject", "join"):
        caller.check(None in holders, f"received {known} although the handle was held by {holders}")
    open_ = False in caller.model.drained_between(caller.since, caller.model.seq)
    caller.check(open_, f"received {known} while the engine was draining")


async def _wait_for_end(caller: Caller, ticket: SimulatedTicket) -> None:
    known = caller.model.runs[ticket.id]
    try:
        result = await ticket.result()
    except Unavailable:
        return
    except RunEnded as error:
        run = error.run
        caller.check(
            known.ended and run.status == known.status, f"received {run.status} as the end of {known}"
        )
    else:
        right = known.status is Status.SUCCEEDED and result == known.attempt
        caller.check(right, f"received the result {result} of {known}")


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
    caller.check(same, f"reran {one}, but received {other}")


async def _fail_on_wait(waited: float, ahead: int, blockers: list[str]) -> None:
    await trio.lowlevel.checkpoint()
    raise ValueError("on_wait fails, as the scenario requests")
