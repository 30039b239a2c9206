"""`Awaited`: executors of the engine's last life that have not attached since, and their bodies.

The bodies can still execute, so their runs wait: until the executor attaches, which decides about them, or
until the ttl has passed with which it was attached before.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping

import msgspec

from ...protocol.records import ExecutorInfo, ExecutorState
from .held_body import HeldBody
from .remote_execution import RemoteExecution

Bodies = dict[str, RemoteExecution | HeldBody]
"""Bodies at an executor, by their runs."""


class AwaitedExecutor(msgspec.Struct):
    """An executor of the last life, and its bodies that it has not named since. `attached`: it has attached
    without them."""

    bodies: Bodies
    ttl: float
    deadline: float
    attached: bool = False


class Awaited:
    """See the module's docstring. `ttl` is that of this engine."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._known: Mapping[str, ExecutorState] = {}
        self._executors: dict[str, AwaitedExecutor] = {}

    def __contains__(self, executor: object) -> bool:
        return executor in self._executors

    def restore(self, known: Mapping[str, ExecutorState]) -> None:
        """The executors as the last life of the engine knew them."""
        self._known = known

    def expect(self, executor: str, now: float) -> Bodies:
        """Wait for an executor from now on, if that has not begun; returns its bodies, to which the caller
        can add some."""
        awaited = self._executors.get(executor)
        if awaited is None:
            ttl = self.longest_ttl(executor)
            awaited = self._executors[executor] = AwaitedExecutor({}, ttl, now + ttl)
        return awaited.bodies

    def longest_ttl(self, executor: str) -> float:
        """The ttl of this engine, or that of the last engine if it was longer: the executor's lease can last
        that long."""
        known = self._known.get(executor)
        return max(self._ttl, known.ttl or 0) if known is not None else self._ttl

    def ttl_of(self, executor: str) -> float:
        """The ttl with which an executor begins when it attaches."""
        awaited = self._executors.get(executor)
        return self._ttl if awaited is None else awaited.ttl

    def bodies(self, executor: str) -> Bodies:
        """The bodies of an awaited executor; none if it is not awaited."""
        awaited = self._executors.get(executor)
        return {} if awaited is None else awaited.bodies

    def attached(self, executor: str) -> None:
        """An executor has attached. It can attach again with bodies that remain; without any, it is no longer
        awaited."""
        awaited = self._executors.get(executor)
        if awaited is not None:
            awaited.attached = True
            if not awaited.bodies:
                del self._executors[executor]

    def expects_others(self, attached: Container[str]) -> bool:
        """Whether it waits for executors that are not among these."""
        return any(executor not in attached for executor in self._executors)

    @property
    def deadline(self) -> float:
        """When the wait for the next executor ends; infinite if none is awaited."""
        return min((awaited.deadline for awaited in self._executors.values()), default=math.inf)

    def infos(self, attached: Container[str]) -> list[ExecutorInfo]:
        """The executors that are not among these, for callers."""
        return [
            ExecutorInfo(
                id, "disconnected", known.slots, len(awaited.bodies), known.labels, known.jobs, known.start
            )
            for id, awaited in self._executors.items()
            if id not in attached and (known := self._known.get(id)) is not None
        ]

    def take(self, executor: str) -> AwaitedExecutor | None:
        """An executor that is awaited no longer, with the bodies that remain."""
        return self._executors.pop(executor, None)

    def take_late(self, now: float) -> list[tuple[str, AwaitedExecutor]]:
        """The executors whose time is over, which are no longer awaited, with the bodies that remain."""
        late = [(id, awaited) for id, awaited in self._executors.items() if awaited.deadline <= now]
        for id, _ in late:
            del self._executors[id]
        return late
