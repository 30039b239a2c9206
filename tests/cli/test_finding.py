"""The commands that find runs, and that cancel, rerun and retry many."""

from __future__ import annotations

import time
from pathlib import Path

import click
import pytest

from greenroom.commands import durations
from greenroom.commands.durations import Moment

from .test_commands import _address, all_json, as_json, greenroom, handle, refusal, said, server

__all__ = ["_address", "handle", "server"]


def submitted(handle: str, job: str, *options: str) -> str:
    """Submit a run and return its id. Jobs that end are awaited."""
    wait = ("--wait",) if job != "waits" else ()
    code = 5 if job == "fails" else 0
    greenroom("submit", job, "-H", handle, *options, *wait, code=code)
    return str(as_json("show", handle)["id"])


def test_runs_are_found_by_tags_job_time_and_error(handle: str):
    begun = time.time() - 1
    first = submitted(f"{handle}-1", "quick", "--tag", f"of={handle}", "--tag", "text=a=b c")
    second = submitted(f"{handle}-2", "fails", "--tag", f"of={handle}")
    mine = ("runs", "--tag", f"of={handle}")
    assert [run["id"] for run in all_json(*mine)] == [second, first]
    for options, found in (
        (("--failed",), [second]),
        (("--status", "succeeded"), [first]),
        (("--failed", "--status", "succeeded", "--since", "1h"), [second, first]),
        (("--job", "quick"), [first]),
        (("--tag", "text=a=b c"), [first]),
        (("--tag", "text=a=b"), []),
        (("--error", "as it must"), [second]),
        (("--error", "As it must"), []),
        (("--since", str(begun)), [second, first]),
        (("--until", str(begun)), []),
        (("--until", "1m"), []),
        (("--flow", "nightly"), []),
        (("--parent", first), []),
        (("--limit", "1"), [second]),
        (("--before", second), [first]),
    ):
        assert [run["id"] for run in all_json(*mine, *options)] == found, options
    head, *lines = said(*mine).splitlines()
    assert head.split() == ["run", "handle", "job", "lane", "tags", "status", "age", "error"]
    assert f"of={handle}, text=a=b c" in lines[1]
    assert "tags" not in said("runs", "--handle", "nobody").splitlines()
    assert f"of={handle}, text=a=b c" in said("show", first)


def test_the_files_of_a_run_are_shown(handle: str):
    lines = [line.split() for line in said("show", submitted(handle, "writes")).splitlines()]
    assert ["files", "report.txt"] in lines


def test_priority_and_key_are_shown(handle: str):
    run = submitted(handle, "quick", "--priority", "-7", "--key", "tenant-1")
    lines = [line.split() for line in said("show", run).splitlines()]
    assert ["priority", "-7"] in lines
    assert ["key", "tenant-1"] in lines
    head, line = said("runs", "-H", handle).splitlines()
    assert head.split() == ["run", "handle", "job", "lane", "priority", "key", "status", "age", "error"]
    assert line.split()[4:6] == ["-7", "tenant-1"]


def test_a_list_without_tags_has_no_column_for_them(handle: str):
    submitted(handle, "quick")
    assert said("runs", "-H", handle).split()[:7] == [
        "run",
        "handle",
        "job",
        "lane",
        "status",
        "age",
        "error",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tag", "customer"), '--tag must be NAME=VALUE (got "customer")'),
        (("--tag", "a=1", "--tag", "a=2"), '--tag "a" has two values: "1" and "2"'),
        (("--since", "yesterday"), "'yesterday' is not a time: use 90m, 12h or 2d for a time ago"),
        (("--since", "1h", "--until", "2h"), "since must not be later than until"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: tuple[str, ...], message: str):
    assert message in refusal("runs", *options, code=1 if "--until" in options else 2)


def test_a_time_is_ago_with_a_unit_and_unix_seconds_without(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(durations.time, "time", lambda: 1_700_000_000.0)
    for text, moment in (
        ("1h", 1_699_996_400.0),
        ("2 d", 1_699_827_200.0),
        ("1699990000.5", 1_699_990_000.5),
    ):
        assert Moment().convert(text, None, None) == moment
    with pytest.raises(click.UsageError):
        Moment().convert("-1h", None, None)


def test_many_runs_are_cancelled_after_a_question(handle: str):
    runs = [submitted(f"{handle}-{n}", "waits", "--tag", f"of={handle}") for n in range(2)]
    mine = ("cancel", "--tag", f"of={handle}")
    assert said(*mine, "--dry-run") == "2 runs would be cancelled."
    assert as_json(*mine, "--dry-run") == {"matched": 2, "done": 0, "refused": 0, "refusals": []}
    declined = greenroom(*mine, code=1, stdin="n\n")
    assert "Cancel 2 runs? [y/N]" in declined.stderr
    assert {as_json("show", run)["status"] for run in runs} <= {"queued", "running"}
    assert "more than 1 runs match" in refusal(*mine, "--yes", "--limit", "1")
    assert greenroom(*mine, stdin="y\n").stdout.strip() == "2 runs cancelled."
    for run in runs:
        greenroom("watch", run, code=5)
    assert said(*mine) == "0 runs cancelled."


def test_many_runs_are_submitted_again(handle: str):
    failed = submitted(f"{handle}-1", "fails", "--tag", f"of={handle}")
    submitted(f"{handle}-2", "quick", "--tag", f"of={handle}")
    mine = ("--tag", f"of={handle}", "--yes")
    assert said("retry", *mine, "--dry-run") == "1 run would be submitted again."
    assert said("rerun", *mine, "--dry-run") == "2 runs would be submitted again."
    for _ in range(2):
        assert as_json("retry", *mine, "--request-id", f"{handle}-r")["done"] == 1
    told = said("retry", *mine, "--request-id", f"{handle}-r")
    assert told == f"1 run submitted again, each once for request id '{handle}-r'."
    found = all_json("runs", "--tag", f"of={handle}", "--job", "fails")
    assert [run["id"] for run in found][1:] == [failed]
    assert said("rerun", *mine, "--status", "succeeded") == "1 run submitted again."


def test_one_run_is_submitted_again_by_its_id(handle: str):
    first = submitted(handle, "quick", "-p", "n=1", "--tag", "a=1")
    second = said("rerun", first)
    assert json_of(second) == {"params": {"n": 1}, "tags": {"a": "1"}}
    assert as_json("rerun", first, "--request-id", f"{handle}-r")["joined"] is False
    assert as_json("rerun", first, "--request-id", f"{handle}-r")["joined"] is True
    assert "cannot be retried" in refusal("retry", first)
    failed = submitted(f"{handle}-2", "fails")
    assert said("retry", failed) != failed


def json_of(run: str) -> dict[str, object]:
    found = as_json("show", run)
    return {name: found[name] for name in ("params", "tags")}


@pytest.mark.parametrize("command", ["cancel", "rerun", "retry"])
def test_a_run_and_filters_cannot_be_combined_and_one_is_required(command: str, tmp_path: Path):
    assert "RUN or a filter is required" in refusal(command, code=2)
    assert "RUN or a filter is required" in refusal(command, "--dry-run", code=2)
    for option in (("--lane", "images"), ("--dry-run",), ("--yes",), ("--tag", "a=1")):
        said = refusal(command, "alice", *option, code=2)
        assert "RUN cannot be combined with filters, --dry-run or --yes" in said


def test_statuses_on_which_a_command_cannot_work_are_refused(handle: str):
    assert "cancel_many works on runs with the status" in refusal(
        "cancel", "--tag", f"of={handle}", "--failed", "--yes"
    )
