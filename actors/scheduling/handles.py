"""The handles: the admitted run, the waiting runs, and the result of a conflict.

A handle is taken from the admission of a run until that run and its body have ended. While it is taken, its
draft is locked, and a further submission follows its `on_conflict`.

Plain data: no messages, no I/O, no clock. A free handle without a draft uses no memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from ...protocol.errors import Conflict, GreenroomError, HandleLocked
from ...protocol.states import Status
from ...protocol.submission import OnConflict
from ...protocol.values import shown
from ..messages import Submission


class Admit(msgspec.Struct, frozen=True):
    """The handle is free: the run is admitted."""


class Wait(msgspec.Struct, frozen=True):
    """The run waits in the handle. A run that replaces others waits in front, and those must be cancelled."""

    replaces: tuple[str, ...] | None


class Join(msgspec.Struct, frozen=True):
    """The submission joins the admitted run."""

    admitted: Submission


class Coalesce(msgspec.Struct, frozen=True):
    """The waiting run, which has not begun, takes the submission's parameters."""

    waiting: Submission


class Refuse(msgspec.Struct, frozen=True):
    """The submission is refused with this error, which names the run `about`, if any."""

    error: GreenroomError
    about: Submission | None


_Equal = tuple[str, str, str, str, tuple[str, ...]]
"""What decides how and where a run executes, except its parameters."""

ADMIT = Admit()
Decision = Admit | Wait | Join | Coalesce | Refuse

_WHY = {
    "join": "its job or parameters differ, or it is being cancelled",
    "reject": 'wait for it, cancel it, or submit with on_conflict "queue", "replace"',
}


