"""Calls that cancel, clear, set limits, send messages and answer interrupts, and checks of their results."""

from __future__ import annotations

from random import Random

from ...protocol.errors import (
    Conflict,
    GreenroomError,
    HandleLocked,
    NotInteractive,
    Unavailable,
)
from ...protocol.events import RunStateChanged
from ...protocol.records import RunRecord
from ...protocol.states import Status
from ...protocol.validation import FilesFate
from .bodies import HANDLES, LANES, draw_attempts, draw_moment
from .callers import Caller


async def cancel(caller: Caller, random: Random) -> None:
    id = caller.some_run(random)
    files: FilesFate = "delete" if random.random() < 0.5 else "keep"
    known = caller.model.runs.get(id)
    try:
        run = await caller.client.cancel(id, files)
    except Conflict as error:
        shown: RunRecord = error.details["run"]
        ending = shown.ended or shown.status is Status.CANCELLING or not caller.same_life
        caller.check(ending, f"could not cancel run {shown.id}, which is {shown.status}")
    except Unavailable:
        raise
    except NotInteractive:
        caller.check(known is not None and known.attempt, f"could not cancel {known}")
    except GreenroomError as error:
        caller.check(known is None, f"could not cancel {known}: {error}")
    else:
        right = run.id == id and run.status in (Status.CANCELLED, Status.CANCELLING)
        caller.check(right, f"cancelled {known}, but received {run}")
        if files == "delete":
            caller.rules.model.runs[id].doomed = True


async def set_concurrency(caller: Caller, random: Random) -> None:
    await caller.client.set_concurrency(random.choice(LANES), random.choice((0, 1, 2, None)))


async def set_max_concurrent(caller: Caller, random: Random) -> None:
    await caller.client.set_max_concurrent(random.randint(0, 3))


async def clear_lane(caller: Caller, random: Random) -> None:
    lane = random.choice(LANES)
    queued = [run.id for run in caller.model.pending.values() if run.lane == lane and not run.attempt]
    count = await caller.client.clear_lane(lane)
    if caller.same_life:
        caller.rules.cleared.update(dict.fromkeys(queued, False))
    _check_cleared(caller, "lane_cleared", count)


async def clear_handle(caller: Caller, random: Random) -> None:
    handle = random.choice(HANDLES)
    waiting = list(caller.model.handle(handle).waiting)
    count = await caller.client.clear_handle(handle)
    if caller.same_life:
        caller.rules.cleared.update(dict.fromkeys(waiting, True))
    _check_cleared(caller, "handle_cleared", count)


def _check_cleared(caller: Caller, reason: str, count: int) -> None:
    ends = [event for event in caller.mine if isinstance(event, RunStateChanged)]
    right = len(ends) == count and all(event.reason == reason for event in ends)
    caller.check(right, f"cleared {count} runs according to the reply, but these ended: {ends}")


async def reset_lanes(caller: Caller, random: Random) -> None:
    caller.desk.resets_begun += 1
    try:
        await caller.client.reset_lanes()
    finally:
        caller.desk.resets_done += 1


async def drain(caller: Caller, random: Random) -> None:
    await caller.client.drain()


async def resume(caller: Caller, random: Random) -> None:
    await caller.client.resume()


async def release_handle(caller: Caller, random: Random) -> None:
    await caller.client.release_handle(random.choice(HANDLES))


async def release_one(caller: Caller, random: Random) -> None:
    await caller.client.release_handle(HANDLES[0])


async def set_params(caller: Caller, random: Random) -> None:
    handle, params = random.choice(HANDLES), {"attempts": draw_attempts(random)}
    try:
        await caller.client.set_params(handle, params)
    except HandleLocked as error:
        caller.check_holder(handle, error)


async def wait_for_active(caller: Caller, random: Random) -> None:
    executing = {run.id: run for run in caller.model.holders() if run.fate is None}
    resets_done = caller.desk.resets_done
    drained = await caller.client.wait_for_active(draw_moment(random))
    if drained and resets_done == caller.desk.resets_begun and caller.same_life:  # a reset ends it early
        events = caller.model.events[caller.since :]
        moved = {event.run for event in events if isinstance(event, RunStateChanged)}
        left = [run for id, run in executing.items() if run.holds_slot and id not in moved]
        caller.check(not left, f"waited for the executing runs, but these still execute: {left}")


async def inject(caller: Caller, random: Random) -> None:
    executing = [run.id for run in caller.model.holders()] or ["unknown"]
    target = random.choice((caller.some_run(random), random.choice(HANDLES), random.choice(executing)))
    message = f"from {caller.client.name}"
    try:
        await caller.client.inject(target, message)
    except Unavailable:
        raise
    except GreenroomError:
        return
    mine = caller.mine
    caller.check(len(mine) == 1, f"received accepted for its message, but {mine} is committed")


async def answer(caller: Caller, random: Random) -> None:
    known = [(run, id) for run in caller.model.runs.values() for id in run.interrupt_ids][-4:]
    if not known:
        return
    run, id = random.choice(known)
    outcome = await caller.client.answer(id, {"by": caller.client.name})
    if outcome == "resolved":
        mine = caller.mine
        caller.check(len(mine) == 1, f"received resolved for interrupt {id}, but {mine} is committed")
    else:
        right = outcome == "already_resolved" and id not in run.interrupts
        caller.check(right, f"received {outcome} for interrupt {id} of {run}")
