"""The callers that wait until all runs with a slot have released it. A part of the supervisor."""

from __future__ import annotations

from ..channel import Reply
from ..effects import Effects
from ..messages import NotWaiting, WaitForActive
from .order import Order


class ActiveRuns:
    """See the module's docstring."""

    def __init__(self, effects: Effects, order: Order) -> None:
        self._effects = effects
        self._order = order
        self.waiters: list[tuple[set[str], Reply[bool]]] = []
        """The callers, each with the runs that it waits for."""

    def here(self) -> set[str]:
        """The runs with a slot whose bodies end with this process."""
        return {run for run in self._order.executing if not self._order.pool.outlives(run)}

    def wait(self, message: WaitForActive) -> None:
        """Answer when the runs that hold a slot now have released it."""
        runs = self.here() if message.ending else set(self._order.executing)
        if runs:
            self.waiters.append((runs, message.reply))
        else:
            self._effects.answer(message.reply, True)

    def not_waiting(self, message: NotWaiting) -> None:
        """A caller has given up."""
        self.waiters = [waiter for waiter in self.waiters if waiter[1] is not message.reply]

    def released(self, run: str) -> None:
        """A run has released its slot."""
        for runs, reply in self.waiters:
            runs.discard(run)
            if not runs:
                self._effects.answer(reply, True)
        self.waiters = [waiter for waiter in self.waiters if waiter[0] and not waiter[1].done]

    def reset(self) -> None:
        """All slots are void."""
        waiters, self.waiters = self.waiters, []
        for _, reply in waiters:
            self._effects.answer(reply, True)
