"""The model of a flow: a definition as frozen classes, created by `reading`.

A graph has nodes and edges. Each kind of node is a class with its own fields; `Node` has the common ones. How
a node is executed is not here, only what follows from the definition: its input, the target of its output,
its action, the edge that it takes. Callers must not change these objects, nor the dicts in them.

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
"""What executes a call: a worker over HTTP, a worker that polls a queue, or a function in this process."""

ExecutorType = Literal["http", "queue", "local", "local_script"]
"""The same, or a program on the server's machine."""

Mode = Literal["sequential", "concurrent"]
Strategy = Literal["fail_fast", "collect_errors", "ignore_errors"]

DEFAULT_ACTION = "default"

ERROR_ACTION = "error"
"""The action of an edge that handles the errors of a node without `on_error`."""

UnhandledErrors = Literal["fail", "continue"]
"""The effect of an unhandled error: fail the flow, or take the edge that a success would take."""


@attrs.frozen
class Prep:
    """The source of a node's input: a map of several values, else one value, else none."""

    input_key: Path | None = None
    input_map: dict[str, Source] | None = None

    def input(self, scope: Scope) -> Any:
        """Return the input. Its parts can be the objects of the scope, not copies."""
        if self.input_map is not None:
            return {key: source.get(scope) for key, source in self.input_map.items()}
        return self.input_key.get(scope) if self.input_key is not None else None


@attrs.frozen(kw_only=True)
class Output:
    """An entry of an `output_map`: a field of the output, and its target in shared."""

    to: Path
    field: Path


@attrs.frozen
class Post:
    """Where a node's output goes, and which action follows."""

    output_key: Path | None = None
    output_map: tuple[Output, ...] = ()
    action_static: str | None = None
    action_key: Path | None = None

    def write(self, shared: dict[str, Any], output: Any) -> None:
        """Write copies of the output and of its fields to shared. Raises `Invalid` for a bad target."""
        for line in self.output_map:
            line.to.set(shared, copied(line.field.within(output)))
        if self.output_key is not None:
            self.output_key.set(shared, copied(output))

    def action(self, output: Any, scope: Scope) -> str | None:
        """Return the action that `action_static` or `action_key` gives for this output, if any."""
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
    """The common fields of nodes. `max_attempts` 0 means one attempt on each available worker."""

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


@attrs.frozen(kw_only=True, slots=False)  # `Foreach` inherits from both classes, which slots do not allow
class _Calling(Node):
    """The fields of nodes that call a service, or a function in this process, by its name."""

    service: str | None = None
    func: str | None = None

    @property
    def target(self) -> str:
        """The name of the service or function that the node calls."""
        return self.func or self.service or ""


@attrs.frozen(kw_only=True)
class Script:
    """A program written as an object: its arguments, its input on stdin, and the format of its output."""

    cmd: str
    args: tuple[str, ...] = ()
    output_mode: Literal["text", "json"] = "text"
    stdin_mode: Literal["none", "json"] = "none"
    timeout_ms: float | None = None

    @classmethod
    def of(cls, written: tuple[str, ...] | Script) -> Script:
        """Return a node's script. One written as a list reads JSON from stdin, and its output can be JSON."""
        if isinstance(written, Script):
            return written
        return cls(cmd=written[0], args=written[1:], output_mode="json", stdin_mode="json")


@attrs.frozen(kw_only=True)
class Exec:
    """An override of what a node executes: other parameters, which have the highest precedence, another
    service or function, or another `exec_type`."""

    service: str | None = None
    exec_type: ExecType | None = None
    func: str | None = None
    params: dict[str, Any] = attrs.field(factory=dict)

    def elsewhere(self, default: ExecType) -> ExecType:
        """Return where it is executed; `default` is the node's `exec_type`."""
        return self.exec_type or ("local" if self.func else default)

    def target(self, exec_type: ExecType, service: str | None, func: str | None) -> str:
        """Return the name of the service or function to call; `service` and `func` are the node's."""
        if exec_type == "local":
            return self.func or func or self.service or service or ""
        return self.service or service or ""


@attrs.frozen(kw_only=True)
class BranchExec(Exec):
    """A branch of a `parallel` node, with its own input and its own targets for its output."""

    prep: Prep | None = None
    post: Post = Post()


@attrs.frozen(kw_only=True)
class ItemExec(Exec):
    """The override for one item of a `foreach`, by its index."""

    index: int = 0


@attrs.frozen(kw_only=True)
class NodeExec(Exec):
    """The override for one node of an embedded graph, by its key."""

    node: str

    def of(self, node: Node) -> Node:
        """Return the node with this override. Raises `ValueError` if the node calls nothing by name."""
        if not (self.service or self.func or self.exec_type):
            return node
        if not isinstance(node, Executor | Local | Foreach):
            raise ValueError(f"is of kind {shown(node.kind)}: only its params can be changed")
        current = "local" if isinstance(node, Local) else node.exec_type
        if current == "local_script" and not (self.service or self.func):
            raise ValueError("is a script: only its params can be changed")
        exec_type = self.elsewhere("http" if current == "local_script" else current)
        target = self.target(exec_type, node.service, node.func)
        if not target:
            raise ValueError(f"has no service for exec_type {shown(exec_type)} to call")
        if isinstance(node, Local):
            if exec_type != "local":
                raise ValueError("is of kind 'local', which calls no service")
            return attrs.evolve(node, func=target)
        func, service = (target, node.service) if exec_type == "local" else (None, target)
        changed = attrs.evolve(node, exec_type=exec_type, func=func, service=service)
        return attrs.evolve(changed, script=()) if isinstance(changed, Executor) else changed


