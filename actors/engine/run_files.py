"""The writer of `runs_dir`: follows the events and writes the latest state of each run to a file.

One task reads events and only notes which runs changed; another task writes the latest state of those runs.
A run that changes several times between two writes is written once. No other part of the engine waits for
this writer, and its failures harm nothing: they are logged, and the write is retried. A file that cannot be
written delays only itself.

At the start, and after it has fallen behind, the writer compares the folder with the store and writes the
files that are missing or outdated.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping

import msgspec
import trio

from ...persistence.runs_dir import RunFiles
from ...persistence.store import RunQuery, Store, Stored
from ...protocol.events import RunEvent
from ...protocol.records import RunRecord
from ..journal.journal import Journal
from ..journal.stream import FellBehind, Stream

logger = logging.getLogger("greenroom")

_BATCH = 100
_MARK_EVERY = 1.0
_FINISH_TIMEOUT = 5.0
"""Seconds for the remaining writes at the engine's end; the next start writes the rest."""
_LONGEST_PAUSE = 60.0
_LOG_EVERY = 60.0
_ALWAYS_COMPARE_UP_TO = 1000
"""Up to this number of files, each pruning is followed by a comparison with the store. With more files, only
after a tenth of them was pruned."""


class _Retry(msgspec.Struct):
    """When to retry a file that could not be written or removed, and the pause before that attempt."""

    at: float
    pause: float


