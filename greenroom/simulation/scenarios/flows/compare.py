"""Comparison of a flow's run with the plain interpretation of its graph, step by step.

The interpreter receives the planned responses of services, and the committed actions of clients. Two facts
are not committed: whether a signal arrived just before or just after the walk entered a nested graph, and
which version of a flow was the latest then. For these, every possibility is tried until one fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ....protocol.events import InterruptClosed, InterruptOpened, RunStateChanged
from ....protocol.flow.records import NodeRun
from ....protocol.states import Status
from ....protocol.values import shown
from ...model.state import ModelRun
from ...rules.rules import Rules
from .facts import Graph, Signal, Visited, Wrong
from .plain import Walk
from .plan import UNLUCKY, Failed, Outcome, Plan, alike
from .rules import Step, Walked

_MOST_TRIED = 300

_NOT_PLANNED = frozenset({"no_worker", "expired", "service_error", *UNLUCKY})


class NoMore(Exception):
    """No further step has been committed: the run was ended here, or has not ended yet."""


def compare(rules: Rules, plan: Plan, run: ModelRun) -> str | None:
    """Compare a flow's run with the interpretation. Returns a description of the difference, or `None`."""
    first: str | None = None
    choices: list[list[int]] = [[]]
    for _ in range(_MOST_TRIED):
        if not choices:
            break
        evidence = Evidence(rules, plan, run, choices.pop())
        wrong = evidence.compare()
        if wrong is None:
            return None
        first = first or wrong
        choices += evidence.others()
    return f"run {run.id} differs from the plain interpretation: {first}"


