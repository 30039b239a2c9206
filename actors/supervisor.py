"""The supervisor: takes every command, routes it, and gives the global slots away.

What it does about a message never waits; where an answer names state that is being committed, it goes to the
journal behind the change. Submissions are the matter of its `Intake`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from ..persistence.store import Stored
from ..protocol.errors import NoActiveRun
from ..protocol.events import EngineChanged
from ..protocol.names import MAIN
from ..protocol.records import default_limit
from ..protocol.states import PENDING
from .actor import Actor, Directory, Kind
from .change import Change
from .channel import Countdown, Reply
from .clearing import cancel_all, concerned
from .intake import Intake
from .journal import Answer, Journal
from .longwaits import LongWaits
from .messages import (
    AnswerInterrupt,
    Cancel,
    Clear,
    Closing,
    Drop,
    Entering,
    EntersAgain,
    FindRequest,
    Hold,
    Inject,
    Joined,
    LaneReport,
    Left,
    LongWait,
    NotStored,
    NotWaiting,
    Phase,
    Recovered,
    Refused,
    ReleaseHandle,
    Reset,
    ResetLanes,
    Retry,
    SendSignal,
    SetConcurrency,
    SetDraining,
    SetLimit,
    SetMaxConcurrent,
    SetParams,
    StoreIsDown,
    Submission,
    Submit,
    WaitForActive,
    Waiting,
)
from .slots import Granting, SetAside, Slots
from .starts import NotStarting, Starting
from .suspects import suspects_after_restart


class Supervisor(Actor):
    """See the module's text."""

    def __init__(
        self,
        *,
        max_pending: int,
        directory: Directory,
        journal: Journal,
        spawn: Callable[[Callable[[], Awaitable[object]]], None],
    ) -> None:
        super().__init__("supervisor", "")
        self.slots = Slots()
        self.limits: dict[str, int | None] = {}  # of the lanes for which someone set one
        self._directory = directory
        self._journal = journal
        self._spawn = spawn
        self._intake = Intake(
            max_pending=max_pending,
            directory=directory,
            journal=journal,
            slots=self.slots,
            holding=lambda: self.holding,
        )
        self._long_waits = LongWaits(journal, spawn)
        self._draining = False
        self._closing = False
        self._recovering = 0  # runs that had begun before a restart, and haven't found their way yet
        self._settling_down = False
        self._waiters: list[tuple[set[str], Reply[bool]]] = []
        intake = self._intake
        self._handlers: dict[type, Callable[[Any], None]] = {
            Submit: intake.submit,
            FindRequest: intake.find_request,
            Entering: intake.entering,
            Waiting: intake.waiting,
            Joined: intake.joined,
            Refused: intake.refused,
            Retry: intake.retry,
            NotStored: intake.not_stored,
            StoreIsDown: self._store_is_down,
            Recovered: self._recovered,
            LaneReport: self._lane_report,
            Left: self._left,
            EntersAgain: self._enters_again,
            LongWait: self._long_wait,
            Cancel: self._cancel,
            AnswerInterrupt: self._route_to_run,
            SendSignal: self._route_to_run,
            Inject: self._inject,
            SetParams: self._route_to_handle,
            ReleaseHandle: self._route_to_handle,
            Answer: journal.tell,
            SetConcurrency: self._set_concurrency,
            SetMaxConcurrent: self._set_max_concurrent,
            SetDraining: self._set_draining,
            ResetLanes: self._reset_lanes,
            WaitForActive: self._wait_for_active,
            NotWaiting: self._not_waiting,
            Clear: self._clear,
            Closing: self._close,
        }

    def submission(self, run: str) -> Submission | None:
        """The submission of a pending run, to wake its actor."""
        return self._intake.pending.get(run)

    def limit(self, lane: str) -> int | None:
        """The limit of a lane."""
        return self.limits.get(lane, default_limit(lane))

    @property
    def holding(self) -> bool:
        """Whether only what is privileged may start."""
        return self._draining or self._closing

    def report(self) -> dict[str, Any]:
        return super().report() | {
            "pending": len(self._intake.pending),
            "executing": list(self.slots.executing),
            "limit": self.slots.limit,
            "draining": self.holding,
            "suspects": len(self.slots.suspects),
            "waiters": len(self._waiters),
        }

    async def on_batch(self, messages: Sequence[Any]) -> None:
        for message in messages:
            self._handlers[type(message)](message)
        now = trio.current_time()
        self._long_waits.say(now)
        self._give_slots(now)
        self._set_deadline()

    async def on_deadline(self) -> None:
        now = trio.current_time()
        for deaths in self.slots.suspects.take_tried(now):
            self._journal.tell(Change((), run=deaths.run, expect=PENDING, memos=(deaths,)))
        self._long_waits.say(now)
        self._give_slots(now)
        self._set_deadline()

    def _set_deadline(self) -> None:
        self.deadline = min(self.slots.suspects.deadline(), self._long_waits.deadline())

    def _give_slots(self, now: float) -> None:
        if not self._may_grant():
            return
        slots = self.slots
        for run in slots.suspects.take_back():
            self._intake.enter_again(run)
        given = list(slots.grants(now))
        grants = [granting for granting in given if isinstance(granting, Granting)]
        if grants:
            self._journal.tell(Starting([grant.run for _, grant in grants]))
        for lane, grant in grants:
            self._tell("lane", lane, grant)
        for passed in given:
            if isinstance(passed, SetAside):
                self._tell("lane", passed.lane, Drop([passed.run]))

    def restore(
        self, stored: Stored, submissions: list[Submission], rejects: dict[str, str], wall_now: float
    ) -> None:
        """Take up the runs that were pending when the engine ended, in the order of their submission."""
        self.slots.suspects.begin(suspects_after_restart(stored.pending))
        self._recovering = self._intake.restore(stored, submissions, rejects, wall_now)

    def _may_grant(self) -> bool:
        """Not while the store is down; nor, after a restart, before every run that had begun stands in its
        lane again, if it is to: its place may be lower than those of the others."""
        if self._intake.store_is_down or self._recovering:
            return False
        if self._settling_down:
            self._settling_down = self.slots.any_unsettled()
        return not self._settling_down

    def _recovered(self, message: Recovered) -> None:
        self._recovering -= 1
        if not self._recovering:
            self._settling_down = True
            self._hold_lanes()

    # What lanes and the journal tell.

    def _lane_report(self, message: LaneReport) -> None:
        self.slots.report(message, trio.current_time())
        for grant in message.returned:
            self._journal.tell(NotStarting(grant.run))
            self._gave_back(grant.run)

    def _left(self, message: Left) -> None:
        self.slots.left(message.run, message.lane, message.generation, trio.current_time())
        self._gave_back(message.run)
        if message.unused:
            self._journal.tell(NotStarting(message.run))
        if message.ended:
            self.slots.suspects.forget(message.run)
            self._intake.ended(message.run)

    def _enters_again(self, message: EntersAgain) -> None:
        self.slots.entering(message.lane, message.place)

    def _store_is_down(self, message: StoreIsDown) -> None:
        self._intake.store_is(down=message.down)

    def _gave_back(self, run: str) -> None:
        if self._waiters:
            for runs, reply in self._waiters:
                runs.discard(run)
                if not runs:
                    self._journal.tell(Answer(reply, True))
            self._waiters = [waiter for waiter in self._waiters if waiter[0] and not waiter[1].done]

    def _long_wait(self, message: LongWait) -> None:
        blockers = list(self.slots.executing) if message.blockers is None else message.blockers
        self._long_waits.add(message, blockers, draining=self._draining)

    # Commands.

    def _cancel(self, message: Cancel) -> None:
        submission = self.submission(message.run)
        if submission is not None and submission.phase is Phase.WAITING:
            submission.cleared = True  # its turn may come at any moment, and would be too late
        self._route_to_run(message)

    def _route_to_run(self, message: Cancel | AnswerInterrupt | SendSignal) -> None:
        if message.run not in self._intake.pending or not self._directory.tell("run", message.run, message):
            message.reply.set(None)

    def _inject(self, message: Inject) -> None:
        if message.target in self._intake.pending and self._directory.tell("run", message.target, message):
            return
        if message.target in self._directory.awake("handle"):
            self._tell("handle", message.target, message)
        else:
            message.reply.fail(
                NoActiveRun(f"{message.target!r} is no pending run, nor a handle that has one")
            )

    def _route_to_handle(self, message: SetParams | ReleaseHandle) -> None:
        self._tell("handle", message.handle, message)

    def _set_concurrency(self, message: SetConcurrency) -> None:
        self.limits[message.lane] = message.limit
        self.slots.settling(message.lane)
        self._tell("lane", message.lane, SetLimit(message.limit, message.by, message.reply))

    def _set_max_concurrent(self, message: SetMaxConcurrent) -> None:
        self.slots.limit = message.limit
        self._engine_changed(message.by, message.reply)

    def _set_draining(self, message: SetDraining) -> None:
        self._draining = message.draining
        self._hold_lanes()
        self._engine_changed(message.by, message.reply)

    def _hold_lanes(self) -> None:
        for lane in list(self._directory.awake("lane")):
            self.slots.settling(lane)
            self._tell("lane", lane, Hold(self.holding))

    def _engine_changed(self, by: str, reply: Reply[object] | None) -> None:
        changed = EngineChanged(seq=0, at=0, by=by, max_concurrent=self.slots.limit, draining=self._draining)
        self._journal.tell(Change((changed,), reply=reply))

    def _reset_lanes(self, message: ResetLanes) -> None:
        lanes = sorted({MAIN, *self._directory.awake("lane")})
        self.slots.reset(lanes)
        if self._draining:
            self._draining = False
            self._hold_lanes()
            self._engine_changed(message.by, None)
        replies: list[Reply[Any]] = [message.reply, *(reply for _, reply in self._waiters)]
        self._waiters.clear()
        done = Countdown(replies, len(lanes))
        for lane in lanes:
            self._tell("lane", lane, Reset(self.slots.generations[lane], message.by, done))

    def _wait_for_active(self, message: WaitForActive) -> None:
        if self.slots.executing:
            self._waiters.append((set(self.slots.executing), message.reply))
        else:
            self._journal.tell(Answer(message.reply, True))

    def _not_waiting(self, message: NotWaiting) -> None:
        self._waiters = [waiter for waiter in self._waiters if waiter[1] is not message.reply]

    def _clear(self, message: Clear) -> None:
        runs = concerned(message, self._intake.pending.values())
        if message.reason == "lane_cleared" and runs:
            self.slots.settling(message.name)
            self._tell("lane", message.name, Drop(runs))
        self._spawn(lambda: cancel_all(runs, message, self.tell))

    def _close(self, message: Closing) -> None:
        self._closing = True
        self._hold_lanes()

    def _tell(self, kind: Kind, name: str, message: object) -> None:
        self._directory.tell(kind, name, message)
