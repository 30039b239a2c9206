"""The supervisor: takes every command, routes it, draws the places, and gives the global slots away.

It knows each pending run by its seat. What it does about a message never waits; where an answer names state
that is being committed, it goes to the journal behind the change.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal, NoReturn

import msgspec
import trio
from msgspec.structs import replace

from ..persistence.store import Requested, Stored
from ..protocol.errors import Conflict, Draining, GreenroomError, Internal, NoActiveRun, QueueFull
from ..protocol.events import EngineChanged, RunChanged, RunStateChanged, RunWaiting
from ..protocol.fold import Projection
from ..protocol.names import MAIN
from ..protocol.records import default_limit
from ..protocol.states import Status
from .actor import Actor, Countdown, Directory, Kind, Reply
from .change import Change
from .handle import Handle
from .journal import Answer, Journal, Look, WatchEnd
from .messages import (
    Accepted,
    AnswerInterrupt,
    Cancel,
    Clear,
    Closing,
    Drop,
    Enter,
    Entering,
    Hold,
    Inject,
    Joined,
    KeepTime,
    LaneReport,
    Left,
    LongWait,
    NotStored,
    Recover,
    Recovered,
    Refused,
    Reject,
    ReleaseHandle,
    Reset,
    ResetLanes,
    Retry,
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
from .outage import unavailable
from .requests import Requests
from .slots import Slots
from .starts import NotStarting, Starting

logger = logging.getLogger("greenroom")

_QUEUED = frozenset({Status.QUEUED})
_CLEARED_AT_ONCE = 500


class Seat(msgspec.Struct):
    """A pending run, and how far it has come as far as the supervisor knows."""

    submission: Submission
    phase: Literal["deciding", "waiting", "queued"] = "deciding"
    cleared: bool = False


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
        self._max_pending = max_pending
        self._directory = directory
        self._journal = journal
        self._spawn = spawn
        self._seats: dict[str, Seat] = {}
        self._requests = Requests()
        self._last_place = 0
        self._draining = False
        self._closing = False
        self._store_is_down = False
        self._recovering = 0  # runs that had begun before a restart, and haven't found their way yet
        self._settling_down = False
        self._children_held: list[Submit] = []  # submitted by bodies while the store is down
        self._waiters: list[tuple[set[str], Reply[bool]]] = []
        self._long_waits: dict[str, RunWaiting] = {}  # lane: the longest of those just reported
        self._said_waiting: dict[str, float] = {}  # lane: when its last `run_waiting` event was

    def submission(self, run: str) -> Submission | None:
        """The submission of a pending run, to wake its actor."""
        seat = self._seats.get(run)
        return seat.submission if seat is not None else None

    def limit(self, lane: str) -> int | None:
        """The limit of a lane."""
        return self.limits.get(lane, default_limit(lane))

    def report(self) -> dict[str, Any]:
        return super().report() | {
            "pending": len(self._seats),
            "executing": list(self.slots.executing),
            "limit": self.slots.limit,
            "draining": self._draining or self._closing,
        }

    async def on_batch(self, messages: Sequence[Any]) -> None:
        for message in messages:
            _HANDLERS[type(message)](self, message)
        self._say_waiting()
        grants = list(self.slots.grants()) if self._may_grant() else []
        if grants:
            self._journal.tell(Starting([grant.run for _, grant in grants]))
        for lane, grant in grants:
            self._tell("lane", lane, grant)

    def restore(
        self,
        stored: Stored,
        submissions: list[Submission],
        rejects: dict[str, str],
        wall_now: float,
    ) -> None:
        """Take up the runs that were pending when the engine ended, in the order of their submission."""
        self._last_place = stored.last_place
        for request in stored.requests:
            self._requests.restore(request, trio.current_time(), wall_now)
        children: dict[str, list[str]] = {}
        admitted: dict[str, Submission] = {}
        waiting: dict[str, list[Submission]] = {}
        for submission in submissions:
            self._seats[submission.id] = Seat(submission)
            if submission.terms.parent is not None:
                children.setdefault(submission.terms.parent, []).append(submission.id)
            if submission.place is not None:
                admitted[submission.handle] = submission
            else:
                queue = waiting.setdefault(submission.handle, [])
                queue.insert(0 if submission.terms.front else len(queue), submission)
        for submission in submissions:
            self._restore_run(submission, children.get(submission.id, []), rejects.get(submission.id))
        for name in dict.fromkeys((*admitted, *waiting)):
            handle = self._directory.lay_down("handle", name)
            assert isinstance(handle, Handle), "that is what its maker makes"
            handle.restore(admitted.get(name), waiting.get(name, []))

    def _restore_run(self, submission: Submission, children: list[str], reject: str | None) -> None:
        seat = self._seats[submission.id]
        if submission.begun:
            self._recovering += 1
            seat.phase = "queued"
            self._tell("run", submission.id, Recover(children))
            return
        if reject is not None:
            self._tell("run", submission.id, Reject(reject))
        elif submission.terms.queue_timeout is not None or submission.terms.deadline is not None:
            self._tell("run", submission.id, KeepTime())
        if submission.place is None:
            seat.phase = "waiting"
        else:
            seat.phase = "queued"
            if reject is None:
                self._enter_lane(submission)

    def _may_grant(self) -> bool:
        """Not while the store is down; nor, after a restart, before every run that had begun stands in its
        lane again, if it is to: its place may be lower than those of the others."""
        if self._store_is_down or self._recovering:
            return False
        if self._settling_down:
            self._settling_down = self.slots.any_unsettled()
        return not self._settling_down

    def _recovered(self, message: Recovered) -> None:
        self._recovering -= 1
        if not self._recovering:
            self._settling_down = True
            self._hold_lanes()

    # Submissions.

    def _submit(self, message: Submit) -> None:
        submission = message.submission
        request_id = submission.terms.request_id
        if request_id is not None and self._is_repeat(request_id, message):
            return
        if self._store_is_down and submission.terms.ancestors:
            self._children_held.append(message)  # its parent is a body, which goes on when the store is back
            return
        if self._store_is_down:
            message.reply.fail(unavailable())  # the journal is busy with waiting, and this names no state
            return
        refusal = self._refusal(submission)
        if refusal is not None:
            self._journal.tell(Answer(message.reply, error=refusal))
            return
        if request_id is not None:
            self._requests.begin(request_id, submission.id, submission.terms.fingerprint)
        self._seats[submission.id] = Seat(submission)
        self._directory.tell("handle", submission.handle, message)

    def _is_repeat(self, request_id: str, message: Submit) -> bool:
        request = self._requests.find(request_id, trio.current_time())
        if request is None:
            return False
        if request.fingerprint != message.submission.terms.fingerprint:
            refuse = partial(_refuse_other_use, request_id, request.run)
            self._journal.tell(Look(refuse, message.reply))
        elif request.accepted:
            self._join(message, request.run)
        else:
            request.repeats.append(message)
        return True

    def _refusal(self, submission: Submission) -> GreenroomError | None:
        # The child of a run that is executing already is let in: without it, that run could not finish.
        if (self._closing or self._draining) and not submission.terms.ancestors:
            return Draining("the engine is draining and takes no new runs: try again when it has resumed")
        if submission.id in self._seats:
            return Internal(f"the ids that this engine was given repeat themselves: {submission.id}")
        if len(self._seats) >= self._max_pending:
            return QueueFull(
                f"{len(self._seats)} runs are pending, which is all that max_pending allows: try again later",
                max_pending=self._max_pending,
            )
        return None

    def _entering(self, message: Entering) -> None:
        submission = message.submission
        if submission.over:
            return  # it was cancelled as its turn came, and its handle is being told
        seat = self._seats[submission.id]
        if seat.cleared:
            return  # it is being cancelled, and tells its handle itself
        submission.place = self._draw_place()
        if message.reply is None:
            placed = RunChanged(
                seq=0,
                at=0,
                by="engine",
                run=submission.id,
                handle=submission.handle,
                lane=submission.lane,
                place=submission.place,
            )
            self._journal.tell(Change((placed,), run=submission.id, expect=_QUEUED))
        else:
            self._create(submission, False, message.reply)
        seat.phase = "queued"
        self._enter_lane(submission)

    def _waiting(self, message: Waiting) -> None:
        self._create(message.submission, message.front, message.reply)
        self._seats[message.submission.id].phase = "waiting"

    def _create(self, submission: Submission, front: bool, reply: Reply[Accepted]) -> None:
        created = RunStateChanged(
            seq=0,
            at=0,
            by=submission.by,
            run=submission.id,
            handle=submission.handle,
            lane=submission.lane,
            from_=None,
            to=Status.QUEUED,
            attempt=0,
            reason=None,
            place=submission.place,
            job=submission.job.name,
            kind=submission.kind,
            params=submission.params,
            front=front,
        )
        accepted = Accepted(submission.id, False)
        self._journal.tell(
            Change(
                (created,),
                run=submission.id,
                terms=replace(submission.terms, front=True) if front else submission.terms,
                watch=submission.ended,
                submission=submission,
                creates=True,
                reply=reply,
                answer=accepted,
            )
        )
        if submission.terms.queue_timeout is not None or submission.terms.deadline is not None:
            self._tell("run", submission.id, KeepTime())
        request_id = submission.terms.request_id
        if request_id is not None:
            self._accept_request(request_id, submission.id)

    def _accept_request(self, request_id: str, run: str) -> None:
        for repeat in self._requests.accept(request_id, run):
            self._join(repeat, run)

    def _join(self, message: Submit, run: str) -> None:
        self._journal.tell(WatchEnd(run, message.submission.ended))
        self._journal.tell(Answer(message.reply, Accepted(run, True)))

    def _joined(self, message: Joined) -> None:
        submission = message.submission
        del self._seats[submission.id]
        self._join(Submit(submission, "join", message.reply), message.run)
        request_id = submission.terms.request_id
        if request_id is not None:
            memo = Requested(request_id, message.run, submission.terms.fingerprint)
            self._journal.tell(Change((), run=message.run, memos=(memo,)))
            self._accept_request(request_id, message.run)
            if message.run not in self._seats:  # it has ended just now
                self._requests.ended(message.run, trio.current_time())

    def _refused(self, message: Refused) -> None:
        submission = message.submission
        del self._seats[submission.id]
        self._journal.tell(Answer(message.reply, error=message.error))
        request_id = submission.terms.request_id
        if request_id is not None:
            for repeat in self._requests.refuse(request_id):
                self._submit(repeat)

    def _retry(self, message: Retry) -> None:
        seat = self._seats.get(message.run)
        if seat is None or seat.submission.over:
            return
        submission = seat.submission
        submission.place = self._draw_place()
        placed = RunChanged(
            seq=0,
            at=0,
            by="engine",
            run=submission.id,
            handle=submission.handle,
            lane=submission.lane,
            place=submission.place,
        )
        self._journal.tell(Change((placed,), run=submission.id, expect=frozenset({Status.SUSPENDED})))
        self._enter_lane(submission)

    def _draw_place(self) -> int:
        self._last_place += 1
        return self._last_place

    def _enter_lane(self, submission: Submission) -> None:
        assert submission.place is not None, "a run enters its lane with a place"
        self.slots.entering(submission.lane, submission.place)
        self._directory.tell("lane", submission.lane, Enter(submission, submission.place, True))

    # What lanes and the journal tell.

    def _lane_report(self, message: LaneReport) -> None:
        self.slots.report(message)
        for grant in message.returned:
            self._journal.tell(NotStarting(grant.run))
            self._gave_back(grant.run)

    def _left(self, message: Left) -> None:
        self.slots.left(message.run, message.lane, message.generation)
        self._gave_back(message.run)
        if message.unused:
            self._journal.tell(NotStarting(message.run))
        if message.ended:
            self._seats.pop(message.run, None)
            self._requests.ended(message.run, trio.current_time())

    def _not_stored(self, message: NotStored) -> None:
        seat = self._seats.pop(message.run)
        self.slots.left(message.run, message.lane, None)
        request_id = seat.submission.terms.request_id
        if request_id is not None:
            self._requests.forget(request_id, message.run)

    def _store_down(self, message: StoreIsDown) -> None:
        self._store_is_down = message.down
        if not message.down:
            held, self._children_held = self._children_held, []
            for child in held:
                self._submit(child)

    def _gave_back(self, run: str) -> None:
        if self._waiters:
            for runs, reply in self._waiters:
                runs.discard(run)
                if not runs:
                    self._journal.tell(Answer(reply, True))
            self._waiters = [waiter for waiter in self._waiters if waiter[0] and not waiter[1].done]

    def _long_wait(self, message: LongWait) -> None:
        submission, waited, ahead = message.submission, message.waited, message.ahead
        blockers = list(self.slots.executing) if message.blockers is None else message.blockers
        logger.warning(
            "run %s of handle %r has waited %.1f s in lane %r, %d ahead of it, blocked by %s",
            submission.id,
            submission.handle,
            waited,
            submission.lane,
            ahead,
            ", ".join(blockers) or ("a limit of 0" if not self._draining else "draining"),
        )
        if submission.on_wait is not None:
            self._call_on_wait(submission, waited, ahead, blockers)
        longest = self._long_waits.get(submission.lane)
        if longest is None or longest.waited < waited:
            self._long_waits[submission.lane] = RunWaiting(
                seq=0,
                at=0,
                by="engine",
                run=submission.id,
                handle=submission.handle,
                lane=submission.lane,
                waited=waited,
                ahead=ahead,
                blockers=blockers,
            )

    def _say_waiting(self) -> None:
        """At most one event per lane and second, for the longest wait of those that have become too long."""
        if not self._long_waits:
            return
        now = trio.current_time()
        self._said_waiting = {lane: at for lane, at in self._said_waiting.items() if now - at < 1.0}
        for lane, event in self._long_waits.items():
            if lane not in self._said_waiting:
                self._said_waiting[lane] = now
                self._journal.tell(Change((event,), run=event.run, expect=_QUEUED))
        self._long_waits.clear()

    def _call_on_wait(self, submission: Submission, waited: float, ahead: int, blockers: list[str]) -> None:
        on_wait = submission.on_wait
        assert on_wait is not None

        async def call() -> None:
            try:
                result = on_wait(waited, ahead, blockers)
                if inspect.isawaitable(result):
                    await result
            except Exception:  # the caller's mistake must harm neither the run nor the engine
                logger.exception("on_wait of run %s failed", submission.id)

        self._spawn(call)

    # Commands.

    def _route_to_run(self, message: Cancel | AnswerInterrupt) -> None:
        if message.run not in self._seats or not self._directory.tell("run", message.run, message):
            message.reply.set(None)

    def _inject(self, message: Inject) -> None:
        if message.target in self._seats and self._directory.tell("run", message.target, message):
            return
        if message.target in self._directory.awake("handle"):
            self._tell("handle", message.target, message)
        else:
            message.reply.fail(
                NoActiveRun(f"{message.target!r} is no pending run, nor a handle that has one")
            )

    def _route_to_handle(self, message: SetParams | ReleaseHandle) -> None:
        self._tell("handle", message.handle, message)

    def _pass_on(self, message: Answer) -> None:
        self._journal.tell(message)

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

    @property
    def holding(self) -> bool:
        """Whether only what is privileged may start."""
        return self._draining or self._closing

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

    def _clear(self, message: Clear) -> None:
        by_lane = message.reason == "lane_cleared"
        phases = ("waiting", "queued") if by_lane else ("waiting",)
        runs: list[str] = []
        for id, seat in self._seats.items():
            submission = seat.submission
            name = submission.lane if by_lane else submission.handle
            if name == message.name and seat.phase in phases and not (seat.cleared or submission.begun):
                seat.cleared = True
                runs.append(id)
        if by_lane and runs:
            self.slots.settling(message.name)
            self._tell("lane", message.name, Drop(runs))
        self._spawn(lambda: self._cancel_all(runs, message))

    async def _cancel_all(self, runs: list[str], message: Clear) -> None:
        """Cancel them in portions, so that a long queue doesn't wake all of its runs at once."""
        count = 0
        for start in range(0, len(runs), _CLEARED_AT_ONCE):
            replies: list[Reply[Any]] = []
            for run in runs[start : start + _CLEARED_AT_ONCE]:
                reply: Reply[Any] = Reply()
                replies.append(reply)
                self.tell(Cancel(run, message.by, message.reason, "keep", reply))
            for reply in replies:
                try:
                    count += await reply.get() is not None
                except GreenroomError:
                    continue  # it had ended in another way by then
        message.reply.set(count)

    def _close(self, message: Closing) -> None:
        self._closing = True
        self._hold_lanes()

    def _tell(self, kind: Kind, name: str, message: object) -> None:
        self._directory.tell(kind, name, message)


