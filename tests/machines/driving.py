"""A driver for the machine of one run.

Its changes are decided in the same way as by the journal, one after the other. Its helper tasks are executed
when the test requests it. Its bodies never execute, but end as the test requires.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import trio
from msgspec.structs import replace

from greenroom.actors.channel import Reply
from greenroom.actors.engine.recovery import projection_of
from greenroom.actors.journal.batch import DecidedBatch
from greenroom.actors.journal.change import Change, Committed
from greenroom.actors.journal.messages import Look
from greenroom.actors.messages import Cancel, Recover, Started, Stop, Submission
from greenroom.actors.run.body_messages import BodyEnded, Raised, Returned, Stopped
from greenroom.actors.run.context import Body
from greenroom.actors.run.execution import LiveBodies, LocalExecution
from greenroom.actors.run.local_host import LocalHost, local_host
from greenroom.actors.run.machine import DeadlineReached, RunMachine
from greenroom.actors.run.pause import Pause
from greenroom.actors.run.services import Services
from greenroom.persistence.store import Checkpoint, Memo, Stored, StoredRun
from greenroom.protocol.events import Event, RunStateChanged
from greenroom.protocol.fold import Projection
from greenroom.protocol.records import RunRecord
from greenroom.protocol.states import Status, allowed_from

from .making import job, submission

WALL = 1_000_000.0
"""Unix seconds at trio's time 0."""


UNANSWERED = "nobody has answered"


def answer(reply: Reply[Any]) -> Any:
    """What a reply was answered with, or the error that it was answered with."""
    assert reply.done, "nobody has answered"
    try:
        return trio.run(reply.get)
    except Exception as error:
        return error


class Entry:
    """What a body's host reads of the entry point."""

    max_value_bytes = 1 << 20


