"""The live table: what it shows of a snapshot, and what it omits if there is no room."""

import io
from typing import Any

import pytest
from rich.console import Console

from greenroom.commands.live_table import Board
from greenroom.protocol.events import InterruptOpened, RunLog, RunProgress, RunStateChanged
from greenroom.protocol.fold import Projection
from greenroom.protocol.states import Status

NOW = 1000.0


class ShownBoard:
    """A state that receives the events of runs, as from a server."""

    def __init__(self) -> None:
        self.projection = Projection("epoch", max_concurrent=3)
        self.board = Board(clock=lambda: NOW)

    def apply(self, event: type, **fields: Any) -> None:
        change = event(seq=self.projection.seq + 1, at=NOW - 100, by="test", **fields)
        self.projection.apply(change)
        self.board.handle_event(change)

    def run(self, handle: str, *path: str, **fields: Any) -> None:
        """A run of this handle that goes through these statuses; the last change has these fields."""
        before = None
        for status in map(Status, ("queued", *path)):
            self.apply(
                RunStateChanged,
                **self.about(handle),
                **({"job": "job"} if before is None else {}),
                **(fields if path and status == path[-1] else {}),
                from_=before,
                to=status,
                attempt=1,
                reason=None,
                place=self.projection.seq + 1,
            )
            before = status

    def about(self, handle: str) -> dict[str, str]:
        return {"run": f"run-{handle}", "handle": handle, "lane": "main"}

    def drawn(self, height: int = 40, width: int = 120) -> list[str]:
        console = Console(file=io.StringIO(), width=width)
        console.print(self.board.draw(self.projection.snapshot(), height))
        return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


@pytest.fixture
def shown() -> ShownBoard:
    return ShownBoard()


def test_executing_runs_are_first_then_waiting_then_ended_ones(shown: ShownBoard):
    shown.run("old", "running", "succeeded")
    shown.run("newer", "running", "failed", error="ValueError: no")
    shown.run("waiting")
    shown.run("active", "running")
    head, _, *rows = shown.drawn()
    assert head.split() == ["1/3", "executing", "1", "queued"]
    assert [row.split()[1] for row in rows] == ["active", "waiting", "newer", "old"]
    assert "waits in lane main" in rows[1]
    assert "ValueError: no" in rows[2]


def test_progress_is_a_bar_and_numbers_next_to_the_last_log_text(shown: ShownBoard):
    shown.run("a", "running")
    shown.apply(RunProgress, **shown.about("a"), attempt=1, done=1_500_000, total=3_000_000)
    shown.apply(RunLog, **shown.about("a"), attempt=1, text="half\nof [bold]it[/bold]\x1b[2J", level="info")
    row = shown.drawn()[2]
    assert "1.5M/3.0M" in row
    assert "━━━━━━━━" in row
    assert "1 m 40 s" in row
    assert "half of [bold]it[/bold]�[2J" in row


@pytest.mark.parametrize(("done", "total"), [(None, 3), (5, None), (5, 0), (9, 3)])
def test_progress_that_has_no_end_or_passes_it_is_drawn_as_far_as_it_can_be(
    shown: ShownBoard, done: float | None, total: float | None
):
    shown.run("a", "running")
    shown.apply(RunProgress, **shown.about("a"), attempt=1, done=done, total=total)
    assert ("" if done is None else str(done)) in shown.drawn()[2]


def test_an_open_interrupt_is_shown_with_how_to_answer_it(shown: ShownBoard):
    shown.run("a", "running")
    shown.apply(
        InterruptOpened, **shown.about("a"), interrupt="run-a.1", key="1", data="go on?", deadline=None
    )
    lines = shown.drawn()
    assert '"go on?"' in lines[2]
    assert lines[-1] == '? "go on?"   greenroom answer a …'


def test_it_never_draws_more_lines_than_there_are(shown: ShownBoard):
    for number in range(50):
        shown.run(f"h{number}", *(["running"] if number % 2 else []))
    shown.apply(InterruptOpened, **shown.about("h1"), interrupt="i", key="1", data="go on?", deadline=None)
    for height in (5, 10, 24):
        assert len(shown.drawn(height)) <= height


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_each_run_has_one_line_however_narrow_the_terminal(shown: ShownBoard, width: int):
    shown.run("a-handle-with-a-long-name-" * 9, "running")
    assert len(shown.drawn(width=width)) == 3
