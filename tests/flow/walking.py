"""Shared by the tests of walks: short definitions, functions for nodes, and outcomes of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import trio

from greenroom import Engine, Jobs, Ticket
from greenroom.protocol.flow.records import NodeRun
from greenroom.protocol.records import RunRecord
from tests.support import PATIENCE

from .definitions import Definition, flow


def node(
    kind: str,
    input: Any = None,
    out: str | None = None,
    *,
    action: str | None = None,
    action_key: str | None = None,
    **fields: Any,
) -> Definition:
    """A node: `input` is a path or a map of paths, `out` the path in shared for its output."""
    made: Definition = {"kind": kind, **fields}
    if input is not None:
        made["prep"] = {"input_map" if isinstance(input, dict) else "input_key": input}
    post = {"output_key": out, "action_static": action, "action_key": action_key}
    post = {key: value for key, value in post.items() if value is not None}
    if post:
        made["post"] = {**made.get("post", {}), **post}
    return made


def local(func: str, input: Any = None, out: str | None = None, **fields: Any) -> Definition:
    return node("local", input, out, func=func, **fields)


class Calls:
    """Functions that nodes call, and the calls that were made: `(function, input)`, in order."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Any]] = []
        self.cancelled: list[tuple[str, Any]] = []
        self.jobs = Jobs()
        for function in (self.echo, self.double, self.sleep, self.hang, self.fail, self.even, self.flaky):
            self.jobs.function(function.__name__)(function)

    async def echo(self, input: Any) -> Any:
        """Return the input."""
        self.made.append(("echo", input))
        return input

    async def double(self, number: Any) -> Any:
        self.made.append(("double", number))
        return 2 * number

    async def sleep(self, seconds: Any) -> Any:
        """Return after a delay."""
        self.made.append(("sleep", seconds))
        await trio.sleep(seconds)
        return seconds

    async def hang(self, input: Any) -> None:
        """Never return."""
        self.made.append(("hang", input))
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            self.cancelled.append(("hang", input))
            raise

    async def fail(self, input: Any) -> None:
        self.made.append(("fail", input))
        raise ValueError(f"no {input}")

    async def even(self, number: Any) -> Any:
        """Take the input as a number of seconds; fail if it is odd."""
        self.made.append(("even", number))
        await trio.sleep(number)
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number

    async def flaky(self, input: Any, params: dict[str, Any]) -> Any:
        """Fail `params.failures` times, and then succeed."""
        self.made.append(("flaky", input))
        if len([made for made in self.made if made == ("flaky", input)]) <= params.get("failures", 1):
            raise ValueError("not yet")
        return input

    def of(self, function: str) -> list[Any]:
        """The inputs of one function."""
        return [input for name, input in self.made if name == function]


@attrs.frozen
class Walked:
    """A run that has ended, and its node runs."""

    run: RunRecord
    rows: Sequence[NodeRun]

    @property
    def result(self) -> Any:
        assert self.run.status == "succeeded", self.run
        return self.run.result

    @property
    def error(self) -> str:
        assert self.run.status == "failed", self.run
        assert self.run.error is not None
        return self.run.error

    @property
    def story(self) -> list[str]:
        return story(self.rows)

    def of(self, node: str, branch: str | None = None) -> list[NodeRun]:
        return [row for row in self.rows if (row.node, row.branch) == (node, branch)]


def story(rows: Sequence[NodeRun]) -> list[str]:
    """The node runs as texts: `"a ok default"`, `"a[2] error"`; without an action if it is not done."""
    lines = []
    for row in rows:
        branch = "" if row.branch is None else f"[{row.branch}]"
        lines.append(f"{row.node}{branch} {row.status} {row.action or ''}".rstrip())
    return lines


def check_rows(rows: Sequence[NodeRun]) -> None:
    """Check the node runs of a run: numbers without a gap, increasing attempts, and `last` set only for the
    last attempt of each visit and branch."""
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))
    tries: dict[tuple[str, int, str | None], list[NodeRun]] = {}
    for row in rows:
        assert row.started_at <= row.finished_at, row
        tries.setdefault((row.node, row.visit, row.branch), []).append(row)
    for rows_of_one in tries.values():
        assert [row.attempt for row in rows_of_one] == list(range(1, len(rows_of_one) + 1))
        assert [row.last for row in rows_of_one[:-1]] == [False] * (len(rows_of_one) - 1)


async def ended(engine: Engine, ticket: Ticket | str) -> Walked:
    """Wait for the end of a run."""
    id = ticket if isinstance(ticket, str) else ticket.id
    with trio.fail_after(PATIENCE):
        events = engine.events()
        run = await engine.get_run(id)
        while not run.ended:
            await anext(events)
            run = await engine.get_run(id)
    rows = await engine.flows.node_runs(id)
    check_rows(rows)
    return Walked(run, rows)


async def start(
    engine: Engine, definition: Definition, params: dict[str, Any] | None = None, **options: Any
) -> Ticket:
    """Publish a definition, and start a run of it."""
    await engine.flows.publish("flow", definition)
    return await engine.flows.start("flow", params=params, **options)


async def walk(
    engine: Engine, definition: Definition, params: dict[str, Any] | None = None, **options: Any
) -> Walked:
    """Publish a definition, and walk it to its end."""
    return await ended(engine, await start(engine, definition, params, **options))


async def until_waiting(engine: Engine, ticket: Ticket | str) -> RunRecord:
    """Wait until the run waits without a body."""
    id = ticket if isinstance(ticket, str) else ticket.id
    with trio.fail_after(PATIENCE):
        events = engine.events()
        run = await engine.get_run(id)
        while run.status != "suspended":
            assert not run.ended, run
            await anext(events)
            run = await engine.get_run(id)
    return run


__all__ = [
    "Calls",
    "Walked",
    "check_rows",
    "ended",
    "flow",
    "local",
    "node",
    "start",
    "story",
    "until_waiting",
    "walk",
]
