"""The live tree of a flow's nodes: what is drawn of events, and what is left out where there is no room."""

import io
from typing import Any

import pytest
from rich.console import Console

from greenroom.commands.flow.tree import FlowTree
from greenroom.protocol.events import InterruptClosed, InterruptOpened, NodeRan, NodeStarted
from greenroom.protocol.records import RunRecord
from greenroom.protocol.states import Status

NOW = 1000.0
RUN = "run-1"

DEFINITION = {
    "start": "price",
    "nodes": {
        "price": {"kind": "executor", "service": "sum"},
        "each": {"kind": "foreach", "service": "mul"},
        "inner": {
            "kind": "subflow",
            "subflow": {"start": "a", "nodes": {"a": {"kind": "local", "func": "f"}}},
        },
        "other": {"kind": "flow_ref", "flow": "elsewhere"},
        "pause": {"kind": "timer", "params": {"delay_ms": 5000}},
        "paid": {"kind": "wait_event", "params": {"signal_key": "$shared.paid"}},
        "release": {"kind": "approval", "params": {"approval_key": "$shared.ok"}},
    },
}


class Told:
    """A tree that is told of what nodes do."""

    def __init__(self, definition: dict[str, Any] = DEFINITION, **params: Any) -> None:
        self.tree = FlowTree(RUN, "order, version 1", definition, params, clock=lambda: NOW)
        self.seq = 0

    def tell(self, event: type, at: float = NOW, run: str = RUN, **fields: Any) -> None:
        self.seq += 1
        about = {"run": run, "handle": "alice", "lane": "main"}
        self.tree.hear(event(seq=self.seq, at=at, by="body", **about, **fields))

    def starts(self, node: str, kind: str, visit: int = 1, at: float = NOW - 2) -> None:
        self.tell(NodeStarted, at, node=node, kind=kind, visit=visit)

    def ran(self, node: str, kind: str = "executor", **fields: Any) -> None:
        usual = {"visit": 1, "attempt": 1, "status": "ok", "started_at": NOW - 2}
        self.tell(NodeRan, node=node, kind=kind, **usual | fields)

    def drawn(self, height: int = 40, run: RunRecord | None = None) -> list[str]:
        out = io.StringIO()
        Console(file=out, width=120).print(self.tree.draw(run, height))
        return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.fixture
def told() -> Told:
    return Told()


def test_every_node_of_the_definition_is_there_in_its_order_before_anything_happens(told: Told):
    assert told.drawn() == [
        "order, version 1   run run-1",
        "├─ · price  executor sum",
        "├─ · each  foreach mul",
        "├─ · inner  subflow",
        "├─ · other  flow_ref elsewhere",
        "├─ · pause  timer",
        "├─ · paid  wait_event",
        "└─ · release  approval",
    ]


def test_a_node_at_work_says_since_when_and_a_done_one_how_where_and_what_is_next(told: Told):
    told.starts("price", "executor")
    assert told.drawn()[1] == "├─ ▶ price  executor sum  at work, 2.0 s"
    told.ran("price", worker="w1", action="default")
    assert told.drawn()[1] == "├─ ✔ price  executor sum  2.0 s  on w1  → default"


def test_a_failed_node_says_why_and_the_tries_before_stand_below_it(told: Told):
    told.starts("price", "executor")
    told.ran("price", status="timeout", error="timeout: not done within 1 s", worker="w1")
    assert told.drawn()[1:3] == [
        "├─ ▶ price  executor sum  at work, 2.0 s",
        "│  └─ ✘ try 1  on w1  timeout: not done within 1 s",
    ]
    told.ran("price", attempt=2, status="error", error="reset: gone", worker="w2", action="default")
    assert told.drawn()[1:3] == [
        "├─ ✘ price  executor sum  2.0 s  on w2  → default  reset: gone",
        "│  └─ ✘ try 1  on w1  timeout: not done within 1 s",
    ]


def test_of_many_branches_those_that_ended_last_are_shown_and_the_others_counted(told: Told):
    told.starts("each", "foreach")
    for branch in range(7):
        told.ran("each", "foreach", branch=str(branch), worker="w1")
    told.ran("each", "foreach", branch="0", attempt=2, status="error", error="service_error: no")
    assert told.drawn()[2:8] == [
        "├─ ▶ each  foreach mul  7 branches ended, 1 not well  at work, 2.0 s",
        "│  ├─ … 3 more branches",
        "│  ├─ ✔ branch 4  on w1",
        "│  ├─ ✔ branch 5  on w1",
        "│  ├─ ✔ branch 6  on w1",
        "│  └─ ✘ branch 0, try 2  service_error: no",
    ]


