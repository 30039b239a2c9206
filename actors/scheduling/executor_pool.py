"""The executors that can take bodies: their jobs, labels and slots, and the runs that use them.

An executor's slot is in use exactly while a run has a slot of its lane and its body at that executor. The
body of a run that waits without a slot stays at its executor and resumes only there.

The engine's own process is an executor, too, with as many slots as the global limit and without labels. It
executes the jobs that are registered in the engine, or none if the engine uses only other executors. Walks of
flows always execute there.

Belongs to the supervisor's order (`order.py`); plain data: no messages, no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from typing import NamedTuple

from .stored_bodies import is_child

Able = tuple["Executor", ...]
"""The executors that can execute a run, whether they have a free slot or not; attached ones by id, then the
engine's own process."""


class Demand(NamedTuple):
    """What a queued run requires of its executor: to have its job and all labels; or to have its body."""

    job: str | None = None
    needs: tuple[str, ...] = ()
    at: str | None = None


IN_PROCESS = Demand()
"""The engine's own process: for walks of flows, and for the bodies that wait there."""


class Executor:
    """An executor. `slots` is `None` if it has no limit of its own; `id` for the engine's own process."""

    __slots__ = ("attached", "draining", "id", "jobs", "labels", "refused", "slots", "used")

    def __init__(self, id: str | None) -> None:
        self.id = id
        self.slots: int | None = None
        self.jobs: Container[str] = ()
        self.labels: frozenset[str] = frozenset()
        self.attached = True
        self.draining = False
        self.refused: dict[str, str] = {}  # job: why
        self.used = 0

    def is_able(self, demand: Demand) -> bool:
        """Whether the executor has the job and the labels, and accepts such a body."""
        return self.has(demand) and not self.draining and demand.job not in self.refused

    def has(self, demand: Demand) -> bool:
        """Whether the executor has the job and the labels."""
        return self.attached and demand.job in self.jobs and self.labels.issuperset(demand.needs)


class ExecutorPool:
    """See the module's docstring. `local_jobs` are the jobs that the engine's own process executes."""

    def __init__(self, local_jobs: Container[str]) -> None:
        self.local = Executor(None)
        self.local.jobs = local_jobs
        self._executors: dict[str, Executor] = {}  # those that are attached or whose slots are in use
        self._slots: dict[str, Executor] = {}  # run: where it uses a slot, if not in the engine's process
        self.bodies: dict[str, str] = {}
        """The executors that have the bodies of runs; those in the engine's own process are not listed."""

    # Changes.

    def ready(
        self, id: str, slots: int | None, jobs: frozenset[str], labels: frozenset[str], *, draining: bool
    ) -> None:
        """An executor has attached, or has changed. `draining`: it accepts no new bodies."""
        executor = self._executors.get(id)
        if executor is None:
            executor = self._executors[id] = Executor(id)
        executor.attached = True
        executor.slots, executor.jobs, executor.labels, executor.draining = slots, jobs, labels, draining

    def removed(self, id: str) -> None:
        """An executor is gone. If it attaches again, it can execute the jobs that it had refused."""
        executor = self._executors.get(id)
        if executor is not None:
            executor.attached = False
            executor.refused = {}
            self._forget_unused(executor)

    def unfit(self, id: str, job: str, why: str) -> None:
        """An executor has refused a body of this job: it gets no other one until it attaches again."""
        executor = self._executors.get(id)
        if executor is not None and executor.attached:
            executor.refused[job] = why

    def take(self, run: str, executor: Executor) -> None:
        """A run uses a slot of this executor, for a new body or for the one that it has there."""
        executor.used += 1
        if executor.id is not None:
            self._slots[run] = executor
            self.bodies[run] = executor.id

    def release(self, run: str) -> Executor | None:
        """A run no longer uses its slot. Its body stays. Returns the executor of the slot; `None` if that is
        the engine's own process."""
        executor = self._slots.pop(run, None)
        if executor is None:
            self.local.used -= 1
        else:
            executor.used -= 1
            self._forget_unused(executor)
        return executor

    def lose_body(self, run: str) -> None:
        """A run has no body: its next one can execute anywhere."""
        self.bodies.pop(run, None)

    def restore(self, run: str, id: str, *, has_slot: bool) -> None:
        """An executor may still have the body of a run from before a restart of the engine."""
        self.bodies[run] = id
        if has_slot:
            executor = self._executors.get(id)
            if executor is None:
                executor = self._executors[id] = Executor(id)
                executor.attached = False
            self.take(run, executor)

    # State.

    def body_of(self, run: str) -> str | None:
        """The executor that has the body of a run; `None` for the engine's own process."""
        return self.bodies.get(run)

    def outlives(self, run: str) -> bool:
        """Whether the body of a run does not end with the engine's process."""
        executor = self.bodies.get(run)
        return executor is not None and not is_child(executor)

    def able(self, demand: Demand) -> Able:
        """The executors that can execute a run with this demand."""
        if demand.job is None:
            executor = self.local if demand.at is None else self._executors.get(demand.at)
            return () if executor is None or not executor.attached else (executor,)
        if not self._executors:
            return (self.local,) if self.local.is_able(demand) else ()
        known = sorted(self._executors)
        able = [self._executors[id] for id in known if self._executors[id].is_able(demand)]
        if self.local.is_able(demand):
            able.append(self.local)
        return tuple(able)

    def users(self, able: Able) -> list[str]:
        """The runs that use the slots of these executors, which are not the engine's own process."""
        return [run for run, executor in self._slots.items() if executor in able]

    def why_blocked(self, demand: Demand) -> str:
        """Why no executor has room for a run with this demand."""
        if demand.job is None:
            why = "has no free slot" if self.able(demand) else "is not attached"
            return f"executor {demand.at}, which has its body, {why}"
        known = [self._executors[id] for id in sorted(self._executors)]
        having = [executor for executor in known if executor.has(demand)]
        wanted = f"job {demand.job!r}"
        if demand.needs:
            wanted += f" with label{'s' if len(demand.needs) > 1 else ''} {', '.join(demand.needs)}"
        if not having:
            return f"no executor has the {wanted}"
        refused = [executor for executor in having if demand.job in executor.refused]
        draining = [executor for executor in having if executor.draining and executor not in refused]
        full = [executor for executor in having if executor not in refused and executor not in draining]
        reasons = [f"{_listed(full)} that have {wanted} have no free slot"] if full else []
        reasons += [f"{_listed(draining)} that have {wanted} accept no new bodies"] if draining else []
        reasons += [f"executor {each.id} refused {wanted}: {each.refused[demand.job]}" for each in refused]
        return "; ".join(reasons)

    def _forget_unused(self, executor: Executor) -> None:
        if executor.id is not None and not executor.attached and not executor.used:
            self._executors.pop(executor.id, None)


def choose(able: Able, avoid: Collection[str | None] = ()) -> Executor | None:
    """Choose the executor with the most free slots, the first one of equals; `None` if none has room.

    Of executors without a limit of their own, the one with the fewest used slots has the most free slots.
    """
    best: Executor | None = None
    most = (0, 0)
    for executor in able:
        slots, used = executor.slots, executor.used
        free = (1, -used) if slots is None else (0, slots - used)
        if (slots is None or used < slots) and (best is None or free > most) and executor.id not in avoid:
            best, most = executor, free
    return best


def _listed(executors: Sequence[Executor]) -> str:
    return "executors " + ", ".join(str(executor.id) for executor in executors)
