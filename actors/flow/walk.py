"""The walk: from node to node along the edges, with one transaction after each node.

`WalkState` contains everything that the walk needs to continue; the next body rebuilds the rest. So a pause,
a restart and a crash have the same effect: the walk continues at the node that was in flight.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NoReturn

import trio

from ...persistence.flows import FlowState
from ...persistence.store import Memo, MessagesTaken
from ...protocol.errors import Invalid, TooLarge
from ...protocol.events import NodeRan, NodeStarted, RunLog
from ...protocol.flow.model import DEFAULT_ACTION, ERROR_ACTION, Edge, Foreach, Graph, Node, Parallel
from ...protocol.flow.paths import Scope, parse_target
from ...protocol.flow.records import NodeRun
from ...protocol.values import copied, shown
from .. import tracing
from ..run.context import Body
from ..run.failures import Failure
from ..run.local_host import local_host
from ..run.pause import AwaitedInterrupt, Pause
from ..workers.states import acknowledge, refuse
from .branches import first_results
from .node_context import Done, Level, NodeContext, is_cancelled
from .nodes import KINDS
from .services import FlowServices
from .state import Frame, Waits, WalkState, nested, result_of, to_text

logger = logging.getLogger("greenroom")

MAX_STEPS = 10_000
"""Maximum number of steps of one run; ends loops that would never end."""

_TOP = Level()

_RECORD_TIMEOUT = 5.0
"""Seconds within which the node run of a cancelled node must be committed."""


class FlowFailed(Failure):
    """A node failed, and its error is not handled."""


class Walk:
    """The part of a walk that one body executes."""

    def __init__(
        self,
        body: Body,
        state: WalkState,
        stored: FlowState,
        later: Sequence[NodeRun],
        services: FlowServices,
    ) -> None:
        self.body = body
        self.host = local_host(body.host)
        self.state = state
        self.services = services
        self.later = later  # node runs of the node that was in flight when the last body ended
        self._version = stored.version
        self._numbered = later[-1].number if later else stored.numbered
        self._taken: list[int] = []  # signals that the next commit marks as taken
        self._attempts = Counter((row.node, row.visit) for row in later if row.branch is None)
        self._waited: Waits | None = None  # where the previous body paused
        self._in_batch = any(row.branch is not None for row in later)

    async def go(self, graph: Graph, params: dict[str, Any]) -> dict[str, Any] | Pause:
        """Walk until the flow ends or must wait."""
        frame = self.state.frame
        self._waited, self.state.waits = self.state.waits, None
        try:
            pause = await self.walk(graph, frame, params)
        except RecursionError:
            text = "too_deep: the flow's shared data is nested too deeply"
            raise FlowFailed(f"node {shown(frame.curr)}: {text}") from None
        except BaseException as error:
            if is_cancelled() and not isinstance(error, Exception):
                await self._cancelled_between(graph)
            raise
        if pause is not None:
            return pause
        if frame.error is not None:
            raise FlowFailed(frame.error)
        return result_of(frame.shared)

    async def walk(
        self, graph: Graph, frame: Frame, params: dict[str, Any], level: Level = _TOP
    ) -> Pause | None:
        """Walk one level until it ends or must wait."""
        execs = {exec.node: exec for exec in level.execs}
        level = Level(level.prefix, level.depth, graph.unhandled_errors or level.unhandled_errors)
        while frame.curr is not None:
            if not self._in_batch:  # the finished branches used the input without these signals
                self._take_signals()
            if self.state.steps >= MAX_STEPS:
                raise FlowFailed(f"too_many_steps: the limit is {MAX_STEPS:,} steps per run")
            key = frame.curr
            node, given = graph.nodes[key], params
            if key in execs:
                node, given = execs[key].of(node), {**params, **execs[key].params}
            context = NodeContext(self, frame, key, node, given, level)
            try:
                done = await _in_span(context)
            except TooLarge as error:
                await self._fail_too_large(context, context.ok(), error)
            if isinstance(done, Pause):
                return done
            await self._finish(graph, context, done)
        return None

    # Calls of nodes.

    def now(self) -> float:
        """Unix seconds, rounded down to the millisecond, which is the precision of stored waits."""
        return math.floor(self.host.wall_clock() * 1000) / 1000

    def woken_at(self, path: str, visit: int) -> float:
        """The time for which the run was woken, if it waited at this visit of a node; else minus infinity."""
        waited, woken_at = self._waited, self.host.woken_at
        if waited is None or woken_at is None or (waited.node, waited.visit) != (path, visit):
            return -math.inf
        return woken_at

    def announce_start(self, context: NodeContext[Any]) -> None:
        """Report the start of a node that takes time."""
        self.host.mention(
            NodeStarted(
                by="body",
                node=context.path,
                kind=context.node.kind,
                visit=context.number,
                **self.host.about(),
            )
        )

    def attempts_of(self, context: NodeContext[Any]) -> list[NodeRun]:
        """The attempts of this visit and its branches that were made before the last restart."""
        return [row for row in self.later if row.node == context.path and row.visit == context.number]

    async def save(self) -> None:
        """Commit the state in the middle of a node, because the next step depends on it."""
        await self.body.committed(self.host.commit((), self._memos()))
        self._taken = []

    async def save_signals(self) -> None:
        """Commit the signals that the current node's input contains."""
        if self._taken:
            await self.save()

    async def record(self, context: NodeContext[Any], done: Done, branch: str | None, *, last: bool) -> None:
        """Commit an attempt after which the node is not done."""
        row, event = self._node_run(context, done, branch, None, last=last)
        if branch is None:
            self._attempts[context.path, context.number] += 1
        await self._commit(done, event, (row,))

    async def record_cancelled(self, context: NodeContext[Any], done: Done, branch: str | None) -> None:
        """Commit an attempt that is being cancelled, unless it will be repeated at the next start."""
        if self.body.resumes_later:
            return
        self.host.end_is_written = True
        done.status, done.error = "cancelled", None
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _RECORD_TIMEOUT):
            await self.record(context, done, branch, last=True)

    def pause(
        self,
        waits: Waits,
        waiting_for: Literal["time", "signal", "answer"],
        interrupt: AwaitedInterrupt | None,
    ) -> Pause:
        """A pause without a body; the current state is committed with it."""
        self.state.waits = waits
        within = None if waits.until is None else max(0.0, waits.until - waits.since)
        return Pause(waiting_for, waits.until, waits.key, interrupt, self._memos(), within)

    # Between two nodes.

    async def _finish(self, graph: Graph, context: NodeContext[Any], done: Done) -> None:
        """Write the node's output, take the edge, and commit both."""
        node, frame, state = context.node, context.frame, self.state
        if done.status == "ok" or done.keeps_output:
            try:
                for post, output in done.places:
                    post.write(frame.shared, output)
                node.post.write(frame.shared, done.output)
            except Invalid as error:
                done.fail("bad_output", error.message)
        action, edge = _next(graph, context, done)
        context.forget()
        frame.last, frame.curr = action, edge.to or None if edge is not None else None
        if done.status != "ok" and edge is None:
            frame.error = f"node {shown(context.path)}: {done.error}"
        state.steps += 1
        state.visits[context.path] = context.number
        if isinstance(context.node, Parallel | Foreach):
            done.output = first_results(done.output, self.host.max_value_bytes)
        row, event = self._node_run(context, done, None, action, last=True)
        try:
            memos = self._memos()
        except TooLarge as error:
            self._numbered -= 1
            await self._fail_too_large(context, done, error)
        await self._commit(done, event, (row, *memos))
        self._taken = []
        self.host.end_is_written = self._in_batch = False

    async def _fail_too_large(self, context: NodeContext[Any], done: Done, error: TooLarge) -> NoReturn:
        """Fail the last node and the flow, because the shared data has become too large."""
        done.fail("too_large", error.message)
        await self.record(context, done, None, last=True)
        raise FlowFailed(f"node {shown(context.path)}: {done.error}")

    async def _commit(self, done: Done, event: NodeRan, memos: tuple[Memo, ...]) -> None:
        """Commit an attempt, and confirm the worker's result only after the commit."""
        try:
            await self.body.committed(self.host.commit((event,), memos))
            if done.outcome is not None:
                acknowledge(done.outcome)
        finally:
            if done.outcome is not None:
                refuse(done.outcome)

    def _node_run(
        self, context: NodeContext[Any], done: Done, branch: str | None, action: str | None, *, last: bool
    ) -> tuple[NodeRun, NodeRan]:
        self._numbered += 1
        row = NodeRun(
            run=self.body.id,
            number=self._numbered,
            node=context.path,
            visit=context.number,
            attempt=done.attempt,
            branch=branch,
            status=done.status,
            prep=context.input if branch is None else None,
            input=done.input,
            output=done.output,
            error=done.error,
            action=action,
            worker=done.worker,
            worker_url=done.worker_url,
            started_at=done.started_at,
            finished_at=self.now(),
            last=last,
        )
        event = NodeRan(
            by="body",
            node=row.node,
            kind=context.node.kind,
            visit=row.visit,
            attempt=row.attempt,
            status=row.status,
            branch=branch,
            action=action,
            error=row.error,
            worker=row.worker,
            started_at=row.started_at,
            **self.host.about(),
        )
        return row, event

    def _memos(self) -> tuple[Memo, ...]:
        text = to_text(self.state, self.host.max_value_bytes)
        state = FlowState(self.body.id, self._version, text, self._numbered)
        return (state, MessagesTaken(self.body.id, tuple(self._taken))) if self._taken else (state,)

    async def _cancelled_between(self, graph: Graph) -> None:
        """Record a cancel between two nodes at the node that would be next."""
        frame = self.state.frame
        if self.host.end_is_written or frame.curr is None:
            self.host.end_is_written = True  # recorded already, or the flow has no next node
            return
        context = NodeContext(self, frame, frame.curr, graph.nodes[frame.curr], {}, _TOP)
        done = context.ok()
        done.attempt += self._attempts[context.path, context.number]
        await self.record_cancelled(context, done, None)

    # Signals.

    def _take_signals(self) -> None:
        signals = self.body.take_signals()
        for signal in signals:
            target = parse_target(signal.key)
            for shared in self._levels():
                try:
                    target.set(shared, copied(signal.value))
                except Invalid as error:  # the value cannot be stored at this path
                    text = f"signal {shown(signal.key)} could not be stored in shared: {error.message}"
                    self._warn(text)
            self._taken.append(signal.seq)

    def log_wait(self, context: NodeContext[Any], why: str) -> None:
        """Log that a node waits for an executor."""
        text = f"node {shown(context.path)} waits: {why}"
        logger.warning("run %s: %s", self.body.id, text)
        self._warn(text)

    def _warn(self, text: str) -> None:
        about = self.host.about()
        self.host.mention(RunLog(by="engine", attempt=self.body.attempt, text=text, level="warning", **about))

    def _levels(self) -> list[dict[str, Any]]:
        """The shared data of each level, from the flow to the innermost subflow that the walk is in."""
        levels: list[dict[str, Any]] = []
        frame: Frame | None = self.state.frame
        while frame is not None:
            levels.append(frame.shared)
            frame = None if frame.curr is None else nested(frame.shared, frame.curr)
        return levels


