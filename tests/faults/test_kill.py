"""SIGKILL at random moments: all that was acknowledged or shown before stays true, and all runs continue.

`GREENROOM_KILLS` is the number of kills: 20 by default, 200 in the long form. `GREENROOM_SEED` selects
another sequence.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import trio

from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.store import RunQuery, Stored
from greenroom.protocol.records import RunRecord
from greenroom.protocol.states import ENDED, Status, allowed_from, rank

from . import killed

KILLS = int(os.environ.get("GREENROOM_KILLS", "20"))
SEED = os.environ.get("GREENROOM_SEED", "kill")
RESUMABLE = {"steps", "sleeper", "asker", "chat", "parent", "writer"}
AT_MOST = {"plain": 1, "threaded": 1, "scribe": 1, "retried": 3}
"""The maximum number of bodies of a run of a job that is not resumable."""


def test_acknowledged_changes_survive_a_kill_at_any_moment(tmp_path: Path):
    lots = random.Random(SEED)
    story = Story(tmp_path)
    for number in range(KILLS):
        program = start(story, f"{SEED} {number}", to_the_end=False)
        program.join(lots.uniform(0.02, 0.6))
        program.kill()
        program.join()
        story.read()
        assert program.exitcode == -signal.SIGKILL, story.failures
        story.check()
    program = start(story, f"{SEED} end", to_the_end=True)
    program.join()
    story.read()
    assert program.exitcode == 0, story.failures
    story.check()
    story.check_the_end()


def start(story: Story, seed: str, *, to_the_end: bool) -> multiprocessing.process.BaseProcess:
    # A server with all imports forks the programs, which saves the start of the interpreter.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([killed.__name__])
    program = context.Process(
        target=killed.main,
        args=(story.folder, seed, story.last_seen, list(story.unanswered.values()), to_the_end),
    )
    program.start()
    return program


class Story:
    """The notes, read while they grow, and the checks of the store against them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failures: list[str] = []
        self.last_seen = 0
        self.unanswered: dict[str, tuple[str, str, str]] = {}
        self._offset = 0
        self._expected = 1  # the seq of the next event
        self._epochs: set[str] = set()
        self._events: dict[int, Any] = {}  # that were seen
        self._unseen: set[int] = set()
        self._stored: dict[int, Any] = {}  # events that were found in the store
        self._bodies: dict[str, str] = {}  # the run whose body executes, by handle
        self._begun: defaultdict[str, list[int]] = defaultdict(list)  # attempts
        self._submitted: dict[str, str] = {}  # the jobs of runs
        self._requests: dict[str, str] = {}
        self._ends: dict[str, tuple[str, Any]] = {}
        self._checkpoints: dict[str, tuple[str, Any]] = {}
        self._cancelled: dict[str, str] = {}
        self._accepted: defaultdict[str, list[Any]] = defaultdict(list)
        self._took: defaultdict[str, set[Any]] = defaultdict(set)
        self._resolved: dict[str, Any] = {}
        self._answers: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
        self._settings: dict[str, list[Any]] = {"threads": [1], "lane": [1]}  # the possible drafts of each
        self._known_runs: dict[str, str] = {}  # the last status of each in the store

    def read(self) -> None:
        """Read the new notes."""
        if not (self.folder / "notes").exists():
            return  # the program was killed before this
        with (self.folder / "notes").open("rb") as notes:
            notes.seek(self._offset)
            lines = notes.readlines()
            self._offset = notes.tell()
        for line in lines:
            try:
                note = json.loads(line)
            except ValueError:
                continue  # the program died while it wrote this
            getattr(self, "on_" + note.pop("what").replace(" ", "_"))(**note)

    # One method for each kind of note.

    def on_began(self, pid: int) -> None:
        self._bodies.clear()  # their process has died
        self._expected = self.last_seen + 1

    def on_left(self, pid: int) -> None:
        assert not self._bodies

    def on_failed(self, pid: int, why: str) -> None:
        self.failures.append(why)

    def on_snapshot(
        self, pid: int, seq: int, epoch: str, drafts: Any, limits: Any, runs: dict[str, str]
    ) -> None:
        assert seq >= self.last_seen, "what was seen is gone"
        self._epochs.add(epoch)
        assert len(self._epochs) == 1
        for id, status in runs.items():
            before = self._known_runs.get(id)
            assert before is None or rank(Status(before)) <= rank(Status(status)), id
            assert before not in ENDED or before == status, id
        for name, values in self._settings.items():
            now = limits.get(name, 1) if name in ("threads", "lane") else drafts.get(name)
            assert now in values, name
            self._settings[name] = [now]

    def on_resync(self, pid: int, seq: int) -> None:
        assert seq >= self.last_seen, "what was seen is gone"
        self._unseen.update(range(self._expected, seq + 1))
        self._expected = seq + 1
        self.last_seen = seq

    def on_event(self, pid: int, event: Any) -> None:
        assert event["seq"] == self._expected, "a gap, or a repetition"
        assert event["seq"] not in self._events
        self._events[event["seq"]] = event
        self.last_seen = self._expected
        self._expected += 1

    def on_begin(self, pid: int, run: str, handle: str, attempt: int) -> None:
        assert handle not in self._bodies, f"two bodies at once for {handle}"
        self._bodies[handle] = run
        self._begun[run].append(attempt)

    def on_end(self, pid: int, run: str, handle: str) -> None:
        assert self._bodies.pop(handle) == run

    def on_submitting(self, pid: int, job: str, handle: str, request_id: str | None) -> None:
        if request_id is not None:
            self.unanswered[request_id] = (job, handle, request_id)

    def on_submitted(
        self, pid: int, run: str, job: str, handle: str, request_id: str | None, joined: bool
    ) -> None:
        self._submitted[run] = job
        if request_id is not None:
            del self.unanswered[request_id]
            assert self._requests.setdefault(request_id, run) == run

    def on_refused(self, pid: int, request_id: str | None, code: str) -> None:
        assert code in ("conflict", "unavailable"), code
        if request_id is not None and code == "conflict":
            del self.unanswered[request_id]

    def on_ended(self, pid: int, run: str, status: str, result: Any) -> None:
        assert self._ends.setdefault(run, (status, result)) == (status, result)

    def on_checkpoint(self, pid: int, run: str, handle: str, value: Any) -> None:
        self._checkpoints[run] = handle, value

    def on_checkpoint_found(self, pid: int, run: str, value: Any) -> None:
        _, saved = self._checkpoints.get(run, ("", []))
        assert len(value or []) >= len(saved), f"a checkpoint of {run} is lost"

    def on_cancelled(self, pid: int, run: str, files: str) -> None:
        self._cancelled[run] = files

    def on_accepted(self, pid: int, run: str, value: Any) -> None:
        self._accepted[run].append(value)

    def on_took(self, pid: int, run: str, value: Any) -> None:
        self._took[run].add(value)

    def on_answering(self, pid: int, interrupt: str, value: Any) -> None:
        pass

    def on_resolved(self, pid: int, interrupt: str, value: Any) -> None:
        assert interrupt not in self._resolved, "resolved twice"
        self._resolved[interrupt] = value

    def on_answer(self, pid: int, run: str, key: str, value: Any) -> None:
        if value != {"approved": False, "reason": "cancelled"}:
            self._answers[run, key].append(value)

    def on_setting(self, pid: int, name: str, value: Any) -> None:
        self._settings.setdefault(name, [None]).append(value)

    def on_set(self, pid: int, name: str, value: Any) -> None:
        self._settings[name] = [value]

    # The checks of the store.

    def check(self) -> None:
        """Check the store while no program has it."""
        trio.run(self._check)

    async def _check(self) -> None:
        store = SqlStore(f"sqlite:///{self.folder}/store.db", in_threads=False)
        stored = await store.open("", 1, 0.0)
        try:
            known = max(self._stored, default=0)
            for event in await store.events(known, 1_000_000):
                self._stored[event.seq] = msgspec.to_builtins(event)
            runs = await all_runs(store)
            self._check_events(stored)
            self._check_runs(stored, runs)
            await self._check_values(store, stored)
        finally:
            await store.close()

    def _check_events(self, stored: Stored) -> None:
        assert stored.last_seq >= self.last_seen
        for seq, event in self._events.items():
            expected = None if event["type"] == "run_progress" else event
            assert self._stored.get(seq) == expected
        for seq in range(1, self.last_seen + 1):
            assert seq in self._stored or seq in self._events or seq in self._unseen
        self._check_slots()

    def _check_slots(self) -> None:
        """Check in the order of events that no run starts beyond a limit or beside another of its handle."""
        limits: dict[str | None, int | None] = {None: killed.MAX_CONCURRENT, "main": None}
        slots: dict[str, str] = {}  # the lanes of the runs with a slot
        begun: dict[str, str] = {}  # the run of each handle that has started and not ended
        for _, event in sorted(self._stored.items()):
            if event["type"] == "engine_changed":
                limits[None] = event["max_concurrent"]
            elif event["type"] == "lane_changed":
                limits[event["lane"]] = event["limit"]
            elif event["type"] == "run_changed" and event.get("detached"):
                slots.pop(event["run"], None)
            elif event["type"] == "run_state_changed":
                run, lane, to = event["run"], event["lane"], event["to"]
                if to == "running":
                    most, most_in_lane = limits[None], limits.get(lane, 1)
                    assert most is None or len(slots) < most, event
                    assert most_in_lane is None or list(slots.values()).count(lane) < most_in_lane, event
                    slots[run] = lane
                    assert begun.setdefault(event["handle"], run) == run, event
                elif to != "cancelling":
                    slots.pop(run, None)
                if to in ENDED and begun.get(event["handle"]) == run:
                    del begun[event["handle"]]

    def _check_runs(self, stored: Stored, runs: dict[str, RunRecord]) -> None:
        for id, job in self._submitted.items():
            assert runs[id].job == job
        for id, (status, result) in self._ends.items():
            assert (runs[id].status, runs[id].result) == (status, result)
        statuses: dict[str, Status] = {}
        attempts: defaultdict[str, int] = defaultdict(int)
        for event in self._stored.values():
            if event["type"] == "run_state_changed":
                id, to = event["run"], Status(event["to"])
                before = statuses.get(id)
                assert event["from"] == before
                assert before is None or before in allowed_from(to)
                assert event["attempt"] >= attempts[id]
                statuses[id], attempts[id] = to, event["attempt"]
        assert {id: run.status for id, run in runs.items()} == statuses
        self._known_runs = dict(statuses)
        for id in self._cancelled:
            assert rank(statuses[id]) >= rank(Status.CANCELLING)
        for id, begun in self._begun.items():
            assert begun == sorted(begun)
            assert begun[-1] <= attempts[id]
            assert len(begun) <= AT_MOST.get(runs[id].job, 1_000), f"{runs[id].job} was repeated"
        admitted = [run.record.handle for run in stored.pending if run.record.place is not None]
        assert len(admitted) == len(set(admitted))
        requests = {request.request_id: request.run for request in stored.requests}
        assert self._requests.items() <= requests.items()

    async def _check_values(self, store: SqlStore, stored: Stored) -> None:
        for id, (handle, value) in self._checkpoints.items():
            checkpoint = await store.checkpoint(handle, "steps")
            assert checkpoint is not None
            assert checkpoint.run != id or len(checkpoint.value) >= len(value)
        waiting = {run.record.id: [value for _, value in run.messages] for run in stored.pending}
        for id, accepted in self._accepted.items():
            if id in waiting:
                assert set(accepted) <= self._took[id] | set(waiting[id])
        for interrupt, value in self._resolved.items():
            closed = await store.closed_interrupt(interrupt)
            assert closed is not None
            assert (closed.outcome, closed.answer) == ("answered", value)

    def check_the_end(self) -> None:
        """Check that every run has ended."""
        trio.run(self._check_the_end)

    async def _check_the_end(self) -> None:
        store = SqlStore(f"sqlite:///{self.folder}/store.db", in_threads=False)
        await store.open("", 1, 0.0)
        runs = await all_runs(store)
        events = {event.seq: msgspec.to_builtins(event) for event in await store.events(0, 1_000_000)}
        await store.close()
        assert events == self._stored, "the past has changed"
        assert [run for run in runs.values() if not run.ended] == []
        for run in runs.values():
            assert run.reason != "crashed" or run.job not in RESUMABLE, "it costs a resumable run no attempt"
            assert run.status in ("succeeded", "failed", "cancelled")
            assert run.status != "cancelled" or run.reason in ("cancelled", "replaced", "parent_cancelled")
            if run.status == "succeeded":
                self._check_success(run)
        assert list(self.folder.rglob("*.part")) == []
        self._check_files(runs)
        # All of this must have occurred, or the checks mean nothing.
        assert {run.job for run in runs.values() if run.status == "succeeded"} == set(killed.JOBS)
        assert {"crashed", "cancelled"} <= {run.reason for run in runs.values()}
        assert self._requests
        assert self._resolved
        assert self._took

    def _check_success(self, run: RunRecord) -> None:
        assert set(self._accepted[run.id]) <= self._took[run.id], "a message was lost"
        for key in ("1", "second"):
            answers = self._answers.get((run.id, key), [])
            assert len(set(answers)) <= 1, "the same interrupt has two answers"
        interrupts = [
            event
            for event in self._stored.values()
            if event["type"] == "interrupt_opened" and event["run"] == run.id
        ]
        for interrupt in interrupts:
            if interrupt["interrupt"] in self._resolved and run.id not in self._cancelled:
                answer = self._resolved[interrupt["interrupt"]]
                assert set(self._answers[run.id, interrupt["key"]]) == {answer}, "an answer was lost"

    def _check_files(self, runs: dict[str, RunRecord]) -> None:
        files: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
        for path in (self.folder / "data").rglob("*"):
            if path.is_file():
                files[path.name.partition("-")[0]][path.name] = path.read_bytes()
        for run in runs.values():
            if run.job in ("writer", "scribe"):
                there = files.pop(run.id, {})
                assert set(there.values()) <= {b"0123456789" * 3}
                if run.status == "succeeded":
                    assert sorted(there) == sorted(run.result)
                if run.status == "cancelled" and self._cancelled.get(run.id) == "delete":
                    assert there == {}
        assert files == {}


async def all_runs(store: SqlStore) -> dict[str, RunRecord]:
    runs: dict[str, RunRecord] = {}
    before = None
    while page := await store.runs(RunQuery(limit=1000, before=before)):
        runs.update((run.id, run) for run in page)
        before = page[-1].id
    return runs
