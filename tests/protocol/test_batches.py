"""The form of batches, and the outcomes of their runs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.batches import (
    Refusals,
    RunKeywords,
    Submitted,
    check_run,
    check_runs,
    existed,
    named,
    with_drawn_ids,
)
from greenroom.protocol.codec import JSON
from greenroom.protocol.commands import Submit
from greenroom.protocol.errors import Conflict, GreenroomError, Invalid, TooLarge
from greenroom.protocol.submission import NewRun, SubmitKeywords


def test_a_run_of_a_batch_has_the_fields_of_a_submit_in_the_same_form() -> None:
    def fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
        return {field.name: (field.type, field.default) for field in msgspec.structs.fields(kind)}

    submit = fields(Submit)
    del submit["id"]
    assert fields(NewRun) == submit


def test_a_run_of_a_batch_takes_the_keywords_of_submit() -> None:
    assert (
        RunKeywords.__annotations__.keys()
        == {"job", "handle", "params"} | SubmitKeywords.__annotations__.keys()
    )


def test_an_outcome_has_only_its_own_fields_on_the_wire() -> None:
    assert JSON.encode(Submitted("r1", False)) == b'{"run_id":"r1","joined":false}'
    refused = Submitted.refused(Conflict("busy", active_run="r1"))
    assert JSON.encode(refused) == (
        b'{"error":{"code":"conflict","message":"busy","details":{"active_run":"r1"}}}'
    )
    assert JSON.decode(JSON.encode(refused), Submitted) == refused


@pytest.mark.parametrize("runs", [{}, "abc", b"", 3, None, iter([])])
def test_a_batch_is_a_list(runs: object) -> None:
    with pytest.raises(Invalid, match="runs must be a list"):
        check_runs(runs, True)


def test_a_batch_has_at_most_ten_thousand_runs() -> None:
    check_runs([{}] * 10_000, False)
    with pytest.raises(
        TooLarge, match=r"at most 10000 entries .* divide them among several calls"
    ) as refused:
        check_runs([{}] * 10_001, False)
    assert refused.value.details == {"size": 10_001, "limit": 10_000}


def test_all_or_nothing_is_true_or_false() -> None:
    with pytest.raises(Invalid, match=r'all_or_nothing must be true or false \(got "each"\)'):
        check_runs([], "each")


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (3, "must be an object with job, handle and options (got 3)"),
        ({}, "required fields are missing: handle, job"),
        (
            {"job": "a", "handle": "a", "onconflict": 1},
            'unexpected field "onconflict": did you mean "on_conflict"?',
        ),
    ],
)
def test_a_run_without_the_form_of_a_run_is_refused(run: Any, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_run(run)
    assert refused.value.message == message


def test_the_error_of_a_whole_batch_names_the_run_and_keeps_its_details() -> None:
    error = named(Conflict("busy", active_run="r1"), 7)
    assert type(error) is Conflict
    assert (error.message, error.details) == ("runs[7]: busy", {"active_run": "r1", "index": 7})


@given(st.lists(st.booleans()))
def test_the_outcomes_are_in_the_order_of_the_runs(accepted: list[bool]) -> None:
    refusals: Refusals[int] = Refusals(all_or_nothing=False)
    passed: list[int | GreenroomError] = []
    for index, accepts in enumerate(accepted):
        if accepts:
            passed.append(index)
        else:
            refusals.add(index, Invalid(str(index)))
    merged = refusals.merged(passed)
    assert [isinstance(one, int) for one in merged] == accepted
    assert [str(one) for one in merged] == [str(index) for index in range(len(accepted))]


def test_one_refusal_refuses_all() -> None:
    refusals: Refusals[int] = Refusals(all_or_nothing=True)
    with pytest.raises(Invalid, match=r"^runs\[2\]: wrong$"):
        refusals.add(2, Invalid("wrong"))


def test_request_ids_are_drawn_only_where_there_is_none() -> None:
    ids = iter("xyz")
    runs = [NewRun(job="j", handle="h"), NewRun(job="j", handle="h", request_id="mine")]
    first, second = with_drawn_ids(runs, lambda: next(ids))
    assert (first.request_id, second) == ("x", runs[1])


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (NewRun(job="j", handle="h"), False),
        (NewRun(job="j", handle="h", on_conflict="join"), True),
        (NewRun(job="j", handle="h", request_id="mine"), True),
    ],
)
def test_a_run_with_a_drawn_request_id_is_new_although_it_was_joined(run: NewRun, expected: bool) -> None:
    assert existed(run, Submitted("r1", True)) is expected
    assert not existed(run, Submitted("r1", False))
