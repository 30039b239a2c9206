"""An engine at play: clients that command, bodies that do as they are told, and a story of it all.

Each example opens one engine inside one `trio.run`. Hypothesis draws what the clients and the bodies do. The
rules on events are the model's; here stand those that only bodies and callers can see.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any

import trio
from hypothesis import strategies as st

from greenroom import Engine, Jobs, Run, open_engine
from greenroom.errors import (
    Conflict,
    Draining,
    GreenroomError,
    HandleLocked,
    NotFound,
    NotInteractive,
    RunAbandoned,
)
from greenroom.protocol.events import EventBase, RunStateChanged
from greenroom.protocol.fold import fold
from greenroom.protocol.records import Snapshot

from . import clockwork
from .model import EXECUTES, Story, StoryStore

HANDLES = ("ann", "bob", "cleo", "dora")
LANES = ("main", "side", "back")
MAX_CONCURRENT = 2
GRACE = 2.0

Plan = list[Any]
Command = tuple[Any, ...]


class Play:
    """What happens in one example: an engine, its story, the bodies in it, and the clients around it."""

    def __init__(self, turns: list[int]) -> None:
        self.story = Story(max_concurrent=MAX_CONCURRENT)
        self.store = StoryStore(self.story, turns)
        self.faults = self.story.faults
        self.seen: list[Any] = []  # by a subscriber
        self.jobs = Jobs()
        self.bodies: defaultdict[str, set[str]] = defaultdict(set)  # the live ones of each handle
        self.released: set[str] = set()  # runs whose handles an operator has freed from their bodies
        self.resets_begun = self.resets_done = 0
        self.letting_go = trio.Event()  # what takes long in a body ends when this is set
        self.engine: Engine
        self._register("plain")
        self._register("retried", max_attempts=3, backoff=1.0)
        self._register("polite", cancel="cooperative", max_attempts=2, backoff=0.0)
        self._register("brief", run_timeout=2.0, queue_timeout=3.0, deadline=8.0)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Engine]:
        """An engine whose clock is trio's, with a subscriber that reads everything."""
        async with (
            trio.open_nursery() as readers,
            open_engine(
                self.jobs,
                self.store,
                max_concurrent=MAX_CONCURRENT,
                clock=lambda: 1_000_000 + trio.current_time(),
                random=Random(0),
                shutdown_timeout=5,
            ) as self.engine,
        ):
            self.first = await self.engine.snapshot()
            readers.start_soon(self._read, self.first.seq)
            yield self.engine
            self.story.end_instant()
            self.story.leaving = True

    async def _read(self, after: int) -> None:
        async for event in self.engine.events(after=after):
            if isinstance(event, EventBase) and event not in self.story.events[event.seq - 1 : event.seq]:
                self.faults.append(f"{event} was shown before it was committed")
            self.seen.append(event)

    # Bodies.

    def _register(self, name: str, **options: Any) -> None:
        @self.jobs.job(name, grace=GRACE, **options)
        async def body(run: Run, params: dict[str, Any]) -> int:
            with self._counted(run):
                tries = params["tries"]
                for step in tries[min(run.attempt, len(tries)) - 1]:
                    await self._perform(run, *step)
                    self._check_slot(run)
                return run.attempt

    @contextmanager
    def _counted(self, run: Run) -> Iterator[None]:
        told, others = self.story.runs[run.id], self.bodies[run.handle]
        if self.story.handle(run.handle).holder != run.id:
            self.faults.append(f"a body of {told} executes, which does not hold its handle")
        if others - self.released:
            self.faults.append(f"a body of {told} begins beside one of {others}")
        if (run.attempt, run.params) != (told.attempt, told.params):
            self.faults.append(f"a body of {told} begins with {run.attempt} and {run.params}")
        self._check_slot(run)
        others.add(run.id)
        try:
            yield
        finally:
            others.discard(run.id)

    def _check_slot(self, run: Run) -> None:
        """A body goes on only while its run has a slot, or is being ended, or goes on without it."""
        told = self.story.runs[run.id]
        if told.status not in EXECUTES and not told.ended and not run.cancel_requested:
            self.faults.append(f"a body goes on in {told}")

    async def _perform(self, run: Run, step: str, *arguments: Any) -> None:
        before = self.story.runs[run.id]
        gone = before.ended
        try:
            await getattr(self, f"_{step}")(run, *arguments)
        except RunAbandoned:
            raise
        except GreenroomError:
            return
        if gone and step in ("log", "save"):
            self.faults.append(f"a body of {before} could {step}")

    async def _turns(self, run: Run, count: int) -> None:
        for _ in range(count):
            await trio.lowlevel.checkpoint()

    async def _hold(self, run: Run, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.letting_go.wait()

    async def _ignore(self, run: Run, seconds: float) -> None:
        with trio.CancelScope(shield=True), trio.move_on_after(seconds):
            await self.letting_go.wait()

    async def _sleep(self, run: Run, seconds: float) -> None:
        await run.sleep(seconds)

    async def _ask(self, run: Run, timeout: float, release_slot: bool) -> None:
        await run.interrupt("?", timeout=timeout, release_slot=release_slot)

    async def _call(self, run: Run, handle: str, lane: str, steps: Plan) -> None:
        await run.call("plain", handle=handle, lane=lane, params={"tries": [steps]})

    async def _log(self, run: Run) -> None:
        await run.log("as asked")

    async def _save(self, run: Run) -> None:
        await run.save_checkpoint(run.attempt)

    async def _progress(self, run: Run) -> None:
        await run.progress(run.attempt)

    async def _end_interactive(self, run: Run) -> None:
        await run.end_interactive()

    async def _raise(self, run: Run) -> None:
        raise ValueError("as asked")

    # Clients.

    async def client(self, name: str, commands: list[Command]) -> None:
        for number, (command, *arguments) in enumerate(commands):
            await getattr(self, f"do_{command}")(f"{name}.{number}", *arguments)

    def _some_run(self, index: int) -> str:
        """One of the runs that were created, the latest first; an unknown one if there is none yet."""
        ids = list(self.story.runs)
        return ids[-1 - index % len(ids)] if ids else "unknown"

    def _held(self, handle: str, run: str, since: int) -> bool:
        """Whether a run held a handle since then, or was pending there and may have been about to."""
        told = self.story.runs[run]
        pending = told.handle == handle and (told.ended_in is None or told.ended_in > since)
        return pending or run in self.story.handle(handle).held_by(since, self.story.seq)

    async def do_pause(self, by: str, seconds: float) -> None:
        await trio.sleep(seconds)

    async def do_yield(self, by: str, turns: int) -> None:
        for _ in range(turns):
            await trio.lowlevel.checkpoint()

    async def do_submit(
        self, by: str, job: str, handle: str, lane: str, on_conflict: Any, tries: list[Plan]
    ) -> None:
        story, since, params = self.story, self.story.seq, {"tries": tries}
        try:
            ticket = await self.engine.submit(
                job, handle=handle, lane=lane, on_conflict=on_conflict, params=params, by=by
            )
        except Conflict as error:
            if not self._held(handle, error.details["active_run"], since):
                self.faults.append(f"{by} was refused for {error.details}, which did not hold the handle")
            if on_conflict in ("queue", "replace"):
                self.faults.append(f"{by} would have waited, and was refused: {error}")
            return
        except Draining:
            if True not in story.drained_between(since, story.seq):
                self.faults.append(f"{by} was refused by an engine that was not draining")
            return
        told = story.runs[ticket.id]
        holders = story.handle(handle).held_by(since, story.seq)
        if told.params != params:
            self.faults.append(f"{by} got {told}, which has the parameters {told.params}")
        if ticket.joined and (on_conflict != "join" or told.id not in holders):
            self.faults.append(f"{by} joined {told}, which did not hold the handle")
        if not ticket.joined and on_conflict in ("reject", "join") and None not in holders:
            self.faults.append(f"{by} got {told} although the handle was held by {holders}")
        if not ticket.joined and False not in story.drained_between(since, story.seq):
            self.faults.append(f"{by} got {told} while the engine was draining")

    async def do_cancel(self, by: str, index: int) -> None:
        id = self._some_run(index)
        try:
            run = await self.engine.cancel(id, by=by)
        except Conflict as error:
            run = error.details["run"]
            if not run.ended and run.status != "cancelling":
                self.faults.append(f"{by} could not cancel run {run}")
        except (NotInteractive, NotFound):
            return
        else:
            if run.id != id or run.status not in ("cancelled", "cancelling"):
                self.faults.append(f"{by} cancelled run {id}, and was shown {run}")

    async def do_set_concurrency(self, by: str, lane: str, limit: int | None) -> None:
        await self.engine.set_concurrency(lane, limit, by=by)

    async def do_set_max_concurrent(self, by: str, limit: int) -> None:
        await self.engine.set_max_concurrent(limit, by=by)

    async def do_clear_lane(self, by: str, lane: str) -> None:
        queued = [run.id for run in self.story.pending() if run.status == "queued" and run.lane == lane]
        count = await self.engine.clear_lane(lane, by=by)
        self._check_cleared(by, "lane_cleared", queued, count)

    async def do_clear_handle(self, by: str, handle: str) -> None:
        waiting = list(self.story.handle(handle).waiting)
        count = await self.engine.clear_handle(handle, by=by)
        waiting = [id for id in waiting if self.story.runs[id].place is None]
        self._check_cleared(by, "handle_cleared", waiting, count)

    def _check_cleared(self, by: str, reason: str, queued: list[str], count: int) -> None:
        self.story.cleared.update(queued)
        ends = [event for event in self.story.events if event.by == by]
        if len(ends) != count or any(event.reason != reason for event in ends):
            self.faults.append(f"{by} was told {count}, but did {ends}")

    async def do_reset_lanes(self, by: str) -> None:
        self.resets_begun += 1
        await self.engine.reset_lanes(by=by)
        self.resets_done += 1

    async def do_drain(self, by: str) -> None:
        await self.engine.drain(by=by)

    async def do_resume(self, by: str) -> None:
        await self.engine.resume(by=by)

    async def do_release_handle(self, by: str, handle: str) -> None:
        abandoned = {id for id in self.bodies[handle] if self.story.runs[id].ended}
        self.released |= abandoned  # at once: the next run may begin before the answer is here
        await self.engine.release_handle(handle, by=by)

    async def do_set_params(self, by: str, handle: str) -> None:
        since = self.story.seq
        try:
            await self.engine.set_params(handle, {"tries": [[]], "by": by}, by=by)
        except HandleLocked as error:
            if not self._held(handle, error.details["active_run"], since):
                self.faults.append(f"{by} was refused for {error.details}, which did not hold the handle")

    async def do_answer(self, by: str, index: int) -> None:
        questions = sorted((await self.engine.snapshot()).interrupts)
        if questions:
            await self.engine.answer(questions[index % len(questions)], "!", by=by)

    async def do_wait_for_active(self, by: str, timeout: float) -> None:
        since, executing, resets = self.story.seq, self.story.holders(), self.resets_done
        drained = await self.engine.wait_for_active(timeout)
        if drained and resets == self.resets_begun:  # a reset makes it return early
            left = [run for run in executing if run.holds_slot and self._held_since(run.id, since)]
            if left:
                self.faults.append(f"{by} waited for what executed, but {left} still does")

    def _held_since(self, id: str, since: int) -> bool:
        return not any(
            event.to == "suspended"
            for event in self.story.events[since:]
            if isinstance(event, RunStateChanged) and event.run == id
        )

    async def do_look(self, by: str) -> None:
        self._check_fold(await self.engine.snapshot())

    def _check_fold(self, snapshot: Snapshot) -> None:
        folded = fold(self.first, self.story.events[self.first.seq : snapshot.seq])
        if folded != snapshot:
            self.faults.append(f"the fold up to {snapshot.seq} gives {folded}, the engine {snapshot}")

    # The end.

    async def let_everything_end(self) -> None:
        """Take every obstacle away; then all bodies end, and nothing may be left."""
        engine = self.engine
        self.letting_go.set()
        await engine.resume()
        await engine.set_max_concurrent(MAX_CONCURRENT)
        for lane in LANES:
            await engine.set_concurrency(lane, None if lane == "main" else 1)
        await trio.sleep(60)  # longer than anything that ends by itself
        left = self.story.pending()
        if left and not any(run.reason == "child" for run in left):
            self.faults.append(f"{left} are left, although every body has ended")
        for run in left:  # two whose children wait for each other's handles wait for ever, rightly
            try:
                await engine.cancel(run.id)
            except (Conflict, NotInteractive):
                continue
        await trio.sleep(60)
        await self._check_nothing_is_left()
        await self._check_that_every_slot_is_there()

    async def _check_nothing_is_left(self) -> None:
        snapshot = await self.engine.snapshot()
        self._check_fold(snapshot)
        self.story.end_instant()
        left: list[Any] = [run for run in snapshot.runs.values() if not run.ended]
        left += [handle for handle in snapshot.handles.values() if handle.active_run or handle.waiting]
        left += [lane for lane in snapshot.lanes.values() if lane.executing or lane.queued]
        left += [id for bodies in self.bodies.values() for id in bodies]
        left += list(snapshot.interrupts)
        if left or snapshot.engine.executing or snapshot.engine.queued:
            self.faults.append(f"left at the end: {left}, {snapshot.engine}")

    async def _check_that_every_slot_is_there(self) -> None:
        self.letting_go = trio.Event()
        for number in range(MAX_CONCURRENT):
            await self.engine.submit(
                "plain", handle=f"last-{number}", lane="main", params={"tries": [[["hold", 1.0]]]}
            )
        await trio.sleep(0.5)
        if len(self.story.holders()) != MAX_CONCURRENT:
            self.faults.append(f"only {self.story.holders()} execute: slots were lost")
        for lane in LANES[1:]:
            ticket = await self.engine.submit(
                "plain", handle=f"last-{lane}", lane=lane, params={"tries": [[]]}
            )
            if not await ticket.wait(5):
                self.faults.append(f"the slot of lane {lane} was lost")


# What is drawn.

moments = st.sampled_from([0.0, 0.5, 1.0, 2.5])


def step(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Plan]:
    return st.tuples(st.just(name), *arguments).map(list)  # as JSON has it


simple_steps = st.one_of(
    step("turns", st.integers(0, 12)),
    step("hold", moments),
    step("log"),
    step("progress"),
)
waits = st.one_of(
    step("hold", moments),
    step("sleep", moments),
    step("ask", st.sampled_from([0.5, 1.5]), st.booleans()),
    step("call", st.sampled_from(HANDLES), st.sampled_from(LANES), st.lists(simple_steps, max_size=2)),
)
oddities = st.one_of(
    step("ignore", st.sampled_from([0.5, 10.0])),
    step("save"),
    step("end_interactive"),
    step("raise"),
    step("hold", st.just(1000.0)),
)


def one_kind_of(*kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One of these, each as likely: `one_of` would count what stands inside of them."""
    return st.sampled_from(kinds).flatmap(lambda kind: kind)


steps = one_kind_of(simple_steps, step("hold", moments), waits, oddities)
plans = st.lists(steps, max_size=3)
slow_plans = st.lists(step("hold", st.sampled_from([0.5, 1.0, 1.5])) | waits, min_size=1, max_size=2)
handles, lanes = st.sampled_from(HANDLES), st.sampled_from(LANES)
submissions = st.tuples(
    st.just("submit"),
    st.sampled_from(["plain", "retried", "polite", "brief"]),
    handles,
    lanes,
    st.sampled_from(["reject", "queue", "replace", "join"]),
    st.lists(plans, min_size=1, max_size=2),
)
pauses = st.one_of(
    st.tuples(st.just("pause"), moments),
    st.tuples(st.just("yield"), st.integers(1, 12)),
)
controls = st.one_of(
    st.tuples(st.just("cancel"), st.integers(0, 5)),
    st.tuples(st.just("set_concurrency"), lanes, st.sampled_from([0, 1, 2, None])),
    st.tuples(st.just("set_max_concurrent"), st.integers(0, 3)),
    st.tuples(st.just("clear_lane"), lanes),
    st.tuples(st.just("clear_handle"), handles),
    st.tuples(st.just("reset_lanes")),
    st.tuples(st.just("drain")),
    st.tuples(st.just("resume")),
    st.tuples(st.just("release_handle"), handles),
    st.tuples(st.just("set_params"), handles),
    st.tuples(st.just("answer"), st.integers(0, 3)),
    st.tuples(st.just("wait_for_active"), moments),
    st.tuples(st.just("look")),
)
short_runs = st.tuples(
    st.just("submit"),
    st.sampled_from(["plain", "retried"]),
    st.sampled_from(["ann", "bob", "cleo", "dora", "eve", "finn"]),
    lanes,
    st.just("queue"),
    st.lists(
        st.lists(st.one_of(step("turns", st.integers(0, 6)), step("sleep", st.just(0.0))), max_size=2),
        min_size=1,
        max_size=1,
    ),
)
limits = st.one_of(
    st.tuples(st.just("set_concurrency"), st.just("side"), st.integers(0, 2)),
    st.tuples(st.just("set_max_concurrent"), st.integers(0, 2)),
    st.tuples(st.just("reset_lanes")),
    st.tuples(st.just("cancel"), st.integers(0, 3)),
    st.tuples(st.just("clear_lane"), lanes),
    st.tuples(st.just("yield"), st.integers(1, 6)),
)
hasty_commands = st.lists(one_kind_of(short_runs, limits), max_size=15)
"""Short runs in a hurry, and limits that change under them: much of it in the same instant."""

commands = st.lists(one_kind_of(submissions, submissions, pauses, controls), max_size=20)


def play(clients: list[list[Command]], turns: list[int]) -> Play:
    """Let the clients do what they do, then everything end; returns what was seen of it."""
    it = Play(turns)

    async def main() -> None:
        async with it.open():
            async with trio.open_nursery() as nursery:
                for name, does in zip("abc", clients, strict=False):
                    nursery.start_soon(it.client, name, does)
            await it.let_everything_end()

    clockwork.run(main)
    return it
