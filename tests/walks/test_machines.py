"""Races between the machines of an engine, in every order of messages, turns, commits, bodies and commands.

`GREENROOM_WALKS=long` adds the largest races. The counts are printed (`-s`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from greenroom.actors.channel import Reply
from greenroom.actors.messages import (
    AnswerInterrupt,
    Cancel,
    ResetLanes,
    SetConcurrency,
    SetMaxConcurrent,
)
from greenroom.actors.run.body_messages import OpenInterrupt

from .walking import Walked, walk
from .whole import Deed, Whole

MOST = 200_000

long = pytest.mark.long("GREENROOM_WALKS")


def walked(
    *before: Deed, race: dict[str, Sequence[Deed]], outcome: Callable[[Whole], str], crash: bool = False
) -> list[str]:
    """Walk every order of a race and check the rules in each; returns the possible outcomes."""

    async def main() -> Walked:
        return walk(lambda: Whole(*before, deeds=race, crash=crash), outcome, MOST)

    found = trio.run(main, clock=MockClock())  # which is frozen
    print(f"\n{', '.join(race)}: {found.states:,} states, {found.orders:,} orders, {dict(found.outcomes)}")
    assert found.complete
    return sorted(found.outcomes)


def submits(run: str, handle: str = "h", **options: Any) -> Deed:
    return lambda whole: whole.submits(run, handle, **options)


def returns(run: str) -> Deed:
    return lambda whole: whole.lets_return(run)


def cancels(run: str, name: str = "cancel") -> Deed:
    return lambda whole: whole.commands(name, Cancel(run, "ann", "user", "keep", Reply()))


def answers(interrupt: str, answer: str, name: str = "answer") -> Deed:
    run = interrupt.partition(".")[0]
    return lambda whole: whole.commands(name, AnswerInterrupt(run, interrupt, answer, "ann", Reply()))


def asks(run: str, **options: Any) -> Deed:
    said = {"data": "?", "timeout": math.inf, "key": "1", "release_slot": True} | options
    return lambda whole: whole.says(run, OpenInterrupt(**said, reply=Reply(), answer=Reply()))


def limits(lane: str, limit: int | None) -> Deed:
    return lambda whole: whole.commands(f"limit {limit}", SetConcurrency(lane, limit, "ann", Reply()))


def limits_engine(limit: int) -> Deed:
    return lambda whole: whole.commands(f"limit {limit}", SetMaxConcurrent(limit, "ann", Reply()))


def resets(whole: Whole) -> None:
    whole.commands("reset", ResetLanes("ann", Reply()))


def statuses(*runs: str) -> Callable[[Whole], str]:
    return lambda whole: ", ".join(whole.status(run) for run in runs)


def test_a_cancel_against_the_end_of_the_body():
    assert walked(
        submits("a"),
        race={"return": [returns("a")], "cancel": [cancels("a")]},
        outcome=lambda whole: f"{whole.status('a')}; {whole.answer('cancel')}",
    ) == [
        "cancelled; cancelling",
        "succeeded; None",  # it had ended before
        "succeeded; cancelling",  # the body returned before its scope was cancelled
        "succeeded; conflict",
    ]


def test_a_cancel_against_the_submission_itself_and_the_end_of_the_body():
    assert walked(
        race={"submit": [submits("a"), cancels("a")], "return": [returns("a")]},
        outcome=lambda whole: f"{whole.status('a')}; {whole.answer('cancel')}",
    ) == [
        "cancelled; cancelled",
        "cancelled; cancelling",
        "succeeded; None",
        "succeeded; cancelling",
        "succeeded; conflict",
    ]


@pytest.mark.parametrize(
    ("on_conflict", "outcomes"),
    [
        ("reject", ["succeeded, succeeded", "succeeded, unknown"]),
        ("queue", ["succeeded, succeeded"]),
        ("join", ["succeeded, succeeded", "succeeded, unknown"]),
        ("replace", ["cancelled, succeeded", "succeeded, succeeded"]),
    ],
)
def test_a_submission_against_the_end_of_the_run_that_holds_its_handle(on_conflict, outcomes):
    race = {"a": [returns("a")], "submit": [submits("b", on_conflict=on_conflict)], "b": [returns("b")]}
    assert walked(submits("a"), race=race, outcome=statuses("a", "b")) == outcomes


@long
def test_two_replacements_against_the_end_of_the_run_that_they_replace():
    assert walked(
        submits("a"),
        race={
            "return": [returns("a")],
            "b": [submits("b", on_conflict="replace")],
            "c": [submits("c", on_conflict="replace")],
        },
        outcome=statuses("a", "b", "c"),
    ) == [
        "cancelled, cancelled, running",
        "cancelled, running, cancelled",
        "succeeded, cancelled, running",
        "succeeded, running, cancelled",
    ]


# Coalescing.


def passes(time: float) -> Deed:
    return lambda whole: whole.passes(time)


def coalesces(run: str, n: int, name: str | None = None, **options: Any) -> Deed:
    return submits(name or run, on_conflict="coalesce", params={"n": n}, **options)


def params_of(whole: Whole, run: str) -> str:
    found = whole.journal.projection.runs.get(run)
    return f"{run} {found.status} with {found.params['n']}" if found is not None else f"no {run}"


def of_b_and_c(whole: Whole) -> str:
    """The runs b and c, and which run the caller of c received."""
    reply = whole.replies["c"]
    received = reply._value if reply.done else None
    return f"{params_of(whole, 'b')}, {params_of(whole, 'c')}; {getattr(received, 'run', received)}"


def test_a_submission_that_coalesces_against_the_grant_of_the_waiting_run():
    assert walked(
        submits("a", params={"n": 0}),
        submits("b", on_conflict="queue", params={"n": 1}),
        race={"return": [returns("a")], "submit": [coalesces("c", 2)]},
        outcome=of_b_and_c,
    ) == [
        "b running with 1, c queued with 2; c",
        "b running with 2, no c; b",
    ]


def test_a_submission_that_coalesces_against_the_deadline_of_the_waiting_run():
    assert walked(
        submits("a", params={"n": 0}),
        submits("b", on_conflict="queue", params={"n": 1}, queue_timeout=1.0),
        race={"time": [passes(2.0)], "submit": [coalesces("c", 2)]},
        outcome=of_b_and_c,
    ) == [
        "b timed_out with 1, c queued with 2; c",
        "b timed_out with 2, no c; b",
    ]


def test_a_submission_that_coalesces_against_a_cancel_of_the_waiting_run():
    assert walked(
        submits("a", params={"n": 0}),
        submits("b", on_conflict="queue", params={"n": 1}),
        race={"cancel": [cancels("b")], "submit": [coalesces("c", 2)]},
        outcome=of_b_and_c,
    ) == [
        "b cancelled with 1, c queued with 2; c",
        "b cancelled with 2, no c; b",
    ]


def test_a_repeat_of_a_submission_that_coalesces_gets_the_same_run_in_every_race():
    same = {"request_id": "r", "fingerprint": "f"}

    def outcome(whole: Whole) -> str:
        first, second = (whole.replies[name]._value.run for name in "cd")
        return f"{first} {'and the same' if first == second else second}"

    assert walked(
        submits("a", params={"n": 0}),
        submits("b", on_conflict="queue", params={"n": 1}, queue_timeout=1.0),
        race={
            "time": [passes(2.0)],
            "submit": [coalesces("c", 2, **same)],
            "repeat": [coalesces("d", 2, **same)],
        },
        outcome=outcome,
    ) == ["b and the same", "c and the same", "d and the same"]


def test_a_crash_at_any_time_keeps_the_parameters_that_a_caller_was_told_of():
    def outcome(whole: Whole) -> str:
        told = whole.replies["c"]._value
        joined = "lost" if told in (None, "lost") else f"joined {told.run}" if told.joined else told.run
        return f"{params_of(whole, 'b')}, {params_of(whole, 'c')}; {joined}"

    assert walked(
        submits("a", of="swim", params={"n": 0}),
        submits("b", on_conflict="queue", params={"n": 1}, of="swim"),
        race={"submit": [coalesces("c", 2, of="swim")]},
        outcome=outcome,
        crash=True,
    ) == [
        "b queued with 1, no c; lost",
        "b queued with 2, no c; joined b",
        "b queued with 2, no c; lost",
    ]


@long
def test_two_cancels_against_a_grant():
    assert walked(
        submits("a"),
        submits("b", on_conflict="queue"),
        race={"return": [returns("a")], "of b": [cancels("b", "b")], "of a": [cancels("a", "a")]},
        outcome=statuses("a", "b"),
    ) == ["cancelled, cancelled", "succeeded, cancelled"]


@pytest.mark.parametrize("after", [[0], [0, 1], [0, 2]])
def test_limits_of_a_lane_against_a_grant(after):
    lane = {"lane": "side"}
    assert (
        walked(
            limits("side", 1),
            submits("a", "ha", **lane),
            submits("b", "hb", **lane),
            submits("c", "hc", **lane),
            race={"limits": [limits("side", limit) for limit in after], "return": [returns("a")]},
            outcome=statuses("b", "c"),
        )
        == {
            (0,): ["queued, queued", "running, queued"],
            (0, 1): ["running, queued"],
            (0, 2): ["running, running"],
        }[tuple(after)]
    )


@long
def test_the_limit_of_the_engine_against_a_grant_and_a_cancel():
    assert walked(
        submits("a", "ha"),
        submits("b", "hb"),
        submits("c", "hc"),
        race={
            "limits": [limits_engine(1), limits_engine(2)],
            "return": [returns("a")],
            "cancel": [cancels("c")],
        },
        outcome=statuses("a", "b", "c"),
    ) == ["succeeded, running, cancelled"]


@pytest.mark.parametrize("returning", ["a", pytest.param("ab", marks=long)])
def test_a_reset_against_the_ends_of_bodies(returning):
    assert walked(
        *(submits(run, f"h{run}") for run in "abc"),
        race={"reset": [resets], **{f"return {run}": [returns(run)] for run in returning}},
        outcome=statuses("a", "b", "c"),
    ) == ["succeeded, succeeded, running" if returning == "ab" else "succeeded, running, running"]


def test_an_answer_against_a_cancel_of_a_run_with_an_open_interrupt():
    assert walked(
        submits("a", of="swim"),
        race={"a": [asks("a")], "answer": [answers("a.1", "yes")], "cancel": [cancels("a")]},
        outcome=lambda whole: f"{whole.answer('answer')}; {whole.status('a')}, {whole.answer('cancel')}",
    ) == [
        "None; cancelled, cancelling",  # the run had ended
        "already_resolved; cancelled, cancelling",
        "not_found; cancelled, cancelling",  # the interrupt was not open yet
        "resolved; cancelled, cancelling",
    ]


@long
def test_two_answers_and_the_end_of_the_body():
    assert walked(
        submits("a", of="swim"),
        race={
            "a": [asks("a"), returns("a")],
            "yes": [answers("a.1", "yes", "yes")],
            "no": [answers("a.1", "no", "no")],
        },
        outcome=lambda whole: " and ".join(sorted([whole.answer("yes"), whole.answer("no")])),
    ) == [
        "None and None",
        "None and already_resolved",
        "None and not_found",
        "None and resolved",
        "already_resolved and already_resolved",  # the body returned, and its interrupt was withdrawn
        "already_resolved and not_found",
        "already_resolved and resolved",
        "not_found and not_found",
        "not_found and resolved",
    ]


@pytest.mark.parametrize(
    ("command", "outcomes"),
    [
        ("submit", ["cancelled, failed", "cancelled, running", "running, unknown"]),
        ("cancel", ["cancelled, unknown", "running, unknown"]),
        ("return", ["succeeded, unknown"]),
        ("answer", ["running, unknown", "suspended, unknown"]),
    ],
)
def test_a_crash_at_any_time_against_a_command(command, outcomes):
    race = {
        "submit": [submits("b", on_conflict="replace")],
        "cancel": [cancels("a")],
        "return": [returns("a")],
        "answer": [answers("a.1", "yes")],
    }
    before = [submits("a", of="swim")] + [asks("a")] * (command == "answer")
    assert walked(*before, race={command: race[command]}, outcome=statuses("a", "b"), crash=True) == outcomes


@long
def test_a_crash_at_any_time_of_three_commands():
    assert walked(
        race={
            "submit": [submits("a", of="swim"), submits("b", on_conflict="queue")],
            "cancel": [cancels("a")],
        },
        outcome=statuses("a", "b"),
        crash=True,
    ) == [
        "cancelled, failed",
        "cancelled, running",
        "cancelled, unknown",
        "running, queued",
        "running, unknown",
        "unknown, running",
        "unknown, unknown",
    ]


@long
def test_limits_against_grants_and_a_cancel():
    assert walked(
        *(submits(run, f"h{run}", lane="side") for run in "abc"),
        race={
            "limits": [limits("side", 0), limits("side", 2)],
            "return": [returns("a")],
            "cancel": [cancels("b")],
        },
        outcome=statuses("a", "b", "c"),
    ) == ["succeeded, cancelled, running"]
