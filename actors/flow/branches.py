"""Branches: several calls of one node, one after the other or at once, under a strategy for failures.

Each branch that has ended is committed at once, as a node run with its number; after a restart those are not
made again. What the node keeps in shared (`{done, errs, …}`) is only shown, from these node runs.
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
from .retries import carry_out

_MOST_AT_ONCE = 100
"""How many branches are made at once where the node doesn't say."""


class Batch:
    """The branches of one visit, and how each has ended."""

    def __init__(self, context: NodeContext[Any], calls: Sequence[Call]) -> None:
        self._context = context
        self._calls = calls
        self._ended: dict[int, tuple[Any, str | None]] = {}  # output, error
        self._scope = trio.CancelScope()
        self.failed = False

    def recall(self, rows: Sequence[NodeRun]) -> None:
        """Know the branches that had ended before a restart."""
        for row in rows:
            if row.branch is not None and row.last and row.status != "cancelled":
                self._end(int(row.branch), row.output, row.error if row.status != "ok" else None)

    async def make(self, at_once: int, *, fail_fast: bool) -> None:
        """Make those that have not ended, in order."""
        left = (branch for branch in range(len(self._calls)) if branch not in self._ended)
        if fail_fast and self.failed:
            return
        with self._scope:
            if at_once == 1:
                await self._work(left, fail_fast)
                return
            async with trio.open_nursery() as nursery:
                for _ in range(min(at_once, len(self._calls) - len(self._ended))):
                    nursery.start_soon(self._work, left, fail_fast)

    async def _work(self, left: Iterator[int], fail_fast: bool) -> None:
        for branch in left:
            done = await carry_out(self._context, self._calls[branch], str(branch))
            # What has been done is written down, whatever ends the batch meanwhile; a commit that takes too
            # long has the body abandoned.
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
        """What went well, in the order of the branches."""
        return [output for _, (output, error) in sorted(self._ended.items()) if error is None]

    def places(self, posts: Sequence[Post]) -> list[tuple[Post, Any]]:
        """Where the outputs of those that went well go, besides into that of the node."""
        return [
            (posts[branch], output)
            for branch, (output, error) in sorted(self._ended.items())
            if error is None and branch < len(posts)
        ]

    def all(self) -> list[Any]:
        """The result of each branch, or its error."""
        return [
            output if error is None else {"error": error}
            for _, (output, error) in sorted(self._ended.items())
        ]

    def first_error(self) -> str:
        """What is told of a batch that failed."""
        branch, error = next((n, error) for n, (_, error) in sorted(self._ended.items()) if error is not None)
        return f"branch {branch}: {error}"


def at_once(node: Parallel | Foreach) -> int:
    """How many of its branches are made at once."""
    return (node.max_parallel or _MOST_AT_ONCE) if node.parallel_mode == "concurrent" else 1


def first_results(output: Any, max_bytes: int) -> Any:
    """What the node run of a batch keeps of its output: the first results, as far as they have `max_bytes`.
    Each is in the node run of its branch, too."""
    if not isinstance(output, list):
        return output
    return page_of(((result, len(msgspec.json.encode(result))) for result in output), max_bytes)


async def carry_out_all(context: NodeContext[Any], calls: Sequence[Call], posts: Sequence[Post] = ()) -> Done:
    """Make all branches, or as many as the strategy wants; `posts` say where their own outputs go."""
    node: Parallel | Foreach = context.node
    before = context.walk.tries_of(context)
    if before:
        context.began_at = min(row.started_at for row in before)  # the node is older than this body
    else:
        context.walk.mention_start(context)
        await context.walk.save_signals()
    strategy = node.failure_strategy
    batch = Batch(context, calls)
    batch.recall(before)
    await batch.make(at_once(node), fail_fast=strategy == "fail_fast")
    if not batch.failed or strategy == "ignore_errors":
        done = context.ok(batch.results())
    elif strategy == "collect_errors":
        done = context.ok(batch.all())
    else:
        done = context.failed("branch_failed", batch.first_error())
        done.output, done.keeps_output = batch.results(), True
    done.places = batch.places(posts)
    return done
