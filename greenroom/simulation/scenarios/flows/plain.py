"""A plain interpreter for flows: what a definition means, step by step.

It knows no retries, crashes or concurrency. It is written from the specification of flows, not from the
engine: a definition is a JSON value, a step is a line or two. `Evidence` supplies the facts that the graph
does not contain: the responses of services, and the signals and answers of clients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from ....protocol.errors import Invalid
from ....protocol.flow.expressions import parse_expression
from ....protocol.flow.paths import Path, Scope, parse_path, parse_source, parse_target
from ....protocol.values import copied
from .facts import Done, Graph, Signal, Visited, Wrong
from .plan import ErrorText, Failed, Ok, Outcome

if TYPE_CHECKING:
    from .compare import Evidence


class Walk:
    """See the module's docstring."""

    def __init__(self, facts: Evidence) -> None:
        self._facts = facts
        self._visits: Counter[str] = Counter()
        self._levels: list[dict[str, Any]] = []

    def walk(
        self,
        graph: Graph,
        params: dict[str, Any],
        shared: dict[str, Any],
        within: str = "",
        unhandled_errors: str = "fail",
    ) -> str | None:
        """Walk a graph to its end, and update `shared`. Returns the error that it ended with as `node: code`,
        or `None`. `unhandled_errors` is the rule of the enclosing graph."""
        rule = graph.get("unhandled_errors") or unhandled_errors
        self._levels.append(shared)
        edges = {(e["from"], e.get("action") or "default"): e.get("to") for e in graph.get("edges", ())}
        key: str | None = graph["start"]
        error = None
        while key:
            node, path = graph["nodes"][key], within + key
            enters = node["kind"] in ("subflow", "flow_ref")
            self._take(self._facts.signals(before_entering=enters))
            visit = self._visits[path] + 1
            done, at = self._visit(node, path, visit, {**node.get("params", {}), **params}, shared, rule)
            self._visits[path] = visit
            action, handled = at.action(done), True
            if done.code is not None and at.handler(done) is None:
                handled = (key, "error") in edges
                action = "error" if handled else action
            self._facts.visited(Visited(path, visit, done, action))
            edge = (key, action) if (key, action) in edges else (key, "default")
            if done.code is not None and (edge not in edges or not (handled or rule == "continue")):
                error = f"{path}: {done.code}"
                break
            key = edges.get(edge)
        if within:  # a restart can happen between the last node and the end of the enclosing node
            self._take(self._facts.signals(before_entering=False))
        self._levels.pop()
        return error

    def _take(self, signals: list[Signal]) -> None:
        """Write signals to `shared` of every level that the walk is in."""
        for path, value in signals:
            for shared in self._levels:
                _put(shared, path, value)

    def _visit(
        self, node: Graph, path: str, visit: int, params: dict[str, Any], shared: dict[str, Any], rule: str
    ) -> tuple[Done, _At]:
        at = _At(node, path, visit, params, shared, rule)
        done = _KINDS[node["kind"]](self, at)
        if done.writes:
            done = at.write(done)
        return done, at

    # The kinds of nodes.

    def _call(self, at: _At, kind: str, name: str, input: Any, branch: str | None = None) -> Outcome:
        return self._facts.call((at.path, at.visit, branch), kind, name, copied(input), at.params)

    def _single(self, at: _At) -> Done:
        kind = "local" if at.node["kind"] == "local" else _exec_type(at.node)
        outcome = self._call(at, kind, at.node.get("func") or at.node.get("service", ""), at.input)
        return Done(outcome.value) if isinstance(outcome, Ok) else _failed(outcome.code)

    def _choice(self, at: _At) -> Done:
        input = at.input
        cases = at.node.get("choice_cases", ())
        chosen = (case["action"] for case in cases if parse_expression(case["expr"]).holds(at.scope()))
        return Done(input, action=next(chosen, None))

    def _parallel(self, at: _At) -> Done:
        names = at.node.get("parallel_services") or at.params.get("services")
        if not isinstance(names, list):
            return _failed("bad_params")
        return self._branches(at, [(name, at.input) for name in names])

    def _foreach(self, at: _At) -> Done:
        items, name = at.input, at.node.get("func") or at.node.get("service")
        if not isinstance(items, list):
            return _failed("bad_input")
        return self._branches(at, [(name, item) for item in items])

    def _branches(self, at: _At, calls: list[tuple[str, Any]]) -> Done:
        kind, strategy = _exec_type(at.node), at.node.get("failure_strategy") or "fail_fast"
        outcomes: list[Outcome] = []
        for number, (name, input) in enumerate(calls):
            outcomes.append(self._call(at, kind, name, input, str(number)))
            in_order = at.node.get("parallel_mode") != "concurrent"
            if strategy == "fail_fast" and in_order and isinstance(outcomes[-1], Failed):
                break
        failed = any(isinstance(outcome, Failed) for outcome in outcomes)
        if strategy == "fail_fast" and failed and len(outcomes) == len(calls):
            ended = self._facts.ended(at.path, at.visit)
            outcomes = [outcome for number, outcome in enumerate(outcomes) if number in ended]
            if all(isinstance(outcome, Ok) for outcome in outcomes):
                raise Wrong(f"no branch of {at.path}, visit {at.visit}, failed: only {sorted(ended)} ended")
        if strategy == "collect_errors":
            return Done(
                [o.value if isinstance(o, Ok) else {"error": ErrorText(f"{o.code}:")} for o in outcomes]
            )
        results = [outcome.value for outcome in outcomes if isinstance(outcome, Ok)]
        code = "branch_failed" if failed and strategy == "fail_fast" else None
        return Done(results, code)

    def _subflow(self, at: _At) -> Done:
        return self._within(at, at.node["subflow"], at.rule)

    def _flow_ref(self, at: _At) -> Done:
        graph = self._facts.flow(at.node["flow"], at.node.get("version", 0))
        return _failed("unknown_flow") if graph is None else self._within(at, graph)

    def _within(self, at: _At, graph: Graph, rule: str = "fail") -> Done:
        input = at.input
        shared: dict[str, Any] = copied(input) if isinstance(input, dict) else {}
        error = self.walk(graph, at.params, shared, at.path + "/", rule)
        return Done(shared) if error is None else _failed("subflow_failed")

    # The kinds of nodes that wait.

    def _timer(self, at: _At) -> Done:
        while self._facts.paused():
            self._wake(at)
        return Done(at.input)

    def _wait_event(self, at: _At) -> Done:
        return self._wait(at, parse_path(at.params["signal_key"]), lambda: None)

    def _approval(self, at: _At) -> Done:
        key = parse_path(at.params["approval_key"])
        done = self._wait(at, key, lambda: self._facts.answer(at.path, at.visit))
        if done.code is not None:
            return done
        said = done.output.get("approved") if isinstance(done.output, dict) else done.output
        action = at.own_action(done.output)
        if action is None and isinstance(said, bool):
            action = "approved" if said else "rejected"
        elif action is None and isinstance(said, str) and said:
            action = said
        return attrs.evolve(done, action=action)

    def _wait(self, at: _At, key: Path, look_elsewhere: Callable[[], Any]) -> Done:
        """Wait for a value in `shared`; a value that `look_elsewhere` finds is written there."""
        while self._facts.paused():
            if key.get(at.scope()) is not None:
                raise Wrong(f"{at.path}, visit {at.visit}, waits for a value that is there already")
            self._wake(at)
        if self._facts.waited_in_vain(at.path, at.visit):
            return _failed("timeout")
        found = key.get(at.scope())
        if found is None:
            found = look_elsewhere()
            if found is not None and not _put(at.shared, key.text, found):
                return _failed("bad_params")
        if found is None:
            raise Wrong(
                f"{at.path}, visit {at.visit}, continues, but the value that it waits for is not there"
            )
        return Done(copied(found))

    def _wake(self, at: _At) -> None:
        self._take(self._facts.signals(before_entering=False))
        at.look()


