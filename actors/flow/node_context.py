"""The context of a node: its position in the walk, and the data it can read. `nodes/` executes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec
import trio

from ...protocol.flow.model import Node, NodeExec, Post, UnhandledErrors
from ...protocol.flow.paths import Scope
from ...protocol.flow.records import NodeStatus
from ...protocol.values import copied, shown
from ..run.pause import AwaitedInterrupt, Pause
from ..workers.states import Worked, WorkFailed
from .state import Frame, Waits, nested, runtime_key

if TYPE_CHECKING:
    from .walk import Walk

_CLOCK_TOLERANCE = 0.001
"""Tolerance in seconds for a clock that is early."""


N = TypeVar("N", bound=Node, covariant=True)


class Done(msgspec.Struct, kw_only=True):
    """The outcome of a visit or of one attempt. `code` names the error. `action` is set if the node itself
    chose one. With `keeps_output`, a failed node writes its output, too. `places` are outputs of branches
    that have their own destinations."""

    status: NodeStatus = "ok"
    output: Any = None
    error: str | None = None
    code: str | None = None
    action: str | None = None
    attempt: int = 1
    worker: str | None = None
    worker_url: str | None = None
    input: Any = None
    started_at: float
    keeps_output: bool = False
    places: list[tuple[Post, Any]] = []
    workers_fault: bool = False
    outcome: Worked | WorkFailed | None = None  # set while a worker waits for the commit

    def fail(self, code: str, text: str) -> None:
        """Mark as failed."""
        self.status = "timeout" if code == "timeout" else "error"
        self.code, self.error, self.output = code, f"{code}: {text}", None
        self.action = None

    def assigned_to(self, worker: str, url: str) -> None:
        """Record the worker that has taken the work."""
        self.worker, self.worker_url = worker, url or None


class Level(msgspec.Struct, frozen=True):
    """The level of a graph among nested ones: the prefix of its nodes' paths, its depth, its rule for
    unhandled errors (unless the graph sets its own), and overrides for the execution of its nodes."""

    prefix: str = ""
    depth: int = 0
    unhandled_errors: UnhandledErrors = "fail"
    execs: Sequence[NodeExec] = ()

    def within(
        self, path: str, unhandled_errors: UnhandledErrors = "fail", execs: Sequence[NodeExec] = ()
    ) -> Level:
        """The level of a graph that is nested in the node at this path."""
        return Level(path + "/", self.depth + 1, unhandled_errors, execs)


class NodeContext(Generic[N]):
    """See the module's docstring. `number` is the number of this visit to the node."""

    def __init__(
        self, walk: Walk, frame: Frame, key: str, node: N, params: dict[str, Any], level: Level
    ) -> None:
        self.walk = walk
        self.level = level
        self._marks: list[str] = []
        self.frame = frame
        self.key = key
        self.path = path = level.prefix + key
        self.node = node
        self.number = walk.state.visits.get(path, 0) + 1
        self.params = {**node.params, **params} if node.params else params
        scope = Scope(self.params, frame.shared)
        self.input = copied(node.prep.input(scope))  # shared may change before the input is recorded
        self.scope = Scope(self.params, frame.shared, self.input)
        self.began_at = walk.now()

    def ok(self, output: Any = None, *, action: str | None = None) -> Done:
        """The outcome of a successful node."""
        return Done(output=output, action=action, started_at=self.began_at)

    def failed(self, code: str, text: str) -> Done:
        """The outcome of a failed node."""
        done = Done(started_at=self.began_at)
        done.fail(code, text)
        return done

    def nested(self) -> Frame | None:
        """The frame of this node's subflow, if the walk is in it."""
        self.kept("sf")
        return nested(self.frame.shared, self.key)

    def kept(self, mark: str) -> Any:
        """What the node stored in shared before a pause or a restart, if anything."""
        return self.frame.shared.get(self._key(mark))

    def keep(self, mark: str, value: Any) -> None:
        """Store a value in shared until the node is done."""
        self.frame.shared[self._key(mark)] = value

    def forget(self) -> None:
        """Remove what the node stored, because it is done."""
        for name in self._marks:
            self.frame.shared.pop(name, None)

    def _key(self, mark: str) -> str:
        name = runtime_key(mark, self.key)
        self._marks.append(name)
        return name

    def waited_since(self, mark: str) -> float:
        """When the wait began, in Unix seconds: the stored time, or now."""
        kept = self.kept(mark)
        if kept is None:
            self.walk.announce_start(self)
            kept = {"start": round(self.began_at * 1000)}
            self.keep(mark, kept)
        since: float = kept["start"] / 1000
        self.began_at = min(self.began_at, since)
        return since

    def is_due(self, until: float | None) -> bool:
        """Whether a time has passed, by the clock or because the run was woken for it. In the second case the
        clock may have been set back since."""
        if until is None:
            return False
        woken_at = self.walk.woken_at(self.path, self.number)
        return max(self.walk.now(), woken_at) >= until - _CLOCK_TOLERANCE

    def pause(
        self,
        waiting_for: Literal["time", "signal", "answer"],
        *,
        since: float,
        until: float | None,
        key: str | None = None,
        interrupt: AwaitedInterrupt | None = None,
    ) -> Pause:
        """A pause at this node, during which the run has no body."""
        waits = Waits(self.path, self.node.kind, self.number, since, until, key)
        return self.walk.pause(waits, waiting_for, interrupt)


def is_cancelled() -> bool:
    """Whether the current scope is cancelled. The exception cannot show it: branches wrap it in a group."""
    return trio.current_effective_deadline() == -math.inf


def milliseconds(context: NodeContext[Any], name: str) -> float | None:
    """A parameter that is a duration in milliseconds, converted to seconds. Raises `ValueError`."""
    value = context.params.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise ValueError(f"params.{name} must be a number of milliseconds of at least 0 (got {shown(value)})")
    return value / 1000


def text(context: NodeContext[Any], name: str) -> str:
    """A parameter that is a string. Raises `ValueError`."""
    value = context.params.get(name)
    if not isinstance(value, str):
        raise ValueError(f"params.{name} must be a path such as '$shared.{name}' (got {shown(value)})")
    return value
