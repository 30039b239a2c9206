"""The rules of flows: what the node runs of a run may say, who is woken, and what workers are told.

Reads what is committed, as `rules.py` does, without the code that it judges. Of what a walk keeps it knows
two things: where the walk is, and what a run without a body waits for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import msgspec

from ....persistence.flows import FlowState
from ....persistence.store import MessagesTaken
from ....protocol.events import NodeRan, NodeStarted, RunEvent, RunStateChanged
from ....protocol.flow.records import FlowRow, NodeRun, VersionRow
from ....protocol.states import Status
from ...model.state import ModelRun, ModelState

WAITING = frozenset({"timer", "wait_event", "approval"})
"""The kinds of nodes that wait, and need no slot meanwhile."""

MANY_SIGNALS = 100
"""After so many a run wakes up to take them, whatever they are."""

_A_MOMENT = 0.01
"""Seconds."""

_FEW = 10
"""Node runs: more than there are branches in a world."""

Try = tuple[str, int, str | None]
"""A node, its visit, and a branch."""


@attrs.define
class Step:
    """What was committed together of a walk: node runs, the signals that it has taken, and whether it stands
    somewhere else from here on, or waits."""

    rows: list[NodeRun] = attrs.Factory(list)
    taken: list[tuple[str, Any]] = attrs.Factory(list)
    moved: bool = False
    waits: bool = False


@attrs.define
class Walked:
    """A run of a flow, as far as it is committed."""

    version: str
    rows: list[NodeRun] = attrs.Factory(list)
    steps: list[Step] = attrs.Factory(list)
    attempts: Counter[Try] = attrs.Factory(Counter)
    ended: set[Try] = attrs.Factory(set)
    forgiven: dict[Try, int] = attrs.Factory(dict)  # tries that were cancelled, and then weren't after all
    at: str | None = None  # the node that the walk has come to
    waits: dict[str, Any] | None = None  # the node that it waits at, without a body
    waited: tuple[str, int, float] = ("", 0, 0.0)  # the last wait: node, visit, and since when
    began_to_wait: str | None = None  # a node that waits has begun, and has not ended
    cancelled: int = 0  # node runs that say so, of no branch
    was_ended: bool = False  # its body was told to end
    fresh: bool = False  # it waits since the engine was started, and so knows for what
    ran: list[NodeRan] = attrs.Factory(list)  # events of the batch that is read

    def step(self) -> Step:
        """The step that is being committed."""
        if not self.steps or self.steps[-1].moved:
            self.steps.append(Step())
        return self.steps[-1]


class FlowRules:
    """See the module's text. `fault` is told of what is wrong."""

    def __init__(self, model: ModelState, seen: Callable[[], int], fault: Callable[[str], None]) -> None:
        self.walks: dict[str, Walked] = {}
        self.flows: dict[str, str] = {}
        """By name: its id."""
        self.versions: dict[str, VersionRow] = {}
        """By id."""
        self.jumped = False
        """Whether the clocks on the walls have jumped, so that no wait is as long as it looks."""
        self._model = model
        self._seen = seen
        self._fault = fault
        self._signals: dict[tuple[str, int], tuple[str, Any]] = {}  # by run and seq, those that were sent
        self._cancelled: list[RunStateChanged] = []  # in the batch that is read

    # What is committed.

    def take(self, event: RunEvent) -> None:
        """Read the next event of a run."""
        walked = self.walks.get(event.run)
        if isinstance(event, NodeStarted | NodeRan) and walked is None:
            self._fault(f"{event}: this run walks no flow")
        if walked is not None and isinstance(event, NodeStarted) and event.kind in WAITING:
            walked.began_to_wait = event.node
        if walked is not None and isinstance(event, NodeRan):
            walked.ran.append(event)
            if event.node == walked.began_to_wait:
                walked.began_to_wait = None

    def transition(self, event: RunStateChanged, run: ModelRun) -> None:
        """A run is about to change its status."""
        walked = self.walks.get(run.id)
        if walked is None:
            return
        if event.to is Status.SUSPENDED:
            walked.began_to_wait, walked.fresh = None, True
        elif event.to is Status.RUNNING:
            if run.status is Status.SUSPENDED and not self._may_wake(event.at, run, walked):
                self._fault(f"{event}: nothing has come that {run} waits for: {walked.waits}")
            walked.waits = None
        elif event.to is Status.CANCELLING:
            walked.was_ended = True
        elif event.to is Status.CANCELLED and event.reason != "abandoned" and not run.restored:
            self._cancelled += [event] if walked.was_ended or walked.waits is not None else []

    def commit(self, memos: Sequence[Any]) -> None:
        """Read what a batch writes beside the runs, when its events were read."""
        for memo in memos:
            match memo:
                case FlowState() if memo.run not in self.walks:
                    walked = self.walks[memo.run] = Walked(memo.version)
                    self._stands(walked, memo)
                case FlowState():
                    self._moves(self.walks[memo.run], memo)
                case NodeRun():
                    self.walks[memo.run].step().rows.append(memo)
                    self._node_run(self.walks[memo.run], memo)
                case MessagesTaken() if memo.run in self.walks:
                    walked = self.walks[memo.run]
                    step = walked.steps[-1] if walked.steps else walked.step()
                    step.taken += [self._signals[memo.run, seq] for seq in memo.seqs]
                case FlowRow():
                    self.flows[memo.name] = memo.id
                case VersionRow():
                    self.versions[memo.id] = memo
        for id, walked in self.walks.items():
            if walked.ran:
                self._compare(id, walked)
        for event in self._cancelled:
            walked = self.walks[event.run]
            if walked.at is not None and not any(row.status == "cancelled" for row in walked.rows[-_FEW:]):
                self._fault(f"{event}: it was cancelled at {walked.at}, and no node run says so")
        self._cancelled.clear()

    def signal(self, run: str, seq: int, key: str, value: Any) -> None:
        """A signal was accepted."""
        self._signals[run, seq] = (key, value)

    def _moves(self, walked: Walked, state: FlowState) -> None:
        if state.version != walked.version:
            self._fault(f"run {state.run} walks version {state.version}, and began with {walked.version}")
        if state.numbered != len(walked.rows):
            self._fault(f"the state of {state.run} knows {state.numbered} node runs of {len(walked.rows)}")
        node, visit, since = walked.waited
        self._stands(walked, state)
        if walked.waited[:2] == (node, visit) and walked.waited[2] != since:
            self._fault(f"run {state.run} waits at {node} since {walked.waited[2]}, and not since {since}")
        step = walked.step()
        step.moved, step.waits = True, walked.waits is not None

    def _stands(self, walked: Walked, state: FlowState) -> None:
        kept = msgspec.json.decode(state.state)
        walked.at, waits = kept["frame"]["curr"], kept["waits"]
        walked.waits = waits
        if waits is not None:
            walked.waited = (waits["node"], waits["visit"], waits["since"])

    def _node_run(self, walked: Walked, row: NodeRun) -> None:
        this: Try = (row.node, row.visit, row.branch)
        whole: Try = (row.node, row.visit, None)
        if row.number != len(walked.rows) + 1:
            self._fault(f"{row}: the one before it is number {len(walked.rows)}")
        if this in walked.ended or whole in walked.ended:
            self._fault(f"{row}: that was done before")
        if row.visit > 1 and (row.node, row.visit - 1, None) not in walked.ended:
            self._fault(f"{row}: the visit before it has not ended")
        made, forgiven = walked.attempts[this], walked.forgiven.pop(this, 0)
        if row.attempt not in (made + 1, made + 1 - forgiven):
            self._fault(f"{row}: {made} tries were made before it")
        walked.attempts[this] = row.attempt
        if row.last:
            walked.ended.add(this)
        if row.status == "cancelled" and row.branch is None:
            walked.cancelled += 1
            if walked.cancelled > 1:
                self._fault(f"{row}: the run was cancelled once, and that was written down")
        walked.rows.append(row)

    def _compare(self, id: str, walked: Walked) -> None:
        """Each node run has its event."""
        events, walked.ran = walked.ran, []
        rows = walked.rows[-len(events) :]
        for event, row in zip(events, rows, strict=False):
            for name in ("node", "visit", "attempt", "branch", "status", "action", "error", "worker"):
                if getattr(event, name) != getattr(row, name):
                    self._fault(f"{event} was committed with {row}")
        if len(rows) != len(events):
            self._fault(f"{len(events)} nodes of run {id} have run, and there are {len(rows)} node runs")

    # Who is woken.

    def new_life(self) -> None:
        """The engine is gone; the next one doesn't know for what keys runs wait."""
        for id, walked in self.walks.items():
            walked.fresh = walked.was_ended = False
            walked.began_to_wait = None
            if id in self._model.pending and self._model.pending[id].status is Status.RUNNING:
                self._goes_on(walked)

    def _goes_on(self, walked: Walked) -> None:
        """A run that was running goes on: if it was about to time out, what it was about to do as well."""
        walked.cancelled = 0
        for row in walked.rows:
            this = (row.node, row.visit, row.branch)
            if row.status == "cancelled" and this in walked.ended:
                walked.forgiven[this] = 1
                walked.ended.remove(this)

    def awake(self) -> set[str]:
        """The runs that wait for what has come, so that they only wait for a slot."""
        return {id for id, walked in self.walks.items() if self._has_come(id, walked)}

    def _has_come(self, id: str, walked: Walked) -> bool:
        run, waits = self._model.pending.get(id), walked.waits
        if waits is None or run is None or run.status is not Status.SUSPENDED:
            return False
        if run.reason == "answer" and _interrupt(waits) in run.answers:
            return True
        signals = run.messages.values() if run.reason in ("signal", "answer") else ()
        return any(_concern(waits["key"], signal["key"]) for signal in signals)

    def _may_wake(self, at: float, run: ModelRun, walked: Walked) -> bool:
        waits = walked.waits
        if waits is None or run.reason not in ("signal", "time", "answer") or not walked.fresh:
            return True
        if waits["until"] is not None and (self.jumped or at >= waits["until"] - _A_MOMENT):
            return True
        return self._has_come(run.id, walked) or len(run.messages) >= MANY_SIGNALS

    def end_instant(self) -> None:
        """A run at a node that waits has no slot, and asks no interrupt but that node's."""
        for id, walked in self.walks.items():
            run = self._model.pending.get(id)
            if run is None:
                continue
            if walked.began_to_wait is not None and run.status is Status.RUNNING:
                self._fault(f"{run} waits at {walked.began_to_wait}, and keeps its slot")
            if walked.waits is not None and run.status is Status.SUSPENDED and walked.fresh:
                others = set(run.interrupts.values()) - {_interrupt(walked.waits)}
                if others:
                    self._fault(f"{run} waits at {walked.waits['node']}, and still asks {others}")

    # What workers and clients see.

    def called(self, key: str, worker: str) -> None:
        """A worker is called over HTTP."""
        run, this = _read(key)
        walked = self.walks.get(run)
        if walked is None:
            self._fault(f"worker {worker} is called for {key}, and there is no such run")
        elif this in walked.ended:
            self._fault(f"worker {worker} is called for {key}, which was done before")

    def acknowledged(self, key: str, worker: str, result: Any, error: str, why_not: str | None) -> None:
        """A worker was told that what it has completed is kept."""
        run, (node, visit, branch) = _read(key)
        if why_not is not None:
            self._fault(f"worker {worker} has completed {key} {why_not}, and was not refused")
        for row in self.walks[run].rows:
            if (row.node, row.visit, row.branch, row.worker) != (node, visit, branch, worker):
                continue
            shown = row.error or ""
            if shown.startswith("bad_output:") or (error in shown if error else row.output == result):
                return
        self._fault(
            f"worker {worker} was told that {result} {error} of {key} is kept, and no node run has it"
        )

    def shown_until(self, run: str) -> int:
        """How many node runs of a run anybody has been shown by now, if only as events."""
        walked = self.walks.get(run)
        if walked is None:
            return 0
        seen = self._model.events[: self._seen()]
        return sum(isinstance(event, NodeRan) and event.run == run for event in seen)

    def shown(self, run: str, rows: Sequence[NodeRun], least: int) -> None:
        """A client was shown the node runs of a run, of which so many were known before."""
        known = self.walks[run].rows if run in self.walks else []
        if list(rows) != known[: len(rows)] or len(rows) < least:
            self._fault(f"of run {run} {len(rows)} node runs were shown, which are not the first of {known}")


def _read(key: str) -> tuple[str, Try]:
    """An idempotency key: the run, and what of it."""
    run, node, visit, branch = key.split(":")
    return run, (node, int(visit), branch or None)


def _interrupt(waits: dict[str, Any]) -> str:
    """The key of the interrupt that an approval asks."""
    return f"{waits['node']}:{waits['visit']}"


def _concern(awaited: str, model: str) -> bool:
    """Whether one path in shared leads to the other, or is it."""
    one, other = _steps(awaited), _steps(model)
    return all(a == b for a, b in zip(one, other, strict=False))


def _steps(path: str) -> list[str]:
    return path.removeprefix("$shared.").split(".")
