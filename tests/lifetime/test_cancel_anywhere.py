"""Wherever an engine is cancelled from outside, or crashes, it ends in order and leaves nothing half done.

The bodies sleep, ask, call children, write files and ignore their end. Hypothesis seeds trio's scheduler and
draws the step of it at which the cancel, or the number of the commit at which the crash, comes.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom import Engine, Jobs, Run, open_engine
from greenroom.errors import Conflict
from greenroom.persistence.store import Batch
from greenroom.protocol.events import Event, RunEvent, RunProgress

from ..scheduling import clockwork
from ..scheduling.model import Story, StoryStore

STEPS = 800  # a little more than there are in all
COMMITS = 75
WHOLE_FILES = {b"half of it, and the rest", b"never mind how it ends"}
AT_REST = {"queued", "suspended", "succeeded", "failed", "cancelled", "timed_out"}


class Bug(Exception):
    """What the journal stumbles over."""


class FailingStore(StoryStore):
    """Fails at its commit number `fails_at`, before it has written anything."""

    fails_at: int | None = None
    crashed = False

    async def commit(self, batch: Batch) -> None:
        if self.commits == self.fails_at:
            self.story.leaving = self.crashed = True
            raise Bug
        await super().commit(batch)


class CancelAt(trio.abc.Instrument):
    """Cancels a scope at one step of the scheduler."""

    def __init__(self, scope: trio.CancelScope, step: int, story: Story) -> None:
        self._scope = scope
        self._story = story
        self._left = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= 1
        if self._left == 0:
            self._scope.cancel()
            self._story.leaving = True


class Scene:
    """One engine with a bit of everything going on in it."""

    def __init__(self, folder: Path, turns: list[int]) -> None:
        self.folder = folder
        self.story = Story(max_concurrent=3)
        self.store = FailingStore(self.story, turns)
        self.jobs = Jobs()
        self.came_out = False
        self.living = 0  # bodies
        self.tasks_left = 0
        self.parts: list[str] = []
        self.stored: list[Event] = []
        self.files: dict[str, bytes] = {}
        for name, options in {
            "plain": {},
            "resumable": {"resumable": True},
            "retried": {"max_attempts": 2, "backoff": 1.0},
            "polite": {"cancel": "cooperative"},
        }.items():
            self.jobs.job(name, grace=2, **options)(self._body)  # type: ignore[arg-type]

    async def _body(self, run: Run, params: dict[str, Any]) -> None:
        self.living += 1
        try:
            await getattr(self, f"_{params['do']}")(run)
        finally:
            self.living -= 1

    async def _sleep(self, run: Run) -> None:
        await run.sleep(2)
        await run.progress(1, 2)
        await run.sleep(3, release_slot=False)

    async def _ask(self, run: Run) -> None:
        await run.interrupt("may I?", timeout=3, release_slot=True)
        await run.interrupt("sure?", timeout=2)

    async def _call(self, run: Run) -> None:
        await run.call("plain", handle=f"{run.handle}-child", params={"do": "write"})
        await run.log("it is done")

    async def _write(self, run: Run) -> None:
        for number in range(3):
            async with run.open_file(f"{number}.txt", overwrite=True) as file:
                await file.write(b"half of it, ")
                await trio.sleep(0.5)
                await file.write(b"and the rest")
            await run.save_checkpoint(number)

    async def _fail(self, run: Run) -> None:
        await trio.sleep(1)
        raise ValueError("as asked")

    async def _ignore(self, run: Run) -> None:
        with trio.CancelScope(shield=True):
            async with run.open_file("ignored.txt", overwrite=True) as file:
                await file.write(b"never mind ")
                await trio.sleep(4)
                await file.write(b"how it ends")
            await run.log("still here")

    async def use(self, engine: Engine) -> None:
        """Submit some of everything, and cancel some of it."""
        jobs = ("plain", "resumable", "retried", "polite")
        does = ("sleep", "ask", "call", "write", "fail", "ignore")
        tickets = []
        for number, do in enumerate((*does, *does)):
            ticket = await engine.submit(
                jobs[(number + number // 6) % 4],
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
        await trio.sleep(6)

    async def run(self, cancel_at: int | None, fail_at: int | None) -> None:
        """Open, use and leave the engine. What is left afterwards is judged in `check`."""
        before = trio.lowlevel.current_statistics().tasks_living
        with trio.CancelScope() as scope:
            if cancel_at is not None:
                trio.lowlevel.add_instrument(CancelAt(scope, cancel_at, self.story))
            self.store.fails_at = fail_at
            try:
                async with open_engine(
                    self.jobs,
                    self.store,
                    lanes={"side": 2},
                    data_dir=self.folder,
                    clock=lambda: 1_000_000 + trio.current_time(),
                    random=Random(0),
                    shutdown_timeout=2,
                ) as engine:
                    await self.use(engine)
                    self.story.leaving = True
            except Bug:
                self.came_out = True
        self.stored = [event for run in self.story.runs for event in await self.store.history(run)]
        await trio.testing.wait_all_tasks_blocked()
        self.tasks_left = trio.lowlevel.current_statistics().tasks_living - before


def left_behind(cancel_at: int | None, fail_at: int | None, turns: list[int]) -> Scene:
    """What is left of an engine that is cancelled at a step or crashes at a commit."""
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder), turns)
        clockwork.run(lambda: scene.run(cancel_at, fail_at))
        scene.parts = [str(path) for path in Path(folder).rglob("*.part")]
        scene.files = {path.name: path.read_bytes() for path in Path(folder).rglob("*.txt")}
    return scene


turns = st.lists(st.integers(0, 3), min_size=1, max_size=3)


@settings(max_examples=max(250, settings().max_examples))
@given(step=st.integers(1, STEPS), turns=turns, scheduling=st.random_module())
def test_cancelled_at_any_step_it_ends_in_order_and_leaves_nothing_half_done(step, turns, scheduling):
    scene = left_behind(step, None, turns)

    assert not scene.story.faults
    assert not scene.tasks_left
    assert not scene.living
    assert not scene.parts
    assert set(scene.files.values()) <= WHOLE_FILES
    assert {run.status for run in scene.story.runs.values()} <= AT_REST
    assert not [run.interrupts for run in scene.story.runs.values() if run.ended and run.interrupts]
    assert sorted(scene.stored, key=lambda event: event.seq) == [
        event for event in scene.story.events if is_kept(event)
    ]


@settings(max_examples=max(250, settings().max_examples))
@given(commit=st.integers(0, COMMITS), turns=turns, scheduling=st.random_module())
def test_crashed_at_any_commit_it_stops_and_leaves_only_what_was_committed(commit, turns, scheduling):
    scene = left_behind(None, commit, turns)

    assert scene.came_out == scene.store.crashed
    assert not scene.story.faults
    assert not scene.tasks_left
    assert not scene.living
    assert not scene.parts
    assert set(scene.files.values()) <= WHOLE_FILES
    assert sorted(scene.stored, key=lambda event: event.seq) == [
        event for event in scene.story.events if is_kept(event)
    ]


def is_kept(event: object) -> bool:
    """Progress stands on the run's row only, and other events belong to no run."""
    return isinstance(event, RunEvent) and not isinstance(event, RunProgress)
