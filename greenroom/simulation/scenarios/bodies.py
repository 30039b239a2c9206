"""The bodies of the built-in scenarios: they execute the plans in their parameters.

A plan is a list of steps; a step is a name with arguments, as JSON. The parameters of a run contain a plan
for each attempt; the last plan applies to all later attempts, too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from random import Random
from typing import Any, NoReturn, Unpack

import trio

from ...actors.jobs import JobKeywords, Jobs
from ...actors.run.api import Run
from ...protocol.errors import GreenroomError
from ...protocol.states import Status
from ..rules.rules import Rules
from ..world.crash import cancelled

GRACE = 2.0
HANDLES = ("ann", "bob", "cleo", "dora")
LANES = ("main", "side", "back")
JOBS = ("plain", "retried", "polite", "brief", "hasty", "resumable", "tough", "streamer")
WHOLE = b"half of it, and the rest"

Plan = list[list[Any]]


class Bodies:
    """The jobs and their bodies. `rules` check what the bodies observe."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.rules: Rules  # the server's rules; set when the server is up
        self.kill: Callable[[str], None]  # kills the server's process; set when the server is up
        self.letting_go = trio.Event()  # when set, bodies end their long waits
        self.first: Plan = []  # the steps of each body before its plan
        self._register("plain")
        self._register("retried", max_attempts=3, backoff=1.0)
        self._register("polite", cancel="cooperative", max_attempts=2, backoff=0.0)
        self._register("brief", run_timeout=2.0, queue_timeout=3.0, deadline=8.0)
        self._register("hasty", max_attempts=3, backoff=0.5, run_timeout=2.0)
        self._register("resumable", resumable=True)
        self._register("tough", resumable=True, max_attempts=2, backoff=0.5)
        self._register("streamer", accepts="streaming", resumable=True)

    def _register(self, name: str, **options: Unpack[JobKeywords]) -> None:
        options["grace"] = GRACE

        @self.jobs.job(name, **options)
        async def body(run: Run, params: dict[str, Any]) -> int:
            plans: list[Plan] = params.get("attempts", [[]])
            for step in (*self.first, *plans[min(run.attempt, len(plans)) - 1]):
                await self._perform(run, *step)
                self.look(run)
            return run.attempt

    async def _perform(self, run: Run, step: str, *arguments: Any) -> None:
        known = self.rules.model.runs[run.id]
        gone = known.ended
        try:
            await getattr(self, f"_{step}")(run, *arguments)
        except (GreenroomError, OSError, trio.TooSlowError):
            return
        if gone and step in ("log", "save", "progress"):
            self.rules.faults.append(f"a body of {known} could {step} after the end of its run")

    def look(self, run: Run) -> None:
        """Check that a body may continue."""
        known = self.rules.model.runs[run.id]
        ends = known.status is Status.SUSPENDED and run.cancel_requested  # without a slot
        if not ends:
            self.rules.observations.goes_on(run.id, run.attempt)

    async def hold(self, seconds: float) -> None:
        """Wait, but no longer than until all bodies end their waits."""
        with trio.move_on_after(seconds):
            await self.letting_go.wait()

    async def interrupt(
        self, run: Run, data: Any, timeout: float | None, key: str | None, *, release_slot: bool
    ) -> Any:
        """Open an interrupt. The rules know of the wait if it releases the slot."""
        waiting = self.rules.observations.waiting(run.id, "answer") if release_slot else nullcontext()
        with waiting:
            return await run.interrupt(data, timeout, key, release_slot=release_slot)

    # The steps of plans.

    async def _turns(self, run: Run, count: int) -> None:
        for _ in range(count):
            await trio.lowlevel.checkpoint()

    async def _hold(self, run: Run, seconds: float) -> None:
        await self.hold(seconds)

    async def _forever(self, run: Run) -> None:
        await self._hold(run, 1000.0)

    async def _ignore(self, run: Run, seconds: float) -> None:
        with trio.CancelScope(shield=True), trio.move_on_after(seconds):
            await self.letting_go.wait()

    async def _sleep(self, run: Run, seconds: float) -> None:
        with self.rules.observations.waiting(run.id, "time", trio.current_time() + seconds):
            await run.sleep(seconds)

    async def _nap(self, run: Run, seconds: float) -> None:
        await run.sleep(seconds, release_slot=False)

    async def _ask(self, run: Run, timeout: float | None, release_slot: bool, key: str | None) -> None:
        known = self.rules.model.runs[run.id]
        answer = await self.interrupt(run, "?", timeout, key, release_slot=release_slot)
        refused = isinstance(answer, dict) and answer.get("approved") is False
        if (
            answer is not None
            and not refused
            and answer not in (given for _, given in known.answers.values())
        ):
            self.rules.faults.append(
                f"a body of {known} received the answer {answer}, which no client has given"
            )

    async def _call(self, run: Run, handle: str, lane: str, plan: Plan, on_conflict: Any) -> None:
        with self.rules.observations.waiting(run.id, "child"):
            await run.call(
                "plain", handle=handle, lane=lane, params={"attempts": [plan]}, on_conflict=on_conflict
            )

    async def _log(self, run: Run) -> None:
        await run.log("as planned")

    async def _progress(self, run: Run) -> None:
        await run.progress(run.attempt)

    async def _save(self, run: Run) -> None:
        value = [run.id, run.attempt]
        await run.save_checkpoint(value)
        saved = self.rules.model.checkpoints[run.handle, self.rules.model.runs[run.id].job]
        if saved != (run.id, value):
            self.rules.faults.append(f"run {run.id} saved the checkpoint {value}, but {saved} is stored")

    async def _write(self, run: Run, path: str, seconds: float, overwrite: bool) -> None:
        async with run.open_file(path, overwrite=overwrite) as file:
            await file.write(WHOLE[:12])
            await self._hold(run, seconds)
            await file.write(WHOLE[12:])

    async def _stream(self, run: Run, seconds: float) -> None:
        async with run.streaming():
            await self._hold(run, seconds)
            await run.messages()

    async def _compact(self, run: Run, seconds: float) -> None:
        async with run.compacting(timeout=1.0):
            await self._hold(run, seconds)

    async def _read(self, run: Run) -> None:
        await run.messages()

    async def _hear(self, run: Run, seconds: float) -> None:
        with trio.move_on_after(seconds) as waiting:
            await run.next_message()
        if waiting.cancelled_caught and seconds > 0:
            self.rules.observations.took(run.id, [], all_=True)

    async def _end_interactive(self, run: Run) -> None:
        await run.end_interactive()

    async def _poison(self, run: Run, waits: bool) -> None:
        if waits:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._poison_later, run)
                await self._sleep(run, 0.5)
        self._die(run)

    async def _poison_later(self, run: Run) -> None:
        await trio.sleep(0.25)
        self._die(run)

    def _die(self, run: Run) -> NoReturn:
        self.kill(f"poisoned by {run.id}")
        raise cancelled()

    async def _raise(self, run: Run) -> None:
        raise ValueError("as planned")


