"""Branches: several calls of one node, sequential or concurrent, with a strategy for failures.

Each finished branch is committed immediately, as a node run with the branch's number, and is not repeated
after a restart. What the node shows in shared (`{done, errs, …}`) is derived from these node runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import trio

from ...persistence.flows import page_of
from ...protocol.flow.model import Foreach, Parallel, Post
from ...protocol.flow.records import NodeRun
from .calls import Call
from .node_context import Done, NodeContext
from .retries import execute_with_retries

_DEFAULT_MAX_PARALLEL = 100
"""The number of concurrent branches if the node does not set `max_parallel`."""


class Batch:
    """The branches of one visit and their outcomes."""

    def __init__(self, context: NodeContext[Any], calls: Sequence[Call]) -> None:
        self._context = context
        self._calls = calls
        self._ended: dict[int, tuple[Any, str | None]] = {}  # output, error
        self._scope = trio.CancelScope()
        self.failed = False

    def recall(self, rows: Sequence[NodeRun]) -> None:
        """Restore the branches that ended before a restart."""
        for row in rows:
            if row.branch is not None and row.last and row.status != "cancelled":
                self._end(int(row.branch), row.output, row.error if row.status != "ok" else None)

    async def execute(self, max_parallel: int, *, fail_fast: bool) -> None:
        """Execute the remaining branches, in order."""
        left = (branch for branch in range(len(self._calls)) if branch not in self._ended)
        if fail_fast and self.failed:
            return
        with self._scope:
            if max_parallel == 1:
                await self._work(left, fail_fast)
                return
            async with trio.open_nursery() as nursery:
                for _ in range(min(max_parallel, len(self._calls) - len(self._ended))):
                    nursery.start_soon(self._work, left, fail_fast)

    async def _work(self, left: Iterator[int], fail_fast: bool) -> None:
        for branch in left:
            done = await execute_with_retries(self._context, self._calls[branch], str(branch))
            # A finished branch is recorded even if the batch is cancelled meanwhile. If the commit takes
            # longer than the grace, the body is abandoned.
            with trio.CancelScope(shield=True):
                await self._context.walk.record(self._context, done, str(branch), last=True)
            self._end(branch, done.output, done.error)
            if fail_fast and self.failed:
                self._scope.cancel()
                return

    def _end(self, branch: int, output: Any, error: str | None) -> None:
        self._ended[branch] = (output, error)
        self.failed = self.failed or error is not None

    def results(self) -> list[Any]:
        """The outputs of the successful branches, in order."""
        return [output for _, (output, error) in sorted(self._ended.items()) if error is None]

    def places(self, posts: Sequence[Post]) -> list[tuple[Post, Any]]:
        """The successful branches that have their own destination: the destination and the output."""
        return [
            (posts[branch], output)
            for branch, (output, error) in sorted(self._ended.items())
            if error is None and branch < len(posts)
        ]

    def all(self) -> list[Any]:
        """The output of each branch, or its error."""
        return [
            output if error is None else {"error": error}
            for _, (output, error) in sorted(self._ended.items())
        ]

    def first_error(self) -> str:
        """The error of the first failed branch, with its number."""
        branch, error = next((n, error) for n, (_, error) in sorted(self._ended.items()) if error is not None)
        return f"branch {branch}: {error}"


def max_parallel(node: Parallel | Foreach) -> int:
    """The number of branches that execute at the same time."""
    return (node.max_parallel or _DEFAULT_MAX_PARALLEL) if node.parallel_mode == "concurrent" else 1


def first_results(output: Any, max_bytes: int) -> Any:
    """The part of a batch's output that its node run contains: the first results, up to `max_bytes` in total.
    The node run of each branch contains that branch's result."""
    if not isinstance(output, list):
        return output
    return page_of(((result, len(msgspec.json.encode(result))) for result in output), max_bytes)


async def execute_branches(
    context: NodeContext[Any], calls: Sequence[Call], posts: Sequence[Post] = ()
) -> Done:
    """Execute the branches as the node's strategy requires; `posts` are the destinations of their outputs."""
    node: Parallel | Foreach = context.node
    before = context.walk.attempts_of(context)
    if before:
        context.began_at = min(row.started_at for row in before)  # the visit began before this body
    else:
        context.walk.announce_start(context)
        await context.walk.save_signals()
    strategy = node.failure_strategy
    batch = Batch(context, calls)
    batch.recall(before)
    await batch.execute(max_parallel(node), fail_fast=strategy == "fail_fast")
    if not batch.failed or strategy == "ignore_errors":
        done = context.ok(batch.results())
    elif strategy == "collect_errors":
        done = context.ok(batch.all())
    else:
        done = context.failed("branch_failed", batch.first_error())
        done.output, done.keeps_output = batch.results(), True
    done.places = batch.places(posts)
    return done
