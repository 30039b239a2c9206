"""Rules 2 and 3 (and of 7, that no slot is lost): limits at the grant, and the order of places.

Whoever gives the slots commits each start, each creation, each new place and each change of a limit in the
order in which it has decided them, and hears of each slot that is given back before any start that is
committed behind that. So slots, limits, generations and draining are compared at each start as they stand
before it, and a queued run with a lower place that is there has been passed over.

An *instant* is what happens at one reading of the clock. The clock of a simulation moves on only when no task
has anything left to do, so at the end of an instant everything that was said in it has had its effect. These
are the races within one, and all that is accepted of them:

- A run that was passed over and has left the queue without beginning, because it was cancelled or timed out
  just then, was on its way out. Perhaps it had its slot already, and its start was refused: until the instant
  is over, its lane may have had less room.
- A run whose wait ended in this instant may have asked for its slot behind others; at the next it has not.
  One that began in this instant, and waits again, may have done so, too; and one whose body had to go because
  the lease was lost: a slot may have been granted while that was being committed.
- A run of which files are being deleted is about to end, or has to wait for that before it executes. It may
  be passed over.
- Of the suspects (runs that had a body when a process died, and have not been tried since) one at a time
  executes, unless a reset took the slots away; one with two deaths begins alone, and stays so while its body
  lives. While that holds them up, or has in this instant, suspects may be passed over.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ...protocol.events import LaneChanged, RunStateChanged
from ...protocol.states import Status
from ..model.state import ModelRun, ModelState


class _PassedOver(msgspec.Struct, frozen=True):
    """A run that was queued when one with a higher place began."""

    seq: int
    begun: str
    run: ModelRun
    same_lane: bool
    suspect: bool


class OrderRules:
    """Judges who begins, and who is left waiting. `fault` is told of what is wrong."""

    def __init__(self, model: ModelState, fault: Callable[[str], None]) -> None:
        self._model = model
        self._fault = fault
        self._begun: dict[str, int] = {}  # in this instant: the last seq
        self._passed_over: list[_PassedOver] = []
        self._tried_one = False  # whether a suspect has had a body in this instant
        self._let_go: set[str] = set()  # suspects with bodies that a reset has allowed others beside
        self._awake: set[str] = set()  # runs whose waits were over when the instant began
        self._lost_grant: set[str] = set()  # lanes that a run left that may have been granted a slot
        self._just_back: set[str] = set()  # runs that gave their slot back in this instant and want another

    def opened(self) -> None:
        """A restart: nobody executes any more, and nobody waits who has not been found to."""
        self._awake.clear()
        self._let_go.clear()
        self._new_instant()

    def begins(self, event: RunStateChanged, run: ModelRun) -> str | None:
        """A run is granted a slot: why it may not be, or `None`."""
        model, limit = self._model, self._model.lane(run.lane).limit
        holders, in_lane = model.holders(), model.holders(run.lane)
        if len(holders) >= model.max_concurrent:
            return f"{len(holders)} execute, which is all that {model.max_concurrent} allows"
        if limit is not None and len(in_lane) >= limit:
            return f"{len(in_lane)} execute in its lane, which is all that {limit} allows"
        draining = model.draining[-1][1]
        if draining and not _privileged(run):
            return "the engine is draining"
        for other in model.pending.values():
            if self._is_passed_over(other, run, draining=draining):
                same_lane = other.lane == run.lane
                self._passed_over.append(
                    _PassedOver(event.seq, str(run), other, same_lane, suspect=other.is_suspect)
                )
        if run.is_suspect and run.deaths > 1 and (others := [o for o in self._suspects() if o is not run]):
            return f"it has {run.deaths} deaths, and {others} have bodies"
        self._tried_one = self._tried_one or run.is_suspect
        self._let_go.discard(run.id)
        self._begun[run.id] = event.seq
        return None

    def _is_passed_over(self, other: ModelRun, run: ModelRun, *, draining: bool) -> bool:
        stands = other.stands_in_queue or (other.status is Status.SUSPENDED and other.id in self._awake)
        if not stands or other is run or (other.place or 0) > (run.place or 0):
            return False
        if other.id in self._begun or other.id in self._just_back or (draining and not _privileged(other)):
            return False
        limit = self._model.lane(other.lane).limit
        if other.lane == run.lane or limit is None:
            return True
        return len(self._model.holders(other.lane)) < limit

    def left_queue(self, run: ModelRun) -> None:
        """A run left its lane's queue without beginning, or what it waited for without asking for a slot."""
        self._lost_grant.add(run.lane)

    def comes_back(self, run: ModelRun) -> None:
        """A run gave its slot back, and wants another one."""
        self._just_back.add(run.id)

    def lane_changed(self, event: LaneChanged, generation: int) -> None:
        """A lane is about to get another limit, or was reset: nobody need give back its slots any more."""
        if event.generation != generation:
            self._let_go |= {run.id for run in self._on_trial()}

    def _suspects(self) -> list[ModelRun]:
        """Those that have bodies."""
        suspects = [run for run in self._model.pending.values() if run.is_suspect and not run.restored]
        return [run for run in suspects if run.has_body]

    def _on_trial(self) -> list[ModelRun]:
        """Those beside which no other may execute."""
        holders = self._model.holders()
        suspects = [run for run in self._suspects() if run.id not in self._let_go]
        return [run for run in suspects if run.deaths > 1 or run in holders]

    def end_instant(self, awake: set[str], about_to_end: set[str], *, leaving: bool) -> None:
        """The clock moves on. `awake` are suspended runs whose waits are over; who is `about_to_end` gets no
        slot any more."""
        model = self._model
        for id in awake:
            model.pending[id].waits_for_slot = True
        on_trial = self._on_trial()
        if len(on_trial) > 1:
            self._fault(f"after {model.seq}, {on_trial} are tried beside each other, after a death")
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
                or (passed.suspect and self._tried_one)
            ):
                continue
            if not passed.same_lane and run.lane in self._lost_grant:
                continue
            if run.stands_in_queue or self._begun.get(run.id, 0) > passed.seq:
                self._fault(f"at {passed.seq}, {passed.begun} began before {run}, which comes first")

    def _judge_free_slots(self, on_trial: list[ModelRun], about_to_end: set[str]) -> None:
        model, suspects = self._model, self._suspects()
        if len(model.holders()) >= model.max_concurrent:
            return
        draining = model.draining[-1][1]
        for name, queue in model.queues().items():
            limit = model.lane(name).limit
            if limit is not None and len(model.holders(name)) >= limit:
                continue
            for run in queue:
                before = suspects if run.deaths > 1 else on_trial
                held_up = (
                    run.id in model.deleting
                    or run.id in about_to_end
                    or (run.is_suspect and any(o is not run for o in before))
                )
                if not held_up and (not draining or _privileged(run)):
                    self._fault(f"after {model.seq}, a slot is free, yet {run} is left waiting")
                    break

    def _new_instant(self) -> None:
        self._begun.clear()
        self._passed_over.clear()
        self._tried_one = bool(self._suspects())
        self._lost_grant.clear()
        self._just_back.clear()


def _privileged(run: ModelRun) -> bool:
    """Whether it may start while the engine drains: it had begun, or it was called by one that has."""
    return run.status is Status.SUSPENDED or run.parent is not None
