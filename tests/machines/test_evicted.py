"""Runs whose executor exits: they continue at another one, as they were."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.actors.channel import Reply
from greenroom.actors.messages import AnswerInterrupt, Enter, Evict, Inject
from greenroom.actors.run.body_messages import OpenInterrupt, Suspend, WithdrawInterrupt
from greenroom.protocol.events import InterruptOpened
from greenroom.protocol.states import Status

from .driving import UNANSWERED, Driver, executing


def waits(run: Driver, waiting_for: str) -> None:
    run.give(Suspend(waiting_for, None, None, Reply()))
    run.supervisor()


def evicted(run: Driver) -> list[Any]:
    """The executor exits, and the body ends; returns what the supervisor is told."""
    run.give(Evict())
    run.stopped()
    return run.supervisor()


def enters(told: list[Any]) -> bool:
    return any(isinstance(message, Enter) for message in told)


def resumable(**fields: Any) -> Driver:
    return executing("swim", **fields)


def test_a_run_that_waits_for_a_message_still_accepts_one():
    run = resumable()
    waits(run, "message")
    assert not enters(evicted(run)), "it needs no slot while it waits"
    assert (run.status, run.record.waiting_for) == (Status.SUSPENDED, "message")
    assert run.record.interactive
    assert run.give(Inject(run.id, "hello", "ann", Reply())) is not UNANSWERED
    assert enters(run.supervisor())
    run.start()
    assert run.status is Status.RUNNING


@pytest.mark.parametrize("withdrawn", [True, False])
def test_the_next_body_can_open_the_same_interrupt(withdrawn: bool):
    """Whether the body that was stopped could withdraw its interrupt or not."""
    run = resumable()
    run.give(OpenInterrupt("?", 300, "key", False, Reply(), Reply()))
    run.give(Evict())
    if withdrawn:
        run.give(WithdrawInterrupt("key"))
    run.stopped()
    assert enters(run.supervisor())
    run.start()
    run.changed()
    again = OpenInterrupt("?", 300, "key", False, Reply(), Reply())
    assert run.give(again) is False, "it keeps its slot"
    assert not [event for event in run.changed() if isinstance(event, InterruptOpened)]
    run.give(AnswerInterrupt(run.id, f"{run.id}.1", "!", "ann", Reply()))
    assert again.answer.done
