"""The state machine: its table against the design, and what is rendered from it against the table."""

import re
from itertools import product
from pathlib import Path

import pytest

from greenroom.protocol.states import (
    ENDED,
    PENDING,
    TRANSITIONS,
    Body,
    HandleStatus,
    Status,
    allowed_from,
    handle_status,
    mermaid,
    rank,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "states.md"

DESIGN = {
    # to: (from, whatever its body does; from suspended with a live body; from suspended without a body)
    "queued": ("", False, False),
    "running": ("queued", True, True),
    "suspended": ("running", False, False),
    "cancelling": ("running", True, False),
    "succeeded": ("running cancelling", True, True),
    "failed": ("running cancelling", True, True),
    "cancelled": ("queued cancelling", False, True),
    "timed_out": ("queued running cancelling", True, True),
    "rejected": ("queued", False, True),
}


def test_the_table_has_one_row_for_each_status():
    assert [row.to for row in TRANSITIONS] == [Status(name) for name in DESIGN] == list(Status)


@pytest.mark.parametrize(("to", "row"), DESIGN.items())
def test_a_row_of_the_table_is_that_of_the_design(to, row):
    sources, with_live_body, without_body = row
    always = set(sources.split())
    live = allowed_from(Status(to), live_body=True)
    bodiless = allowed_from(Status(to), live_body=False)
    assert live == always | ({"suspended"} if with_live_body else set())
    assert bodiless == always | ({"suspended"} if without_body else set())


@pytest.mark.parametrize("to", Status)
def test_where_it_is_open_whether_a_body_lives_both_cases_are_allowed(to):
    either = allowed_from(to, live_body=True) | allowed_from(to, live_body=False)
    assert allowed_from(to) == either


def test_only_a_suspended_run_is_asked_whether_it_has_a_body():
    asked = {source.status for row in TRANSITIONS for source in row.sources if source.body != Body.ANY}
    assert asked == {Status.SUSPENDED}


@pytest.mark.parametrize(("to", "source"), [(row.to, s.status) for row in TRANSITIONS for s in row.sources])
def test_no_transition_leads_to_a_lower_rank(to, source):
    assert rank(source) <= rank(to)


def test_the_ranks_are_those_of_the_design():
    assert rank(Status.QUEUED) < rank(Status.RUNNING) == rank(Status.SUSPENDED) < rank(Status.CANCELLING)
    assert {rank(status) for status in ENDED} == {rank(Status.CANCELLING) + 1}


def test_ended_states_are_final_and_the_others_are_pending():
    assert set(ENDED) == {"succeeded", "failed", "cancelled", "timed_out", "rejected"}
    assert set(PENDING) == {"queued", "running", "suspended", "cancelling"}
    for to in Status:
        assert not allowed_from(to) & ENDED


@pytest.mark.parametrize("status", Status)
def test_no_status_leads_to_itself(status):
    assert status not in allowed_from(status)


@pytest.mark.parametrize("status", sorted(PENDING))
def test_each_pending_status_can_end_with_or_without_a_body(status):
    for live_body in (True, False):
        assert any(status in allowed_from(end, live_body=live_body) for end in ENDED)


def test_a_handle_shows_what_its_run_does():
    shown = {
        "queued": "Queued",
        "running": "Running",
        "suspended": "Running",
        "cancelling": "Running",
        "succeeded": "Done",
        "failed": "Failed",
        "timed_out": "Failed",
        "rejected": "Failed",
        "cancelled": "Cancelled",
    }
    for status in Status:
        assert handle_status(Status.RUNNING, status) == shown[status]
    assert set(HandleStatus) == {"Idle", *shown.values()}


def test_a_run_that_is_cancelled_while_queued_leaves_its_handle_idle():
    assert handle_status(Status.QUEUED, Status.CANCELLED) == HandleStatus.IDLE
    for before, status in product(Status, Status):
        if (before, status) != (Status.QUEUED, Status.CANCELLED):
            assert handle_status(before, status) != HandleStatus.IDLE


def test_a_new_run_makes_its_handle_queued():
    assert handle_status(None, Status.QUEUED) == HandleStatus.QUEUED


def test_the_diagram_in_the_documentation_is_the_one_that_is_rendered():
    [diagram] = re.findall(r"^```mermaid\n(.*?)^```$", DOCUMENT.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert diagram == mermaid()


def test_the_diagram_draws_each_transition_once_and_each_end():
    arrows = re.findall(r"^    (\S+) --> ([^\s:]+)", mermaid(), re.MULTILINE)
    expected = [(source, to) for to in Status for source in allowed_from(to)]
    expected += [("[*]", "queued"), *((status, "[*]") for status in ENDED)]
    assert sorted(arrows) == sorted(expected)


def test_the_table_in_the_documentation_is_the_one_in_the_code():
    rows = re.findall(r"^\| (\w+) \| (.+) \| (.+) \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    header, *rows = rows
    assert header == ("to", "allowed from", "who decides")
    assert rows == [
        (row.to, ", ".join(_in_words(source) for source in row.sources) or "–", row.decided_by)
        for row in TRANSITIONS
    ]


def _in_words(source):
    return source.status if source.body == Body.ANY else f"{source.status} {source.body}"