def test_what_a_waiting_node_waits_for_is_said(told: Told):
    told.starts("pause", "timer")
    told.starts("paid", "wait_event")
    told.starts("release", "approval")
    assert told.drawn()[5:] == [
        "├─ ‖ pause  timer  waits, 3.0 s more",
        "├─ ‖ paid  wait_event  waits for a signal: $shared.paid",
        "└─ ‖ release  approval  waits for people: $shared.ok",
    ]
    told.tell(InterruptOpened, interrupt="q.1", key="release:1", data={"node": "release"}, deadline=None)
    assert told.drawn()[-1].endswith("waits for people: $shared.ok, or greenroom answer q.1 …")
    told.tell(InterruptClosed, interrupt="q.1", outcome="answered")
    assert "greenroom answer" not in told.drawn()[-1]


def test_the_parameters_of_the_run_win_over_those_of_the_node():
    told = Told(delay_ms=9000, signal_key="$shared.else")
    told.starts("pause", "timer")
    told.starts("paid", "wait_event")
    assert told.drawn()[5].endswith("waits, 7.0 s more")
    assert told.drawn()[6].endswith("waits for a signal: $shared.else")


def test_nodes_within_others_stand_below_them_also_those_of_another_flow(told: Told):
    told.starts("inner", "subflow")
    told.ran("inner/a", "local", action="default")
    told.starts("other", "flow_ref")
    told.starts("other/deep", "subflow")
    told.ran("other/deep/b", "choice", action="left")
    assert told.drawn()[3:8] == [
        "├─ ▶ inner  subflow  at work, 2.0 s",
        "│  └─ ✔ a  local f  2.0 s  → default",
        "├─ ▶ other  flow_ref elsewhere  at work, 2.0 s",
        "│  └─ ▶ deep  subflow  at work, 2.0 s",
        "│     └─ ✔ b  choice  2.0 s  → left",
    ]


def test_a_node_that_is_visited_again_begins_afresh_with_what_is_in_it(told: Told):
    told.starts("inner", "subflow")
    told.ran("inner/a", "local", action="default")
    told.ran("inner", "subflow", action="default")
    told.starts("inner", "subflow", visit=2)
    assert told.drawn()[3:5] == [
        "├─ ▶ inner  subflow  visit 2  at work, 2.0 s",
        "│  └─ · a  local f",
    ]


def test_a_node_that_is_cancelled_is_done(told: Told):
    told.starts("paid", "wait_event")
    told.ran("paid", "wait_event", status="cancelled")
    assert told.drawn()[6] == "├─ ✕ paid  wait_event  2.0 s"


def test_what_is_heard_again_changes_nothing(told: Told):
    def all_of_it() -> list[str]:
        told.starts("price", "executor")
        told.ran("price", status="error", error="reset: gone", worker="w1")
        told.ran("price", attempt=2, worker="w2", action="default")
        told.starts("each", "foreach")
        told.ran("each", "foreach", branch="0")
        return told.drawn()

    assert all_of_it() == all_of_it()


def test_what_is_heard_late_of_an_earlier_visit_changes_nothing(told: Told):
    told.starts("price", "executor", visit=2)
    before = told.drawn()
    told.starts("price", "executor", visit=1)
    told.ran("price", status="error", error="reset: gone", action="default")
    assert told.drawn() == before


def test_other_runs_are_passed_over(told: Told):
    before = told.drawn()
    told.tell(NodeStarted, run="run-2", node="price", kind="executor", visit=1)
    assert told.drawn() == before


def test_names_and_errors_cannot_steer_the_terminal_and_are_no_markup():
    told = Told({"start": "a", "nodes": {"[bold]a": {"kind": "executor", "service": "s"}}})
    told.ran("[bold]a", status="error", error="service_error: \x1b[2J[red]no", action="default")
    assert told.drawn()[1] == "└─ ✘ [bold]a  executor s  2.0 s  → default  service_error: �[2J[red]no"


def test_where_there_is_little_room_what_is_at_work_and_what_ended_last_stay():
    nodes = {f"n{number}": {"kind": "executor", "service": "s"} for number in range(50)}
    told = Told({"start": "n0", "nodes": nodes})
    for number in range(30):
        told.ran(f"n{number}", action="default")
    told.starts("n1", "executor", visit=2)
    assert [line.split("  ")[0] for line in told.drawn(height=8)[1:]] == [
        "├─ … 25 more lines",
        "├─ ▶ n1",
        "├─ ✔ n26",
        "├─ ✔ n27",
        "├─ ✔ n28",
        "└─ ✔ n29",
    ]
    assert len(told.drawn(height=33)) == 31  # what was never reached goes first


def test_the_state_of_the_run_stands_above(told: Told):
    run = RunRecord(
        id=RUN, handle="alice", lane="main", job="flow", kind="start", params={}, status=Status.SUSPENDED,
        waiting_for="signal", created_at=NOW - 65, updated_at=NOW,
    )  # fmt: skip
    assert told.drawn(run=run)[0] == "order, version 1   run run-1   suspended (signal)   1 m 05 s"
