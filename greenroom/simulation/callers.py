"""What callers do, and whether what they are told is so.

A caller does one thing. What it is told is compared with everything that has been committed between the call
and the answer: where that is a race, any answer will do that was true at some moment of it. What is on the
disk is not known to the engine until its commit returns; so "before the call" is what a follower has seen.
"""

from __future__ import annotations

from random import Random
from typing import Any

import trio

from ..actors.messages import FilesFate
from ..protocol.errors import (
    Conflict,
    Draining,
    GreenroomError,
    HandleLocked,
    NotInteractive,
    RunEnded,
    Unavailable,
)
from ..protocol.events import RunProgress, RunStateChanged
from ..protocol.records import RunRecord
from ..protocol.states import ENDED, Status
from .bodies import HANDLES, JOBS, LANES, draw_moment, draw_short_step, draw_tries
from .client import Client, SimulatedTicket
from .world import World


class Desk:
    """What all callers of a server have done."""

    def __init__(self) -> None:
        self.requests: set[str] = set()  # request ids that anyone has used
        self.resets_begun = self.resets_done = 0


class Caller:
    """See the module's text."""

    def __init__(self, client: Client, world: World, desk: Desk) -> None:
        self._client = client
        self._world = world
        self._desk = desk
        self._rules = client.server.rules
        self._told = self._rules.told
        self._since = 0
        self._life = 0

    async def call(self, name: str, random: Random) -> None:
        """Do something that a client can do."""
        self._since, self._life = self._rules.witness.seen, self._client.server.lives
        try:
            await getattr(self, f"_{name}")(random)
        except Unavailable as error:
            if "nothing was changed" in error.message:
                self._check_nothing_happened()

    def _wrong(self, what: str) -> None:
        self._world.fail(f"{self._client.name} {what}")

    def _check(self, condition: object, what: str) -> None:
        if not condition:
            self._wrong(what)

    @property
    def _same_life(self) -> bool:
        """Whether the engine that was asked is there still, and not being left."""
        server = self._client.server
        return server.running and server.lives == self._life and not self._rules.is_left

    def _check_nothing_happened(self) -> None:
        mine = [event for event in self._told.events if event.by == self._client.name]
        self._check(not mine, f"was told that nothing was changed, but {mine} is committed")

    def _some_run(self, random: Random) -> str:
        """One of the latest runs, or an unknown one."""
        ids = list(self._told.runs)[-6:]
        return random.choice(ids) if ids and random.random() < 0.95 else "unknown"

    # Submissions.

    async def _submit(self, random: Random) -> None:
        job, handle, lane = random.choice(JOBS), random.choice(HANDLES), random.choice((*LANES, None))
        options: dict[str, Any] = {
            "handle": handle,
            "lane": lane,
            "kind": random.choice(("start", "start", "continue")),
            "on_conflict": random.choice(("reject", "queue", "queue", "replace", "join")),
            "params": None if random.random() < 0.1 else {"tries": draw_tries(random)},
        }
        if random.random() < 0.2:
            options["request_id"] = random.choice(("one", "two", "three"))
        if random.random() < 0.2:
            options[random.choice(("queue_timeout", "run_timeout", "deadline"))] = random.choice(
                (0.5, 2.0, 6.0)
            )
        if random.random() < 0.2:
            options |= {"warn_after": random.choice((0.5, 1.0)), "on_wait": _stumble}
        used = set(self._desk.requests)
        if "request_id" in options:
            self._desk.requests.add(options["request_id"])
        try:
            ticket = await self._client.submit(job, **options)
        except Conflict as error:
            self._refused(error, handle, options, used)
        except Draining:
            self._refused_as_draining()
        except Unavailable:
            raise
        except GreenroomError as error:
            self._check(options["params"] is None, f"was refused for {error}")
        else:
            self._accepted(ticket, job, options)
            if random.random() < 0.3:
                await self._wait_for_end(ticket)

    async def _submit_short(self, random: Random) -> None:
        job = random.choice(("plain", "retried"))
        steps = [draw_short_step(random) for _ in range(random.randint(0, 2))]
        options: dict[str, Any] = {
            "handle": f"crowd {random.randint(0, 9)}",
            "lane": random.choice(LANES),
            "on_conflict": "queue",
            "params": {"tries": [steps]},
        }
        try:
            ticket = await self._client.submit(job, **options)
        except Draining:
            self._refused_as_draining()
        else:
            self._accepted(ticket, job, options)

    def _refused_as_draining(self) -> None:
        drained = True in self._told.drained_between(self._since, self._told.seq)
        self._check(drained or not self._same_life, "was refused by an engine that was not draining")

    def _refused(self, error: Conflict, handle: str, options: dict[str, Any], used: set[str]) -> None:
        if "request_id" in options and "active_run" not in error.details:
            known = options["request_id"] in used
            self._check(known, f"was refused for a request id that nobody has used: {error}")
            return
        self._check_holder(handle, error)
        waits = options["on_conflict"] in ("queue", "replace")
        self._check(not waits, f"would have waited, and was refused: {error}")

    def _check_holder(self, handle: str, error: GreenroomError) -> None:
        """The run that is named held the handle, or was about to hold it."""
        named = error.details["active_run"]
        told = self._told.runs[named]
        pending = told.handle == handle and (told.ended_in is None or told.ended_in > self._since)
        held = named in self._told.handle(handle).held_by(self._since, self._told.seq)
        self._check(pending or held, f"was refused for {told}, which did not hold handle {handle}")

    def _accepted(self, ticket: SimulatedTicket, job: str, options: dict[str, Any]) -> None:
        told = self._told.runs.get(ticket.id)
        if told is None:
            self._wrong(f"got run {ticket.id}, which is not committed")
            return
        request = options.get("request_id")
        if request is not None:
            self._check(self._told.requests.get(request) == told.id, f"got {told}, which has not {request}")
        if options["params"] is not None:
            self._check(told.params == options["params"], f"got {told} with {told.params}")
        holders = self._told.handle(told.handle).held_by(self._since, self._told.seq)
        if ticket.joined:
            joins = options["on_conflict"] == "join" and told.id in holders
            self._check(joins or request is not None, f"joined {told}, which did not hold the handle")
            went_on = told.statuses_between(self._since, self._told.seq) - ENDED - {Status.CANCELLING}
            self._check(went_on or request is not None, f"joined {told}, which is being cancelled")
            self._check(told.job == job, f"joined {told}, which is no {job}")
            return
        if options["on_conflict"] in ("reject", "join"):
            self._check(None in holders, f"got {told} although the handle was held by {holders}")
        open_ = False in self._told.drained_between(self._since, self._told.seq)
        self._check(open_, f"got {told} while the engine was draining")

    async def _wait_for_end(self, ticket: SimulatedTicket) -> None:
        told = self._told.runs[ticket.id]
        try:
            result = await ticket.result()
        except Unavailable:
            return
        except RunEnded as error:
            run = error.run
            self._check(told.ended and run.status == told.status, f"was told that {told} is {run.status}")
        else:
            right = told.status is Status.SUCCEEDED and result == told.attempt
            self._check(right, f"got the result {result} of {told}")

    async def _rerun(self, random: Random) -> None:
        id = self._some_run(random)
        try:
            ticket = await self._client.rerun(id)
        except Unavailable:
            raise
        except GreenroomError:
            return
        one, other = self._told.runs[id], self._told.runs[ticket.id]
        same = (one.job, one.handle, one.lane, one.params) == (
            other.job,
            other.handle,
            other.lane,
            other.params,
        )
        self._check(same, f"has {one} run again, and got {other}")

    # Control.

    async def _cancel(self, random: Random) -> None:
        id = self._some_run(random)
        files: FilesFate = "delete" if random.random() < 0.5 else "keep"
        told = self._told.runs.get(id)
        try:
            run = await self._client.cancel(id, files)
        except Conflict as error:
            shown: RunRecord = error.details["run"]
            ending = shown.ended or shown.status is Status.CANCELLING or not self._same_life
            self._check(ending, f"could not cancel {shown.id}, which is {shown.status}")
        except Unavailable:
            raise
        except NotInteractive:
            self._check(told is not None and told.attempt, f"could not cancel {told}")
        except GreenroomError as error:
            self._check(told is None, f"could not cancel {told}: {error}")
        else:
            right = run.id == id and run.status in (Status.CANCELLED, Status.CANCELLING)
            self._check(right, f"cancelled {told}, and was shown {run}")
            if files == "delete":
                self._rules.told.runs[id].doomed = True

    async def _set_concurrency(self, random: Random) -> None:
        await self._client.set_concurrency(random.choice(LANES), random.choice((0, 1, 2, None)))

    async def _set_max_concurrent(self, random: Random) -> None:
        await self._client.set_max_concurrent(random.randint(0, 3))

    async def _clear_lane(self, random: Random) -> None:
        lane = random.choice(LANES)
        queued = [run.id for run in self._told.pending.values() if run.lane == lane and not run.attempt]
        count = await self._client.clear_lane(lane)
        if self._same_life:
            self._rules.cleared.update(dict.fromkeys(queued, False))
        self._check_cleared("lane_cleared", count)

    async def _clear_handle(self, random: Random) -> None:
        handle = random.choice(HANDLES)
        waiting = list(self._told.handle(handle).waiting)
        count = await self._client.clear_handle(handle)
        if self._same_life:
            self._rules.cleared.update(dict.fromkeys(waiting, True))
        self._check_cleared("handle_cleared", count)

    def _check_cleared(self, reason: str, count: int) -> None:
        ends = [e for e in self._told.events if e.by == self._client.name and isinstance(e, RunStateChanged)]
        right = len(ends) == count and all(event.reason == reason for event in ends)
        self._check(right, f"was told that {count} are cleared, but they are {ends}")

    async def _reset_lanes(self, random: Random) -> None:
        self._desk.resets_begun += 1
        try:
            await self._client.reset_lanes()
        finally:
            self._desk.resets_done += 1

    async def _drain(self, random: Random) -> None:
        await self._client.drain()

    async def _resume(self, random: Random) -> None:
        await self._client.resume()

    async def _release_handle(self, random: Random) -> None:
        await self._client.release_handle(random.choice(HANDLES))

    async def _set_params(self, random: Random) -> None:
        handle, params = random.choice(HANDLES), {"tries": draw_tries(random)}
        try:
            await self._client.set_params(handle, params)
        except HandleLocked as error:
            self._check_holder(handle, error)

    async def _wait_for_active(self, random: Random) -> None:
        executing = {run.id: run for run in self._told.holders() if run.fate is None}
        resets_done = self._desk.resets_done
        drained = await self._client.wait_for_active(draw_moment(random))
        if drained and resets_done == self._desk.resets_begun and self._same_life:  # a reset ends it early
            events = self._told.events[self._since :]
            moved = {event.run for event in events if isinstance(event, RunStateChanged)}
            left = [run for id, run in executing.items() if run.holds_slot and id not in moved]
            self._check(not left, f"waited for what executed, but {left} still does")

    # Talking to bodies.

    async def _inject(self, random: Random) -> None:
        executing = [run.id for run in self._told.holders()] or ["unknown"]
        target = random.choice((self._some_run(random), random.choice(HANDLES), random.choice(executing)))
        message = f"from {self._client.name}"
        try:
            await self._client.inject(target, message)
        except Unavailable:
            raise
        except GreenroomError:
            return
        mine = [event for event in self._told.events if event.by == self._client.name]
        self._check(len(mine) == 1, f"was told that its message is accepted, but {mine} is committed")

    async def _answer(self, random: Random) -> None:
        known = [(run, id) for run in self._told.runs.values() for id in run.asked][-4:]
        if not known:
            return
        run, id = random.choice(known)
        outcome = await self._client.answer(id, {"by": self._client.name})
        if outcome == "resolved":
            mine = [event for event in self._told.events if event.by == self._client.name]
            self._check(len(mine) == 1, f"was told that {id} is resolved, but {mine} is committed")
        else:
            right = outcome == "already_resolved" and id not in run.questions
            self._check(right, f"was told that {id} of {run} is {outcome}")

    # Looking.

    async def _snapshot(self, random: Random) -> None:
        await self._client.snapshot()

    async def _get_run(self, random: Random) -> None:
        id = self._some_run(random)
        try:
            run = await self._client.get_run(id)
        except Unavailable:
            raise
        except GreenroomError:
            self._check(id not in self._told.runs, f"was told that there is no run {id}")
            return
        self._check_shown(run)

    def _check_shown(self, run: RunRecord) -> None:
        told = self._told.runs[run.id]
        right = run.status in told.statuses_between(self._since, self._told.seq) and run.params == told.params
        self._check(right, f"was shown {run}, which is {told}")

    async def _list_runs(self, random: Random) -> None:
        handle, status = random.choice((None, *HANDLES)), random.choice((None, "queued", "succeeded"))
        runs = await self._client.list_runs(handle=handle, status=status, limit=random.choice((2, 100)))
        ids = [run.id for run in runs]
        self._check(ids == sorted(ids, reverse=True), f"was shown runs that are not newest first: {ids}")
        for run in runs:
            fits = handle in (None, run.handle) and status in (None, run.status)
            self._check(fits, f"asked for {handle} and {status}, and was shown {run}")
            self._check_shown(run)

    async def _history(self, random: Random) -> None:
        id = self._some_run(random)
        try:
            shown = await self._client.history(id)
        except Unavailable:
            raise
        except GreenroomError:
            self._check(id not in self._told.runs, f"was told that there is no run {id}")
            return
        kept = [
            event
            for event in self._told.events
            if getattr(event, "run", None) == id and not isinstance(event, RunProgress)
        ]
        least = sum(event.seq <= self._since for event in kept)
        right = len(shown) >= least and shown == kept[: len(shown)]
        self._check(right, f"was shown the history {shown} of run {id}, which is {kept}")


async def _stumble(waited: float, ahead: int, blockers: list[str]) -> None:
    await trio.lowlevel.checkpoint()
    raise ValueError("on_wait fails, as asked")
