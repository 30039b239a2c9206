"""The actor of a run: awake while its run has something to do.

It passes the messages of its channel to the run's machine and carries out the effects. A queued run without
a timer has no actor, only a submission.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..actor import Actor
from ..effects import Spawn
from ..messages import Submission
from .execution import Execution, LiveBodies
from .machine import DeadlineReached, RunMachine
from .services import Services


class RunActor(Actor):
    """See the module's docstring."""

    def __init__(
        self,
        submission: Submission,
        services: Services,
        live_bodies: LiveBodies,
        spawn: Spawn,
        start_body: Callable[[Execution], None],
        interrupt: Callable[[BaseException], None],
    ) -> None:
        super().__init__("run", submission.id)
        self._spawn = spawn
        self._start_body = start_body
        self._delivery = services.delivery
        self._now = services.now
        self.machine = RunMachine(submission, services, live_bodies, interrupt, self._now())

    def has_work(self) -> bool:
        return self.machine.has_work()

    def report(self) -> dict[str, Any]:
        run = self.machine.state
        return super().report() | {
            "job": run.submission.job.name,
            "status": str(run.status),
            "attempt": run.attempt,
            "body": run.execution is not None,
            "abandoned": run.abandoned,
            "messages": len(run.gate.waiting),
        }

    async def on_batch(self, messages: Sequence[Any]) -> None:
        machine, now = self.machine, self._now()
        for message in messages:
            machine.receive(message, now)
        machine.state.effects.carry_out(self._delivery, self._spawn, self._start_body)
        self.deadline = machine.deadline()

    async def on_deadline(self) -> None:
        await self.on_batch((DeadlineReached(),))
