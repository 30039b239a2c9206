"""Retention: deletes ended runs and old events in small batches, next to the regular work.

It runs after commits, at most once a second, and periodically for runs and events that have become too old.
It waits while the store is unreachable. Its failures do not stop the engine.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import attrs
import trio

from ...persistence.failures import StoreDown
from ...persistence.store import Retention, Store
from ...protocol.errors import Invalid
from ..journal.stream import Stream

logger = logging.getLogger("greenroom")

_BATCH = 200
_BATCH_PAUSE = 0.01
"""Seconds between two batches, so that other users of the store proceed."""
_MIN_INTERVAL = 1.0
"""Seconds from a commit to the next pruning."""
_CHECK_EVERY = 60.0
"""Seconds between prunings without commits, because stored runs and events get older."""
_LONGEST_PAUSE = 60.0


@attrs.frozen
class Keep:
    """How much to keep: the last `count`, and nothing older than `age` seconds. `None` means no bound."""

    count: int | None = None
    age: float | None = None

    def __attrs_post_init__(self) -> None:
        count, age = self.count, self.age
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
            raise Invalid(
                f"count must be an integer of at least 0, or None (got {count!r})", value=repr(count)
            )
        if age is not None and (isinstance(age, bool) or not isinstance(age, int | float) or not age >= 0):
            raise Invalid(f"age must be at least 0 seconds, or None (got {age!r})", value=repr(age))


def check_retention(keep_runs: int | Keep | None, keep_events: int | Keep | None) -> Retention | None:
    """What the store keeps; `None` for everything."""
    runs, events = _check_keep("keep_runs", keep_runs), _check_keep("keep_events", keep_events)
    retention = Retention(runs.count, _seconds(runs.age), events.count, _seconds(events.age))
    return None if retention == Retention() else retention


def _check_keep(what: str, keep: int | Keep | None) -> Keep:
    if isinstance(keep, Keep):
        return keep
    if isinstance(keep, bool) or not isinstance(keep, int | None):
        raise Invalid(
            f"{what} must be an integer, Keep(count=…, age=…) or None (got {keep!r})", value=repr(keep)
        )
    try:
        return Keep(keep)
    except Invalid as error:
        raise Invalid(f"{what}: {error.message}", value=repr(keep)) from None


def _seconds(age: float | None) -> float | None:
    return None if age == math.inf else age


class Pruning:
    """Prunes the store. `pruned` receives the number of deleted runs and events."""

    def __init__(
        self,
        retention: Retention,
        store: Store,
        stream: Stream,
        clock: Callable[[], float],
        pruned: Callable[[int], None],
    ) -> None:
        self._retention = retention
        self._store = store
        self._stream = stream
        self._clock = clock
        self._pruned = pruned
        ages = [age for age in (retention.keep_runs_for, retention.keep_events_for) if age is not None]
        self._check_every = max(_MIN_INTERVAL, min(_CHECK_EVERY, *ages)) if ages else _CHECK_EVERY

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Prune until cancelled."""
        failing, pause = False, _MIN_INTERVAL
        while True:
            seq = self._stream.last_seq
            try:
                await self._prune_all()
                failing, pause = False, _MIN_INTERVAL
            except Exception as error:
                if not failing:
                    failing = True
                    known = isinstance(error, StoreDown)
                    logger.error(
                        "pruning failed and is retried later: %s",
                        error,
                        exc_info=None if known else error,
                    )
                await trio.sleep(pause)
                pause = min(_LONGEST_PAUSE, pause * 2)
                continue
            with trio.move_on_after(self._check_every):
                if not await self._stream.wait_beyond(seq):
                    return
            await trio.sleep(_MIN_INTERVAL)

    async def _prune_all(self) -> None:
        total = 0
        try:
            while count := await self._store.prune(self._retention, self._clock(), _BATCH):
                total += count
                await trio.sleep(_BATCH_PAUSE)
        finally:
            if total:
                logger.debug("%d runs and events were deleted", total)
                self._pruned(total)