async def _in_span(context: NodeContext[Any]) -> Done | Pause:
    """Execute a node, in a span of its own if the body has one."""
    node = context.node
    span = tracing.start_below_current(
        f"node {context.path}", "internal", node=context.path, kind=node.kind, visit=context.number
    )
    if span is None:
        return await KINDS[type(node)](context)
    with span:
        done = await KINDS[type(node)](context)
        if isinstance(done, Pause):
            span.set(outcome="paused")
            return done
        span.set(outcome=done.status, attempt=done.attempt, worker=done.worker)
        if done.status != "ok":
            span.fail(done.error or done.status)
        return done


def _next(graph: Graph, context: NodeContext[Any], done: Done) -> tuple[str, Edge | None]:
    """The action that a node takes, and its edge. A failure without an edge fails the flow."""
    node = context.node
    if done.status == "ok":
        action = done.action or _own_action(node, done.output, context.scope)
        return action, graph.edge(context.key, action)
    handler = (node.on_timeout if done.status == "timeout" else None) or node.on_error
    if handler is not None:
        return handler, graph.edge(context.key, handler)
    edge = graph.error_edge(context.key)
    if edge is not None:
        return ERROR_ACTION, edge
    action = _own_action(node, None, context.scope)
    return action, graph.edge(context.key, action) if context.level.unhandled_errors == "continue" else None


def _own_action(node: Node, output: Any, scope: Scope) -> str:
    return node.post.action(output, scope) or node.default_action or DEFAULT_ACTION
