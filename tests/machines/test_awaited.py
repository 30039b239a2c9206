"""The executors of an engine's last life: how long it waits for them, and for which bodies."""

from typing import Any, cast

import pytest

from greenroom.actors.executors.awaited import Awaited, AwaitedExecutor
from greenroom.protocol.records import ExecutorState

TTL = 30.0


def known(**ttls: float | None) -> Awaited:
    """The executors of the last life, with their ttls."""
    awaited = Awaited(TTL)
    awaited.restore({id: ExecutorState("attached", None, (), (), ttl) for id, ttl in ttls.items()})
    return awaited


def body() -> Any:
    return cast(Any, object())


@pytest.mark.parametrize(("last", "longest"), [(None, TTL), (5.0, TTL), (90.0, 90.0)])
def test_the_longer_ttl_of_two_lives_counts(last: float | None, longest: float) -> None:
    awaited = known(a=last)
    assert awaited.longest_ttl("a") == longest
    awaited.expect("a", 100)
    assert awaited.ttl_of("a") == longest
    assert awaited.deadline == 100 + longest


def test_an_executor_that_is_not_known_has_the_ttl_of_this_engine() -> None:
    awaited = known(a=90)
    assert awaited.longest_ttl("b") == awaited.ttl_of("b") == TTL
    assert awaited.ttl_of("a") == TTL, "it is known, but not awaited"


def test_a_ttl_that_was_not_stored_does_not_lengthen_a_short_one() -> None:
    awaited = Awaited(0.5)
    assert awaited.longest_ttl("a") == 0.5, "before the store is read"
    awaited.restore({"a": ExecutorState("attached", None, (), (), None)})
    assert awaited.longest_ttl("a") == 0.5


def test_the_wait_begins_once() -> None:
    awaited = known(a=None)
    awaited.expect("a", 100)["r1"] = first = body()
    awaited.expect("a", 120)["r2"] = second = body()
    assert awaited.bodies("a") == {"r1": first, "r2": second}
    assert awaited.deadline == 130


def test_without_awaited_executors_there_is_no_deadline() -> None:
    awaited = known(a=90)
    assert awaited.deadline == float("inf")
    assert awaited.bodies("a") == {}
    assert not awaited.expects_others([])


def test_an_executor_is_awaited_until_it_has_attached_and_no_body_remains() -> None:
    awaited = known(a=None, b=None)
    awaited.expect("a", 0)["r1"] = body()
    awaited.expect("b", 10)
    assert awaited.expects_others(["a"])
    assert not awaited.expects_others(["a", "b"])
    awaited.attached("a")
    assert awaited.deadline == TTL, "one of its bodies remains"
    awaited.bodies("a").clear()
    awaited.attached("a")
    assert awaited.deadline == 10 + TTL
    awaited.attached("never awaited")
    awaited.attached("b")
    assert awaited.deadline == float("inf")


def test_executors_whose_time_is_over_are_given_up_with_their_bodies() -> None:
    awaited = known(a=None, b=60, c=None)
    awaited.expect("a", 0)["r1"] = first = body()
    awaited.expect("b", 0)
    awaited.expect("c", 1)
    awaited.attached("a")  # without its body
    assert awaited.take_late(TTL - 0.1) == []
    assert awaited.take_late(TTL) == [("a", AwaitedExecutor({"r1": first}, TTL, TTL, attached=True))]
    assert awaited.take_late(TTL) == []
    late = awaited.take_late(60)
    assert late == [("b", AwaitedExecutor({}, 60, 60)), ("c", AwaitedExecutor({}, TTL, 1 + TTL))]
