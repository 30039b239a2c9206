"""The live tree of a flow's nodes: what it shows of events, and what it omits if there is no room."""

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


class ShownTree:
    """A tree that receives the events of nodes."""

    def __init__(self, definition: dict[str, Any] = DEFINITION, **params: Any) -> None:
        self.tree = FlowTree(RUN, "order, version 1", definition, params, clock=lambda: NOW)
        self.seq = 0

    def handle(self, event: type, at: float = NOW, run: str = RUN, **fields: Any) -> None:
        self.seq += 1
        about = {"run": run, "handle": "alice", "lane": "main"}
        self.tree.handle_event(event(seq=self.seq, at=at, by="body", **about, **fields))

    def starts(self, node: str, kind: str, visit: int = 1, at: float = NOW - 2) -> None:
        self.handle(NodeStarted, at, node=node, kind=kind, visit=visit)

    def ran(self, node: str, kind: str = "executor", **fields: Any) -> None:
        usual = {"visit": 1, "attempt": 1, "status": "ok", "started_at": NOW - 2}
        self.handle(NodeRan, node=node, kind=kind, **usual | fields)

    def drawn(self, height: int = 40, run: RunRecord | None = None) -> list[str]:
        out = io.StringIO()
        Console(file=out, width=120).print(self.tree.draw(run, height))
        return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.fixture
def shown() -> ShownTree:
    return ShownTree()


def test_every_node_of_the_definition_is_shown_in_its_order_before_the_first_event(shown: ShownTree):
    assert shown.drawn() == [
        "order, version 1   run run-1",
        "├─ · price  executor sum",
        "├─ · each  foreach mul",
        "├─ · inner  subflow",
        "├─ · other  flow_ref elsewhere",
        "├─ · pause  timer",
        "├─ · paid  wait_event",
        "└─ · release  approval",
    ]


def test_an_executing_node_shows_its_duration_and_an_ended_one_its_outcome(shown: ShownTree):
    shown.starts("price", "executor")
    assert shown.drawn()[1] == "├─ ▶ price  executor sum  executing, 2.0 s"
    shown.ran("price", worker="w1", action="default")
    assert shown.drawn()[1] == "├─ ✔ price  executor sum  2.0 s  on w1  → default"


def test_a_failed_node_shows_its_error_and_its_earlier_attempts(shown: ShownTree):
    shown.starts("price", "executor")
    shown.ran("price", status="timeout", error="timeout: not done within 1 s", worker="w1")
    assert shown.drawn()[1:3] == [
        "├─ ▶ price  executor sum  executing, 2.0 s",
        "│  └─ ✘ attempt 1  on w1  timeout: not done within 1 s",
    ]
    shown.ran("price", attempt=2, status="error", error="reset: gone", worker="w2", action="default")
    assert shown.drawn()[1:3] == [
        "├─ ✘ price  executor sum  2.0 s  on w2  → default  reset: gone",
        "│  └─ ✘ attempt 1  on w1  timeout: not done within 1 s",
    ]


def test_of_many_branches_those_that_ended_last_are_shown_and_the_others_counted(shown: ShownTree):
    shown.starts("each", "foreach")
    for branch in range(7):
        shown.ran("each", "foreach", branch=str(branch), worker="w1")
    shown.ran("each", "foreach", branch="0", attempt=2, status="error", error="service_error: no")
    assert shown.drawn()[2:8] == [
        "├─ ▶ each  foreach mul  7 branches ended, 1 failed  executing, 2.0 s",
        "│  ├─ … 3 more branches",
        "│  ├─ ✔ branch 4  on w1",
        "│  ├─ ✔ branch 5  on w1",
        "│  ├─ ✔ branch 6  on w1",
        "│  └─ ✘ branch 0, attempt 2  service_error: no",
    ]


def test_a_waiting_node_shows_what_it_waits_for(shown: ShownTree):
    shown.starts("pause", "timer")
    shown.starts("paid", "wait_event")
    shown.starts("release", "approval")
    assert shown.drawn()[5:] == [
        "├─ ‖ pause  timer  waits, 3.0 s remaining",
        "├─ ‖ paid  wait_event  waits for a signal: $shared.paid",
        "└─ ‖ release  approval  waits for approval: $shared.ok",
    ]
    shown.handle(InterruptOpened, interrupt="q.1", key="release:1", data={"node": "release"}, deadline=None)
    assert shown.drawn()[-1].endswith("waits for approval: $shared.ok, or greenroom answer q.1 …")
    shown.handle(InterruptClosed, interrupt="q.1", outcome="answered")
    assert "greenroom answer" not in shown.drawn()[-1]


