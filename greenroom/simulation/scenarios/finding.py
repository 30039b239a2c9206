"""A scenario of runs with tags, lists of them by filters, and operations on all runs that match a filter.

A list may differ from the model only in runs that changed during the call. A bulk operation works on the runs
that match, and on no others; if it is repeated with the same request id, it submits no run twice.
"""

from __future__ import annotations

from random import Random
from typing import Any

import trio

from ...protocol.errors import Draining, Invalid, Unavailable
from ...protocol.events import RunStateChanged
from ...protocol.records import BulkResult
from ...protocol.states import ENDED, PENDING, UNSUCCESSFUL, Status
from ..model.state import ModelRun
from ..world.world import World
from .bodies import HANDLES, LANES, draw_moment, draw_short_step
from .callers import Caller, Deed
from .commands import Play, pause

_TAGS: tuple[dict[str, str], ...] = (
    {},
    {"color": "red"},
    {"color": "blue"},
    {"color": "red", "size": "l"},
    {"size": "s"},
)
_JOBS = ("plain", "retried", "brief")
_ERRORS = ("as planned", "planned", "As planned", "Error")
_REQUESTS = ("bulk one", "bulk two")
_LIMIT = 25
"""How many runs a bulk operation works on, so that reruns of reruns do not grow without limit."""


async def finding(world: World) -> None:
    """The scenario."""
    play = Play(world, calls=_CALLS)

    async def step(random: Random) -> None:
        if random.random() < 0.8:
            await play.start(random)
        await play.do(random.choice(random.choice(_DEEDS)), random, wait=random.random() < 0.4)
        await pause(random)

    await play.go_through(step)


# Filters of the model.


def _draw_filter(caller: Caller, random: Random) -> dict[str, Any]:
    """A random filter, without a status."""
    times = [run.created_at for run in list(caller.model.runs.values())[-10:]] or [0.0]
    choices: dict[str, Any] = {
        "handle": random.choice(HANDLES),
        "lane": random.choice(LANES),
        "job": random.choice(_JOBS),
        "tags": random.choice(_TAGS[1:]),
        "since": random.choice(times),
        "until": random.choice(times),
        "error": random.choice(_ERRORS),
    }
    found = {name: choices[name] for name in random.sample(list(choices), random.choice((1, 1, 2, 3)))}
    if found.get("since", 0.0) > found.get("until", found.get("since", 0.0)):
        del found["until"]
    return found


def _fits(run: ModelRun, filter: dict[str, Any], status: Status, error: str | None) -> bool:
    wanted = filter.get("status")
    return (
        filter.get("handle") in (None, run.handle)
        and filter.get("lane") in (None, run.lane)
        and filter.get("job") in (None, run.job)
        and all(run.tags.get(name) == value for name, value in filter.get("tags", {}).items())
        and not ("since" in filter and run.created_at < filter["since"])
        and not ("until" in filter and run.created_at >= filter["until"])
        and ("error" not in filter or filter["error"] in (error or ""))
        and (wanted is None or status in wanted)
    )


def _all_fits(caller: Caller, run: ModelRun, filter: dict[str, Any]) -> set[bool]:
    """Whether a run matched a filter at some time during the call."""
    statuses = run.statuses_between(caller.since, caller.model.seq)
    return {_fits(run, filter, status, run.error if status in ENDED else None) for status in statuses}


def _matched(caller: Caller, filter: dict[str, Any]) -> dict[str, ModelRun]:
    """The runs that matched a filter during the whole call."""
    return {
        run.id: run
        for run in caller.model.runs.values()
        if run.created_in <= caller.since and _all_fits(caller, run, filter) == {True}
    }


# Calls.


async def submit_tagged(caller: Caller, random: Random) -> None:
    steps = [draw_short_step(random) for _ in range(random.randint(0, 2))]
    if random.random() < 0.4:
        steps.append(["raise"])
    elif random.random() < 0.3:
        steps.append(["hold", 5.0])
    tags = random.choice(_TAGS)
    options: dict[str, Any] = {"handle": random.choice(HANDLES), "lane": random.choice(LANES), "tags": tags}
    params = {"attempts": [steps]}
    try:
        ticket = await caller.client.submit(
            random.choice(_JOBS), params=params, on_conflict="queue", **options
        )
    except Draining:
        return
    known = caller.model.runs[ticket.id]
    caller.check(known.tags == tags, f"submitted tags {tags}, but received {known} with tags {known.tags}")


