"""The cost of a commit on a server: a small constant number of round trips, independent of its size.

A proxy between the store and the server counts how often the store sends data after it received an answer.
The proxy holds answers back until the store sends no more data, so pipelined statements count once.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from urllib.parse import urlsplit

import pytest

from greenroom.persistence.flows import FlowRow, FlowState, NodeRun, VersionRow, WorkerGone, WorkerRow
from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.store import (
    Checkpoint,
    DeletionDone,
    DeletionOwed,
    FileFinished,
    FileGivenUp,
    FilesDoomed,
    MessagesTaken,
    Terms,
    WakesAt,
)
from greenroom.protocol.events import InterruptClosed, InterruptOpened, NodeRan, RunMessage, RunSignal
from greenroom.protocol.states import Status

from .conftest import Place
from .story import NOW, Story, begin, created, draft, executor_changed, lane_changed, moved, of

SLACK = 50
"""So many more are allowed: very large batches are split into several statements, and a store that a busy
machine interrupts for longer than `QUIET` counts as waiting. One more for each run would be far more."""

QUIET = 0.01
"""Seconds without data after which the store counts as waiting for an answer."""


class Turns:
    """Forwards data between clients and a server, and counts the round trips."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._server_spoke_last: dict[socket.socket, bool] = {}
        self._client_spoke_at: dict[socket.socket, float] = {}
        self._lines: list[socket.socket] = []
        self.count = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for line in (self._listener, *self._lines):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            for line in (client, server):
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._lines += [client, server]
            self._server_spoke_last[client] = True
            self._client_spoke_at[client] = 0.0
            threading.Thread(target=self._pass, args=(client, server, client, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, talk: socket.socket, server: bool) -> None:
        try:
            while data := source.recv(1 << 20):
                while server and (left := self._client_spoke_at[talk] + QUIET - time.monotonic()) > 0:
                    time.sleep(left)
                with self._lock:
                    if not server:
                        self.count += self._server_spoke_last[talk]
                        self._client_spoke_at[talk] = time.monotonic()
                    self._server_spoke_last[talk] = server
                sink.sendall(data)
        except OSError:
            pass


@contextmanager
def counted(url: str) -> Iterator[tuple[str, Turns]]:
    """Return the store's address through the proxy."""
    port = urlsplit(url).port
    assert port is not None
    turns = Turns(port)
    try:
        yield url.replace(f":{port}/", f":{turns.port}/"), turns
    finally:
        turns.close()


Do = Callable[[Story, list[str]], Awaitable[object]]


async def _create(story: Story, ids: list[str]) -> None:
    terms = {id: Terms(request_id=f"request {id}") for id in ids}
    await story.tell(
        *(created(id, place=n) for n, id in enumerate(ids)),
        terms=terms,
        memos=[FlowState(id, "version", "{}", 0) for id in ids],
    )


async def _start(story: Story, ids: list[str]) -> None:
    await story.tell(*(moved(story.runs[id], Status.RUNNING, attempt=1, interactive=True) for id in ids))


async def _ask(story: Story, ids: list[str]) -> None:
    await story.tell(
        *(RunMessage(**of(id), message=id) for id in ids),
        *(InterruptOpened(**of(id), interrupt=f"{id}.1", key="1", data=id, deadline=None) for id in ids),
    )


async def _answer(story: Story, ids: list[str]) -> None:
    messages = [event for event in story.events if isinstance(event, RunMessage)]
    await story.tell(
        *(InterruptClosed(**of(id), interrupt=f"{id}.1", outcome="answered", answer=id) for id in ids),
        memos=[MessagesTaken(event.run, (event.seq,)) for event in messages],
    )


async def _remember(story: Story, ids: list[str]) -> None:
    await story.tell(
        *(draft(id, id) for id in ids),
        *(lane_changed(id, 2) for id in ids),
        memos=[Checkpoint(id, "job", id, id) for id in ids]
        + [FileFinished(id, "a") for id in ids]
        + [FileFinished(id, "b") for id in ids]
        + [FileGivenUp(id, "b") for id in ids]
        + [FilesDoomed(id) for id in ids]
        + [WakesAt(id, NOW) for id in ids],
    )


async def _attach(story: Story, ids: list[str]) -> None:
    await story.tell(
        *(executor_changed(id) for id in ids),
        *(executor_changed(f"another {id}", "gone") for id in ids),
        memos=[DeletionOwed("folder", id, id, ()) for id in ids]
        + [DeletionDone("another folder", id) for id in ids],
    )


async def _walk(story: Story, ids: list[str]) -> None:
    ran = {"node": "a", "visit": 1, "attempt": 1, "started_at": NOW}
    memos = [
        (FlowState(id, "version", id, 1), NodeRun(run=id, number=1, status="ok", finished_at=NOW, **ran))
        for id in ids
    ]
    await story.tell(
        *(NodeRan(**of(id), kind="local", status="ok", **ran) for id in ids), memos=[*chain(*memos)]
    )


async def _publish(story: Story, ids: list[str]) -> None:
    await story.tell(
        *(RunSignal(**of(id), key="key", value=id) for id in ids),
        memos=[FlowRow(id, id, "", NOW) for id in ids]
        + [VersionRow(id, id, 1, "published", NOW, id) for id in ids]
        + [WorkerRow(id, "", (), "queue", 0.0, NOW) for id in ids]
        + [WorkerGone(f"another {id}") for id in ids],
    )


async def _end(story: Story, ids: list[str]) -> None:
    half = len(ids) // 2
    await story.tell(
        *(moved(story.runs[id], Status.SUCCEEDED, result=id) for id in ids[:half]),
        *(moved(story.runs[id], Status.FAILED, reason="error", holds_handle=True) for id in ids[half:]),
    )


STEPS: list[Do] = [_create, _start, _ask, _answer, _remember, _attach, _walk, _publish, _end]


async def test_a_commit_takes_as_many_round_trips_for_a_thousand_runs_as_for_ten(server_place: Place) -> None:
    with counted(server_place.url) as (url, turns):
        store = SqlStore(url)
        story = await begin(store)
        took: dict[str, dict[int, int]] = {}
        for size in (10, 1000):
            ids = [f"run {size} {n:04}" for n in range(size)]
            for step in STEPS:
                before = turns.count
                await step(story, ids)
                took.setdefault(step.__name__, {})[size] = turns.count - before
        await store.close()
    for step, by_size in took.items():
        assert by_size[1000] <= by_size[10] + SLACK, (step, took)
        assert by_size[10] <= 30, (step, took)


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(("step", "most"), [(_start, 8), (_walk, 10)])
async def test_a_transition_or_a_step_of_flows_takes_few_round_trips(
    server_place: Place, step: Do, most: int, size: int
) -> None:
    ids = [f"r{n:04}" for n in range(size)]
    with counted(server_place.url) as (url, turns):
        store = SqlStore(url)
        story = await begin(store)
        await _create(story, ids)
        before = turns.count
        await step(story, ids)
        count = turns.count - before
        await store.close()
    assert count <= most + (SLACK if size > 1 else 0), (
        "the seq, the runs, the events, what was walked, the commit, and what the pool asks"
    )
