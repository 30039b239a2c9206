"""The live tree of a flow's nodes: the state of each node, and what a waiting node waits for.

It is independent of the connection: callers pass it the definition as JSON, and each event. Events can be
repeated or missing; later events correct the tree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from rich.console import Group, RenderableType
from rich.text import Text

from ...protocol.events import Event, InterruptClosed, InterruptOpened, NodeRan, NodeStarted
from ...protocol.records import RunRecord
from ..output import STYLES, clean, span, took

_MARKS = {"ok": ("✔", "green"), "error": ("✘", "bold red"), "timeout": ("✘", "bold red")}
_AT_WORK = ("▶", STYLES["running"])
_WAITS = ("‖", STYLES["suspended"])
_CANCELLED = ("✕", STYLES["cancelled"])
_NOT_REACHED = ("·", "dim")
_WAITING = ("timer", "wait_event", "approval")
_BRANCHES = 4
"""The number of branches, and of failed attempts, that are shown of a node: the last ones."""


@attrs.define
class _Attempt:
    """An ended attempt of a node, or of one of its branches."""

    status: str
    attempt: int
    error: str | None
    worker: str | None


@attrs.define
class _Node:
    """The state of a node in its latest visit."""

    path: str
    kind: str = ""
    called: str = ""
    params: Mapping[str, Any] = {}
    inner: dict[str, _Node] = attrs.field(factory=dict)
    visit: int = 0
    status: str = ""  # empty until the visit has ended
    reached: bool = False
    began_at: float = 0.0
    ended_at: float = 0.0
    action: str | None = None
    last: _Attempt | None = None
    failed: dict[int, _Attempt] = attrs.field(factory=dict)  # attempts that were followed by another one
    branches: dict[str, _Attempt] = attrs.field(factory=dict)
    changed: int = 0

    def enter(self, visit: int, at: float) -> None:
        """Start a visit, unless it has started already."""
        if visit == self.visit and self.reached:
            return
        self.visit, self.reached, self.status, self.began_at = visit, True, "", at
        self.action = self.last = None
        self.failed, self.branches = {}, {}
        for node in self.inner.values():
            node.reached = False


@attrs.frozen
class _Row:
    """A line of the tree. Active lines are kept longest if there is little room."""

    depth: int
    text: Text
    changed: int
    active: bool = False


class FlowTree:
    """The tree of one run. `definition` is the definition of its flow version, `params` its parameters."""

    def __init__(
        self,
        run: str,
        title: str,
        definition: Mapping[str, Any],
        params: Mapping[str, Any],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._run = run
        self._title = title
        self._params = params
        self._clock = clock
        self._nodes = _nodes_of(definition)
        self._interrupts: dict[str, str] = {}  # open interrupts, by node
        self._event_count = 0

    def handle_event(self, event: Event) -> None:
        """Update the tree; events of other runs are ignored."""
        if getattr(event, "run", None) != self._run:
            return
        self._event_count += 1
        if isinstance(event, NodeStarted):
            node = self._node(event.node, event.kind)
            if event.visit >= node.visit:
                node.enter(event.visit, event.at)
        elif isinstance(event, NodeRan):
            node = self._node(event.node, event.kind)
            if event.visit >= node.visit:
                self._ran(node, event)
        elif isinstance(event, InterruptOpened) and isinstance(event.data, dict):
            self._interrupts[str(event.data.get("node"))] = event.interrupt
        elif isinstance(event, InterruptClosed):
            self._interrupts = {node: id for node, id in self._interrupts.items() if id != event.interrupt}

    def _ran(self, node: _Node, event: NodeRan) -> None:
        node.enter(event.visit, event.started_at)
        node.began_at = min(node.began_at, event.started_at)
        ended = _Attempt(event.status, event.attempt, event.error, event.worker)
        if event.branch is not None:
            node.branches.pop(event.branch, None)  # in order of their ends
            node.branches[event.branch] = ended
        elif event.action is not None or event.status == "cancelled" or node.kind in _WAITING:
            node.status, node.action, node.ended_at, node.last = event.status, event.action, event.at, ended
            node.failed.pop(event.attempt, None)
        else:
            node.failed[event.attempt] = ended
        node.changed = self._event_count

    def _node(self, path: str, kind: str) -> _Node:
        """The node at a path. Nodes of referenced flows are not in the definition, and are added here."""
        above, rest = self._nodes, path
        while rest not in above:
            key = next((key for key in above if rest.startswith(f"{key}/")), None)
            if key is None:
                above[rest] = _Node(path, kind)
                break
            above, rest = above[key].inner, rest[len(key) + 1 :]
        found = above[rest]
        found.changed = self._event_count
        return found

    def draw(self, run: RunRecord | None, height: int) -> RenderableType:
        """The tree, in at most `height` lines."""
        rows = _cropped(list(self._rows(self._nodes, 0)), max(1, height - 2))
        return Group(self._head(run), *_guided(rows))

    def _head(self, run: RunRecord | None) -> Text:
        head = Text.assemble((clean(self._title), "bold"), (f"   run {self._run}", "dim"), no_wrap=True)
        if run is None:
            return head
        why = run.waiting_for or run.reason
        shown = f"{run.status} ({why})" if why and why != run.status else str(run.status)
        end = run.ended_at if run.ended_at is not None else self._clock()
        return head.append(f"   {shown}", STYLES[run.status]).append(f"   {span(end - run.created_at)}")

    def _rows(self, nodes: Mapping[str, _Node], depth: int) -> Iterator[_Row]:
        for key, node in nodes.items():
            active = node.reached and not node.status
            yield _Row(depth, self._line(key, node), node.changed, active)
            if not node.reached:
                continue
            for one in [*node.failed.values()][-_BRANCHES:]:
                yield _Row(depth + 1, _try(f"attempt {one.attempt}", one), node.changed)
            branches = [*node.branches.items()]
            if len(branches) > _BRANCHES:
                more = f"… {len(branches) - _BRANCHES} more branches"
                yield _Row(depth + 1, Text(more, "dim"), node.changed)
            for branch, one in branches[-_BRANCHES:]:
                yield _Row(depth + 1, _try(f"branch {branch}", one), node.changed)
            yield from self._rows(node.inner, depth + 1)

    def _line(self, key: str, node: _Node) -> Text:
        """A node as one line."""
        mark, style = self._mark(node)
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f"{mark} ", style).append(clean(key), "bold" if node.reached else "dim")
        line.append(f"  {node.kind}" + (f" {clean(node.called)}" if node.called else ""), "dim")
        if not node.reached:
            return line
        if node.visit > 1:
            line.append(f"  visit {node.visit}")
        if node.branches:
            bad = sum(one.status != "ok" for one in node.branches.values())
            line.append(f"  {len(node.branches)} branches ended" + (f", {bad} failed" if bad else ""))
        if not node.status:
            return line.append(f"  {self._what(node)}", style)
        line.append(f"  {took(node.ended_at - node.began_at)}", "dim")
        if node.last is not None and node.last.worker is not None:
            line.append(f"  on {clean(node.last.worker)}", "dim")
        if node.action is not None:
            line.append(f"  → {clean(node.action)}")
        if node.last is not None and node.last.error is not None:
            line.append(f"  {clean(node.last.error)}", "red")
        return line

    def _mark(self, node: _Node) -> tuple[str, str]:
        if not node.reached:
            return _NOT_REACHED
        if not node.status:
            return _WAITS if node.kind in _WAITING else _AT_WORK
        return _MARKS.get(node.status, _CANCELLED)

    def _what(self, node: _Node) -> str:
        """The activity of a node that has not ended: what it waits for, or how long it executes."""
        params = {**node.params, **self._params}
        if node.kind == "timer" and isinstance(params.get("delay_ms"), int | float):
            left = node.began_at + params["delay_ms"] / 1000 - self._clock()
            return f"waits, {span(left)} remaining"
        if node.kind == "wait_event":
            return f"waits for a signal: {clean(str(params.get('signal_key', '')))}"
        if node.kind == "approval":
            answer = (
                f", or greenroom answer {self._interrupts[node.path]} …"
                if node.path in self._interrupts
                else ""
            )
            return f"waits for approval: {clean(str(params.get('approval_key', '')))}{answer}"
        if node.kind in _WAITING:
            return "waits"
        return f"executing, {span(self._clock() - node.began_at)}"


def _try(name: str, one: _Attempt) -> Text:
    mark, style = _MARKS.get(one.status, _CANCELLED)
    line = Text.assemble((f"{mark} ", style), name, no_wrap=True, overflow="ellipsis")
    if one.attempt > 1 and name.startswith("branch"):
        line.append(f", attempt {one.attempt}")
    if one.worker is not None:
        line.append(f"  on {clean(one.worker)}", "dim")
    if one.error is not None:
        line.append(f"  {clean(one.error)}", "red")
    return line


def _nodes_of(graph: Mapping[str, Any], above: str = "") -> dict[str, _Node]:
    """The nodes of a definition, in its order, with the nodes of subflows."""
    nodes: dict[str, _Node] = {}
    for key, node in graph.get("nodes", {}).items():
        called = node.get("func") or node.get("service") or node.get("flow")
        several = ", ".join(_several(node))
        nodes[key] = _Node(f"{above}{key}", node["kind"], called or several, node.get("params") or {})
        if node["kind"] == "subflow":
            nodes[key].inner = _nodes_of(node["subflow"], f"{above}{key}/")
    return nodes


def _several(node: Mapping[str, Any]) -> Sequence[str]:
    """The names of several services or functions of a node, or its script."""
    script = node.get("script") or ()
    if isinstance(script, Mapping):
        script = [script.get("cmd") or "", *(script.get("args") or ())]
    named = [each.get("service") or each.get("func") or "" for each in node.get("parallel_execs") or ()]
    services = node.get("parallel_services") or ()
    return [*services, *(name for name in named if name not in services)] or script


def _cropped(rows: Sequence[_Row], room: int) -> Sequence[_Row]:
    """The rows for which there is room: of reached nodes, first those that are active or changed last."""
    if len(rows) <= room:
        return rows
    rows = [row for row in rows if row.changed]
    if len(rows) <= room:
        return rows
    above: list[list[int]] = []
    path: list[int] = []
    for number, row in enumerate(rows):
        del path[row.depth :]
        path.append(number)
        above.append(list(path))
    kept: set[int] = set()
    for number in sorted(range(len(rows)), key=lambda n: (rows[n].active, rows[n].changed), reverse=True):
        wanted = kept.union(above[number])
        if len(wanted) < room:
            kept = wanted
    left_out = _Row(0, Text(f"… {len(rows) - len(kept)} more lines", "dim"), 0)
    return [left_out, *(rows[number] for number in sorted(kept))]


def _guided(rows: Sequence[_Row]) -> list[Text]:
    """The lines with the branches of the tree."""
    lines: list[Text] = []
    open_: set[int] = set()  # the depths at which another line follows
    for row in reversed(rows):
        ends = row.depth not in open_
        open_ = {depth for depth in open_ if depth < row.depth} | {row.depth}
        guides = "".join("│  " if depth in open_ else "   " for depth in range(row.depth))
        line = Text(f"{guides}{'└─ ' if ends else '├─ '}", "dim", no_wrap=True, overflow="ellipsis")
        lines.append(line.append_text(row.text))
    return lines[::-1]
