"""Calls that submit runs, and checks of their results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
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
from ..model.state import ModelRun
from ..world.client import SimulatedTicket
from . import notes
from .bodies import HANDLES, JOBS, LANES, draw_attempts, draw_short_step
from .callers import Caller

_LONGEST_CANCEL = 10.0
"""Seconds after which a cancel is committed, unless the store fails."""


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


async def submit_note(caller: Caller, random: Random) -> None:
    """Submit a run that coalesces, or one that others can coalesce with."""
    job, options = _draw_note(random)
    policies = ("coalesce", "coalesce", "coalesce", "coalesce", "queue", "replace", "reject")
    options["on_conflict"] = random.choice(policies)
    if random.random() < 0.1:
        options["params"] = None
    if random.random() < 0.2:
        options[random.choice(("queue_timeout", "deadline"))] = random.choice((0.5, 2.0, 6.0))
    waiting = _equal_and_waiting(caller, job, options)
    ticket = await _submit(caller, job, options)
    if ticket is None:
        return
    if not ticket.joined and options["on_conflict"] == "coalesce":
        await _check_that_none_could_coalesce(caller, waiting)
    if random.random() < 0.3:
        await _wait_for_end(caller, ticket)


async def submit_note_twice(caller: Caller, random: Random) -> None:
    """Submit twice with the same request id, concurrently: both receive the same run."""
    job, options = _draw_note(random)
    options |= {"on_conflict": "coalesce", "request_id": f"{caller.client.name}'s"}
    received: set[str] = set()

    async def submit() -> None:
        ticket = await _submit(caller, job, options)
        if ticket is not None:
            received.add(ticket.id)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_suppressing, submit)
        nursery.start_soon(_suppressing, submit)
    caller.check(len(received) < 2, f"received the runs {received} for one request id")


async def _suppressing(submit: Callable[[], Awaitable[None]]) -> None:
    with suppress(Unavailable):
        await submit()


def _draw_note(random: Random) -> tuple[str, dict[str, Any]]:
    return random.choice(notes.JOBS), {
        "handle": random.choice(HANDLES[:2]),
        "lane": random.choice(("main", "main", "main", "side")),
        "kind": random.choice(("start", "start", "start", "continue")),
        "params": notes.draw_note(random),
    }


def _equal_and_waiting(caller: Caller, job: str, options: dict[str, Any]) -> list[ModelRun]:
    """The runs that could take the parameters of this submission now."""
    return [run for run in caller.model.pending.values() if _is_equal(run, job, options) and not run.attempt]


def _is_equal(run: ModelRun, job: str, options: dict[str, Any]) -> bool:
    wanted = (job, options["handle"], options["lane"], options["kind"])
    return (run.job, run.handle, run.lane, run.kind) == wanted and run.parent is None


def _check_coalesced(caller: Caller, known: ModelRun, job: str, options: dict[str, Any]) -> None:
    """Check the run that a submission has joined with `on_conflict="coalesce"`."""
    since, seq, params = caller.since, caller.model.seq, options["params"]
    caller.check(_is_equal(known, job, options), f"coalesced with {known}, which differs from {options}")
    waited = Status.QUEUED in known.statuses_between(since, seq)
    caller.check(waited, f"coalesced with {known}, which did not wait")
    took = params is None or known.had_params(params, since, seq)
    caller.check(took, f"coalesced with {known}, which has not taken {params}")


async def _check_that_none_could_coalesce(caller: Caller, waiting: list[ModelRun]) -> None:
    """A submission has created a run: none of those that waited before it can still wait. A run can do so
    for a moment, while its cancel is being committed."""
    if not waiting:
        return
    await trio.sleep(_LONGEST_CANCEL)
    if caller.same_life and caller.model.disturbed < trio.current_time() - 2 * _LONGEST_CANCEL:
        left = [run for run in waiting if run.status is Status.QUEUED]
        caller.check(not left, f"created another run, although these waited: {left}")


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
        had = known.had_params(options["params"], 0, caller.model.seq)
        caller.check(had, f"received {known} with parameters {known.params}")
    if options["on_conflict"] == "coalesce" and ticket.joined:
        if request is None:
            _check_coalesced(caller, known, job, options)
        return
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
