"""The errors: one class per code, the same on both sides of a wire."""

import pytest

from greenroom.protocol import errors
from greenroom.protocol.errors import BY_CODE, GreenroomError, Internal, RunEnded, from_code
from greenroom.protocol.records import RunRecord
from greenroom.protocol.states import Status

STATUSES = {
    "invalid": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "handle_locked": 409,
    "not_interactive": 409,
    "not_streaming": 409,
    "compacting": 409,
    "no_active_run": 409,
    "too_large": 413,
    "rate_limited": 429,
    "queue_full": 429,
    "internal": 500,
    "draining": 503,
    "unavailable": 503,
}


def test_the_codes_and_their_http_statuses_are_those_of_the_design():
    assert {code: error.http_status for code, error in BY_CODE.items()} == STATUSES


@pytest.mark.parametrize("code", STATUSES)
def test_a_class_is_named_after_its_code(code):
    name = "".join(word.capitalize() for word in code.split("_"))
    assert BY_CODE[code] is getattr(errors, name)
    assert BY_CODE[code].code == code
    assert issubclass(BY_CODE[code], GreenroomError)


@pytest.mark.parametrize("code", STATUSES)
def test_an_error_is_decoded_as_the_same_class(code):
    sent = BY_CODE[code]("it is busy", active_run="r1")
    got = from_code(sent.code, sent.message, sent.details)
    assert type(got) is type(sent)
    assert (got.message, got.details, str(got)) == ("it is busy", {"active_run": "r1"}, "it is busy")


def test_an_unknown_code_becomes_internal():
    error = from_code("from_the_future", "what now", {})
    assert type(error) is Internal
    assert str(error) == "what now"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"error": "ValueError: no"}, "run r1 of job 'mirror' failed: ValueError: no"),
        ({"reason": "crashed"}, "run r1 of job 'mirror' failed: crashed"),
        ({}, "run r1 of job 'mirror' failed"),
    ],
)
def test_the_error_for_a_run_without_a_result_contains_the_reason_and_its_last_state(changes, message):
    run = RunRecord(
        id="r1",
        handle="alice",
        lane="main",
        job="mirror",
        kind="start",
        params={},
        status=Status.FAILED,
        created_at=1.0,
        updated_at=2.0,
        **changes,
    )
    error = errors.RunFailed(run)
    assert str(error) == message
    assert error.run is run


def test_all_errors_of_runs_without_a_result_have_one_base_class():
    for name in ("RunFailed", "RunCancelled", "RunTimedOut", "RunRejected"):
        assert issubclass(getattr(errors, name), RunEnded)


def test_the_error_for_an_abandoned_body_is_not_a_greenroom_error():
    assert not issubclass(errors.RunAbandoned, GreenroomError | RunEnded)
