"""What an executor sends: every value and name is checked, and an error names the value."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from greenroom.actors.executors.checks import (
    check_attach,
    checked_delay,
    checked_report,
    checked_request,
    checked_result,
    submit_options,
)
from greenroom.errors import GreenroomError
from greenroom.protocol import executors as wire

MAX_BYTES = 100
LARGE = "x" * MAX_BYTES
MANY = tuple(f"name {number}" for number in range(1001))


def attach(child: bool = False, **fields: Any) -> None:
    given = {"executor": "e1", "start": "p1", "jobs": ()} | fields
    check_attach(wire.Attach(**given), MAX_BYTES, child=child)


def refused(message: str) -> Any:
    return pytest.raises(GreenroomError, match=re.escape(message))


def test_an_attach_at_the_limits_is_valid() -> None:
    calls = tuple(wire.LiveFunction(number, "r") for number in range(1, 1001))
    jobs = tuple(wire.JobTerms(name=name, params={"a": "x"}, needs=("gpu",)) for name in MANY[:1000])
    attach(functions=MANY[:1000], labels=MANY[:16], calls=calls, jobs=jobs, folder="f", version="1")
    attach(child=True, executor="local-1")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"executor": "local-1"}, 'executor "local-1": names that begin with local- are reserved'),
        ({"executor": "e1", "child": True}, 'executor "e1": names that begin with local- are reserved'),
        ({"executor": ""}, "executor must not be empty"),
        ({"start": " "}, "start must not be empty"),
        ({"functions": MANY}, "functions must have at most 1,000 entries (got 1,001)"),
        ({"functions": ("",)}, "function must not be empty"),
        ({"labels": MANY}, "labels must contain at most 16 labels (got 1,001)"),
        ({"folder": " "}, "folder must not be empty"),
        ({"version": " "}, "version must not be empty"),
        ({"jobs": (wire.JobTerms(name=""),)}, "job must not be empty"),
        ({"jobs": (wire.JobTerms(name="flow"),)}, "job name 'flow' is reserved for flows"),
        ({"jobs": (wire.JobTerms(name="j", lane=""),)}, "lane must not be empty"),
        ({"jobs": (wire.JobTerms(name="j", needs=("a", "a")),)}, "needs must contain each label once"),
        ({"jobs": (wire.JobTerms(name="j", params={"a": LARGE}),)}, "params: too large"),
        ({"jobs": tuple(wire.JobTerms(name=name) for name in MANY)}, "jobs must have at most 1,000 entries"),
        ({"calls": (wire.LiveFunction(1, "r"),) * 1001}, "calls must have at most 1,000 entries"),
    ],
)
def test_an_attach_with_an_invalid_value_is_refused(fields: dict[str, Any], message: str) -> None:
    with refused(message):
        attach(**fields)


@pytest.mark.parametrize("what", ["run_timeout", "queue_timeout", "deadline", "grace"])
@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf])
def test_times_of_jobs_are_finite_or_absent(what: str, seconds: float) -> None:
    attach(jobs=(wire.JobTerms(name="j", **{what: None}), wire.JobTerms(name="k", **{what: 0})))
    with refused(f"{what} must be"):
        attach(jobs=(wire.JobTerms(name="j", **{what: seconds}),))


VALID = [
    wire.WriteLog("text", "info"),
    wire.SaveCheckpoint({"page": 1}, 0, 0),
    wire.ReleaseSlot("time", 1.5),
    wire.ReleaseSlot("child"),
    wire.TakeSlot(),
    wire.OpenInterrupt({"question": 1}, None, "key"),
    wire.CallChild(1, "j", "h", {"a": 1}),
    wire.AwaitChild("r"),
    wire.FinishFile("a/b.txt"),
    wire.FinishFile("x" * 4096),
    wire.GiveUpFiles(("a/b.txt", "c")),
    wire.GiveUpFiles(("a",) * 1000),
]


@pytest.mark.parametrize("request_", VALID, ids=lambda one: type(one).__name__)
def test_a_valid_request_is_returned(request_: wire.Request) -> None:
    assert checked_request(request_, MAX_BYTES) is request_


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (wire.WriteLog(LARGE, "info"), "log: too large"),
        (wire.WriteLog("text", ""), "level must not be empty"),
        (wire.SaveCheckpoint(LARGE, 0, 0), "checkpoint: too large"),
        (wire.ReleaseSlot("time", -1), "within must be"),
        (wire.ReleaseSlot("time", math.inf), "within must be finite, or null for no limit"),
        (wire.OpenInterrupt(LARGE, None, "key"), "interrupt: too large"),
        (wire.OpenInterrupt(1, None, ""), "key must not be empty"),
        (wire.OpenInterrupt(1, math.nan, "key"), "timeout must be"),
        (wire.CallChild(1, "j", "h", LARGE), "params: too large"),
        (wire.AwaitChild("r\0"), "run must not contain NUL characters"),
        (wire.FinishFile("/etc/passwd"), "path must be a file inside the handle's folder"),
        (wire.FinishFile("é" * 2049), "path must have at most 4,096 bytes (got 4,098)"),
        (wire.GiveUpFiles(("a",) * 1001), "paths must have at most 1,000 entries (got 1,001)"),
        (wire.GiveUpFiles(("a", "../b")), "path must be a file inside the handle's folder"),
    ],
)
def test_a_request_with_an_invalid_value_is_refused(request_: wire.Request, message: str) -> None:
    with refused(message):
        checked_request(request_, MAX_BYTES)


def test_reports_are_checked() -> None:
    for report in (wire.Progress(1, 2, {"a": 1}), wire.BlockedLoop(1, "app.py:1 in f"), wire.TookMessages(1)):
        assert checked_report(report, MAX_BYTES) is report
    for wrong, message in (
        (wire.Progress(1, 2, {"a": LARGE}), "progress: too large"),
        (wire.BlockedLoop(1, LARGE), "where: too large"),
        (wire.BlockedLoop(-1, "here"), "seconds must be"),
    ):
        with refused(message):
            checked_report(wrong, MAX_BYTES)
    with refused("progress.done:"):
        checked_report(wire.Progress(math.nan, 2), MAX_BYTES)
    with refused("progress.total:"):
        checked_report(wire.Progress(1, math.inf), MAX_BYTES)


def test_a_result_is_checked() -> None:
    assert checked_result({"a": [1]}, MAX_BYTES) == {"a": [1]}
    with refused("result: too large"):
        checked_result(LARGE, MAX_BYTES)


@pytest.mark.parametrize(("given", "used"), [(None, None), (2.5, 2.5), (-1, None), (math.inf, None)])
def test_a_delay_that_is_not_valid_is_the_default_of_the_job(given: float | None, used: float | None) -> None:
    assert checked_delay(given) == used


def test_the_options_of_a_child_run_are_those_of_submit() -> None:
    def on_wait(waited: float, ahead: int, blockers: list[str]) -> None:
        raise AssertionError("not called here")

    request = wire.CallChild(1, "j", "h", {"a": 1}, {"lane": "images", "run_timeout": None})
    options = submit_options(request, on_wait)
    assert (options.job, options.handle, options.params) == ("j", "h", {"a": 1})
    assert (options.lane, options.on_conflict, options.on_wait) == ("images", "queue", on_wait)
    assert (
        submit_options(wire.CallChild(1, "j", None, {}, {"on_conflict": "join"}), None).on_conflict == "join"
    )
    with refused("options of the child run are invalid: Expected `str | null`, got `int` - at `$.lane`"):
        submit_options(wire.CallChild(1, "j", None, {}, {"lane": 1}), None)
