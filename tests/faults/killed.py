"""The program that is killed: an engine on a file, with runs of every kind, which records all it observes.

Each note is one line of JSON, written before the program continues: every answer, every event, and each begin
and end of a body. All notes must be true of the store at any later time.
"""

from __future__ import annotations

import json
import logging
import os
import random
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

from greenroom import BlockingRun, Engine, Jobs, Run, open_engine
from greenroom.errors import GreenroomError, RunEnded
from greenroom.protocol.events import InterruptOpened, RunStateChanged
from greenroom.protocol.records import Snapshot
from greenroom.protocol.states import ENDED
from greenroom.protocol.submission import OnConflict

MOST_PENDING = 40
MAX_CONCURRENT = 6
"""The global limit with which the store is created; no event reports it."""
PATIENCE = 60.0

jobs = Jobs()
lots = random.Random()


class Notes:
    """The file of notes; several processes write to it, one after the other."""

    def __init__(self) -> None:
        self._file = -1

    def open(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(self._file, b"\n")  # the last line can be incomplete

    def __call__(self, what: str, **fields: Any) -> None:
        os.write(self._file, json.dumps({"what": what, "pid": os.getpid(), **fields}).encode() + b"\n")


note = Notes()


@contextmanager
def body(run: Run | BlockingRun) -> Iterator[None]:
    note("begin", run=run.id, handle=run.handle, attempt=run.attempt)
    try:
        yield
    finally:
        note("end", run=run.id, handle=run.handle)


async def moment(longest: float = 0.02) -> None:
    await trio.sleep(lots.random() * longest)


# The jobs.


@jobs.job("plain")
async def plain(run: Run, params: dict[str, Any]) -> str:
    with body(run):
        await run.progress(1, 2)
        await moment()
        await run.log("half of it")
        await moment()
        await run.progress(2, 2)
        return f"plain {run.id}"


@jobs.job("threaded", lane="threads")
def threaded(run: BlockingRun, params: dict[str, Any]) -> str:
    with body(run):
        time.sleep(lots.random() * 0.01)
        run.log("from a thread")
        return f"threaded {run.id}"


@jobs.job("steps", resumable=True)
async def steps(run: Run, params: dict[str, Any]) -> list[int]:
    with body(run):
        note("checkpoint found", run=run.id, value=run.checkpoint)
        done = run.checkpoint or []
        for step in range(len(done), 5):
            await moment()
            done = [*done, step]
            await run.save_checkpoint(done)
            note("checkpoint", run=run.id, handle=run.handle, value=done)
            await run.progress(len(done), 5)
        return done


@jobs.job("retried", max_attempts=3, backoff=lambda attempt: 0.01)
async def retried(run: Run, params: dict[str, Any]) -> str:
    with body(run):
        await moment()
        if lots.random() < 0.5:
            raise ValueError("not this time")
        return f"retried {run.id}"


@jobs.job("sleeper", resumable=True)
async def sleeper(run: Run, params: dict[str, Any]) -> str:
    with body(run):
        await run.sleep(lots.random() * 0.1)
        return f"slept {run.id}"


@jobs.job("asker", resumable=True)
async def asker(run: Run, params: dict[str, Any]) -> list[Any]:
    with body(run):
        answers = []
        for key, release in (("1", False), ("second", True)):
            answer = await run.interrupt({"question": key}, key=key, release_slot=release)
            note("answer", run=run.id, key=key, value=answer)
            answers.append(answer)
        return answers


@jobs.job("chat", resumable=True)
async def chat(run: Run, params: dict[str, Any]) -> str:
    with body(run):
        for _ in range(3):
            await moment(0.1)  # messages accumulate meanwhile
            with trio.move_on_after(0.01):
                message = await run.next_message()
                note("took", run=run.id, value=message)
        await run.end_interactive()  # from here on no message is accepted
        for message in await run.messages():
            note("took", run=run.id, value=message)
        return f"chatted {run.id}"


@jobs.job("parent", resumable=True)
async def parent(run: Run, params: dict[str, Any]) -> list[Any]:
    with body(run):
        results = []
        for job in ("plain", "steps"):
            try:
                results.append(await run.call(job, handle=f"{run.handle}/{job}", params={}))
            except RunEnded as error:
                results.append(error.run.status.value)
        return results


async def write(run: Run) -> list[str]:
    paths = [f"{run.id}-{number}" for number in range(2)]
    for path in paths:
        async with run.open_file(path, overwrite=True) as file:
            for _ in range(3):
                await file.write(b"0123456789")
                await moment(0.01)
    return paths


@jobs.job("writer", resumable=True)
async def writer(run: Run, params: dict[str, Any]) -> list[str]:
    with body(run):
        return await write(run)


@jobs.job("scribe")
async def scribe(run: Run, params: dict[str, Any]) -> list[str]:
    with body(run):
        return await write(run)


JOBS = (
    "plain",
    "threaded",
    "steps",
    "retried",
    "sleeper",
    "asker",
    "chat",
    "parent",
    "writer",
    "scribe",
)

# The users of the engine.


class Users:
    """Users that track pending runs from events only."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.pending: dict[str, str] = {}  # the job of each run

    async def begin(self, nursery: trio.Nursery) -> None:
        snapshot = await self.engine.snapshot()
        note(
            "snapshot",
            seq=snapshot.seq,
            epoch=snapshot.epoch,
            drafts={name: handle.params for name, handle in snapshot.handles.items()},
            limits={name: lane.limit for name, lane in snapshot.lanes.items()},
            runs={id: run.status for id, run in snapshot.runs.items()},
        )
        self.pending = {id: run.job for id, run in snapshot.runs.items() if not run.ended}
        for interrupt in snapshot.interrupts:
            nursery.start_soon(self.answer, interrupt)

    async def follow(self, after: int, nursery: trio.Nursery) -> None:
        async for event in self.engine.events(after=after):
            if isinstance(event, Snapshot):
                note("resync", seq=event.seq)
                continue
            note("event", event=msgspec.to_builtins(event))
            if isinstance(event, InterruptOpened):
                nursery.start_soon(self.answer, event.interrupt)
            elif isinstance(event, RunStateChanged):
                if event.from_ is None:
                    self.pending[event.run] = event.job or ""
                elif event.to in ENDED:
                    self.pending.pop(event.run, None)

    async def answer(self, interrupt: str) -> None:
        await moment(0.1)
        data = f"{lots.getrandbits(64):x}"
        note("answering", interrupt=interrupt, value=data)
        if await self.engine.answer(interrupt, data) == "resolved":
            note("resolved", interrupt=interrupt, value=data)

    async def submit(
        self, job: str, handle: str, request_id: str | None, on_conflict: OnConflict = "queue"
    ) -> None:
        note("submitting", job=job, handle=handle, request_id=request_id)
        try:
            ticket = await self.engine.submit(
                job, handle=handle, params={}, request_id=request_id, on_conflict=on_conflict
            )
        except GreenroomError as error:
            note("refused", request_id=request_id, code=error.code)
            return
        note("submitted", run=ticket.id, job=job, handle=handle, request_id=request_id, joined=ticket.joined)
        try:
            result = await ticket.result()
        except RunEnded as error:
            note("ended", run=ticket.id, status=error.run.status, result=None)
        else:
            note("ended", run=ticket.id, status="succeeded", result=result)

    async def submit_runs(self, nursery: trio.Nursery) -> None:
        while True:
            await moment(0.01)
            if len(self.pending) < MOST_PENDING:
                self.submit_one(nursery)

    def submit_one(self, nursery: trio.Nursery) -> None:
        request_id = f"{lots.getrandbits(64):x}" if lots.random() < 0.5 else None
        policy = lots.choice(["queue", "queue", "queue", "replace", "join", "reject"])
        handle = f"handle {lots.randrange(12)}"
        nursery.start_soon(self.submit, lots.choice(JOBS), handle, request_id, policy)

    async def cancel_runs(self) -> None:
        while True:
            await moment(0.1)
            if self.pending:
                run, files = lots.choice(list(self.pending)), lots.choice(["keep", "delete"])
                try:
                    await self.engine.cancel(run, files=files)
                except GreenroomError:
                    continue
                note("cancelled", run=run, files=files)

    async def send_messages(self) -> None:
        while True:
            await moment(0.02)
            chats = [run for run, job in self.pending.items() if job == "chat"]
            if chats:
                run, value = lots.choice(chats), f"{lots.getrandbits(64):x}"
                try:
                    await self.engine.inject(run, value)
                except GreenroomError:
                    continue
                note("accepted", run=run, value=value)

    async def set_things(self) -> None:
        while True:
            await moment(0.05)
            name, value = f"draft {lots.randrange(3)}", lots.randrange(1000)
            note("setting", name=name, value=value)
            await self.engine.set_params(name, value)
            note("set", name=name, value=value)
            lane, limit = lots.choice(["threads", "lane"]), lots.randrange(1, 4)
            note("setting", name=lane, value=limit)
            await self.engine.set_concurrency(lane, limit)
            note("set", name=lane, value=limit)

    async def nothing_is_pending(self) -> None:
        events = self.engine.events()
        while any(not run.ended for run in (await self.engine.snapshot()).runs.values()):
            await anext(events)


async def work(folder: Path, after: int, unanswered: list[tuple[str, str, str]], *, to_the_end: bool) -> None:
    """Continue from the notes: `after` is the last event that was seen; `unanswered` are the submissions
    (job, handle, request id) without an answer."""
    store = f"sqlite:///{folder}/store.db"
    async with open_engine(jobs, store, max_concurrent=MAX_CONCURRENT, data_dir=folder / "data") as engine:
        users = Users(engine)
        async with trio.open_nursery() as nursery:
            await users.begin(nursery)
            nursery.start_soon(users.follow, after, nursery)
            if to_the_end:
                with trio.fail_after(PATIENCE):
                    async with trio.open_nursery() as submitting:
                        for request in unanswered:
                            submitting.start_soon(users.submit, *request)
                        for job in JOBS:  # a slow machine may not have come to each of them before a kill
                            submitting.start_soon(users.submit, job, f"last {job}", None)
                    await users.nothing_is_pending()
                nursery.cancel_scope.cancel()
            else:
                for request in unanswered:
                    nursery.start_soon(users.submit, *request)
                nursery.start_soon(users.submit_runs, nursery)
                nursery.start_soon(users.cancel_runs)
                nursery.start_soon(users.send_messages)
                nursery.start_soon(users.set_things)


def main(folder: Path, seed: str, after: int, unanswered: list[Any], to_the_end: bool) -> None:
    """The program, in a separate process."""
    note.open(folder / "notes")
    lots.seed(seed)
    logging.getLogger("greenroom").setLevel(logging.CRITICAL)  # failures of runs are expected
    note("began")
    try:

        async def run() -> None:
            await work(folder, after, unanswered, to_the_end=to_the_end)

        trio.run(run)
    except BaseException:
        note("failed", why=traceback.format_exc())
        raise
    note("left")
