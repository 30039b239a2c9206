"""The model of a flow: what a definition says, as frozen classes. `reading` makes them.

A graph has nodes and edges. Each kind of node is a class with the fields that only it has; `Node` has those
of all. What a node does is not written here, only what follows from a definition without running anything:
its input, where its output goes, which action it takes, where an edge leads. Nothing here is to be changed,
not even a dict.

Times are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import attrs

from ..values import copied, shown
from .expressions import Expression
from .paths import Path, Scope, Source

ExecType = Literal["http", "queue", "local"]
"""Who executes: a worker that is called, a worker that fetches its work, or a function in this process."""

ExecutorType = Literal["http", "queue", "local", "local_script"]
"""The same, or a program that is started here."""

Mode = Literal["sequential", "concurrent"]
Strategy = Literal["fail_fast", "collect_errors", "ignore_errors"]

DEFAULT_ACTION = "default"

ERROR_ACTION = "error"
"""The action of an edge that handles the errors of a node which has no `on_error`."""

UnhandledErrors = Literal["fail", "continue"]
"""What an error does that nothing handles: fail the flow, or take the edge that a success would take."""


@attrs.frozen
class Prep:
    """Where a node's input comes from: a map of several values, else one, else none."""

    input_key: Path | None = None
    input_map: dict[str, Source] | None = None

    def input(self, scope: Scope) -> Any:
        """The input, of which parts may be those in the scope themselves."""
        if self.input_map is not None:
            return {key: source.get(scope) for key, source in self.input_map.items()}
        return self.input_key.get(scope) if self.input_key is not None else None


@attrs.frozen(kw_only=True)
class Output:
    """A line of an `output_map`: the field of the output, and where in shared it goes."""

    to: Path
    field: Path


@attrs.frozen
class Post:
    """What becomes of a node's output."""

    output_key: Path | None = None
    output_map: tuple[Output, ...] = ()
    action_static: str | None = None
    action_key: Path | None = None

    def write(self, shared: dict[str, Any], output: Any) -> None:
        """Put the output, and fields of it, where they belong: copies, so that none changes with another.
        Raises `Invalid` if there is no such place."""
        for line in self.output_map:
            line.to.set(shared, copied(line.field.within(output)))
        if self.output_key is not None:
            self.output_key.set(shared, copied(output))

    def action(self, output: Any, scope: Scope) -> str | None:
        """The action that a node takes after this output, if it says so itself."""
        if self.action_static is not None:
            return self.action_static
        if self.action_key is None:
            return None
        for found in (self._of(output), self.action_key.get(scope)):
            if isinstance(found, str) and found:
                return found
        return None

    def _of(self, output: Any) -> Any:
        return (
            self.action_key.within(output) if self.action_key is not None and self.action_key.bare else None
        )


@attrs.frozen(kw_only=True)
class Node:
    """What every node has. `max_attempts` 0 means: each worker that is there, once."""

    kind: ClassVar[str]
    params: dict[str, Any] = attrs.field(factory=dict)
    prep: Prep = Prep()
    post: Post = Post()
    default_action: str | None = None
    max_retries: int = 0
    wait_ms: float = 0
    max_attempts: int = 0
    attempt_delay_ms: float = 0
    weighted_by_load: bool = False
    timeout_ms: float | None = None
    on_error: str | None = None
    on_timeout: str | None = None


@attrs.frozen(kw_only=True, slots=False)  # `Foreach` is of both kinds, which slots do not allow
class _Calling(Node):
    """What nodes have that call something by its name: a service, or a function in this process."""

    service: str | None = None
    func: str | None = None

    @property
    def target(self) -> str:
        """The name of what is called."""
        return self.func or self.service or ""


@attrs.frozen(kw_only=True)
class Script:
    """A program, as an object tells of it: what it reads from stdin, and what its output is taken for."""

    cmd: str
    args: tuple[str, ...] = ()
    output_mode: Literal["text", "json"] = "text"
    stdin_mode: Literal["none", "json"] = "none"
    timeout_ms: float | None = None

    @classmethod
    def of(cls, written: tuple[str, ...] | Script) -> Script:
        """One that may be written as a list: that reads JSON, and may write it."""
        if isinstance(written, Script):
            return written
        return cls(cmd=written[0], args=written[1:], output_mode="json", stdin_mode="json")


@attrs.frozen(kw_only=True)
class Exec:
    """What is executed otherwise than a node says: other parameters, which win over all, another service or
    function, or one that is executed elsewhere."""

    service: str | None = None
    exec_type: ExecType | None = None
    func: str | None = None
    params: dict[str, Any] = attrs.field(factory=dict)

    def elsewhere(self, otherwise: ExecType) -> ExecType:
        """Where it is executed; `otherwise` is what the node says."""
        return self.exec_type or ("local" if self.func else otherwise)

    def target(self, exec_type: ExecType, service: str | None, func: str | None) -> str:
        """The name of what is called there; `service` and `func` are the node's."""
        if exec_type == "local":
            return self.func or func or self.service or service or ""
        return self.service or service or ""


@attrs.frozen(kw_only=True)
class BranchExec(Exec):
    """A branch of a `parallel` node, with an input and places for its output of its own."""

    prep: Prep | None = None
    post: Post = Post()


@attrs.frozen(kw_only=True)
class ItemExec(Exec):
    """How one item of a `foreach` is executed, by its index."""

    index: int = 0


