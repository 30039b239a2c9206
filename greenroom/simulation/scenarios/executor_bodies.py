"""The bodies of the scenario with executors. Each writes its fence into everything that it reports, so that
the scenario can check which body a report belongs to."""

from __future__ import annotations

from random import Random
from typing import Any

import trio

from ...actors.jobs import Jobs
from ...actors.run.api import Run
from ...protocol.errors import GreenroomError

GRACE = 2.0
JOBS = ("works", "works", "works", "tries", "tries", "once", "asks", "calls", "hears", "clings")
SPECIAL = "special"
"""The job that only executors have."""


class Bodies:
    """The jobs. `jobs` are those of the server and of every executor; `more` includes the special one."""

    def __init__(self) -> None:
        self.letting_go = trio.Event()
        """When set, bodies end their long waits."""
        self.jobs, self.more = Jobs(), Jobs()
        for jobs in (self.jobs, self.more):
            jobs.job("works", resumable=True, grace=GRACE)(self._works)
            jobs.job("tries", max_attempts=3, backoff=0.5, grace=GRACE)(self._tries)
            jobs.job("once", grace=GRACE)(self._once)
            jobs.job("asks", resumable=True, grace=GRACE)(self._asks)
            jobs.job("calls", resumable=True, grace=GRACE, cancel="cooperative")(self._calls)
            jobs.job("hears", resumable=True, grace=GRACE)(self._hears)
            jobs.job("clings", max_attempts=2, grace=GRACE)(self._clings)
        self.more.job(SPECIAL, resumable=True, grace=GRACE)(self._works)

    async def _works(self, run: Run, params: dict[str, Any]) -> dict[str, Any]:
        """Several parts, with a checkpoint after each."""
        parts: list[float] = params["parts"]
        for number in range(0 if run.checkpoint is None else run.checkpoint["part"], len(parts)):
            await self._hold(parts[number])
            await run.save_checkpoint({"part": number + 1, "fence": run.fence})
            await run.progress(number + 1, len(parts), fence=run.fence)
            await self._log(run)
        return {"fence": run.fence}

    async def _tries(self, run: Run, params: dict[str, Any]) -> dict[str, Any]:
        """Several attempts, and waits without a slot."""
        for number, seconds in enumerate(params["parts"]):
            await run.progress(number, fence=run.fence)
            await self._hold(seconds)
            await run.sleep(0.0 if self.letting_go.is_set() else seconds)
            await self._log(run)
        if params["raises"] >= run.attempt:
            raise ValueError("as planned")
        return {"fence": run.fence}

    async def _once(self, run: Run, params: dict[str, Any]) -> dict[str, Any]:
        for seconds in params["parts"]:
            await self._hold(seconds)
            await self._log(run)
        return {"fence": run.fence}

    async def _asks(self, run: Run, params: dict[str, Any]) -> dict[str, Any]:
        """Interrupts, with and without a slot."""
        for number, seconds in enumerate(params["parts"]):
            await run.interrupt({"number": number}, 2 * seconds, release_slot=number % 2 == 0)
            await self._log(run)
        return {"fence": run.fence}

    async def _calls(self, run: Run, params: dict[str, Any]) -> dict[str, Any]:
        """Child runs."""
        for seconds in params["parts"]:
            child = {"parts": [seconds], "raises": 0}
            try:
                await run.call("works", handle=f"child-{run.id}", params=child, on_conflict="queue")
            except GreenroomError:  # the child was cancelled, for example
                await self._log(run)
        return {"fence": run.fence}

    async def _hears(self, run: Run, params: dict[str, Any]) -> dict[str, Any]:
        """Takes messages."""
        heard = []
        for number, seconds in enumerate(params["parts"]):
            with trio.move_on_after(0.0 if self.letting_go.is_set() else 2 * seconds):
                heard.append(await run.next_message(release_slot=number % 2 == 0))
        return {"fence": run.fence, "heard": heard}

    async def _clings(self, run: Run, params: dict[str, Any]) -> dict[str, Any]:
        """Ignores its cancellation."""
        with trio.CancelScope(shield=True):
            await self._hold(3 * sum(params["parts"]))
        await self._log(run)
        return {"fence": run.fence}

    async def _hold(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.letting_go.wait()

    async def _log(self, run: Run) -> None:
        await run.log(f"fence {run.fence}")


def draw_params(random: Random) -> dict[str, Any]:
    """Random parameters of a run."""
    parts = [random.choice((0.0, 0.5, 3.0, 12.0)) for _ in range(random.randint(0, 4))]
    return {"parts": parts, "raises": random.choice((0, 0, 1))}
