"""The table of node runs: every attempt of a flow's nodes, in order, with its outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from ...gateway.client.interface import RunFlows
from ...protocol.flow.records import NodeRun
from ..output import brief, clean, console, table, took

_STYLES = {"ok": "green", "error": "bold red", "timeout": "bold red", "cancelled": "bright_black"}
_SHORT = 60
"""The number of characters of an output that a terminal shows."""


async def all_node_runs(flows: RunFlows, run: str) -> Sequence[NodeRun]:
    """All node runs of a run, requested in pages."""
    rows = list(page := await flows.node_runs(run))
    while page:
        page = await flows.node_runs(run, after=page[-1].number)
        rows += page
    return rows


def show_node_runs(rows: Sequence[NodeRun]) -> None:
    """Print the table, without columns that have only default values."""
    columns: list[tuple[str, Sequence[str | Text]]] = [
        ("node", [row.node for row in rows]),
        ("visit", [str(row.visit) for row in rows]),
        ("branch", [row.branch or "" for row in rows]),
        ("attempt", [str(row.attempt) for row in rows]),
        ("status", [Text(row.status, _STYLES[row.status]) for row in rows]),
        ("time", [took(row.finished_at - row.started_at) for row in rows]),
        ("worker", [row.worker or "" for row in rows]),
        ("action", [row.action or "" for row in rows]),
        ("output or error", list(_outcomes(rows))),
    ]
    usual = {"visit": "1", "attempt": "1", "branch": "", "worker": ""}
    shown = [
        (name, cells)
        for name, cells in columns
        if name not in usual or any(cell != usual[name] for cell in cells)
    ]
    table([name for name, _ in shown], zip(*[cells for _, cells in shown], strict=True))


def _outcomes(rows: Sequence[NodeRun]) -> Iterator[Text]:
    narrow = console().is_terminal
    for row in rows:
        text = clean(row.error if row.error is not None else brief(row.output))
        short = f"{text[: _SHORT - 1]}…" if narrow and len(text) > _SHORT else text
        yield Text(short, "red" if row.error is not None else "")