def test_parameters_of_the_run_override_those_of_the_node():
    shown = ShownTree(delay_ms=9000, signal_key="$shared.else")
    shown.starts("pause", "timer")
    shown.starts("paid", "wait_event")
    assert shown.drawn()[5].endswith("waits, 7.0 s remaining")
    assert shown.drawn()[6].endswith("waits for a signal: $shared.else")


def test_inner_nodes_are_below_their_outer_node_also_those_of_another_flow(shown: ShownTree):
    shown.starts("inner", "subflow")
    shown.ran("inner/a", "local", action="default")
    shown.starts("other", "flow_ref")
    shown.starts("other/deep", "subflow")
    shown.ran("other/deep/b", "choice", action="left")
    assert shown.drawn()[3:8] == [
        "├─ ▶ inner  subflow  executing, 2.0 s",
        "│  └─ ✔ a  local f  2.0 s  → default",
        "├─ ▶ other  flow_ref elsewhere  executing, 2.0 s",
        "│  └─ ▶ deep  subflow  executing, 2.0 s",
        "│     └─ ✔ b  choice  2.0 s  → left",
    ]


def test_another_visit_of_a_node_resets_it_and_its_inner_nodes(shown: ShownTree):
    shown.starts("inner", "subflow")
    shown.ran("inner/a", "local", action="default")
    shown.ran("inner", "subflow", action="default")
    shown.starts("inner", "subflow", visit=2)
    assert shown.drawn()[3:5] == [
        "├─ ▶ inner  subflow  visit 2  executing, 2.0 s",
        "│  └─ · a  local f",
    ]


def test_a_node_that_is_cancelled_is_done(shown: ShownTree):
    shown.starts("paid", "wait_event")
    shown.ran("paid", "wait_event", status="cancelled")
    assert shown.drawn()[6] == "├─ ✕ paid  wait_event  2.0 s"


def test_a_repeated_event_changes_nothing(shown: ShownTree):
    def all_of_it() -> list[str]:
        shown.starts("price", "executor")
        shown.ran("price", status="error", error="reset: gone", worker="w1")
        shown.ran("price", attempt=2, worker="w2", action="default")
        shown.starts("each", "foreach")
        shown.ran("each", "foreach", branch="0")
        return shown.drawn()

    assert all_of_it() == all_of_it()


def test_a_late_event_of_an_earlier_visit_changes_nothing(shown: ShownTree):
    shown.starts("price", "executor", visit=2)
    before = shown.drawn()
    shown.starts("price", "executor", visit=1)
    shown.ran("price", status="error", error="reset: gone", action="default")
    assert shown.drawn() == before


def test_other_runs_are_skipped(shown: ShownTree):
    before = shown.drawn()
    shown.handle(NodeStarted, run="run-2", node="price", kind="executor", visit=1)
    assert shown.drawn() == before


def test_names_and_errors_cannot_contain_control_sequences_or_markup():
    shown = ShownTree({"start": "a", "nodes": {"[bold]a": {"kind": "executor", "service": "s"}}})
    shown.ran("[bold]a", status="error", error="service_error: \x1b[2J[red]no", action="default")
    assert shown.drawn()[1] == "└─ ✘ [bold]a  executor s  2.0 s  → default  service_error: �[2J[red]no"


def test_with_few_lines_executing_nodes_and_those_that_ended_last_are_shown():
    nodes = {f"n{number}": {"kind": "executor", "service": "s"} for number in range(50)}
    shown = ShownTree({"start": "n0", "nodes": nodes})
    for number in range(30):
        shown.ran(f"n{number}", action="default")
    shown.starts("n1", "executor", visit=2)
    assert [line.split("  ")[0] for line in shown.drawn(height=8)[1:]] == [
        "├─ … 25 more lines",
        "├─ ▶ n1",
        "├─ ✔ n26",
        "├─ ✔ n27",
        "├─ ✔ n28",
        "└─ ✔ n29",
    ]
    assert len(shown.drawn(height=33)) == 31  # nodes that were never reached are omitted first


def test_the_state_of_the_run_is_above_the_tree(shown: ShownTree):
    run = RunRecord(
        id=RUN, handle="alice", lane="main", job="flow", kind="start", params={}, status=Status.SUSPENDED,
        waiting_for="signal", created_at=NOW - 65, updated_at=NOW,
    )  # fmt: skip
    assert shown.drawn(run=run)[0] == "order, version 1   run run-1   suspended (signal)   1 m 05 s"
