"""Keeping `runs_dir` up to date: follows the events beside the journal, and writes what they are about.

One task takes events as they come, and only notes whose they are; another writes the latest state of those
runs, in its own time. However often a run changes meanwhile, its file is written once. Nothing waits for it,
and no failure of it harms anything: it is logged, and tried again. A file that can't be written waits for
that alone; the others are written meanwhile.

At the start it writes what the store holds that the folder may lack; the same where it fell behind.
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

_AT_ONCE = 100
_MARK_EVERY = 1.0
_LAST_WORDS = 5.0
"""Seconds at the engine's end for what isn't written yet; what still isn't is written at the next start."""
_LONGEST_PAUSE = 60.0
_LOG_EVERY = 60.0
_LOOK_AT_ONCE_UP_TO = 1000
"""So many files are compared with the store whenever runs were pruned; more only when a tenth was."""


class _Retry(msgspec.Struct):
    """When a file that could not be written or removed is tried again, and how long it waits for that."""

    at: float
    pause: float


class RunsDir:
    """The folder's writer. Its two tasks are `follow` and `write`; begin them when the journal has begun."""

    def __init__(self, files: RunFiles, store: Store, stream: Stream, journal: Journal) -> None:
        self._files = files
        self._store = store
        self._stream = stream
        self._journal = journal
        self._dirty: dict[str, None] = {}
        self._seq = 0  # all events until here have been noted
        self._missed_from: int | None = None  # from the one after this they were not
        self._check_pruned = True  # they may also have been pruned by command
        self._pruned = 0
        self._size = 0
        self._marked_at = -math.inf
        self._retries: dict[str, _Retry] = {}  # of runs that are not among the dirty ones
        self._logged_at = -math.inf
        self._failing = False
        self._pause = 0.0
        self._news = trio.Event()
        self._closing = False
        self._finished = trio.Event()

    def begin(self, stored: Stored) -> None:
        """Go on from what the store holds."""
        self._epoch = stored.epoch
        self._seq = stored.last_seq
        self._note(run.record.id for run in stored.pending)
        self._note(run.id for run in stored.ended)

    def pruned(self, count: int) -> None:
        """Some runs or events have been forgotten by the store."""
        self._pruned += count
        self._check_pruned = self._size <= _LOOK_AT_ONCE_UP_TO or self._pruned * 10 >= self._size
        self._news.set()

    async def finish(self) -> None:
        """The engine ends, and nothing happens any more: write what is left, but not for long."""
        self._closing = True
        self._news.set()
        with trio.move_on_after(_LAST_WORDS):
            await self._finished.wait()

    @trio.lowlevel.enable_ki_protection
    async def follow(self) -> None:
        """Note what has changed, for as long as events come."""
        while await self._stream.wait_beyond(self._seq):
            self._take()
            self._news.set()
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
                self._fails(error)
                with trio.move_on_after(self._pause):
                    await self._something_new(only_the_end=True)
                continue
            self._failing, self._pause = bool(self._retries), 0.0
            with trio.move_on_at(min((retry.at for retry in self._retries.values()), default=math.inf)):
                await self._something_new()
        self._finished.set()

    def _take(self) -> None:
        """Note whose the latest events are. Never waits, so that writing files holds it up nowhere."""
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
            if retry is None or retry.at <= now:  # else it is written when its time has come
                self._dirty[id] = None

    def _retry_due(self, *, all: bool) -> None:
        """Have the files tried again whose time has come."""
        now = trio.current_time()
        self._dirty.update((id, None) for id, retry in self._retries.items() if all or retry.at <= now)

    def _settle(self, ids: Iterable[str], failed: Mapping[str, OSError]) -> None:
        """These files were tried; those that failed are tried again later."""
        now = trio.current_time()
        news = [error for id, error in failed.items() if id not in self._retries]
        for id in ids:
            retry = self._retries.pop(id, None)
            if id in failed:
                self._dirty.pop(id, None)  # it has changed meanwhile, which makes no difference
                pause = min(_LONGEST_PAUSE, retry.pause * 2 if retry is not None else 1.0)
                self._retries[id] = _Retry(now + pause, pause)
        if news and now >= self._logged_at + _LOG_EVERY:
            self._log(news[0])

    async def _something_new(self, only_the_end: bool = False) -> None:
        while not self._closing:
            await self._news.wait()
            self._news = trio.Event()
            if not only_the_end:
                return

    async def _catch_up(self) -> None:
        """Note what has changed since the folder was last complete."""
        last = self._seq
        complete = await self._files.complete_until(self._epoch)
        if complete is not None and complete > last:  # the store is an older copy of itself
            await self._note_all()
        elif complete is not None:
            await self._note_changed_since(complete)

    async def _note_changed_since(self, seq: int) -> None:
        # Progress is not among the stored events, so whoever may have made some counts as changed.
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
        while page := await self._store.runs(RunQuery(limit=_AT_ONCE, before=before)):
            self._note(run.id for run in page)
            before = page[-1].id

    async def _write_all(self) -> None:
        """Write until nothing is left to write; raises where that did not work, with nothing forgotten."""
        while self._dirty or self._missed_from is not None or self._check_pruned:
            if self._missed_from is not None:
                await self._note_missed()
                continue
            seq, ids = self._seq, list(self._dirty)
            for start in range(0, len(ids), _AT_ONCE):
                await self._write_some(ids[start : start + _AT_ONCE])
            if not self._retries:  # else the folder isn't complete
                await self._mark(seq)
            if self._check_pruned:
                await self._remove_pruned()
        if self._closing and not self._retries:
            await self._mark(self._seq, at_once=True)

    async def _write_some(self, ids: list[str]) -> None:
        for id in ids:
            self._dirty.pop(id, None)  # before its state is looked up: what changes from now on counts anew
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
            if run is None:  # it ended some time ago
                found[id] = await self._store.run(id)
        return found

    async def _mark(self, seq: int, at_once: bool = False) -> None:
        now = trio.current_time()
        if at_once or now >= self._marked_at + _MARK_EVERY:
            await self._files.mark(self._epoch, seq)
            self._marked_at = now

    async def _remove_pruned(self) -> None:
        """Remove the files of runs that the store does not have any more."""
        self._pruned = 0
        ids = await self._files.ids()
        self._size = len(ids)
        before = None
        while ids:
            page = await self._store.runs(RunQuery(limit=_AT_ONCE, before=before))
            ids.difference_update(run.id for run in page)
            if len(page) < _AT_ONCE:
                break
            before = page[-1].id
        self._settle(ids, await self._files.remove(ids))
        self._size -= len(ids)
        self._check_pruned = self._pruned > 0

    def _fails(self, error: Exception) -> None:
        self._pause = min(_LONGEST_PAUSE, self._pause * 2 or 1.0)
        if not self._failing:
            self._log(error)

    def _log(self, error: Exception) -> None:
        self._failing = True
        self._logged_at = trio.current_time()
        known = isinstance(error, OSError)
        logger.error(
            "runs_dir %s can't be brought up to date, which is tried again later: %s",
            self._files.folder,
            error,
            exc_info=None if known else error,
        )
