"""Bodies that open interrupts and call children, with checkpoints between, and resume from them.

A scenario stops, crashes and retries them at any point. The parameters of a run contain its stages; after
each stage the body saves a checkpoint. Many steps have equal data, so that only their positions differ; in
some steps the data differs from body to body.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import trio

from ...actors.run.api import Run
from ...protocol.answers import Denial
from ...protocol.errors import Draining, RunEnded
from ..rules.replays import Where
from .bodies import GRACE, HANDLES, Bodies, draw_moment
from .callers import Caller

Stage = list[list[Any]]


class Steady:
    """The jobs `steady`, `charge` and `settle`."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._begun: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()
        self._heard: dict[str, int] = {}  # by run: the number of the last message since the last checkpoint
        for name, options in {"steady": {"max_attempts": 3, "backoff": 0.5}, "still": {}}.items():
            bodies.jobs.job(name, grace=GRACE, resumable=True, **options)(self._body)  # type: ignore[call-overload]
        for name, resumable in {"charge": False, "settle": True}.items():
            bodies.jobs.job(name, grace=GRACE, resumable=resumable)(self._child)

    async def _body(self, run: Run, params: dict[str, Any]) -> str:
        self._begun[run.id] += 1
        self._heard.pop(run.id, None)
        stages: list[Stage] = params["stages"]
        for stage in range(run.checkpoint or 0, len(stages)):
            for number, (step, changes, *arguments) in enumerate(stages[stage]):
                if self._bodies.letting_go.is_set():
                    return run.id
                body = self._begun[run.id] if changes else 0
                await getattr(self, f"_{step}")(run, (stage, number, body), *arguments)
                self._bodies.look(run)
            self._heard.pop(run.id, None)
            await run.save_checkpoint(stage + 1)
        return run.id

    async def _child(self, run: Run, params: dict[str, Any]) -> str:
        with trio.move_on_after(params["seconds"]):
            await self._bodies.letting_go.wait()
        return run.id

    # The steps.

    async def _ask(self, run: Run, where: Where, timeout: float, release_slot: bool, key: str | None) -> None:
        rules = self._bodies.rules
        if key is not None:  # within a stage, the key identifies the interrupt
            where = (where[0], -1, where[-1])
        data = {"body": where[-1]}
        if key is None:  # after another message, it is another interrupt
            where = (*where, self._heard.get(run.id, 0))
        rules.replays.asks(run.id, where)
        answer = await self._bodies.interrupt(run, data, timeout, key, release_slot=release_slot)
        if answer is not None and not isinstance(answer, Denial):
            rules.replays.was_answered(run.id, where, answer)

    async def _call(self, run: Run, where: Where, job: str, seconds: float) -> None:
        rules = self._bodies.rules
        rules.replays.asks(run.id, where)
        params = {"body": where[-1], "seconds": seconds}
        with rules.observations.waiting(run.id, "child"):
            try:
                child = await run.call(job, handle=f"card of {run.handle}", params=params)
            except RunEnded:
                if run.cancel_requested:
                    raise
                raise ValueError("its child did not succeed") from None
        rules.replays.was_charged(run.id, where, child)

    async def _listen(self, run: Run, where: Where, seconds: float) -> None:
        rules = self._bodies.rules
        with trio.move_on_after(seconds):
            with rules.observations.waiting(run.id, "message", trio.current_time() + seconds):
                await run.next_message(release_slot=True)
                self._taken[run.id] += 1
                self._heard[run.id] = self._taken[run.id]

    async def _hold(self, run: Run, where: Where, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._bodies.letting_go.wait()


def draw_stages(random: Random) -> list[Stage]:
    """The stages of a run, each with a few steps."""
    return [[_draw_step(random) for _ in range(random.randint(1, 3))] for _ in range(random.randint(1, 4))]


def _draw_step(random: Random) -> list[Any]:
    changes = random.random() < 0.15
    match random.choice(("ask", "ask", "call", "call", "listen", "hold")):
        case "ask":
            key = random.choice((None, None, None, "key"))
            return ["ask", changes and not key, random.choice((4.0, 15.0)), random.random() < 0.6, key]
        case "call":
            return ["call", changes, random.choice(("charge", "settle")), random.choice((0.0, 0.0, 0.5))]
        case "listen":
            return ["listen", False, random.choice((0.5, 4.0))]
        case _:
            return ["hold", False, draw_moment(random)]


async def submit_steady(caller: Caller, random: Random) -> None:
    """Submit a run of the job `steady` or `still`."""
    options: dict[str, Any] = {
        "handle": random.choice(HANDLES),
        "on_conflict": "queue",
        "params": {"stages": draw_stages(random)},
    }
    try:
        await caller.client.submit(random.choice(("steady", "still")), **options)
    except Draining:
        caller.check(not caller.same_life, "received draining from an engine that was not draining")


async def answer_open(caller: Caller, random: Random) -> None:
    """Answer an open interrupt."""
    known = [id for run in caller.model.pending.values() for id in run.interrupts]
    if known:
        outcome = await caller.client.answer(random.choice(known), {"by": caller.client.name})
        caller.check(outcome in ("resolved", "already_resolved"), f"answered an interrupt: {outcome}")
