"""Commands about lanes and the engine: limits, rules, pauses, draining, reset. A part of the supervisor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...persistence.store import BucketsFull
from ...protocol.errors import GreenroomError
from ...protocol.events import EngineChanged, LaneChanged, RunChanged
from ...protocol.lane_settings import check_rules
from ...protocol.names import MAIN
from ...protocol.states import Status
from ..channel import Reply
from ..effects import Effects
from ..journal.change import Change
from ..messages import (
    PauseLane,
    ResetLanes,
    SetConcurrency,
    SetDraining,
    SetLane,
    SetMaxConcurrent,
    Submission,
)
from ..schedules.messages import Resumed, TellWhenResumed
from .active_runs import ActiveRuns
from .order import Order

_HOLDS_SLOT = frozenset({Status.RUNNING, Status.CANCELLING})


class Settings:
    """See the module's docstring. `draining` and `closing` are the engine's. `key_of` returns the key that a
    pending run has by the rules of its lane."""

    def __init__(
        self,
        effects: Effects,
        order: Order,
        active: ActiveRuns,
        pending: Mapping[str, Submission],
        key_of: Callable[[str], str | None],
    ) -> None:
        self.draining = False
        self.closing = False
        self.holding = False
        """Whether only privileged runs can start: while the engine drains or closes."""
        self._effects = effects
        self._order = order
        self._active = active
        self._pending = pending
        self._key_of = key_of
        self._schedules_wait = False  # until the engine no longer drains

    def set_concurrency(self, message: SetConcurrency) -> None:
        """Set the limit of a lane."""
        self._order.set_limit(message.lane, message.limit)
        self._effects.commit(Change((self._lane_changed(message.lane, message.by),), reply=message.reply))

    def pause_lane(self, message: PauseLane) -> None:
        """Pause or resume a lane."""
        self._order.pause(message.lane, paused=message.paused)
        self._effects.commit(Change((self._lane_changed(message.lane, message.by),), reply=message.reply))

    def set_lane(self, message: SetLane, now: float) -> None:
        """Change the rules of a lane."""
        lane, changes = message.lane, message.changes
        try:
            rules = check_rules(lane, changes, self._order.rules_of(lane))
        except GreenroomError as error:
            self._effects.answer(message.reply, error=error)
            return
        unused = self._order.set_rules(lane, rules, now, self._key_of)
        memos = (BucketsFull(lane, unused),) if unused else ()
        changed = self._lane_changed(lane, message.by)
        self._effects.commit(Change((changed,), memos=memos, reply=message.reply, answer=rules))

    def set_max_concurrent(self, message: SetMaxConcurrent) -> None:
        """Set the global limit."""
        self._order.limit = message.limit
        self._engine_changed(message.by, message.reply)

    def set_draining(self, message: SetDraining) -> None:
        """Drain, or resume."""
        self.drain(draining=message.draining)
        self._engine_changed(message.by, message.reply)

    def drain(self, *, draining: bool) -> None:
        """Start only privileged runs, or all again."""
        self.draining = draining
        self._hold()

    def close(self) -> None:
        """The engine ends."""
        self.closing = True
        self._hold()

    def reset_lanes(self, message: ResetLanes) -> None:
        """Void all slots, and resume."""
        self._order.trials.reset()
        for lane in sorted({MAIN, *self._order.lanes}):
            detached = self._order.reset(lane)
            self._effects.commit(Change((self._lane_changed(lane, message.by),)))
            for run in detached:
                event = RunChanged(by=message.by, detached=True, **self._pending[run].about())
                self._effects.commit(Change((event,), run=run, expect=_HOLDS_SLOT))
        if self.draining:
            self.drain(draining=False)
            self._engine_changed(message.by, None)
        self._active.reset()
        self._effects.answer(message.reply, True)

    def tell_when_resumed(self, message: TellWhenResumed) -> None:
        """Schedules wait while the engine drains."""
        if self.holding:
            self._schedules_wait = True
        else:
            self._effects.tell("schedules", "", Resumed())

    def _hold(self) -> None:
        self.holding = self.draining or self.closing
        self._order.hold(self.holding)

    def _lane_changed(self, lane: str, by: str) -> LaneChanged:
        order = self._order
        return LaneChanged(
            seq=0,
            at=0,
            by=by,
            lane=lane,
            limit=order.limit_of(lane),
            generation=order.generations.get(lane, 0),
            paused=lane in order.paused,
            rules=order.rules_of(lane),
        )

    def _engine_changed(self, by: str, reply: Reply[Any] | None) -> None:
        changed = EngineChanged(seq=0, at=0, by=by, max_concurrent=self._order.limit, draining=self.draining)
        change = Change((changed,), reply=reply)
        if self._schedules_wait and not self.draining:
            self._schedules_wait = False
            change.notify = (("schedules", "", Resumed()),)
        self._effects.commit(change)
