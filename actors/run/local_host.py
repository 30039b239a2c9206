"""`LocalHost`: the engine's side of a body. It passes what the body reports and requests to the actors.

A body in the engine's process calls it directly. For a body in another process, the link calls it
(`actors/executors`), so both kinds of bodies get the same answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from ...persistence.flows import FlowState
from ...persistence.store import FileFinished, FileGivenUp, Memo
from ...protocol import executors as wire
from ...protocol.errors import RunAbandoned
from ...protocol.events import Event, RunLog
from ...protocol.jobs import AnyJob
from ...protocol.records import RunRecord
from ...protocol.submission import SubmitOptions
from ..channel import Reply
from ..engine.entry_point import Caller
from ..journal.change import REPORTING, Change, Outcome, ProgressReport
from ..journal.messages import Mention, WatchEnd
from ..messages import Accepted, Submission
from . import body_messages as to_run
from .body_messages import BodyEnded
from .children import Children
from .host import Shielded
from .interrupts import Kept
from .services import Services


class LocalHost:
    """Implements `Host`; see the module's docstring. The run's machine reads `children`, `files` and
    `end_is_written` when the body has ended."""

    __slots__ = (
        "_blockage",
        "_kept",
        "_progress",
        "_services",
        "_submission",
        "attempt",
        "children",
        "end_is_written",
        "files",
        "folder",
        "max_value_bytes",
        "woken_at",
    )

    def __init__(
        self,
        submission: Submission,
        attempt: int,
        services: Services,
        kept: Callable[[], Mapping[str, Kept]],
    ) -> None:
        self.attempt = attempt
        self.max_value_bytes = services.entry.max_value_bytes
        self.children: dict[str, None] = {}  # its own child runs that the body waits for
        self.files: Sequence[str] = ()  # the files that the body has finished
        self.folder = ""  # the id of the data folder that contains them; empty for the engine's own
        self.end_is_written = False
        """Whether the walk of a flow has recorded the node that the cancel interrupts."""
        self.woken_at: float | None = None
        """The wake time, in Unix seconds, that ended the wait without a body."""
        self._submission = submission
        self._services = services
        self._kept = kept
        self._progress: ProgressReport | None = None  # created on first use
        self._blockage: Reply[Outcome] | None = None  # of the last report, when it is committed

    # The interface of all bodies.

    def name_of(self, job: str | AnyJob) -> str:
        return self._services.entry.name_of(job)

    def tell(self, report: wire.Report) -> None:
        _REPORTS[type(report)](self, report)

    def ask(self, request: wire.Request) -> Reply[Any]:
        reply: Reply[Any] = Reply()
        self.handle(request, reply)
        return reply

    def handle(self, request: wire.Request, reply: Reply[Any]) -> None:
        """Handle a request that has one answer."""
        _REQUESTS[type(request)](self, request, reply)

    def open_interrupt(self, request: wire.OpenInterrupt) -> tuple[Reply[bool], Reply[Any]]:
        opened: Reply[bool] = Reply()
        answer: Reply[Any] = Reply()
        self.handle_interrupt(request, opened, answer)
        return opened, answer

    def handle_interrupt(self, request: wire.OpenInterrupt, opened: Reply[bool], answer: Reply[Any]) -> None:
        """Open an interrupt; `opened` and `answer` are answered."""
        timeout = math.inf if request.timeout is None else request.timeout
        message = to_run.OpenInterrupt(
            request.data, timeout, request.key, request.release_slot, opened, answer
        )
        self._tell_run(message)

    async def call_child(self, position: int, options: SubmitOptions, shielded: Shielded) -> LocalChild:
        submission = self._submission
        ancestors = (*submission.terms.ancestors, submission.handle)
        caller = Caller(f"run:{submission.id}", submission.id, ancestors, f"{submission.id}.")
        trace = submission.terms.trace
        if trace is not None and options.traceparent is None:
            options = replace(options, traceparent=trace.parent, tracestate=trace.state)
        calls = Children(caller, self.attempt, self._services.entry, self._services.journal, shielded)
        accepted, ended = await calls.call(position, options)
        own = not accepted.joined or options.on_conflict != "join"
        if own:
            self.children[accepted.run] = None
        return LocalChild(self, accepted, own, ended)

    def ended(self, outcome: Any) -> None:
        self._services.delivery.tell("run", self._submission.id, BodyEnded(outcome))

    # A body in another process.

    def adopted(self) -> None:
        """Its executor has attached again with the body."""
        self._tell_run(to_run.Adopted())

    def await_child(self, run: str) -> Reply[RunRecord | None]:
        """A reply that is answered at the end of a child run, which can have been called by an earlier
        connection of the body."""
        ended: Reply[RunRecord | None] = Reply()
        self._services.journal.tell(WatchEnd(run, ended))
        return ended

    async def record_of(self, run: str, ended: Reply[RunRecord | None]) -> RunRecord | None:
        """The record of a child that has ended, from the store if it is no longer in memory."""
        record = await ended.get() or await self._services.journal.load_run(run)
        self.children.pop(run, None)
        return record

    # For the walk of a flow, which always executes in the engine's process.

    @property
    def answers(self) -> Mapping[str, Any]:
        """The stored answers, by the keys of the interrupts."""
        return {key: kept.answer for key, kept in self._kept().items()}

    @property
    def wall_clock(self) -> Callable[[], float]:
        """The engine's clock, in Unix seconds."""
        return self._services.wall_clock

    @property
    def recovered(self) -> bool:
        """Whether the run began before the engine."""
        return self._submission.stored is not None

    def about(self) -> dict[str, Any]:
        """The fields that every event of the run has."""
        return self._submission.about()

    def take_first_state(self) -> FlowState | None:
        """Take the initial state of a walk that has not begun; later the state is only in the store."""
        memos, self._submission.memos = self._submission.memos, ()
        return next((memo for memo in memos if isinstance(memo, FlowState)), None)

    def mention(self, *events: Event) -> None:
        """Have events committed soon, without waiting."""
        change = Change(events, run=self._submission.id, expect=REPORTING, attempt=self.attempt)
        self._services.journal.tell(Mention(change))

    def commit(self, events: tuple[Event, ...], memos: tuple[Memo, ...]) -> Reply[Outcome]:
        """Commit events and memos; answered when they are committed."""
        reply: Reply[Outcome] = Reply()
        self._report(Change(events, memos=memos), reply)
        return reply

    # Reports.

    def _on_progress(self, report: wire.Progress) -> None:
        submission = self._submission
        if self._progress is None:
            self._progress = ProgressReport(submission.id, submission.handle, submission.lane, self.attempt)
        waits = self._progress.latest is not None
        self._progress.latest = (report.done, report.total, report.stats)
        if not waits:
            self._services.journal.tell(self._progress)

    def _took(self, report: wire.TookMessages) -> None:
        self._tell_run(to_run.Taken(report.seq))

    def _withdraw(self, report: wire.WithdrawInterrupt) -> None:
        self._tell_run(to_run.WithdrawInterrupt(report.key))

    def _drop_child(self, report: wire.DropChild) -> None:
        if report.run in self.children:
            del self.children[report.run]
            self._services.entry.tell(to_run.cancel_child(report.run))

    def _blocked(self, report: wire.BlockedLoop) -> None:
        if self._blockage is not None and not self._blockage.done:
            return  # an executor could report without limit
        text = f"blocked the event loop for {report.seconds:.1f} s, at {report.where}"
        event = RunLog(
            by="engine", attempt=self.attempt, text=text, level="warning", **self._submission.about()
        )
        self._blockage = Reply()
        run = self._submission.id
        self._services.journal.tell(Change((event,), run, REPORTING, self.attempt, reply=self._blockage))

    # Requests.

    def _log(self, request: wire.WriteLog, reply: Reply[Any]) -> None:
        event = RunLog(
            by="body",
            attempt=self.attempt,
            text=request.text,
            level=request.level,
            **self._submission.about(),
        )
        self._report(Change((event,)), reply)

    def _save(self, request: wire.SaveCheckpoint, reply: Reply[Any]) -> None:
        self._tell_run(to_run.Save(request.value, request.interrupts, request.calls, self.attempt, reply))

    def _release_slot(self, request: wire.ReleaseSlot, reply: Reply[Any]) -> None:
        within = request.within
        wakes_at = None if within is None else self._services.wall_clock() + within
        self._tell_run(to_run.Suspend(request.waiting_for, wakes_at, within, reply))

    def _take_slot(self, request: wire.TakeSlot, reply: Reply[Any]) -> None:
        self._tell_run(to_run.Resume(reply))

    def _set_phase(self, request: wire.SetPhase, reply: Reply[Any]) -> None:
        self._tell_run(to_run.Flag(request.name, request.value, reply))

    def _finish_file(self, request: wire.FinishFile, reply: Reply[Any]) -> None:
        if request.path not in self.files:
            self.files = (*self.files, request.path)
        self._report(Change((), memos=(FileFinished(self._submission.id, request.path, self.folder),)), reply)

    def _give_up_files(self, request: wire.GiveUpFiles, reply: Reply[Any]) -> None:
        run = self._submission.id
        given_up = frozenset(request.paths)
        self.files = tuple(path for path in self.files if path not in given_up)
        memos = tuple(FileGivenUp(run, path, self.folder) for path in request.paths)
        self._services.journal.tell(Change((), run=run, memos=memos, reply=reply))

    def _report(self, change: Change, reply: Reply[Any]) -> None:
        change.run, change.expect, change.attempt = self._submission.id, REPORTING, self.attempt
        change.reply = reply
        self._services.journal.tell(change)

    def _tell_run(self, message: object) -> None:
        self._services.delivery.tell("run", self._submission.id, message)


