"""Rules 2 and 3 (and from rule 7, that no slot is lost): limits at the grant, and the order of starts.

The supervisor commits each start, creation, new place and change of a limit in the order of its decisions. It
receives each released slot before any start that is committed after the release. So each start is compared
with the slots, limits, generations and draining just before it; a queued run that precedes it (`lanes.py`),
and for which there was room, has been passed over.

An *instant* is everything that happens at one time of the clock. The simulated clock advances only when no
task is runnable, so at the end of an instant all messages sent in it have taken effect. Within an instant
there are these races, and the rules accept no others:

- A run that was passed over can leave the queue without starting, because it was cancelled or timed out in
  this instant. Perhaps its slot had been granted, and its start was refused. So until the end of the instant,
  its lane may have had less room.
- A run whose wait ended in this instant can request its slot after others; in the next instant it has
  requested it. The same applies to a run that started in this instant and waits again, and to a run whose
  body had to end because the lease was lost: a slot may have been granted while that was being committed.
- A run whose files are being deleted is about to end, or must wait for the deletion before it executes. It
  can be passed over.
- Suspects are runs that had a body when a process died, and have not been tried since. Only one of them
  executes at a time, unless a reset freed the slots; one with two deaths starts only if no other suspect has
  a body, and stays the only one until its body ends. While this delays suspects, or if it has in this
  instant, they can be passed over.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ...protocol.events import LaneChanged, RunStateChanged
from ...protocol.states import Status
from ..model.state import ModelRun, ModelState
from .lanes import LaneRulesCheck


class _PassedOver(msgspec.Struct, frozen=True):
    """A run that was queued when another one with a higher place started."""

    seq: int
    started: str
    run: ModelRun
    same_lane: bool
    suspect: bool


class OrderRules:
    """Checks which runs start, and which wait. Calls `fault` with each problem."""

    def __init__(self, model: ModelState, fault: Callable[[str], None]) -> None:
        self._model = model
        self._fault = fault
        self._begun: dict[str, int] = {}  # the runs that started in this instant, with the seq of their start
        self._passed_over: list[_PassedOver] = []
        self._tried_one = False  # whether a suspect has had a body in this instant
        self._let_go: set[str] = set()  # suspects with bodies; after a reset, others may execute with them
        self._awake: set[str] = set()  # runs whose waits had ended when the instant started
        self._lost_grant: set[str] = set()  # lanes that a run left after its slot may have been granted
        self.lanes = LaneRulesCheck(model)
        self._just_back: set[str] = set()  # runs that released their slot in this instant and need another

    def opened(self) -> None:
        """Start again after a restart: no run executes."""
        self.lanes.opened()
        self._awake.clear()
        self._let_go.clear()
        self._new_instant()

    def begins(self, event: RunStateChanged, run: ModelRun) -> str | None:
        """Check the grant of a slot. Returns the reason why the run must not start, or `None`."""
        model, limit = self._model, self._model.lane(run.lane).limit
        holders, in_lane = model.holders(), model.holders(run.lane)
        if len(holders) >= model.max_concurrent:
            return f"{len(holders)} runs execute already, and the limit is {model.max_concurrent}"
        if limit is not None and len(in_lane) >= limit:
            return f"{len(in_lane)} runs execute already in lane {run.lane}, and its limit is {limit}"
        draining = model.draining[-1][1]
        if draining and not _privileged(run):
            return "the engine is draining"
        if (why := self.lanes.begins(event, run)) is not None:
            return why
        overdue = [] if event.interactive is None else self.lanes.take_turn(run, event.at, draining=draining)
        for other in overdue:
            if other.id not in self._begun and other.id not in self._just_back:
                self._passed_over.append(
                    _PassedOver(event.seq, str(run), other, same_lane=True, suspect=other.is_suspect)
                )
        for other in model.pending.values():
            if self._is_passed_over(other, run, event.at, draining=draining):
                same_lane = other.lane == run.lane
                self._passed_over.append(
                    _PassedOver(event.seq, str(run), other, same_lane, suspect=other.is_suspect)
                )
        if run.is_suspect and run.deaths > 1 and (others := [o for o in self._suspects() if o is not run]):
            return f"it has {run.deaths} deaths, and other suspects have bodies: {others}"
        self._tried_one = self._tried_one or run.is_suspect
        self._let_go.discard(run.id)
        self._begun[run.id] = event.seq
        return None

    def _is_passed_over(self, other: ModelRun, run: ModelRun, now: float, *, draining: bool) -> bool:
        queued = other.is_in_queue or (other.status is Status.SUSPENDED and other.id in self._awake)
        if not queued or other is run or not self.lanes.precedes(other, run, now):
            return False
        if other.id in self._begun or other.id in self._just_back or (draining and not _privileged(other)):
            return False
        able = other.executor if other.has_body else run.executor
        if able != run.executor or not self._model.has_job(able, other):
            return False
        if able is not None and not (other.has_body or self._model.executors[able].takes_new_bodies):
            return False
        limit = self._model.lane(other.lane).limit
        if other.lane == run.lane or limit is None:
            return True
        return len(self._model.holders(other.lane)) < limit

    def left_queue(self, run: ModelRun) -> None:
        """Record that a run left its lane's queue without starting, or ended its wait without a request for a
        slot."""
        self._lost_grant.add(run.lane)

    def comes_back(self, run: ModelRun) -> None:
        """Record that a run released its slot, and needs another one."""
        self._just_back.add(run.id)

    def lane_changed(self, event: LaneChanged, generation: int) -> None:
        """Read a change of a lane's limit, or its reset, which frees the slots of suspects."""
        self.lanes.changed(event, self._model.lane(event.lane).rules)
        if event.generation != generation:
            self._let_go |= {run.id for run in self._on_trial()}

    def _suspects(self) -> list[ModelRun]:
        """The suspects that have bodies in the engine's own process."""
        suspects = [run for run in self._model.pending.values() if run.is_suspect and not run.restored]
        return [run for run in suspects if run.has_body and run.executor is None]

    def _on_trial(self) -> list[ModelRun]:
        """The suspects during whose execution no other suspect may execute."""
        holders = self._model.holders()
        suspects = [run for run in self._suspects() if run.id not in self._let_go]
        return [run for run in suspects if run.deaths > 1 or run in holders]

    def end_instant(self, awake: set[str], about_to_end: set[str], *, leaving: bool) -> None:
        """Check the instant that ends. `awake` are suspended runs whose waits have ended. Runs that are
        `about_to_end` get no slot. When the engine is `leaving`, no run has to start."""
        model = self._model
        for id in awake:
            model.pending[id].waits_for_slot = True
        on_trial = self._on_trial()
        if len(on_trial) > 1 and not model.had_executors:  # whose deaths do not make suspects at first
            self._fault(f"after {model.seq}, suspects execute at the same time: {on_trial}")
        if not leaving:
            self._judge_order(about_to_end)
            self._judge_free_slots(on_trial, about_to_end)
        for id in awake:
            model.pending[id].waits_for_slot = False
        self._awake = awake
        self._new_instant()

    def _judge_order(self, about_to_end: set[str]) -> None:
        for passed in self._passed_over:
            run = passed.run
            if (
                run.id in self._model.deleting
                or run.id in about_to_end
                or (run.deaths > 0 and self._model.had_executors)
                or (passed.suspect and self._tried_one)
            ):
                continue
            if not passed.same_lane and run.lane in self._lost_grant:
                continue
            if run.is_in_queue or self._begun.get(run.id, 0) > passed.seq:
                self._fault(f"at {passed.seq}, {passed.started} started before {run}, which comes first")

    def _judge_free_slots(self, on_trial: list[ModelRun], about_to_end: set[str]) -> None:
        model, suspects = self._model, self._suspects()
        if len(model.holders()) >= model.max_concurrent:
            return
        draining = model.draining[-1][1]
        for name, queue in model.queues().items():
            limit = model.lane(name).limit
            if model.lane(name).paused or (limit is not None and len(model.holders(name)) >= limit):
                continue
            for run in queue:
                before = suspects if run.deaths > 1 else on_trial
                held_up = (
                    run.id in model.deleting
                    or not model.has_room(run)
                    or not self.lanes.key_has_room(run)
                    or self.lanes.may_lack_token(run, model.events[-1].at)
                    or (run.deaths > 0 and model.had_executors)  # it may wait for another executor
                    or run.id in about_to_end
                    or (run.is_suspect and any(o is not run for o in before))
                )
                if not held_up and (not draining or _privileged(run)):
                    self._fault(f"after {model.seq}, a slot is free, but {run} still waits")
                    break

    def _new_instant(self) -> None:
        self._begun.clear()
        self._passed_over.clear()
        self._tried_one = bool(self._suspects())
        self._lost_grant.clear()
        self._just_back.clear()


def _privileged(run: ModelRun) -> bool:
    """Whether it may start while the engine drains: it started before, or a run has called it."""
    return run.status is Status.SUSPENDED or run.parent is not None
