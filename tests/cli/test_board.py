"""The live table: what it shows of a snapshot, and what it omits if there is no room."""

import io
from typing import Any

import pytest
from rich.console import Console

from greenroom.commands.live_table import Board
from greenroom.commands.runs import described
from greenroom.commands.watch import line
from greenroom.protocol.events import (
    ExecutorChanged,
    InterruptOpened,
    LeaderChanged,
    NodeChanged,
    RunChanged,
    RunLog,
    RunProgress,
    RunStateChanged,
)
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


def test_executors_are_above_the_runs_with_their_bodies_and_slots(shown: ShownBoard):
    assert not any("executor" in text for text in shown.drawn()), "as long as there are none"
    shown.apply(ExecutorChanged, executor="local-1", status="attached", slots=2)
    shown.apply(ExecutorChanged, executor="gpu-1", status="disconnected")
    shown.run("here", "running", interactive=True)
    shown.run("there", "running", interactive=True, executor="local-1")
    shown.run("ending", "running", interactive=True, executor="local-1")
    shown.run("ended", "running", "succeeded")
    shown.apply(ExecutorChanged, executor="old", status="attached")
    shown.apply(ExecutorChanged, executor="old", status="gone")
    _, executors, names, *rows = shown.drawn()
    assert executors.split() == ["executors", "gpu-1", "0/–", "disconnected", "local-1", "2/2"]
    assert "executor" in names.split()
    assert {row.split()[1]: "local-1" in row for row in rows} == {
        "here": False,
        "there": True,
        "ending": True,
        "ended": False,
    }
    for height in (5, 6, 7):
        assert len(shown.drawn(height)) <= height
    assert len(shown.drawn(width=40)) == 7, "each is one line"


def test_a_run_that_waits_for_an_executor_says_so(shown: ShownBoard):
    shown.run("a")
    shown.apply(RunChanged, **shown.about("a"), waiting_for="executor")
    assert "waits for executor" in shown.drawn()[2]


def test_show_prints_the_executor_of_a_run_and_what_the_run_waits_for(shown: ShownBoard):
    shown.run("a", "running", interactive=True, executor="gpu-1")
    shown.run("b")
    shown.apply(RunChanged, **shown.about("b"), waiting_for="executor")
    first, second = (described(shown.projection.runs[f"run-{name}"]) for name in ("a", "b"))
    assert (first["executor"], "waits for" in first) == ("gpu-1", False)
    assert ("executor" in second, second["waits for"]) == (False, "executor")


def test_events_about_executors_are_lines(shown: ShownBoard):
    base: dict[str, Any] = {"seq": 1, "at": NOW, "by": "engine"}
    about = base | shown.about("a")
    started = RunStateChanged(
        **about, from_=Status.QUEUED, to=Status.RUNNING, attempt=1, reason=None, place=1, executor="gpu-1"
    )
    changed = ExecutorChanged(
        **base, executor="gpu-1", status="attached", slots=2, labels=("gpu",), jobs=("train", "pages")
    )
    texts = [
        line(event).partition("  ")[2]
        for event in (
            started,
            RunChanged(**about, waiting_for="executor"),
            changed,
            ExecutorChanged(**base, executor="gpu-1", status="gone"),
        )
    ]
    assert texts == [
        "a run-a  running on gpu-1",
        "a run-a  waits for executor",
        "executor gpu-1: attached, 2 slots, labels gpu, jobs train, pages",
        "executor gpu-1: gone",
    ]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"priority": 5}, "priority 5, by ann"),
        ({"params": {"a": 1}}, 'new parameters {"a": 1}, by ann'),
        ({"params": None}, "new parameters null, by ann"),
        ({"place": 7}, "place 7 in lane main"),
        ({"waiting_for": "handle", "front": True}, "waits for handle, before the others"),
        ({"detached": True}, "executes without a slot"),
        ({"interactive": True, "streaming": False}, "accepts messages, no longer streams"),
        ({"compacting": True}, "compacts"),
        ({"detached": False}, "changed by ann"),
    ],
)
def test_a_line_says_what_a_run_has_changed(change: dict[str, Any], text: str):
    event = RunChanged(seq=1, at=NOW, by="ann", run="run-a", handle="a", lane="main", **change)
    assert line(event).partition("  ")[2] == f"a run-a  {text}"


def test_events_about_nodes_are_lines():
    base: dict[str, Any] = {"seq": 1, "at": NOW, "by": "engine"}
    assert [
        line(event).partition("  ")[2]
        for event in (
            NodeChanged(**base, node="n2", status="joined", address="http://10.0.0.2:8440"),
            LeaderChanged(**base, node="n2", address="http://10.0.0.2:8440", term=4),
        )
    ] == ["node n2 at http://10.0.0.2:8440: joined", "leader: n2 at http://10.0.0.2:8440, term 4"]


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
