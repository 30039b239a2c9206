"""Clients that submit runs, send messages and answer interrupts, all the time."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

from greenroom import Client, Event, Snapshot, connect
from greenroom.errors import Conflict, Draining, GreenroomError, NotFound, Unavailable
from greenroom.gateway.client.ticket import ClientTicket

from .story import Story

JOBS = ("walk", "walk", "walk", "once", "twice", "parent", "talks", "asks", "threaded")
RESUMABLE = ("walk", "parent", "talks", "asks", "threaded")


class Load:
    """`acknowledged` are the runs by request id. A `submit` can be repeated, with one effect."""

    def __init__(self, story: Story, seed: str, *, handles: int = 12, most: int = 24) -> None:
        self.acknowledged: dict[str, str] = {}
        self.paused = False
        self._story = story
        self._random = random.Random(seed)
        self._handles = handles
        self._most = most
        self._count = 0

    async def submit_for_ever(self, client: Client, name: str) -> None:
        """Submit runs, some of them twice, while fewer than the maximum are pending."""
        lots = self._random
        while True:
            await trio.sleep(lots.uniform(0.02, 0.2))
            pending = len(self.acknowledged) - len(self._story.ends.keys() & self.acknowledged_runs)
            if self.paused or pending >= self._most:
                continue
            self._count += 1
            request, job = f"{name}-{self._count}", lots.choice(JOBS)
            handle = f"{'p' if job == 'parent' else 'h'}{lots.randrange(self._handles)}"
            params = {"count": lots.randrange(5, 40), "pace": lots.choice([0.02, 0.05, 0.1])}
            for _ in range(lots.choice([1, 1, 1, 2])):
                options = {"params": params, "request_id": request, "on_conflict": "queue"}
                ticket = await self._submitted(partial(client.submit, job, handle=handle, **options))
                assert self.acknowledged.setdefault(request, ticket.id) == ticket.id, "one run per request"

    async def _submitted(self, submit: Callable[[], Awaitable[ClientTicket[Any]]]) -> ClientTicket[Any]:
        while True:
            try:
                return await submit()
            except (Draining, Unavailable):  # the engine restarts
                await trio.sleep(0.1)

    @property
    def acknowledged_runs(self) -> set[str]:
        return set(self.acknowledged.values())

    async def talk_for_ever(self, client: Client) -> None:
        """Send messages to the runs that wait for one, and answer interrupts."""
        while True:
            await trio.sleep(0.3)
            for run in list(client.state.runs.values()):
                if run.job == "talks" and run.waiting_for == "message":
                    await self._try(client.inject(run.id, "hello"))
            for id in list(client.state.interrupts):
                await self._try(client.answer(id, {"approved": True, "to": id}))

    async def _try(self, call: object) -> None:
        try:
            await call  # type: ignore[misc]
        except (Conflict, NotFound):
            pass  # it has just ended
        except GreenroomError as error:
            if error.code not in ("unavailable", "no_active_run", "not_interactive", "run_ended"):
                raise


async def follow(url: str, store: Path, story: Story, task_status: trio.TaskStatus[None]) -> None:
    """Pass a snapshot and all later events to the story, until cancelled.

    After a restart the engine has only the events since then, so the client can receive another snapshot; the
    events before it are then read from the store.
    """
    async with connect(url, patience=120) as client:
        snapshot = client.state.snapshot()
        story.begin(snapshot)
        task_status.started()
        async for item in client.events(after=snapshot.seq):
            if isinstance(item, Snapshot):
                for event in _stored(store, story.state.seq, item.seq):
                    story.skip_progress(event.seq)
                    story.take(event)
                story.check_snapshot(item)
            else:
                story.take(item)


def _stored(store: Path, after: int, until: int) -> Sequence[Event]:
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as opened:
        query = "SELECT event FROM events WHERE seq > ? AND seq <= ? ORDER BY seq"
        return [msgspec.json.decode(text, type=Event) for (text,) in opened.execute(query, (after, until))]