# Random plans.


def draw_attempts(random: Random) -> list[Plan]:
    """Random plans for the attempts of a run."""
    plans = [draw_plan(random, 3) for _ in range(random.choice((1, 1, 2)))]
    if len(plans) > 1 and random.random() < 0.3:
        plans[0].append(["raise"])
    return plans


def draw_plan(random: Random, longest: int) -> Plan:
    """A few random steps; in many plans the body first reads the messages to earlier bodies."""
    plan = [draw_step(random) for _ in range(random.randint(0, longest))]
    return [["read"], *plan] if plan and random.random() < 0.3 else plan


def draw_step(random: Random) -> list[Any]:
    """A random step: first a group of steps is drawn, then a step of the group."""
    name = random.choice(random.choice((_SIMPLE, _SIMPLE, _WAITS, _WAITS, _WORK, _ODD)))
    if name == "poison" and random.random() < 0.6:  # rarer, because it kills the server several times
        name = "raise"
    return [name, *_draw_arguments(name, random)]


_SIMPLE = ("turns", "hold", "hold", "log", "progress")
_WAITS = ("hold", "sleep", "nap", "ask", "call")
_WORK = ("save", "write", "stream", "compact", "read", "hear")
_ODD = ("ignore", "end_interactive", "raise", "forever", "poison")


def draw_short_step(random: Random) -> list[Any]:
    """A random step that takes little time, or none."""
    return random.choice((["turns", random.randint(0, 6)], ["sleep", 0.0], ["hold", 0.5]))


def draw_moment(random: Random) -> float:
    """A random short time, in seconds."""
    return random.choice((0.0, 0.5, 1.0, 2.5))


def _draw_arguments(name: str, random: Random) -> list[Any]:
    if name == "turns":
        return [random.randint(0, 12)]
    if name in ("hold", "sleep", "nap", "stream", "compact", "hear"):
        return [draw_moment(random)]
    if name == "ignore":
        return [random.choice((0.5, 10.0))]
    if name == "ask":
        return [random.choice((0.5, 1.5, 4.0)), random.random() < 0.5, random.choice((None, None, "key"))]
    if name == "call":
        plan = [step for step in draw_plan(random, 2) if step[0] != "call"]
        on_conflict = random.choice(("queue", "queue", "queue", "reject", "join"))
        return [random.choice(HANDLES), random.choice(LANES), plan, on_conflict]
    if name == "poison":
        return [random.random() < 0.5]
    if name == "write":
        return [random.choice(("a.txt", "b/c.txt")), random.choice((0.0, 0.5)), random.random() < 0.7]
    return []