class LocalChild:
    """Implements `Child`."""

    def __init__(
        self, host: LocalHost, accepted: Accepted, own: bool, ended: Reply[RunRecord | None]
    ) -> None:
        self.run = accepted.run
        self.own = own
        self.ended = ended
        self._host = host

    async def record(self) -> RunRecord | None:
        return await self._host.record_of(self.run, self.ended)


def local_host(host: object) -> LocalHost:
    """The host of a body that executes in the engine's process."""
    return cast(LocalHost, host)


def check_held(outcome: object, run: str, attempt: int) -> None:
    """Raise `RunAbandoned` if a commit was refused because the body no longer belongs to its run."""
    if isinstance(outcome, Outcome) and not outcome.held:
        raise RunAbandoned(f"run {run}, attempt {attempt}: the run continues without this body")


_REPORTS: dict[type, Callable[[LocalHost, Any], None]] = {
    wire.Progress: LocalHost._on_progress,
    wire.TookMessages: LocalHost._took,
    wire.WithdrawInterrupt: LocalHost._withdraw,
    wire.DropChild: LocalHost._drop_child,
    wire.BlockedLoop: LocalHost._blocked,
}

_REQUESTS: dict[type, Callable[[LocalHost, Any, Reply[Any]], None]] = {
    wire.WriteLog: LocalHost._log,
    wire.SaveCheckpoint: LocalHost._save,
    wire.ReleaseSlot: LocalHost._release_slot,
    wire.TakeSlot: LocalHost._take_slot,
    wire.SetPhase: LocalHost._set_phase,
    wire.FinishFile: LocalHost._finish_file,
    wire.GiveUpFiles: LocalHost._give_up_files,
}