class RunsDir:
    """Writes the folder with two tasks, `follow` and `write`; start them after the journal."""

    def __init__(self, files: RunFiles, store: Store, stream: Stream, journal: Journal) -> None:
        self._files = files
        self._store = store
        self._stream = stream
        self._journal = journal
        self._dirty: dict[str, None] = {}
        self._seq = 0  # all events up to this one have been noted
        self._missed_from: int | None = None  # the events after this one have not
        self._check_pruned = True  # a command may also have pruned runs while no engine was running
        self._pruned = 0
        self._size = 0
        self._marked_at = -math.inf
        self._retries: dict[str, _Retry] = {}  # of runs that are not in `_dirty`
        self._logged_at = -math.inf
        self._failing = False
        self._pause = 0.0
        self._changed = trio.Event()
        self._closing = False
        self._finished = trio.Event()

    def begin(self, stored: Stored) -> None:
        """Continue from the state of the store."""
        self._epoch = stored.epoch
        self._seq = stored.last_seq
        self._note(run.record.id for run in stored.pending)
        self._note(run.id for run in stored.ended)

    def pruned(self, count: int) -> None:
        """The store has deleted a number of runs or events."""
        self._pruned += count
        self._check_pruned = self._size <= _ALWAYS_COMPARE_UP_TO or self._pruned * 10 >= self._size
        self._changed.set()

    async def finish(self) -> None:
        """Write the remaining files, within a time limit. For the end of the engine, after its last event."""
        self._closing = True
        self._changed.set()
        with trio.move_on_after(_FINISH_TIMEOUT):
            await self._finished.wait()

    @trio.lowlevel.enable_ki_protection
    async def follow(self) -> None:
        """Note which runs changed, until the stream ends."""
        while await self._stream.wait_beyond(self._seq):
            self._take()
            self._changed.set()
            await trio.lowlevel.checkpoint()

    @trio.lowlevel.enable_ki_protection
    async def write(self) -> None:
        """Write what has changed, until the end."""
        begun = closing = False
        while not closing:
            closing = self._closing
            if closing:
                self._take()
            self._retry_due(all=closing)
            try:
                if not begun:
                    await self._catch_up()
                    begun = True
                await self._write_all()
            except Exception as error:
                self._write_failed(error)
                with trio.move_on_after(self._pause):
                    await self._wait_for_change(only_closing=True)
                continue
            self._failing, self._pause = bool(self._retries), 0.0
            with trio.move_on_at(min((retry.at for retry in self._retries.values()), default=math.inf)):
                await self._wait_for_change()
        self._finished.set()

    def _take(self) -> None:
        """Note the runs of the latest events. Never waits, so slow files do not delay it."""
        try:
            while events := self._stream.between(self._seq, 1024):
                self._note(p.event.run for p in events if isinstance(p.event, RunEvent))
                self._seq += len(events)
        except FellBehind:
            if self._missed_from is None:
                self._missed_from = self._seq
            self._seq = self._stream.last_seq

    def _note(self, ids: Iterable[str]) -> None:
        if not self._retries:
            self._dirty.update(dict.fromkeys(ids))
            return
        now = trio.current_time()
        for id in ids:
            retry = self._retries.get(id)
            if retry is None or retry.at <= now:  # else `_retry_due` adds it later
                self._dirty[id] = None

    def _retry_due(self, *, all: bool) -> None:
        """Mark the files whose retry is due."""
        now = trio.current_time()
        self._dirty.update((id, None) for id, retry in self._retries.items() if all or retry.at <= now)

    def _settle(self, ids: Iterable[str], failed: Mapping[str, OSError]) -> None:
        """Record the result of an attempt to write these files; failed ones are retried later."""
        now = trio.current_time()
        new_failures = [error for id, error in failed.items() if id not in self._retries]
        for id in ids:
            retry = self._retries.pop(id, None)
            if id in failed:
                self._dirty.pop(id, None)  # the retry writes later changes, too
                pause = min(_LONGEST_PAUSE, retry.pause * 2 if retry is not None else 1.0)
                self._retries[id] = _Retry(now + pause, pause)
        if new_failures and now >= self._logged_at + _LOG_EVERY:
            self._log(new_failures[0])

    async def _wait_for_change(self, only_closing: bool = False) -> None:
        while not self._closing:
            await self._changed.wait()
            self._changed = trio.Event()
            if not only_closing:
                return

    async def _catch_up(self) -> None:
        """Note what has changed since the folder was last complete."""
        last = self._seq
        complete = await self._files.complete_until(self._epoch)
        if complete is not None and complete > last:  # the store was replaced by an older copy
            await self._note_all()
        elif complete is not None:
            await self._note_changed_since(complete)

    async def _note_changed_since(self, seq: int) -> None:
        # Progress is not stored as events, so every run in memory counts as changed.
        self._note(await self._journal.look(lambda committed: [run.id for run in committed.runs.values()]))
        while events := await self._store.events(seq, 1000):
            self._note(event.run for event in events if isinstance(event, RunEvent))
            seq = events[-1].seq

    async def _note_missed(self) -> None:
        missed_from, self._missed_from = self._missed_from, None
        assert missed_from is not None
        try:
            await self._note_changed_since(missed_from)
        except BaseException:
            self._missed_from = missed_from
            raise

    async def _note_all(self) -> None:
        before = None
        while page := await self._store.runs(RunQuery(limit=_BATCH, before=before)):
            self._note(run.id for run in page)
            before = page[-1].id

    async def _write_all(self) -> None:
        """Write until nothing remains. If a write raises, no change is lost."""
        while self._dirty or self._missed_from is not None or self._check_pruned:
            if self._missed_from is not None:
                await self._note_missed()
                continue
            seq, ids = self._seq, list(self._dirty)
            for start in range(0, len(ids), _BATCH):
                await self._write_some(ids[start : start + _BATCH])
            if not self._retries:  # else the folder is not complete
                await self._mark(seq)
            if self._check_pruned:
                await self._remove_pruned()
        if self._closing and not self._retries:
            await self._mark(self._seq, immediately=True)

    async def _write_some(self, ids: list[str]) -> None:
        for id in ids:
            self._dirty.pop(id, None)  # before the state is read: a later change must mark the run again
        try:
            found = await self._look_up(ids)
            failed = await self._files.write([run for run in found.values() if run is not None])
            failed |= await self._files.remove([id for id, run in found.items() if run is None])
        except BaseException:
            self._note(ids)
            raise
        self._size += sum(run is not None and run.ended for run in found.values())
        self._settle(ids, failed)

    async def _look_up(self, ids: list[str]) -> dict[str, RunRecord | None]:
        found = await self._journal.look(lambda committed: {id: committed.runs.get(id) for id in ids})
        for id, run in found.items():
            if run is None:  # it is no longer in memory
                found[id] = await self._store.run(id)
        return found

    async def _mark(self, seq: int, immediately: bool = False) -> None:
        now = trio.current_time()
        if immediately or now >= self._marked_at + _MARK_EVERY:
            await self._files.mark(self._epoch, seq)
            self._marked_at = now

    async def _remove_pruned(self) -> None:
        """Remove the files of runs that the store no longer contains."""
        self._pruned = 0
        ids = await self._files.ids()
        self._size = len(ids)
        before = None
        while ids:
            page = await self._store.runs(RunQuery(limit=_BATCH, before=before))
            ids.difference_update(run.id for run in page)
            if len(page) < _BATCH:
                break
            before = page[-1].id
        self._settle(ids, await self._files.remove(ids))
        self._size -= len(ids)
        self._check_pruned = self._pruned > 0

    def _write_failed(self, error: Exception) -> None:
        self._pause = min(_LONGEST_PAUSE, self._pause * 2 or 1.0)
        if not self._failing:
            self._log(error)

    def _log(self, error: Exception) -> None:
        self._failing = True
        self._logged_at = trio.current_time()
        known = isinstance(error, OSError)
        logger.error(
            "runs_dir %s is out of date; the write is retried later: %s",
            self._files.folder,
            error,
            exc_info=None if known else error,
        )