class Files:
    """The files of the run: `parts` are unfinished. Calls are recorded."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.calls: list[tuple[str, Any]] = []
        self.error: OSError | None = None

    async def unfinished(self, handle: str, run: str) -> list[str]:
        if self.error is not None:
            raise self.error
        return self.parts

    async def remove_parts(self, handle: str, run: str) -> None:
        self.calls.append(("remove_parts", handle))

    async def delete(self, handle: str, paths: list[str]) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append(("delete", list(paths)))


class Driver:
    """See the module's text."""

    def __init__(self, made: Submission | None = None, *, stored: Stored | None = None) -> None:
        self.submission = made = made if made is not None else submission(place=1)
        self.id = made.id
        self.now = made.created_at
        self.events: list[Event] = []
        self.memos: list[Memo] = []
        self.told: list[tuple[str, Any]] = []  # receiver and message
        self.bodies: list[LocalExecution] = []
        self.changes: list[Change] = []  # that are not committed yet
        self.helpers: list[Callable[[], Awaitable[object]]] = []  # that are not done yet
        self.saved: Checkpoint | None = None
        self.files = Files()
        self.live_bodies = LiveBodies()
        self.projection = Projection("e", max_concurrent=9) if stored is None else projection_of(stored)
        services = Services(
            cast(Any, Entry()),
            cast(Any, self),
            cast(Any, self.files),
            lambda: WALL + self.now,
            cast(Any, self),
            cast(Any, None),
            cast(Any, None),
            lambda: 1.0,
        )
        if stored is None:
            self._create()
        self.machine = RunMachine(made, services, self.live_bodies, lambda error: None, self.now)

    def _create(self) -> None:
        made = self.submission
        created = RunStateChanged(
            **(
                made.about() | {"by": "app", "from_": None, "to": Status.QUEUED, "attempt": 0, "reason": None}
            ),
            place=made.place,
            job=made.job.name,
            params=made.params,
        )
        self._decide(Change((created,), run=self.id))

    # What the test inspects.

    @property
    def record(self) -> RunRecord:
        return self.projection.runs[self.id]

    @property
    def status(self) -> Status:
        return self.record.status

    @property
    def execution(self) -> LocalExecution:
        """The execution of the newest body."""
        return self.bodies[-1]

    @property
    def body(self) -> Body:
        return self.execution.body

    @property
    def host(self) -> LocalHost:
        """The host of the newest body."""
        return local_host(self.body.host)

    def scope_is_cancelled(self) -> bool:
        """Whether the body's scope is cancelled."""

        async def look() -> bool:
            return self.execution.scope.cancel_called

        return trio.run(look)

    def supervisor(self) -> list[Any]:
        """The messages to the supervisor since the last call."""
        return self.taken("supervisor")

    def taken(self, kind: str) -> list[Any]:
        messages = [message for to, message in self.told if to == kind]
        self.told = [(to, message) for to, message in self.told if to != kind]
        return messages

    def changed(self) -> list[Event]:
        """The events that were committed since the last call."""
        events, self.events = self.events, []
        return events

    def remembered(self) -> list[Memo]:
        """The memos that were committed since the last call."""
        memos, self.memos = self.memos, []
        return memos

    # What the test does.

    def hold(self, message: Any) -> None:
        """Send the machine a message without carrying out the effects."""
        self.machine.receive(message, self.now)
        for kind, _, what in self.machine.state.effects.take():
            if kind == "helper":
                self.helpers.append(what)
            elif kind == "body":
                self.bodies.append(what)
                self.live_bodies.add(what)
            elif isinstance(what, Change):
                self.changes.append(what)
            elif isinstance(what, Look):
                assert kind == "journal", kind
                self._look(what)
            else:
                self.told.append((kind, what))

    def give(self, message: Any) -> Any:
        """Send the machine a message and carry out everything that follows; returns the answer, or
        `UNANSWERED`."""
        self.hold(message)
        self.settle()
        reply = getattr(message, "reply", None)
        return UNANSWERED if reply is None or not reply.done else answer(reply)

    def settle(self) -> None:
        """Commit all changes and execute all helper tasks."""
        while self.changes or self.helpers:
            if self.changes:
                self.commit()
            else:
                self.help()

    def commit(self) -> None:
        """Decide and commit the first change."""
        change = self.changes.pop(0)
        outcome = self._decide(change)
        if outcome.held and change.submission is not None:
            change.submission.over = True
        for kind, name, message in change.notify if outcome.held else change.notify_on_refusal:
            self.tell(cast(Any, kind), name, message)
        if outcome.held and change.ended is not None:
            self.tell("supervisor", "", change.ended)
        if change.notify_run:
            self.hold(Committed(outcome))
        elif change.reply is not None:
            change.reply.set(outcome if change.answer is None or not outcome.held else change.answer)

    def help(self) -> None:
        """Execute the first helper task."""
        call = self.helpers.pop(0)
        told = self.told
        self.told = []
        trio.run(call)
        said, self.told = self.told, told
        for kind, message in said:
            if kind == "run":
                self.hold(message)
            else:
                self.told.append((kind, message))

    def at(self, time: float) -> None:
        """Set the time; the run's actor wakes if its deadline has passed."""
        while self.machine.deadline() <= time:
            self.now = max(self.now, self.machine.deadline())
            self.give(DeadlineReached())
        self.now = time

    def start(self, *, resumes: bool = False) -> None:
        """The run gets a slot."""
        self.give(self.decide_start(resumes=resumes))

    def decide_start(self, *, resumes: bool = False, attempt: int | None = None) -> Started:
        """Commit the run's start; the run has not received it yet."""
        status, next_attempt = self.status, self.machine.state.next_attempt if attempt is None else attempt
        about = self.submission.about() | {"by": "engine", "from_": status, "to": Status.RUNNING}
        event = RunStateChanged(
            **about,
            attempt=next_attempt,
            reason=None,
            place=self.submission.place,
            interactive=None if resumes else True,
        )
        outcome = self._decide(Change((event,), run=self.id, expect=allowed_from(Status.RUNNING)))
        assert outcome.held, "the run can be started"
        self.submission.begun = True
        return Started(next_attempt, self.projection.generation(self.submission.lane), resumes, event)

    def returns(self, value: Any = None) -> None:
        self.give(BodyEnded(Returned(value, self.body.saw_cancel_request)))

    def raises(self, error: BaseException | None = None) -> None:
        self.give(BodyEnded(Raised(error if error is not None else ValueError("no"))))

    def stopped(self) -> None:
        """The body has ended because its scope was cancelled."""
        self.give(BodyEnded(Stopped()))

    def pauses(self, pause: Pause) -> None:
        self.give(BodyEnded(pause))

    def cancel(self, reason: str = "user", files: Any = "keep", by: str = "ann") -> Any:
        return self.give(Cancel(self.id, by, reason, files, Reply()))

    def stop(self, *, now: bool) -> None:
        self.give(Stop(now))

    # Replacements for the journal and the actors, for helper tasks.

    def tell(self, kind: Any, name: Any = "", message: Any = None) -> bool:
        if message is None:
            self.told.append(("journal", kind))
        else:
            self.told.append((kind, message))
        return True

    async def checkpoint(self, handle: str, job: str) -> Checkpoint | None:
        assert (handle, job) == (self.submission.handle, self.submission.job.name)
        return self.saved

    async def ask(self, change: Change) -> Any:
        return self._decide(change)

    def _decide(self, change: Change) -> Any:
        draft = DecidedBatch(self.projection, WALL + self.now, [change])
        for event, record in zip(draft.events, draft.records, strict=True):
            self.projection.apply(event, record)
        self.events += draft.events
        self.memos += draft.memos
        ((_, outcome),) = draft.decided
        return outcome

    def _look(self, look: Look) -> None:
        try:
            look.reply.set(look.read(self.projection))
        except Exception as error:
            look.reply.fail(error)


