"""The context of a node: where the walk is, and what the node may see. Modules of `nodes/` carry it out."""

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

_A_MOMENT = 0.001
"""Seconds by which a clock may be early."""


N = TypeVar("N", bound=Node, covariant=True)


class Done(msgspec.Struct, kw_only=True):
    """How a visit, or one try of it, has ended. `code` names the error. `action` is one that the node itself
    chose. An error with `keeps_output` has its output written all the same. `places` has the outputs of
    branches that go to places of their own."""

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
    outcome: Worked | WorkFailed | None = None  # a worker waits to hear that it is committed

    def fail(self, code: str, text: str) -> None:
        """It went wrong, whatever it looked like before."""
        self.status = "timeout" if code == "timeout" else "error"
        self.code, self.error, self.output = code, f"{code}: {text}", None
        self.action = None

    def given_to(self, worker: str, url: str) -> None:
        """A worker has it in hand."""
        self.worker, self.worker_url = worker, url or None


class Level(msgspec.Struct, frozen=True):
    """Which of the graphs within each other is walked: what its nodes' paths begin with, how deep it is, what
    becomes of errors that nothing handles (unless it says so itself), and which of its nodes are executed
    otherwise."""

    prefix: str = ""
    depth: int = 0
    unhandled_errors: UnhandledErrors = "fail"
    execs: Sequence[NodeExec] = ()

    def within(
        self, path: str, unhandled_errors: UnhandledErrors = "fail", execs: Sequence[NodeExec] = ()
    ) -> Level:
        """That of a graph within the node at this path."""
        return Level(path + "/", self.depth + 1, unhandled_errors, execs)


class NodeContext(Generic[N]):
    """See the module's text. `number` says how often the walk has come to this node."""

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
        self.input = copied(node.prep.input(scope))  # what is shared may change before it is written down
        self.scope = Scope(self.params, frame.shared, self.input)
        self.began_at = walk.now()

    def ok(self, output: Any = None, *, action: str | None = None) -> Done:
        """It went well."""
        return Done(output=output, action=action, started_at=self.began_at)

    def failed(self, code: str, text: str) -> Done:
        """It went wrong."""
        done = Done(started_at=self.began_at)
        done.fail(code, text)
        return done

    def nested(self) -> Frame | None:
        """The frame of the subflow that the walk is in at this node."""
        self.kept("sf")
        return nested(self.frame.shared, self.key)

    def kept(self, mark: str) -> Any:
        """What the node has kept in shared, if it has been here before a pause or a restart."""
        return self.frame.shared.get(self._key(mark))

    def keep(self, mark: str, value: Any) -> None:
        """Keep something in shared until the node is done."""
        self.frame.shared[self._key(mark)] = value

    def forget(self) -> None:
        """The node is done, and what it kept is not needed any more."""
        for name in self._marks:
            self.frame.shared.pop(name, None)

    def _key(self, mark: str) -> str:
        name = runtime_key(mark, self.key)
        self._marks.append(name)
        return name

    def waited_since(self, mark: str) -> float:
        """When the wait began, in Unix seconds: now, or what was kept."""
        kept = self.kept(mark)
        if kept is None:
            self.walk.mention_start(self)
            kept = {"start": round(self.began_at * 1000)}
            self.keep(mark, kept)
        since: float = kept["start"] / 1000
        self.began_at = min(self.began_at, since)
        return since

    def is_over(self, until: float | None) -> bool:
        """Whether a time has come: by the clock, or because the run waited for it without a body, and was
        woken. The clock may have been set back meanwhile."""
        if until is None:
            return False
        woken_at = self.walk.woken_at(self.path, self.number)
        return max(self.walk.now(), woken_at) >= until - _A_MOMENT

    def pause(
        self,
        waiting_for: Literal["time", "signal", "answer"],
        *,
        since: float,
        until: float | None,
        key: str | None = None,
        interrupt: AwaitedInterrupt | None = None,
    ) -> Pause:
        """Have the run wait without a body."""
        waits = Waits(self.path, self.node.kind, self.number, since, until, key)
        return self.walk.pause(waits, waiting_for, interrupt)


def is_cancelled() -> bool:
    """Whether this is being cancelled. What is raised doesn't tell: branches make a group of it."""
    return trio.current_effective_deadline() == -math.inf


def milliseconds(context: NodeContext[Any], name: str) -> float | None:
    """A parameter that is a duration, in seconds. Raises `ValueError` for what is none."""
    value = context.params.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise ValueError(f"params.{name} must be a number of milliseconds, 0 or more, not {shown(value)}")
    return value / 1000


def text(context: NodeContext[Any], name: str) -> str:
    """A parameter that is a text. Raises `ValueError` for what is none."""
    value = context.params.get(name)
    if not isinstance(value, str):
        raise ValueError(f"params.{name} must be a path such as '$shared.{name}', not {shown(value)}")
    return value
