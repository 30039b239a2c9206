"""A driver for the supervisor's machine: messages in, and the effects of each turn out."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from greenroom.actors.channel import Reply
from greenroom.actors.journal.change import Change
from greenroom.actors.journal.messages import Answer
from greenroom.actors.messages import Cancel, Ended, Enter, Left, OnConflict, RunsEnded, Submission, Submit
from greenroom.actors.scheduling.supervisor import SupervisorMachine
from greenroom.persistence.store import StoredRun
from greenroom.protocol.events import RunChanged, RunStateChanged
from greenroom.protocol.states import Status

from .making import jobs, submission

WALL = 1_000_000.0


def _never_recalled(stored: StoredRun) -> Submission:
    raise AssertionError("no stored run is delayed")


class Desk:
    """See the module's docstring. Runs are named by their ids; by default each has its own handle. The
    engine's own process executes all jobs, or only `local_jobs`."""

    def __init__(self, limit: int = 3, max_pending: int = 100, local_jobs: Container[str] = jobs) -> None:
        self.now = 0.0
        self.commits = True  # whether changes are committed immediately
        self.itself: list[Any] = []  # messages from helper tasks to the supervisor
        self.machine = SupervisorMachine(
            max_pending, self.itself.append, local_jobs, lambda: WALL + self.now, _never_recalled
        )
        self.machine.order.limit = limit
        self.decided: list[tuple[str, str, Any]] = []  # in the last turn
        self.replies: dict[str, Reply[Any]] = {}

    def wall(self) -> float:
        """The wall clock."""
        return 1_000_000 + self.now

    def turn(self, *messages: Any) -> list[str]:
        """A turn with these messages; returns the changes that it has committed, in order."""
        for message in messages:
            self.machine.receive(message, self.now)
        self.machine.end_turn(self.now)
        return self._taken()

    def at(self, time: float) -> list[str]:
        """Set the time; the supervisor wakes if its deadline has passed."""
        self.now = time
        if self.machine.deadline() > time:
            return []
        self.machine.on_deadline(time)
        self.machine.end_turn(time)
        return self._taken()

    def _taken(self) -> list[str]:
        self.decided = [(str(kind), name, what) for kind, name, what in self.machine.effects.take()]
        for change in self.changes():
            if change.creates and change.submission is not None:
                change.submission.committed = self.commits
        return [describe(change) for change in self.changes()]

    def submit(self, run: str, on_conflict: OnConflict = "reject", **fields: Any) -> Submit:
        """A submission of a run."""
        made = submission(**({"handle": f"of-{run}", "id": run, "created_at": self.now} | fields))
        message = Submit(made, on_conflict, Reply())
        self.replies[run] = message.reply
        return message

    def submits(self, *runs: str, **fields: Any) -> list[str]:
        """A turn in which these runs are submitted."""
        return self.turn(*(self.submit(run, **fields) for run in runs))

    def pending(self, run: str) -> Submission:
        return self.machine.pending[run]

    def ends(self, run: str, *, generation: int | None = 0, body_remains: bool = False) -> list[str]:
        """A turn in which a run has ended."""
        return self.turn(Left(run, generation), RunsEnded([Ended(run, body_remains)]))

    def waits(self, run: str) -> list[str]:
        """A turn in which a run has released its slot to wait."""
        return self.turn(Left(run, 0))

    def asks(self, run: str, attempt: int = 1, **fields: Any) -> list[str]:
        """A turn in which a run that has begun requests a slot."""
        return self.turn(Enter(run, attempt, **fields))

    def cancel(self, run: str) -> Cancel:
        return Cancel(run, "ann", "user", "keep", Reply())

    # What was decided in the last turn.

    def changes(self) -> list[Change]:
        return [what for _, _, what in self.decided if isinstance(what, Change)]

    def told(self, kind: str) -> list[Any]:
        """The messages to actors of a kind, except changes and answers."""
        return [what for to, _, what in self.decided if to == kind and not isinstance(what, Change | Answer)]

    def answers(self) -> list[Answer]:
        return [what for _, _, what in self.decided if isinstance(what, Answer)]

    def answer(self, reply: Reply[Any]) -> Any:
        """The answer of this reply, after everything before is committed."""
        (found,) = [said for said in self.answers() if said.reply is reply]
        return found.value if found.error is None else found.error

    def helpers(self) -> list[Any]:
        return [what for to, _, what in self.decided if to == "helper"]


def describe(change: Change) -> str:
    """A change in a few words."""
    words: list[str] = []
    for event in change.events:
        if isinstance(event, RunStateChanged):
            where = "" if event.to is Status.RUNNING or event.place is not None else " waiting"
            words.append(f"{'start' if event.to is Status.RUNNING else 'create'} {event.run}{where}")
        elif isinstance(event, RunChanged) and event.place is not None:
            words.append(f"place {event.run} {event.place}")
        else:
            words.append(f"{event.type} {getattr(event, 'run', getattr(event, 'lane', ''))}".strip())
    if not words:
        words = [f"remember {type(memo).__name__} {change.run}" for memo in change.memos]
    return ", ".join(words)