@attrs.frozen(kw_only=True)
class Executor(_Calling):
    """Calls a service or a function, or starts a program: `script` is a list of arguments, or an object."""

    kind = "executor"
    exec_type: ExecutorType = "http"
    script: tuple[str, ...] | Script = ()


@attrs.frozen(kw_only=True)
class Local(_Calling):
    """Calls a function in this process."""

    kind = "local"


@attrs.frozen(kw_only=True)
class ChoiceCase:
    """An action and its condition."""

    action: str
    expr: Expression


@attrs.frozen(kw_only=True)
class Choice(Node):
    """Takes the action of the first case whose condition is true."""

    kind = "choice"
    choice_cases: tuple[ChoiceCase, ...] = ()

    def choose(self, scope: Scope) -> str | None:
        """Return the action of the first case whose condition is true; `None` if none is."""
        return next((case.action for case in self.choice_cases if case.expr.holds(scope)), None)


@attrs.frozen(kw_only=True, slots=False)  # `Foreach` inherits from both classes, which slots do not allow
class _Branching(Node):
    """The fields of nodes with several branches or items. `max_parallel` 0 means no limit."""

    exec_type: ExecType = "http"
    parallel_mode: Mode = "sequential"
    max_parallel: int = 0
    failure_strategy: Strategy = "fail_fast"


@attrs.frozen(kw_only=True)
class Parallel(_Branching):
    """Calls several services with one input. If it lists none, each run provides `params.services`."""

    kind = "parallel"
    parallel_services: tuple[str, ...] = ()
    parallel_execs: tuple[BranchExec, ...] = ()

    def branches(self, services: Sequence[str]) -> list[BranchExec]:
        """Return the branches in order: one per service, with the first unused exec that names it, then the
        remaining execs."""
        unused = list(self.parallel_execs)
        found: list[BranchExec] = []
        for service in services:
            own = next((each for each in unused if each.service == service), None)
            if own is not None:
                unused.remove(own)
            found.append(own or BranchExec(service=service, exec_type=self.exec_type))
        return found + unused


@attrs.frozen(kw_only=True)
class Foreach(_Calling, _Branching):
    """Calls one service for each item of its input."""

    kind = "foreach"
    foreach_execs: tuple[ItemExec, ...] = ()


@attrs.frozen(kw_only=True)
class Subflow(Node):
    """Walks an embedded graph, which has its own shared."""

    kind = "subflow"
    subflow: Graph
    subflow_execs: tuple[NodeExec, ...] = ()


@attrs.frozen(kw_only=True)
class FlowRef(Node):
    """Walks another flow, given by its name; version 0 is the latest published one."""

    kind = "flow_ref"
    flow: str
    version: int = 0


@attrs.frozen(kw_only=True)
class Timer(Node):
    """Waits for `params.delay_ms`."""

    kind = "timer"


@attrs.frozen(kw_only=True)
class WaitEvent(Node):
    """Waits until the path `params.signal_key` has a value, or for `params.timeout_ms`."""

    kind = "wait_event"


@attrs.frozen(kw_only=True)
class Approval(Node):
    """Waits until the path `params.approval_key` has a value, which is the decision."""

    kind = "approval"


@attrs.frozen(kw_only=True)
class Edge:
    """The edge for an action of a node; the flow ends there if `to` is empty."""

    from_: str
    action: str = DEFAULT_ACTION
    to: str


@attrs.frozen(slots=False)
class Graph:
    """A graph. The default of `unhandled_errors` is that of the graph around a subflow, else `fail`."""

    start: str
    nodes: dict[str, Node]
    edges: tuple[Edge, ...] = ()
    unhandled_errors: UnhandledErrors | None = None

    def edge(self, node: str, action: str) -> Edge | None:
        """Return the edge for an action of a node, else the one for the default action."""
        return self._edges.get((node, action)) or self._edges.get((node, DEFAULT_ACTION))

    def follow(self, node: str, action: str) -> str | None:
        """Return the node to which an action leads; `None` if the flow ends there."""
        edge = self.edge(node, action)
        return edge.to or None if edge is not None else None

    def error_edge(self, node: str) -> Edge | None:
        """Return the edge for the errors of a node; never the one for the default action."""
        return self._edges.get((node, ERROR_ACTION))

    @cached_property
    def _edges(self) -> dict[tuple[str, str], Edge]:
        return {(edge.from_, edge.action): edge for edge in self.edges}


KINDS: dict[str, type[Node]] = {
    cls.kind: cls
    for cls in (Executor, Local, Choice, Parallel, Foreach, Subflow, FlowRef, Timer, WaitEvent, Approval)
}
"""The kinds of nodes."""
