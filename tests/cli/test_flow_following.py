"""Following one run of a flow: each of its events once and in order, also when the connection is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import trio

from greenroom.commands.flow.runs import follow_flow
from greenroom.protocol.events import Event, NodeRan, NodeStarted, RunStateChanged
from greenroom.protocol.fold import Projection
from greenroom.protocol.records import Snapshot
from greenroom.protocol.states import Status

ABOUT = {"run": "r1", "handle": "a", "lane": "main", "at": 0.0, "by": "body"}


def changed(seq: int, to: Status, **about: str) -> Event:
    return RunStateChanged(
        seq=seq, **ABOUT | about, from_=None, to=to, attempt=1, reason=None, place=None
    )  # fmt: skip


STORY: list[Event] = [
    changed(3, Status.RUNNING),
    NodeStarted(seq=4, **ABOUT, node="a", kind="executor", visit=1),
    NodeRan(seq=6, **ABOUT, node="a", kind="executor", visit=1, attempt=1, status="ok", started_at=0),
    changed(7, Status.SUCCEEDED),
]


class Items:
    def __init__(self, items: list[Event | Snapshot]) -> None:
        self._left = list(items)

    def __aiter__(self) -> Items:
        return self

    async def __anext__(self) -> Event | Snapshot:
        await trio.lowlevel.checkpoint()
        return self._left.pop(0)


class Answering:
    """A fake client: its events, and the history of the run at that time."""

    def __init__(self, told: list[Event | Snapshot], history: list[Event]) -> None:
        self._told = told
        self._history = history

    def events(self, after: int, filter: Any) -> AsyncIterator[Event | Snapshot]:
        return Items(self._told)

    async def history(self, run_id: str) -> list[Event]:
        return self._history

    async def get_run(self, run_id: str) -> str:
        return f"the last state of {run_id}"


async def followed(told: list[Event | Snapshot], history: list[Event] | None = None) -> list[int]:
    heard: list[Event] = []
    client: Any = Answering(told, history or [])
    assert await follow_flow(client, "r1", 2, heard.append) == "the last state of r1"
    return [event.seq for event in heard]


def snapshot() -> Snapshot:
    return Projection("epoch", max_concurrent=3).snapshot()


async def test_it_ends_with_the_end_of_the_run():
    assert await followed([*STORY, changed(8, Status.RUNNING)]) == [3, 4, 6, 7]


async def test_events_of_other_runs_are_skipped():
    assert await followed([changed(1, Status.SUCCEEDED, run="r2"), *STORY]) == [3, 4, 6, 7]


async def test_missed_events_are_read_from_the_history_and_none_is_repeated():
    assert await followed([*STORY[:2], snapshot(), STORY[2], STORY[3]], STORY[:3]) == [3, 4, 6, 7]


async def test_a_run_that_ended_during_a_lost_connection_is_followed_to_its_end():
    assert await followed([STORY[0], snapshot()], STORY) == [3, 4, 6, 7]