async def find(caller: Caller, random: Random) -> None:
    filter = _draw_filter(caller, random)
    if random.random() < 0.3:
        filter["status"] = random.sample(list(Status), 3)
    limit = random.choice((1, 3, 100))
    runs = await caller.client.list_runs(**filter, limit=limit)
    ids = [run.id for run in runs]
    caller.check(ids == sorted(set(ids), reverse=True), f"received a list that is not newest first: {ids}")
    for run in runs:
        known = caller.model.runs[run.id]
        right = True in _all_fits(caller, known, filter) and run.tags == known.tags
        caller.check(right, f"listed runs with {filter}, but received {known} with tags {run.tags}")
    last = ids[-1] if len(ids) == limit else ""
    missing = [run for id, run in _matched(caller, filter).items() if id > last and id not in ids]
    caller.check(not missing, f"listed runs with {filter}, but did not receive {missing}")


async def cancel_matching(caller: Caller, random: Random) -> None:
    filter, dry_run = _draw_filter(caller, random), random.random() < 0.2
    try:
        result = await caller.client.cancel_many(**filter, limit=_LIMIT, dry_run=dry_run)
    except Invalid:
        _check_too_many(caller)
        return
    ends = {
        event.run
        for event in caller.mine
        if isinstance(event, RunStateChanged) and event.to in (Status.CANCELLING, Status.CANCELLED)
    }
    cancellable = {**filter, "status": PENDING - {Status.CANCELLING}}
    _check_counts(caller, result, dry_run, len(ends))
    for id in ends:
        known = caller.model.runs[id]
        fits = True in _all_fits(caller, known, cancellable)
        caller.check(fits, f"cancelled runs with {filter}, but also {known}")
    if not dry_run and not result.refused:
        left = list(_matched(caller, cancellable).values())
        caller.check(not left, f"cancelled runs with {filter}, but not {left}")


async def rerun_matching(caller: Caller, random: Random) -> None:
    filter = _draw_filter(caller, random)
    request_id, retries = random.choice((None, *_REQUESTS)), random.random() < 0.5
    call = caller.client.retry_many if retries else caller.client.rerun_many
    for attempt in range(3):
        try:
            result = await call(**filter, limit=_LIMIT, request_id=request_id)
            break
        except Invalid:
            if attempt == 0:
                _check_too_many(caller)
            return
        except Draining:
            return
        except Unavailable:
            if request_id is None or attempt == 2:
                raise
            await trio.sleep(draw_moment(random))
    made = [event for event in caller.mine if isinstance(event, RunStateChanged) and event.from_ is None]
    right = len(made) == result.done if request_id is None else len(made) <= result.done
    caller.check(right and not result.refused, f"received {result}, but created {made}")
    if request_id is None:
        return
    again = _made_by(caller, request_id)
    expected = _matched(caller, {**filter, "status": UNSUCCESSFUL if retries else ENDED})
    left = [run for id, run in expected.items() if id not in again and id not in again.values()]
    caller.check(not left, f"submitted runs with {filter} again, but not {left}")
    twice = [id for id in again.values() if id in again]
    caller.check(not twice, f"submitted runs {twice} again that the same call has created")
    for id, copy in again.items():
        one, other = caller.model.runs[id], caller.model.runs[copy]
        same = all(getattr(one, name) == getattr(other, name) for name in _KEPT)
        caller.check(same, f"submitted {one} again with tags {one.tags}, but received {other}, {other.tags}")


_KEPT = ("job", "handle", "lane", "kind", "params", "needs", "tags")


def _made_by(caller: Caller, request_id: str) -> dict[str, str]:
    """The runs that the calls with a request id have submitted again, and the new runs."""
    return {
        request.removeprefix(f"{request_id}:"): run
        for request, run in caller.model.requests.items()
        if request.startswith(f"{request_id}:")
    }


def _check_too_many(caller: Caller) -> None:
    caller.check(not caller.mine, f"received an error for too many runs, but {caller.mine} is committed")


def _check_counts(caller: Caller, result: BulkResult, dry_run: bool, done: int) -> None:
    right = result.done == done and (dry_run or result.matched == result.done + result.refused)
    caller.check(right, f"received {result}, but {done} runs have changed")


_CALLS: dict[str, Deed] = {
    "submit_tagged": submit_tagged,
    "find": find,
    "cancel_matching": cancel_matching,
    "rerun_matching": rerun_matching,
}
_DEEDS = (
    *[("submit_tagged",)] * 5,
    *[("find",)] * 3,
    ("cancel_matching",),
    *[("rerun_matching",)] * 2,
    ("crash", "crash_at_a_commit", "lose_a_commit", "stop", "trouble_the_disk", "jump"),
)