class Handles:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.drafts: dict[str, Any] = {}
        self._admitted: dict[str, Submission] = {}
        self._cancelling: set[str] = set()  # the handles whose admitted run is being cancelled
        self._remains: dict[str, str] = {}  # handle: the ended run whose body still executes
        self._waiting: dict[str, OrderedDict[str, Submission]] = {}
        self._equal: dict[_Equal, OrderedDict[str, Submission]] = {}  # the same runs
        self._replacing: dict[str, tuple[str, ...]] = {}  # runs that replace others, newest first
        self._replaced: dict[str, dict[str, str]] = {}  # runs that are about to be cancelled: by which run

    def reports(self) -> Iterator[dict[str, Any]]:
        """The reports of all handles that are taken or have waiting runs."""
        for name in dict.fromkeys((*self._admitted, *self._remains, *self._waiting)):
            waiting = len(self._waiting.get(name, ()))
            yield {"kind": "handle", "name": name, "taken_by": self.taken_by(name), "waiting": waiting}

    def decide(self, submission: Submission, on_conflict: OnConflict, *, in_batch: bool = False) -> Decision:
        """Admit a run, or follow its `on_conflict`."""
        name = submission.handle
        holder, waiting = self.taken_by(name), self._waiting.get(name)
        if holder is None and not waiting:
            self._admitted[name] = submission
            return ADMIT
        if on_conflict == "queue":
            return self._wait(submission, None)
        if on_conflict == "replace":
            return self._replace(submission)
        if on_conflict == "coalesce":
            takes = self.last_equal(submission)
            return self._wait(submission, None) if takes is None else Coalesce(takes)
        admitted = self._admitted.get(name)
        if on_conflict == "join" and admitted is not None and self._can_join(submission, admitted):
            return Join(admitted)
        about = self._active(name)
        active = holder if about is None else about.id
        why = f"handle {shown(name)} is taken by run {active}: {_WHY[on_conflict]}"
        if on_conflict == "reject":
            alone = submission.terms.parent is None and submission.job.special is None and not in_batch
            why += ', "join" or "coalesce"' if alone else ' or "join"'
        return Refuse(Conflict(why, active_run=active), about)

    def restore(
        self,
        name: str,
        admitted: Submission | None,
        waiting: Sequence[Submission],
        newest: Submission | None,
    ) -> list[str]:
        """Restore a handle: its admitted run, its waiting runs, and the newest run that replaces others.

        A replacement and the cancels that it causes are separate commits, and a crash can occur between them.
        Returns the runs that still have to be cancelled.
        """
        if admitted is not None:
            self._admitted[name] = admitted
            stored = admitted.stored
            if stored is not None and (stored.record.status is Status.CANCELLING or stored.files_doomed):
                self._cancelling.add(name)
        if waiting:
            self._waiting[name] = OrderedDict((submission.id, submission) for submission in waiting)
            for submission in waiting:
                self._equal.setdefault(_equal(submission), OrderedDict())[submission.id] = submission
        if newest is None:
            return []
        replacing = [submission.id for submission in waiting if submission.terms.front]
        replaced = [id for id in replacing if id != newest.id]
        if newest is not admitted:
            self._replacing[name] = tuple(replacing)
            if admitted is not None:
                self._cancelling.add(name)
                replaced.append(admitted.id)
        return replaced

    def ended(self, submission: Submission, *, body_remains: bool) -> None:
        """A run has ended. `body_remains`: its abandoned body still executes."""
        name, id = submission.handle, submission.id
        admitted = self._admitted.get(name)
        if admitted is submission:
            del self._admitted[name]
            self._cancelling.discard(name)
            if body_remains:
                self._remains[name] = id
        else:
            self._stop_waiting(name, id)
        self._remove_replacing(name, id)
        if name in self._replaced:
            left = {run: by for run, by in self._replaced.pop(name).items() if id not in (run, by)}
            if left:
                self._replaced[name] = left

    def restore_remains(self, name: str, run: str) -> None:
        """The abandoned body of an ended run can still execute after a restart of the engine."""
        self._remains[name] = run

    def free(self, name: str, run: str | None = None) -> str | None:
        """Free a handle that only an abandoned body takes (of `run`, if given); returns the body's run."""
        remains = self._remains.get(name)
        if remains is None or (run is not None and remains != run):
            return None
        del self._remains[name]
        return remains

    def admit_next(self, name: str) -> Submission | None:
        """If the handle is free, admit the first waiting run."""
        waiting = self._waiting.get(name)
        if not waiting or self.taken_by(name) is not None:
            return None
        submission = next(iter(waiting.values()))
        self._stop_waiting(name, submission.id)
        self._remove_replacing(name, submission.id)
        self._admitted[name] = submission
        return submission

    def being_cancelled(self, submission: Submission) -> None:
        """A run is being cancelled: if it is the admitted run, it can no longer be joined."""
        if self._admitted.get(submission.handle) is submission:
            self._cancelling.add(submission.handle)

    def admitted(self, name: str) -> Submission | None:
        """The run that a handle has admitted."""
        return self._admitted.get(name)

    def taken_by(self, name: str) -> str | None:
        """The run that takes a handle: the admitted run, or the ended run whose body still executes."""
        admitted = self._admitted.get(name)
        return self._remains.get(name) if admitted is None else admitted.id

    def waiting(self, name: str) -> Mapping[str, Submission]:
        """The runs that wait in a handle, in order."""
        return self._waiting.get(name, {})

    def locked(self, name: str) -> HandleLocked | None:
        """The error if a handle's draft cannot be changed, else `None`."""
        holder = self.taken_by(name)
        if holder is None:
            return None
        return HandleLocked(
            f"handle {shown(name)} is locked by run {holder}: change its parameters after that run has ended",
            active_run=holder,
        )

    def _wait(self, submission: Submission, replaces: tuple[str, ...] | None) -> Wait:
        waiting = self._waiting.setdefault(submission.handle, OrderedDict())
        equal = self._equal.setdefault(_equal(submission), OrderedDict())
        for queue in (waiting, equal):
            queue[submission.id] = submission
            if replaces is not None:
                queue.move_to_end(submission.id, last=False)
        return Wait(replaces)

    def _replace(self, submission: Submission) -> Wait:
        name = submission.handle
        admitted, replaced = self._admitted.get(name), self._replacing.get(name, ())
        self._replacing[name] = (submission.id, *replaced)
        if admitted is not None and name not in self._cancelling:
            replaced = (*replaced, admitted.id)
        if replaced:
            self._replaced.setdefault(name, {}).update(dict.fromkeys(replaced, submission.id))
        return self._wait(submission, replaced)

    def _can_join(self, submission: Submission, admitted: Submission) -> bool:
        return (
            submission.handle not in self._cancelling
            and admitted.job is submission.job
            and admitted.params == submission.params
        )

    def last_equal(self, submission: Submission) -> Submission | None:
        """The run that takes the parameters of a submission: the last of the handle that has not begun and
        is equal in everything else that decides how and when it executes."""
        name = submission.handle
        admitted = None if name in self._cancelling else self._admitted.get(name)
        waiting = self._equal.get(_equal(submission), OrderedDict())
        last_first = chain(reversed(waiting.values()), () if admitted is None else (admitted,))
        return next((run for run in last_first if self.takes(run, submission)), None)

    def takes(self, run: Submission, submission: Submission) -> bool:
        """Whether a run can take the parameters of a submission. A child run belongs to its parent."""
        if run.begun or run.cleared or run.over or run.terms.parent is not None:
            return False
        if run.id in self._replaced.get(run.handle, ()):
            return False
        return _equal(run) == _equal(submission)

    def _active(self, name: str) -> Submission | None:
        """The run that a refusal names; `None` if it has ended and only its body still executes."""
        if name in self._admitted or name in self._remains:
            return self._admitted.get(name)
        return next(iter(self._waiting[name].values()))

    def _stop_waiting(self, name: str, id: str) -> None:
        waiting = self._waiting.get(name)
        submission = None if waiting is None else waiting.pop(id, None)
        if submission is None:
            return
        if not waiting:
            del self._waiting[name]
        equal = self._equal[_equal(submission)]
        del equal[id]
        if not equal:
            del self._equal[_equal(submission)]

    def _remove_replacing(self, name: str, run: str) -> None:
        replacing = self._replacing.get(name, ())
        if run in replacing:
            self._replacing[name] = tuple(id for id in replacing if id != run)
            if not self._replacing[name]:
                del self._replacing[name]


def _equal(submission: Submission) -> _Equal:
    return (
        submission.handle,
        submission.job.name,
        submission.kind,
        submission.lane,
        tuple(submission.needs),
    )
