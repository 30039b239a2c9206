"""What the clients of all nodes were told: the same events under the same numbers, all in the store."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from greenroom import Client, Event, Snapshot, connect
from greenroom.persistence.failures import StoreDown
from greenroom.persistence.sqlstore import SqlStore
from greenroom.protocol.events import LeaderChanged, RunProgress
from tests.executors.chaos.story import Story

_PAGE = 2000


class ClusterStory(Story):
    """A story with leaders, whose terms only grow."""

    def __init__(self) -> None:
        super().__init__()
        self.leaders: list[LeaderChanged] = []

    def take(self, item: Event) -> None:
        if isinstance(item, LeaderChanged):
            last = self.leaders[-1] if self.leaders else None
            assert last is None or last.term < item.term, f"{item} follows {last}"
            self.leaders.append(item)
        super().take(item)


class Told:
    """All events that clients have received, by seq."""

    def __init__(self) -> None:
        self.events: dict[int, Event] = {}
        self.snapshots = 0

    def take(self, node: str, event: Event) -> None:
        """A client of this node has received an event."""
        known = self.events.setdefault(event.seq, event)
        assert known == event, f"{node} has published {event}, another node {known}"

    async def compare(self, store: SqlStore, last: int) -> None:
        """Each event is in the store, except progress, which is not stored; and no other one is."""
        stored = {event.seq: event for event in await stored_events(store, min(self.events) - 1, last)}
        for seq, event in self.events.items():
            if seq <= last and not isinstance(event, RunProgress):
                assert stored.get(seq) == event, f"clients were told {event}, stored is {stored.get(seq)}"


async def stored_events(store: SqlStore, after: int, until: int) -> Sequence[Event]:
    """The stored events after a seq, up to another one; waits while the database is away."""
    found: list[Event] = []
    while True:
        start = found[-1].seq if found else after
        try:
            page = await store.events(start, _PAGE)
        except StoreDown:
            await trio.sleep(0.2)
            continue
        found += [event for event in page if event.seq <= until]
        if len(page) < _PAGE or page[-1].seq > until:
            return found


async def follow(
    url: str,
    node: str,
    told: Told,
    *,
    task_status: trio.TaskStatus[Client],
) -> None:
    """Follow a node, until cancelled."""
    async with connect(url, patience=120) as client:
        seq = client.state.seq
        task_status.started(client)
        async for item in client.events(after=seq):
            if isinstance(item, Snapshot):
                told.snapshots += 1
                assert item.seq >= seq, f"{node} went back from {seq} to {item.seq}"
            else:
                assert item.seq == seq + 1, f"gap at {node}: event {item.seq} follows {seq}"
                told.take(node, item)
            seq = item.seq


async def tell(url: str, store: SqlStore, story: Story, *, task_status: trio.TaskStatus[None]) -> None:
    """Pass a snapshot and all later events to the story, until cancelled. Events that this client misses are
    read from the store."""
    async with connect(url, patience=120) as client:
        snapshot = client.state.snapshot()
        story.begin(snapshot)
        task_status.started()
        async for item in client.events(after=snapshot.seq):
            if isinstance(item, Snapshot):
                for event in await stored_events(store, story.state.seq, item.seq):
                    story.skip_progress(event.seq)
                    story.take(event)
                story.check_snapshot(item)
            else:
                story.take(item)
