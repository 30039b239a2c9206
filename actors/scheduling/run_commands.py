"""Commands about runs and handles. A part of the supervisor; those for one run go on to its actor."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.errors import Conflict, NoActiveRun
from ...protocol.events import HandleChanged, RunChanged
from ...protocol.states import Status
from ...protocol.values import shown
from ..channel import Reply
from ..effects import Effects
from ..journal.change import Change
from ..messages import (
    AnswerInterrupt,
    Cancel,
    Clear,
    Inject,
    ReleaseHandle,
    SendSignal,
    SetParams,
    SetPriority,
)
from .admission import Admission
from .clearing import cancel_all, select_runs
from .handles import Handles
from .order import Order

_QUEUED = frozenset({Status.QUEUED})


class RunCommands:
    """See the module's docstring. `tell` sends the supervisor a message from a helper task."""

    def __init__(
        self,
        effects: Effects,
        order: Order,
        handles: Handles,
        admission: Admission,
        tell: Callable[[object], None],
    ) -> None:
        self._effects = effects
        self._order = order
        self._handles = handles
        self._admission = admission
        self._tell = tell

    def cancel(self, message: Cancel) -> None:
        """Cancel a run."""
        submission = self._admission.find(message.run)
        if submission is not None and not submission.begun:
            submission.cleared = True  # a cancel of a queued run always succeeds
            self._order.leave(message.run, submission.lane)
        self.route(message)

    def route(self, message: Cancel | AnswerInterrupt | SendSignal) -> None:
        """Send a command to the actor of its run."""
        if self._admission.find(message.run) is not None:
            self._effects.tell("run", message.run, message)
        else:
            message.reply.set(None)

    def inject(self, message: Inject) -> None:
        """Send a message to a run, or to the active run of a handle."""
        target = message.target
        admitted = self._handles.admitted(target)
        if self._admission.find(target) is not None:
            self._effects.tell("run", target, message)
        elif admitted is not None:
            self._effects.tell("run", admitted.id, message)
        elif self._handles.taken_by(target) is not None or self._handles.waiting(target):
            message.reply.fail(NoActiveRun(f"handle {shown(target)} has no active run"))
        else:
            message.reply.fail(
                NoActiveRun(f"{shown(target)} is neither a pending run nor a handle with an active run")
            )

    def set_params(self, message: SetParams) -> None:
        """Set the draft of a handle."""
        locked = self._handles.locked(message.handle)
        if locked is not None:
            self._effects.answer(message.reply, error=locked, about=self._handles.admitted(message.handle))
            return
        self._handles.drafts[message.handle] = message.params
        changed = HandleChanged(seq=0, at=0, by=message.by, handle=message.handle, params=message.params)
        self._effects.commit(Change((changed,), reply=message.reply))

    def release_handle(self, message: ReleaseHandle) -> None:
        """Free a handle from a body that does not end."""
        if not self.free_handle(message.handle, None, message.by, message.reply):
            self._effects.answer(message.reply, False)

    def free_handle(self, handle: str, run: str | None, by: str, reply: Reply[bool] | None) -> bool:
        """Free a handle from the body of an ended run; returns whether there was one."""
        freed = self._handles.free(handle, run)
        if freed is None:
            return False
        changed = HandleChanged(seq=0, at=0, by=by, handle=handle, freed=freed)
        self._effects.commit(Change((changed,), reply=reply, answer=True))
        self._admission.admit_next(handle)
        return True

    def set_priority(self, message: SetPriority) -> None:
        """Change the priority of a queued run."""
        submission = self._admission.find(message.run)
        if submission is None:
            message.reply.set(None)
        elif submission.begun or submission.cleared or submission.over:
            error = Conflict(
                f"run {message.run} is no longer queued: its priority can be changed only before it starts"
            )
            self._effects.answer(message.reply, error=error, about=submission)
        else:
            submission.priority = message.priority
            self._order.set_priority(message.run, submission.lane, message.priority)
            event = RunChanged(by=message.by, priority=message.priority, **submission.about())
            self._admission.end_turn()  # the run may be created in this turn
            change = Change((event,), run=message.run, expect=_QUEUED, reply=message.reply, answer=True)
            self._effects.commit(change)

    def clear(self, message: Clear) -> None:
        """Cancel the runs of a lane or a handle that have not begun."""
        by_lane = message.reason == "lane_cleared"
        named = {"lane": message.name} if by_lane else {"handle": message.name}
        runs = select_runs(message, self._admission.find_all(**named))
        for run in runs:
            self._order.leave(run, self._admission.pending[run].lane)
        self._effects.help(lambda: cancel_all(runs, message, self._tell))