def queued(job_name: str = "walk", **fields: Any) -> Driver:
    """A run that is queued in its lane."""
    driver = Driver(submission(**({"job": job(job_name), "place": 1} | fields)))
    driver.changed()
    return driver


def executing(job_name: str = "walk", **fields: Any) -> Driver:
    """A run whose body executes."""
    driver = queued(job_name, **fields)
    driver.start()
    driver.changed()
    driver.supervisor()
    return driver


def after_restart(record: RunRecord, job_name: str = "walk", *, now: float = 0.0, **fields: Any) -> Driver:
    """A run that was restored after a restart; `fields` are those of a `StoredRun`."""
    made = submission(record.handle, record.id, job=job(job_name), place=record.place, created_at=now)
    run = StoredRun(record=record, terms=made.terms, **fields)
    made = submission(
        record.handle,
        record.id,
        job=job(job_name),
        place=record.place,
        created_at=now,
        stored=run,
        begun=record.status is not Status.QUEUED,
    )
    return Driver(made, stored=stored(run))


def stored(run: StoredRun) -> Stored:
    """A store that holds one run."""
    return Stored(
        epoch="e",
        last_seq=0,
        last_place=9,
        max_concurrent=9,
        draining=False,
        lanes={},
        drafts={},
        held={},
        pending=[run],
        ended=[],
        requests=[],
    )


def record_of(status: Status, job_name: str = "walk", **fields: Any) -> RunRecord:
    """The record of a run that has begun its first attempt."""
    made = RunRecord(
        id="r",
        handle="alice",
        lane="main",
        job=job_name,
        kind="start",
        params={},
        status=status,
        attempt=0 if status is Status.QUEUED else 1,
        place=1,
        created_at=WALL,
        updated_at=WALL,
    )
    return replace(made, **fields)


def recovered(record: RunRecord, job_name: str = "walk", **fields: Any) -> Driver:
    """A run that had begun, after its recovery."""
    message = Recover(fields.pop("children", []), fields.pop("new_deaths", 0))
    driver = after_restart(record, job_name, **fields)
    driver.give(message)
    return driver