def _refuse_other_use(request_id: str, id: str, committed: Projection) -> NoReturn:
    run = committed.runs.get(id)
    details = {} if run is None else {"run": run}
    raise Conflict(f"request_id {request_id!r} was used for another submission: use a new one", **details)


_HANDLERS: dict[type, Callable[[Any, Any], None]] = {
    Submit: Supervisor._submit,
    Entering: Supervisor._entering,
    Waiting: Supervisor._waiting,
    Joined: Supervisor._joined,
    Refused: Supervisor._refused,
    Retry: Supervisor._retry,
    Recovered: Supervisor._recovered,
    LaneReport: Supervisor._lane_report,
    Left: Supervisor._left,
    NotStored: Supervisor._not_stored,
    StoreIsDown: Supervisor._store_down,
    LongWait: Supervisor._long_wait,
    Cancel: Supervisor._route_to_run,
    AnswerInterrupt: Supervisor._route_to_run,
    Inject: Supervisor._inject,
    SetParams: Supervisor._route_to_handle,
    ReleaseHandle: Supervisor._route_to_handle,
    Answer: Supervisor._pass_on,
    SetConcurrency: Supervisor._set_concurrency,
    SetMaxConcurrent: Supervisor._set_max_concurrent,
    SetDraining: Supervisor._set_draining,
    ResetLanes: Supervisor._reset_lanes,
    WaitForActive: Supervisor._wait_for_active,
    Clear: Supervisor._clear,
    Closing: Supervisor._close,
}
