"""The exhaustive search, on races whose orders can be counted by hand."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
import trio

from greenroom.actors.channel import Channel
from greenroom.simulation import World
from greenroom.simulation.search.exhaustive import NotRepeatable, Race, Scenario, WalkFailed, sample, walk


def senders(boxes: int, *, messages: int = 2, count: int = 2) -> Scenario:
    """A scenario in which tasks send messages to channels, in turn."""

    async def scenario(world: World, race: Race) -> str:
        channels = [Channel() for _ in range(boxes)]

        async def send(name: str, channel: Channel) -> None:
            for number in range(messages):
                channel.send_nowait(f"{name}{number}")
                await trio.lowlevel.checkpoint()

        async with race.begins() as racers:
            for number in range(count):
                racers.start_soon(send, "abc"[number], channels[number % boxes])
        return " ".join("".join(channel.receive_all_nowait()) for channel in channels)

    return scenario


def test_all_orders_of_two_messages_each_from_two_tasks_are_walked_once():
    walked = walk(senders(1))

    assert walked.outcomes == Counter(
        dict.fromkeys(("a0a1b0b1", "a0b0a1b1", "a0b0b1a1", "b0a0a1b1", "b0a0b1a1", "b0b1a0a1"), 1)
    )
    assert walked.complete


def test_three_tasks_with_one_message_each_have_six_orders():
    assert len(walk(senders(1, messages=1, count=3)).outcomes) == 6


def test_tasks_that_share_nothing_are_walked_in_one_order():
    walked = walk(senders(2))

    assert walked.outcomes == {"a0a1 b0b1": 1}
    assert walked.executions == 1


def test_a_task_outside_of_a_race_does_not_multiply_its_orders():
    walked = walk(senders(2, messages=1, count=3))  # the first and the third share a channel

    assert set(walked.outcomes) == {"a0c0 b0", "c0a0 b0"}
    assert walked.executions == 2


def test_without_reduction_the_same_outcomes_need_many_more_executions():
    reduced, unreduced = walk(senders(1)), walk(senders(1), reduced=False)

    assert set(unreduced.outcomes) == set(reduced.outcomes)
    assert unreduced.executions > 2 * reduced.executions
    assert set(sample(senders(1), 20).outcomes) <= set(reduced.outcomes)


def test_a_walk_that_needs_more_executions_is_not_complete():
    assert not walk(senders(1), most=5).complete


def test_a_scenario_that_behaves_differently_the_next_time_is_refused():
    times = count()

    async def scenario(world: World, race: Race) -> str:
        channel = Channel()

        async def send() -> None:
            channel.send_nowait("")

        async with race.begins() as racers:
            for _ in range(2 + next(times)):
                racers.start_soon(send)
        return ""

    with pytest.raises(NotRepeatable):
        walk(scenario)


def test_a_failure_lists_the_order_of_its_steps():
    async def scenario(world: World, race: Race) -> str:
        outcome = await senders(1, messages=1)(world, race)
        world.check(outcome != "b0a0", "b came first")
        return outcome

    with pytest.raises(WalkFailed, match="b came first") as raised:
        walk(scenario)

    sends = [step for step in raised.value.order if "send" in step]
    assert len(sends) >= 2