class Evidence:
    """What was committed about one run: the facts for the interpreter."""

    def __init__(self, rules: Rules, plan: Plan, run: ModelRun, choices: Sequence[int]) -> None:
        self._rules = rules
        self._plan = plan
        self._run = run
        self._walked: Walked = rules.flows.walks[run.id]
        self._steps = [step for step in self._walked.steps if step.moved]
        self._at = -1
        self._open = False  # whether the step at `_at` was looked at, but is not compared yet
        self._left: list[Signal] = []  # the signals of this step that are not taken yet
        self._choices = list(choices)
        self._chosen: list[tuple[int, int]] = []  # the index of each choice, and the number of possibilities
        self._given = len(choices)
        self._rows = {(row.node, row.visit, row.branch): row for row in self._walked.rows if row.last}
        self._calls: dict[tuple[str, int], int] = {}
        self._answers = _answers(rules, run)

    # The comparison.

    def compare(self) -> str | None:
        """Interpret the graph with these facts. Returns a description of the first difference, or `None`."""
        version = self._rules.flows.versions[self._walked.version]
        shared: dict[str, Any] = {}
        try:
            error = Walk(self).walk(_graph(version.definition), self._run.params["params"], shared)
            return self._compare_end(error, shared)
        except NoMore:
            ended = self._run.status in (Status.SUCCEEDED, Status.FAILED) and self._run.reason != "killed"
            return (
                f"it ended as {self._run.status} after {self._at} steps, expected more steps"
                if ended
                else None
            )
        except Wrong as wrong:
            return f"step {self._at + 1}: {wrong}"

    def others(self) -> list[list[int]]:
        """The lists of choices that differ from this one in its last choice."""
        chosen = [choice for choice, _ in self._chosen]
        return [
            [*chosen[:place], other]
            for place, (choice, count) in enumerate(self._chosen)
            if place >= self._given
            for other in range(choice + 1, count)
        ]

    def _compare_end(self, error: str | None, shared: dict[str, Any]) -> str | None:
        run = self._run
        if self._at + 1 < len(self._steps):
            return f"the walk has ended, but then made more steps: {self._steps[self._at + 1 :]}"
        if run.ended_in is None or run.status in (Status.CANCELLED, Status.TIMED_OUT):
            return None
        if run.reason == "killed":  # it failed because three processes died while it executed
            return None
        end = self._rules.model.events[run.ended_in - 1]
        assert isinstance(end, RunStateChanged), "a run ends with a transition"
        found = f"it ended as {end.to} with result {end.result} and error {end.error}"
        if error is None and (end.to is not Status.SUCCEEDED or not alike(shared, end.result)):
            return f"expected the result {shared}, but {found}"
        node, _, code = (error or "").partition(": ")
        if error is not None and f"node {shown(node)}: {code}: " not in (end.error or ""):
            return f"expected the error {error}, but {found}"
        return None

    # The facts for the interpreter.

    def signals(self, *, before_entering: bool) -> list[Signal]:
        """The signals that the walk takes before the next node.

        `before_entering`: the next node is a nested graph. Then some signals may be taken only inside it, and
        the number of those that are taken before is a choice.
        """
        if not self._left:
            self._next_step()
        some = self._choose(len(self._left) + 1) if before_entering else len(self._left)
        some = len(self._left) - some if before_entering else some  # in most cases all of them
        taken, self._left = self._left[:some], self._left[some:]
        return taken

    def _next_step(self) -> None:
        """Move on to the next step that ends a visit or a wait. Other steps only record an attempt or save
        the state."""
        while not self._open:
            self._at += 1
            if self._at >= len(self._steps):
                raise NoMore
            step = self._steps[self._at]
            self._open = step.waits or any(row.last and row.branch is None for row in step.rows)
            self._left += step.taken

    def _close(self) -> Step:
        self._open = False
        return self._steps[self._at]

    def call(
        self, asks: tuple[str, int, str | None], kind: str, name: str, input: Any, params: dict[str, Any]
    ) -> Outcome:
        """The outcome of a call."""
        node, visit, branch = asks
        planned = self._plan.outcome(name, f"{node}:{visit}:{branch or ''}", input, params, kind)
        self._calls[node, visit] = self._calls.get((node, visit), 0) + (branch is not None)
        row = self._rows.get(asks)
        if row is None or row.status == "cancelled":
            return planned
        given = {"input": input} if kind == "local" else {"input": input, "params": params}
        if not alike(given, row.input):
            raise Wrong(f"expected the input {given} for {row}")
        code = _code(row)
        expected = planned.code if isinstance(planned, Failed) else None
        lenient = _NOT_PLANNED if self._plan.wild else UNLUCKY if expected is not None else frozenset()
        if code != expected and code in lenient:
            return Failed(code or "")
        return planned

    def ended(self, node: str, visit: int) -> set[int]:
        """The branches that had ended before the first failure cancelled the others."""
        return {
            int(branch)
            for (at, number, branch), row in self._rows.items()
            if (at, number) == (node, visit) and branch is not None and row.status != "cancelled"
        }

    def paused(self) -> bool:
        """Whether the walk stopped here to wait."""
        if not self._steps[self._at].waits:
            return False
        self._close()
        return True

    def waited_in_vain(self, node: str, visit: int) -> bool:
        """Whether the wait timed out."""
        row = self._rows.get((node, visit, None))
        return row is not None and row.status == "timeout"

    def answer(self, node: str, visit: int) -> Any:
        """The answer to the interrupt of an approval: False if the answer is null, None if there is none."""
        interrupt = f"{node}:{visit}"
        given = self._answers.get(interrupt)
        return False if given is None and interrupt in self._answers else given

    def flow(self, name: str, version: int) -> Graph | None:
        """The graph of another flow; version 0 is the latest."""
        id = self._rules.flows.flows.get(name)
        versions = [row for row in self._rules.flows.versions.values() if row.flow == id]
        if version:
            versions = [row for row in versions if row.version == version]
        versions.sort(key=lambda row: row.version)
        return _graph(versions[self._choose(len(versions))].definition) if versions else None

    def visited(self, step: Visited) -> None:
        """Compare a step of the interpreter with the committed one."""
        if not self._open:
            self._next_step()
        if self._left:
            raise Wrong(f"the run took signals that no node takes: {self._left}")
        committed = self._close()
        row = committed.rows[-1] if committed.rows else None
        if (
            row is None
            or committed.waits
            or (row.node, row.visit, row.branch) != (step.node, step.visit, None)
        ):
            raise Wrong(f"expected {step}, but {committed} was committed")
        done = step.done
        if _code(row) != done.code or row.action != step.action or not alike(done.output, row.output):
            raise Wrong(f"expected {step}, but {row} was committed")
        branches = sum((step.node, step.visit) == key[:2] and key[2] is not None for key in self._rows)
        if done.code is None and branches != self._calls.get((step.node, step.visit), 0):
            raise Wrong(f"expected {step}, but {branches} branches of it were committed")

    def _choose(self, count: int) -> int:
        chosen = self._choices.pop(0) if self._choices else 0
        self._chosen.append((chosen, count))
        return chosen


def _answers(rules: Rules, run: ModelRun) -> dict[str, Any]:
    """The answers to a run's interrupts, by the keys of the interrupts."""
    keys: dict[str, str] = {}
    answers: dict[str, Any] = {}
    for event in rules.model.events:
        if isinstance(event, InterruptOpened) and event.run == run.id:
            keys[event.interrupt] = event.key
        elif isinstance(event, InterruptClosed) and event.run == run.id and event.outcome == "answered":
            answers[keys[event.interrupt]] = event.answer
    return answers


def _code(row: NodeRun) -> str | None:
    return None if row.error is None else row.error.partition(":")[0]


def _graph(definition: str) -> Graph:
    graph: Graph = msgspec.json.decode(definition)
    return graph
