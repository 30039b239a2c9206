"""All machines of one engine, connected by lists instead of tasks and channels.

Nothing happens by itself: `steps` returns the possible next steps, and `do` executes one of them. An actor's
step takes all its waiting messages, as actors do. Commits go to a real store in memory, and to the rules of
the simulation, which check them.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, cast

import msgspec

from greenroom.actors.channel import Reply
from greenroom.actors.engine.recovery import projection_of, recall, restart_events, submissions
from greenroom.actors.journal.change import Change
from greenroom.actors.journal.committer import Write, Written
from greenroom.actors.journal.machine import JournalMachine
from greenroom.actors.messages import OnConflict, Stop, Submit
from greenroom.actors.run.body_messages import Returned, Stopped
from greenroom.actors.run.execution import LiveBodies, LocalExecution
from greenroom.actors.run.machine import DeadlineReached, RunMachine
from greenroom.actors.run.services import Services
from greenroom.actors.scheduling.supervisor import SupervisorMachine
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.store import Batch, Checkpoint
from greenroom.protocol.errors import GreenroomError
from greenroom.protocol.states import ENDED
from greenroom.simulation.rules.rules import Rules

from ..machines.driving import WALL, Entry, Files
from ..machines.making import job, jobs, submission

LIMIT = 2
Step = str
Deed = Callable[["Whole"], None]


class Begun(NamedTuple):
    """The information about a body that the rules receive."""

    id: str
    handle: str
    attempt: int
    kind: str
    params: Any
    checkpoint: Any


class Whole:
    """See the module's docstring. `deeds` are actions that can occur at any time, each list in order: a
    command, or the return of a body. The deeds under a run's name are calls of its body, which occur while it
    executes."""

    def __init__(self, *before: Deed, deeds: dict[str, Sequence[Deed]], crash: bool = False) -> None:
        self.now = 0.0
        self.rules = Rules(lambda: self.now)
        self.replies: dict[str, Reply[Any]] = {}
        self.curtain: set[str] = set()  # runs whose bodies can return
        self.story = b""  # for everything that was committed
        self.log: list[str] = []  # the actions of bodies, and the events in between
        self.deeds = {name: list(each) for name, each in deeds.items()}
        self.may_crash = crash
        self._store = MemoryStore()
        self._open()
        for deed in before:
            self.settle()
            deed(self)
            self.settle()

    # What can happen.

    def steps(self) -> list[Step]:
        """The possible next steps; none at the end."""
        steps = [f"{kind} {name}" for (kind, name), waiting in self.channels.items() if waiting]
        steps += [f"helper {number}" for number in range(len(self.helpers))]
        if self.committing is not None:
            steps.append("answer of the commit" if self.durable else "commit")
        for run, execution in self.bodies.items():
            if run not in self.begun or execution.scope.cancel_called:
                steps.append(f"body {run}")
            elif run in self.curtain:
                steps.append(f"return {run}")
        steps += [f"deed {name}" for name, left in self.deeds.items() if left and name not in self._waiting()]
        if self.may_crash:
            steps.append("crash")
        return steps

    def do(self, step: Step) -> None:
        """Execute one of the steps."""
        what, _, name = step.partition(" ")
        getattr(self, f"_do_{what}")(name)
        assert not self.rules.faults, (step, self.rules.faults)

    def _waiting(self) -> set[str]:
        """The runs whose bodies make no call now."""
        return {run for run in self.deeds if run in self.journal.projection.runs and run not in self.begun}

    def deeds_left(self) -> dict[str, int]:
        """The number of remaining deeds."""
        return {name: len(left) for name, left in self.deeds.items()}

    def settle(self) -> None:
        """Execute all steps that are no deeds, in a fixed order."""
        while steps := [step for step in self.steps() if not step.startswith(("deed", "crash"))]:
            self.do(steps[0])

    def at_rest(self) -> None:
        """Check that nothing remains that should have happened."""
        self.rules.end_instant(self.now)
        assert not self.rules.faults, self.rules.faults
        unanswered = [name for name, reply in self.replies.items() if not reply.done]
        assert not unanswered, f"not answered: {unanswered}"
        assert not any(machine.state.deferred for machine in self.runs.values())

    # Deeds.

    def submits(
        self, run: str, handle: str = "h", on_conflict: OnConflict = "reject", of: str = "walk", **fields: Any
    ) -> None:
        """A caller submits a run."""
        made = submission(handle, run, **({"job": job(of), "created_at": self.now} | fields))
        self.commands(run, Submit(made, on_conflict, Reply()))

    def commands(self, name: str, message: Any) -> None:
        """A caller sends a command; the answer is stored under this name."""
        self.replies[name] = message.reply
        self.tell("supervisor", "", message)

    def says(self, run: str, message: Any) -> None:
        """The body of a run sends its actor a request."""
        self.replies[f"{run}: {type(message).__name__}"] = message.reply
        self.tell("run", run, message)

    def lets_return(self, run: str) -> None:
        """The body of a run can return from now on."""
        self.curtain.add(run)

    def passes(self, time: float) -> None:
        """Set the time."""
        self.now = max(self.now, time)
        for name, machine in self.runs.items():
            if machine.deadline() <= self.now:
                self.channels.setdefault(("run", name), []).append(DeadlineReached())

    def leaves(self, *, now: bool) -> None:
        """The engine shuts down."""
        self.rules.leaving()
        self.stop = Stop(now)
        for name in self.runs:
            self.tell("run", name, self.stop)

    # Outcomes.

    def answer(self, name: str) -> str:
        """An answer in one word."""
        reply = cast(Any, self.replies[name])
        error, value = reply._error, reply._value
        if error is not None:
            return str(error.code) if isinstance(error, GreenroomError) else repr(error)
        return str(getattr(value, "status", value) if value is not None else None)

    def status(self, run: str) -> str:
        """The committed state of a run."""
        found = self.journal.projection.runs.get(run)
        return "unknown" if found is None else str(found.status)

    # The actors' steps.

    def _do_supervisor(self, _: str) -> None:
        for message in self._taken("supervisor", ""):
            self.supervisor.receive(message, self.now)
        self._end_turn()

    def _end_turn(self) -> None:
        self.supervisor.end_turn(self.now)
        self._carry_out(self.supervisor)

    def _do_journal(self, _: str) -> None:
        for message in self._taken("journal", ""):
            self.journal.receive(message)
        self.journal.end_turn(self.now)
        self._carry_out(self.journal)
        if self.journal.job is not None:
            self.committing, self.journal.job = self.journal.job, None
            assert isinstance(self.committing, Write), "this store is never down"

    def _do_commit(self, _: str) -> None:
        batch = cast(Batch, self.committing.batch)  # type: ignore[union-attr]  # it is set for this step
        finish(self._store.commit(batch))
        self.rules.commit(batch)
        for event in batch.events:
            self.story = hash_of(self.story + msgspec.msgpack.encode(event))
        self.durable = True

    def _do_answer(self, _: str) -> None:
        self.committing, self.durable = None, False
        self.tell("journal", "", Written())

    def _do_run(self, name: str) -> None:
        machine = self.runs[name]
        for message in self._taken("run", name):
            machine.receive(message, self.now)
        self._carry_out(machine.state)
        if not machine.has_work() and not self.channels.get(("run", name)):
            del self.runs[name]

    def _do_helper(self, number: str) -> None:
        finish(self.helpers.pop(int(number))())

    def _do_body(self, name: str) -> None:
        execution = self.bodies[name]
        if execution.scope.cancel_called:
            self._end_body(name, Stopped())
            return
        self.begun.add(name)
        self.live.begin(execution)
        self.log.append(f"{name} begins attempt {execution.attempt}")
        body, params = execution.body, execution.body.order.params
        begun = Begun(name, body.order.handle, body.attempt, body.order.kind, params, body.checkpoint)
        self.rules.observations.begins(begun)

    def _do_return(self, name: str) -> None:
        self._end_body(name, Returned("done"))

    def _end_body(self, name: str, outcome: Returned | Stopped) -> None:
        execution = self.bodies.pop(name)
        self.live.remove(execution)
        if name in self.begun:
            self.begun.remove(name)
            self.log.append(f"{name} ends")
            self.rules.observations.ends(name)
        execution.body.host.ended(outcome)

    def _do_deed(self, name: str) -> None:
        self.deeds[name].pop(0)(self)

    def _do_crash(self, _: str) -> None:
        self.may_crash = False
        self.log.append("crash")
        self.rules.crashed()
        for name, reply in self.replies.items():
            if not reply.done:
                reply.set("lost")
                self.log.append(f"not answered: {name}")
        finish(self._store.close())
        self._open()

    # The engine's parts.

    def _open(self) -> None:
        stored = finish(self._store.open("e", LIMIT, WALL + self.now))
        self.rules.opened(stored, lambda name, announced: job(name))
        self.channels: dict[tuple[str, str], list[Any]] = {}
        self.runs: dict[str, RunMachine] = {}
        self.bodies: dict[str, LocalExecution] = {}
        self.live = LiveBodies()
        self.committing: Any = None
        self.durable = False
        self.begun: set[str] = set()
        self.helpers: list[Callable[[], Awaitable[object]]] = []
        self.stop: Stop | None = None
        self.journal = JournalMachine(lambda: WALL + self.now, lambda events: None, lambda: 0, math.inf)
        self.journal.begin(projection_of(stored))
        for event in restart_events(stored, LIMIT, {}, draining=False):
            self.tell("journal", "", Change((event,)))
        self.supervisor = SupervisorMachine(
            100,
            lambda message: self.tell("supervisor", "", message),
            jobs,
            lambda: WALL + self.now,
            lambda stored: recall(stored, jobs, WALL + self.now),
        )
        order = self.supervisor.order
        order.limit = LIMIT
        order.generations = {lane: number for lane, (_, number) in stored.lanes.items() if number}
        order.limits = {lane: limit for lane, (limit, _) in stored.lanes.items()}
        again, rejects = submissions(stored, jobs, WALL + self.now)
        self.supervisor.restore(stored, again, rejects, self.now, WALL + self.now)
        self._end_turn()

    def tell(self, kind: str, name: str, message: Any) -> bool:
        """Put a message into a channel; the actor of a run is created when it is needed."""
        if kind == "run" and name not in self.runs:
            made = self.supervisor.submission(name)
            if made is None or made.over or (made.begun and self.stop is not None and self.stop.now):
                return False
            anything = cast(Any, self)
            files = cast(Any, Files())
            entry = cast(Any, Entry())
            services = Services(
                entry,
                anything,
                files,
                lambda: WALL + self.now,
                anything,
                anything,
                anything,
                lambda: 1.0,
            )
            self.runs[name] = RunMachine(made, services, self.live, _raise, self.now)
            if self.stop is not None:
                self.tell("run", name, self.stop)
        self.channels.setdefault((kind, name), []).append(message)
        return True

    async def checkpoint(self, handle: str, job: str) -> Checkpoint | None:
        """The replacement of the journal for helper tasks."""
        return await self._store.checkpoint(handle, job)

    def _carry_out(self, machine: Any) -> None:
        machine.effects.carry_out(self, self.helpers.append, self._start_body)

    def _start_body(self, execution: LocalExecution) -> None:
        self.live.add(execution)
        self.bodies[execution.id] = execution

    def _taken(self, kind: str, name: str) -> list[Any]:
        return self.channels.pop((kind, name))


def hash_of(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def finish(call: Coroutine[Any, Any, Any] | Awaitable[Any]) -> Any:
    """The result of an async call that does not wait."""
    try:
        cast(Any, call).send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError(f"{call} waits for something")


def _raise(error: BaseException) -> None:
    raise error


def ended(whole: Whole) -> bool:
    """Whether every run has ended."""
    return all(run.status in ENDED for run in whole.journal.projection.runs.values())