@attrs.frozen(kw_only=True)
class NodeExec(Exec):
    """How one node of an embedded graph is executed, by its key."""

    node: str

    def of(self, node: Node) -> Node:
        """That node, with what it executes changed. Raises `ValueError` if it executes nothing by a name."""
        if not (self.service or self.func or self.exec_type):
            return node
        if not isinstance(node, Executor | Local | Foreach):
            raise ValueError(f"is a node of kind {shown(node.kind)}, of which only params can be changed")
        stays = "local" if isinstance(node, Local) else node.exec_type
        if stays == "local_script" and not (self.service or self.func):
            raise ValueError("is a script, of which only params can be changed")
        exec_type = self.elsewhere("http" if stays == "local_script" else stays)
        target = self.target(exec_type, node.service, node.func)
        if not target:
            raise ValueError(f"has no service, which exec_type {shown(exec_type)} would call")
        if isinstance(node, Local):
            if exec_type != "local":
                raise ValueError("is a node of kind 'local', which calls no service")
            return attrs.evolve(node, func=target)
        func, service = (target, node.service) if exec_type == "local" else (None, target)
        changed = attrs.evolve(node, exec_type=exec_type, func=func, service=service)
        return attrs.evolve(changed, script=()) if isinstance(changed, Executor) else changed


@attrs.frozen(kw_only=True)
class Executor(_Calling):
    """Calls a service, or a function, or starts a program: `script` is it and its arguments, or an object."""

    kind = "executor"
    exec_type: ExecutorType = "http"
    script: tuple[str, ...] | Script = ()


@attrs.frozen(kw_only=True)
class Local(_Calling):
    """Calls a function in this process."""

    kind = "local"


@attrs.frozen(kw_only=True)
class ChoiceCase:
    """An action, and when it is taken."""

    action: str
    expr: Expression


@attrs.frozen(kw_only=True)
class Choice(Node):
    """Takes the action of the first case that holds."""

    kind = "choice"
    choice_cases: tuple[ChoiceCase, ...] = ()

    def choose(self, scope: Scope) -> str | None:
        """The action of the first case that holds; None if none does."""
        return next((case.action for case in self.choice_cases if case.expr.holds(scope)), None)


@attrs.frozen(kw_only=True, slots=False)  # `Foreach` is of both kinds, which slots do not allow
class _Branching(Node):
    """What nodes have that do several things. `max_parallel` 0 means: all at once."""

    exec_type: ExecType = "http"
    parallel_mode: Mode = "sequential"
    max_parallel: int = 0
    failure_strategy: Strategy = "fail_fast"


@attrs.frozen(kw_only=True)
class Parallel(_Branching):
    """Calls several services with one input. Without any here, a run brings them as `params.services`."""

    kind = "parallel"
    parallel_services: tuple[str, ...] = ()
    parallel_execs: tuple[BranchExec, ...] = ()

    def branches(self, services: Sequence[str]) -> list[BranchExec]:
        """The branches in their order: of each service, the first exec that names it, if there is one left;
        then the execs that are left."""
        left = list(self.parallel_execs)
        found: list[BranchExec] = []
        for service in services:
            own = next((each for each in left if each.service == service), None)
            if own is not None:
                left.remove(own)
            found.append(own or BranchExec(service=service, exec_type=self.exec_type))
        return found + left


@attrs.frozen(kw_only=True)
class Foreach(_Calling, _Branching):
    """Calls one service for each item of its input."""

    kind = "foreach"
    foreach_execs: tuple[ItemExec, ...] = ()


@attrs.frozen(kw_only=True)
class Subflow(Node):
    """Walks a graph within this one, with its own shared."""

    kind = "subflow"
    subflow: Graph
    subflow_execs: tuple[NodeExec, ...] = ()


@attrs.frozen(kw_only=True)
class FlowRef(Node):
    """Walks another flow, by its name; version 0 is the latest that is published."""

    kind = "flow_ref"
    flow: str
    version: int = 0


@attrs.frozen(kw_only=True)
class Timer(Node):
    """Waits for `params.delay_ms`."""

    kind = "timer"


@attrs.frozen(kw_only=True)
class WaitEvent(Node):
    """Waits until the path `params.signal_key` leads to something, or for `params.timeout_ms`."""

    kind = "wait_event"


@attrs.frozen(kw_only=True)
class Approval(Node):
    """Waits until the path `params.approval_key` leads to a decision."""

    kind = "approval"


@attrs.frozen(kw_only=True)
class Edge:
    """Where a node's action leads; nowhere, so the flow ends, if `to` is empty."""

    from_: str
    action: str = DEFAULT_ACTION
    to: str


@attrs.frozen(slots=False)
class Graph:
    """A flow. Without `unhandled_errors`, a subflow does as the graph around it, and a flow fails."""

    start: str
    nodes: dict[str, Node]
    edges: tuple[Edge, ...] = ()
    unhandled_errors: UnhandledErrors | None = None

    def edge(self, node: str, action: str) -> Edge | None:
        """The edge that an action takes from a node: its own, else the one for the default action."""
        return self._edges.get((node, action)) or self._edges.get((node, DEFAULT_ACTION))

    def follow(self, node: str, action: str) -> str | None:
        """The node that an action leads to; None if the flow ends there."""
        edge = self.edge(node, action)
        return edge.to or None if edge is not None else None

    def error_edge(self, node: str) -> Edge | None:
        """The edge for the errors of a node. The one for the default action is none."""
        return self._edges.get((node, ERROR_ACTION))

    @cached_property
    def _edges(self) -> dict[tuple[str, str], Edge]:
        return {(edge.from_, edge.action): edge for edge in self.edges}


KINDS: dict[str, type[Node]] = {
    cls.kind: cls
    for cls in (Executor, Local, Choice, Parallel, Foreach, Subflow, FlowRef, Timer, WaitEvent, Approval)
}
"""The kinds of nodes there are."""
