"""The rules of flows: node runs, the waking of waiting runs, and the replies to workers.

Reads what is committed, as `simulation/rules/rules.py` does, without the code under test. Of the saved state
of a walk it uses only the present node, and what a run without a body waits for.
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
"""The kinds of nodes that wait without a slot."""

MANY_SIGNALS = 100
"""With this number of waiting signals a run wakes up to take them, even if it waits for none of them."""

_A_MOMENT = 0.01
"""Seconds."""

_FEW = 10
"""The number of latest node runs to look at: more than a node has branches."""

VisitKey = tuple[str, int, str | None]
"""A node, the number of its visit, and a branch (`None`: the whole visit)."""


@attrs.define
class Step:
    """A part of a walk, up to a committed state: its node runs, the signals that it took, whether the state
    was saved (`moved`), and whether the run waits in it."""

    rows: list[NodeRun] = attrs.Factory(list)
    taken: list[tuple[str, Any]] = attrs.Factory(list)
    moved: bool = False
    waits: bool = False


@attrs.define
class Walked:
    """The committed state of a flow's run."""

    version: str
    rows: list[NodeRun] = attrs.Factory(list)
    steps: list[Step] = attrs.Factory(list)
    attempts: Counter[VisitKey] = attrs.Factory(Counter)
    ended: set[VisitKey] = attrs.Factory(set)
    forgiven: dict[VisitKey, int] = attrs.Factory(dict)  # attempts whose cancellation a restart has undone
    at: str | None = None  # the present node of the walk
    waits: dict[str, Any] | None = None  # what it waits for, without a body
    waited: tuple[str, int, float] = ("", 0, 0.0)  # the last wait: node, visit, and start time
    began_to_wait: str | None = None  # a node that waits: it has started, and has not ended
    cancelled: int = 0  # the number of cancelled node runs, without those of branches
    was_ended: bool = False  # its body was cancelled
    fresh: bool = False  # its wait started in the present life of the engine, so its reason is known
    ran: list[NodeRan] = attrs.Factory(list)  # events of the present batch

    def step(self) -> Step:
        """The step to which new node runs belong."""
        if not self.steps or self.steps[-1].moved:
            self.steps.append(Step())
        return self.steps[-1]