class _At:
    """One visit of a node."""

    def __init__(
        self, node: Graph, path: str, visit: int, params: dict[str, Any], shared: dict[str, Any], rule: str
    ) -> None:
        self.rule = rule
        self.node, self.path, self.visit, self.params, self.shared = node, path, visit, params, shared
        self._post = node.get("post", {})
        self.look()

    def look(self) -> None:
        """Read the input from the present `shared`."""
        prep, scope = self.node.get("prep", {}), Scope(self.params, self.shared)
        self.input = None
        if "input_map" in prep:
            self.input = {key: parse_source(source).get(scope) for key, source in prep["input_map"].items()}
        elif prep.get("input_key"):
            self.input = parse_path(prep["input_key"]).get(scope)
        self.input = copied(self.input)

    def scope(self) -> Scope:
        return Scope(self.params, self.shared, self.input)

    def write(self, done: Done) -> Done:
        """Write the output to `shared`, as the node's `post` defines."""
        try:
            for to, field in self._post.get("output_map", {}).items():
                parse_target(to).set(self.shared, copied(parse_path(field).within(done.output)))
            if self._post.get("output_key"):
                parse_target(self._post["output_key"]).set(self.shared, copied(done.output))
        except Invalid:
            return _failed("bad_output")
        return done

    def action(self, done: Done) -> str:
        """The action, which decides the edge that is taken."""
        if done.action is not None:
            return done.action
        output = None if done.code is not None else done.output
        return self.handler(done) or self.own_action(output) or self.node.get("default_action") or "default"

    def handler(self, done: Done) -> str | None:
        """The action that the node defines for its error, if any."""
        if done.code is None:
            return None
        late = self.node.get("on_timeout") if done.code == "timeout" else None
        return late or self.node.get("on_error")

    def own_action(self, output: Any) -> str | None:
        """The action that the node's `post` defines, if any."""
        if self._post.get("action_static"):
            return str(self._post["action_static"])
        if not self._post.get("action_key"):
            return None
        path = parse_path(self._post["action_key"])
        for found in (path.within(output) if path.bare else None, path.get(self.scope())):
            if isinstance(found, str) and found:
                return found
        return None


_KINDS: dict[str, Callable[[Walk, _At], Done]] = {
    "executor": Walk._single,
    "local": Walk._single,
    "choice": Walk._choice,
    "parallel": Walk._parallel,
    "foreach": Walk._foreach,
    "subflow": Walk._subflow,
    "flow_ref": Walk._flow_ref,
    "timer": Walk._timer,
    "wait_event": Walk._wait_event,
    "approval": Walk._approval,
}


def _exec_type(node: Graph) -> str:
    return node.get("exec_type") or ("local" if node.get("func") else "http")


def _failed(code: str) -> Done:
    return Done(code=code, writes=False)


def _put(shared: dict[str, Any], path: str, value: Any) -> bool:
    """Write a value to a path; returns False if the path does not exist."""
    try:
        parse_target(path).set(shared, copied(value))
    except Invalid:
        return False
    return True
