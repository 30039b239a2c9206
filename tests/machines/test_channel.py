"""Channels: messages arrive in order, a wait can be cancelled, and no message or wake-up is lost."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from greenroom.actors.channel import Channel, ChannelStatistics


async def test_all_waiting_messages_are_taken_together_in_the_order_of_sending():
    channel = Channel()
    for number in range(3):
        channel.send_nowait(number)
    assert channel.statistics() == ChannelStatistics(current_buffer_used=3, tasks_waiting_receive=0)
    assert await channel.receive_all() == [0, 1, 2]
    assert channel.receive_all_nowait() == ()


async def test_receive_returns_one_message_at_a_time_in_the_order_of_sending():
    channel = Channel()
    channel.send_nowait("first")
    channel.send_nowait("second")
    assert await channel.receive() == "first"
    assert await channel.receive() == "second"
    assert channel.statistics().current_buffer_used == 0


@pytest.mark.parametrize("method", ["receive", "receive_all"])
async def test_a_receiver_sleeps_until_something_is_sent(method):
    channel, taken = Channel(), []

    async def receiver() -> None:
        taken.append(await getattr(channel, method)())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receiver)
        await wait_all_tasks_blocked()
        assert channel.statistics() == ChannelStatistics(current_buffer_used=0, tasks_waiting_receive=1)
        channel.send_nowait("news")
        assert channel.statistics() == ChannelStatistics(current_buffer_used=1, tasks_waiting_receive=0)
    assert taken in (["news"], [["news"]])


async def test_waking_without_a_message_ends_receive_all_and_not_receive():
    one, all_, ended = Channel(), Channel(), []

    async def receive_one() -> None:
        ended.append(await one.receive())

    async def receive_all() -> None:
        ended.append(await all_.receive_all())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive_one)
        nursery.start_soon(receive_all)
        await wait_all_tasks_blocked()
        one.wake()
        all_.wake()
        await wait_all_tasks_blocked()
        assert ended == [()]
        one.send_nowait("a message")
    assert ended == [(), "a message"]


async def test_being_woken_before_the_wait_is_not_lost():
    channel = Channel()
    channel.wake()
    assert channel.has_news
    assert await channel.receive_all() == ()
    assert not channel.has_news


@pytest.mark.parametrize("method", ["receive", "receive_all"])
@pytest.mark.parametrize("sent", [0, 1])
async def test_a_cancelled_receiver_takes_nothing(method, sent):
    channel = Channel()
    with trio.CancelScope() as scope:
        scope.cancel()
        for number in range(sent):
            channel.send_nowait(number)
        await getattr(channel, method)()
    assert scope.cancelled_caught
    assert channel.statistics() == ChannelStatistics(current_buffer_used=sent, tasks_waiting_receive=0)
    channel.send_nowait("later")  # a cancelled receiver is not woken
    assert channel.statistics().current_buffer_used == sent + 1