class FlowRules:
    """See the module's docstring. Calls `fault` with each problem."""

    def __init__(self, model: ModelState, seen: Callable[[], int], fault: Callable[[str], None]) -> None:
        self.walks: dict[str, Walked] = {}
        self.flows: dict[str, str] = {}
        """The id of each flow, by name."""
        self.versions: dict[str, VersionRow] = {}
        """The versions of all flows, by id."""
        self.jumped = False
        """Whether the wall clock has jumped, so that the times of waits cannot be checked."""
        self._model = model
        self._seen = seen
        self._fault = fault
        self._signals: dict[tuple[str, int], tuple[str, Any]] = {}  # all accepted signals, by run and seq
        self._cancelled: list[RunStateChanged] = []  # in the present batch

    # Committed batches.

    def take(self, event: RunEvent) -> None:
        """Read the next event of a run."""
        walked = self.walks.get(event.run)
        if isinstance(event, NodeStarted | NodeRan) and walked is None:
            self._fault(f"{event}: this run does not walk a flow")
        if walked is not None and isinstance(event, NodeStarted) and event.kind in WAITING:
            walked.began_to_wait = event.node
        if walked is not None and isinstance(event, NodeRan):
            walked.ran.append(event)
            if event.node == walked.began_to_wait:
                walked.began_to_wait = None

    def transition(self, event: RunStateChanged, run: ModelRun) -> None:
        """Read a transition, before the model does."""
        walked = self.walks.get(run.id)
        if walked is None:
            return
        if event.to is Status.SUSPENDED:
            walked.began_to_wait, walked.fresh = None, True
        elif event.to is Status.RUNNING:
            if run.status is Status.SUSPENDED and not self._may_wake(event.at, run, walked):
                self._fault(f"{event}: {run} was woken, but still waits for {walked.waits}")
            walked.waits = None
        elif event.to is Status.CANCELLING:
            walked.was_ended = True
        elif event.to is Status.CANCELLED and event.reason != "abandoned" and not run.restored:
            self._cancelled += [event] if walked.was_ended or walked.waits is not None else []

    def commit(self, memos: Sequence[Any]) -> None:
        """Read the memos of a batch, after its events."""
        for memo in memos:
            match memo:
                case FlowState() if memo.run not in self.walks:
                    walked = self.walks[memo.run] = Walked(memo.version)
                    self._read_state(walked, memo)
                case FlowState():
                    self._new_state(self.walks[memo.run], memo)
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
                self._fault(f"{event}: it was cancelled at node {walked.at}, but no node run is cancelled")
        self._cancelled.clear()

    def signal(self, run: str, seq: int, key: str, value: Any) -> None:
        """Record a signal that was accepted."""
        self._signals[run, seq] = (key, value)

    def _new_state(self, walked: Walked, state: FlowState) -> None:
        if state.version != walked.version:
            self._fault(f"run {state.run} walks version {state.version}, but started with {walked.version}")
        if state.numbered != len(walked.rows):
            self._fault(
                f"the state of run {state.run} counts {state.numbered} node runs, expected {len(walked.rows)}"
            )
        node, visit, since = walked.waited
        self._read_state(walked, state)
        if walked.waited[:2] == (node, visit) and walked.waited[2] != since:
            self._fault(f"run {state.run} waits at {node} since {walked.waited[2]}, expected {since}")
        step = walked.step()
        step.moved, step.waits = True, walked.waits is not None

    def _read_state(self, walked: Walked, state: FlowState) -> None:
        kept = msgspec.json.decode(state.state)
        walked.at, waits = kept["frame"]["curr"], kept["waits"]
        walked.waits = waits
        if waits is not None:
            walked.waited = (waits["node"], waits["visit"], waits["since"])

    def _node_run(self, walked: Walked, row: NodeRun) -> None:
        this: VisitKey = (row.node, row.visit, row.branch)
        whole: VisitKey = (row.node, row.visit, None)
        if row.number != len(walked.rows) + 1:
            self._fault(f"{row}: the previous node run has number {len(walked.rows)}")
        if this in walked.ended or whole in walked.ended:
            self._fault(f"{row}: this visit or branch had ended already")
        if row.visit > 1 and (row.node, row.visit - 1, None) not in walked.ended:
            self._fault(f"{row}: the previous visit has not ended")
        made, forgiven = walked.attempts[this], walked.forgiven.pop(this, 0)
        if row.attempt not in (made + 1, made + 1 - forgiven):
            self._fault(f"{row}: {made} attempts were made before it")
        walked.attempts[this] = row.attempt
        if row.last:
            walked.ended.add(this)
        if row.status == "cancelled" and row.branch is None:
            walked.cancelled += 1
            if walked.cancelled > 1:
                self._fault(f"{row}: another node run is cancelled already")
        walked.rows.append(row)

    def _compare(self, id: str, walked: Walked) -> None:
        """Check that the batch contains one event for each node run."""
        events, walked.ran = walked.ran, []
        rows = walked.rows[-len(events) :]
        for event, row in zip(events, rows, strict=False):
            for name in ("node", "visit", "attempt", "branch", "status", "action", "error", "worker"):
                if getattr(event, name) != getattr(row, name):
                    self._fault(f"{event} was committed with {row}, which differs in {name}")
        if len(rows) != len(events):
            self._fault(f"{len(events)} events of node runs of run {id}, but {len(rows)} node runs")

    # Waking.

    def new_life(self) -> None:
        """Record the end of the engine. The next one does not know for which keys runs wait."""
        for id, walked in self.walks.items():
            walked.fresh = walked.was_ended = False
            walked.began_to_wait = None
            if id in self._model.pending and self._model.pending[id].status is Status.RUNNING:
                self._resume(walked)

    def _resume(self, walked: Walked) -> None:
        """Undo the cancellation of node runs: if the run was about to time out, it resumes instead."""
        walked.cancelled = 0
        for row in walked.rows:
            this = (row.node, row.visit, row.branch)
            if row.status == "cancelled" and this in walked.ended:
                walked.forgiven[this] = 1
                walked.ended.remove(this)

    def awake(self) -> set[str]:
        """The runs whose signal or answer has arrived, so that they only wait for a slot."""
        return {id for id, walked in self.walks.items() if self._has_arrived(id, walked)}

    def _has_arrived(self, id: str, walked: Walked) -> bool:
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
        return self._has_arrived(run.id, walked) or len(run.messages) >= MANY_SIGNALS

    def end_instant(self) -> None:
        """Check that a run that waits at a node has no slot, and no open interrupt except that node's."""
        for id, walked in self.walks.items():
            run = self._model.pending.get(id)
            if run is None:
                continue
            if walked.began_to_wait is not None and run.status is Status.RUNNING:
                self._fault(f"{run} waits at node {walked.began_to_wait}, but keeps its slot")
            if walked.waits is not None and run.status is Status.SUSPENDED and walked.fresh:
                others = set(run.interrupts.values()) - {_interrupt(walked.waits)}
                if others:
                    self._fault(
                        f"{run} waits at node {walked.waits['node']}, but has open interrupts {others}"
                    )

    # Workers and clients.

    def called(self, key: str, worker: str) -> None:
        """Check an HTTP call of a worker."""
        run, this = _read(key)
        walked = self.walks.get(run)
        if walked is None:
            self._fault(f"worker {worker} is called for {key}, but the run does not exist")
        elif this in walked.ended:
            self._fault(f"worker {worker} is called for {key}, which has ended already")

    def acknowledged(self, key: str, worker: str, result: Any, error: str, why_not: str | None) -> None:
        """Check a completion that the engine has accepted: a node run contains it."""
        run, (node, visit, branch) = _read(key)
        if why_not is not None:
            self._fault(f"worker {worker} completed {key} {why_not}, but was not refused")
        for row in self.walks[run].rows:
            if (row.node, row.visit, row.branch, row.worker) != (node, visit, branch, worker):
                continue
            shown = row.error or ""
            if shown.startswith("bad_output:") or (error in shown if error else row.output == result):
                return
        self._fault(
            f"worker {worker} completed {key} with result {result} and error {error!r}, which was accepted, "
            "but no node run contains it"
        )

    def shown_until(self, run: str) -> int:
        """The number of node runs of a run that any client has received so far, also as events."""
        walked = self.walks.get(run)
        if walked is None:
            return 0
        seen = self._model.events[: self._seen()]
        return sum(isinstance(event, NodeRan) and event.run == run for event in seen)

    def shown(self, run: str, rows: Sequence[NodeRun], least: int) -> None:
        """Check the node runs that a client received; at least `least` of them were known before the call."""
        known = self.walks[run].rows if run in self.walks else []
        if list(rows) != known[: len(rows)] or len(rows) < least:
            self._fault(f"a client received {len(rows)} node runs of run {run}, which differ from {known}")


def _read(key: str) -> tuple[str, VisitKey]:
    """The parts of an idempotency key."""
    run, node, visit, branch = key.split(":")
    return run, (node, int(visit), branch or None)


def _interrupt(waits: dict[str, Any]) -> str:
    """The key of the interrupt that an approval opens."""
    return f"{waits['node']}:{waits['visit']}"


def _concern(awaited: str, signalled: str) -> bool:
    """Whether one path in `shared` is a prefix of the other, or equal to it."""
    one, other = _steps(awaited), _steps(signalled)
    return all(a == b for a, b in zip(one, other, strict=False))


def _steps(path: str) -> list[str]:
    return path.removeprefix("$shared.").split(".")
