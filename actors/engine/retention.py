"""Retention: forgets ended runs and old events, in small batches beside the work.

It looks when something has been committed, but not more often than each second, and now and then for what has
become too old. Where the store can't be reached it waits, and nothing that goes wrong here stops the engine.
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

_AT_ONCE = 200
_BREATH = 0.01
"""Seconds between two batches, so that whoever waits for the store gets it."""
_GATHER = 1.0
"""Seconds from something new to a look at what it has made too much."""
_LOOK_EVERY = 60.0
"""Seconds between looks when nothing happens; for things get older."""
_LONGEST_PAUSE = 60.0


@attrs.frozen
class Keep:
    """How much to keep: the last `count`, and nothing older than `age` seconds. `None` sets no bound."""

    count: int | None = None
    age: float | None = None

    def __attrs_post_init__(self) -> None:
        count, age = self.count, self.age
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
            raise Invalid(
                f"count must be a whole number, 0 or more, or None, not {count!r}", value=repr(count)
            )
        if age is not None and (isinstance(age, bool) or not isinstance(age, int | float) or not age >= 0):
            raise Invalid(
                f"age must be a number of seconds, 0 or more, or None, not {age!r}", value=repr(age)
            )


def check_retention(keep_runs: int | Keep | None, keep_events: int | Keep | None) -> Retention | None:
    """What a store is told to keep; `None` if that is everything."""
    runs, events = _check_keep("keep_runs", keep_runs), _check_keep("keep_events", keep_events)
    retention = Retention(runs.count, _seconds(runs.age), events.count, _seconds(events.age))
    return None if retention == Retention() else retention


def _check_keep(what: str, keep: int | Keep | None) -> Keep:
    if isinstance(keep, Keep):
        return keep
    if isinstance(keep, bool) or not isinstance(keep, int | None):
        raise Invalid(
            f"{what} must be a number, a Keep(count=…, age=…) or None, not {keep!r}", value=repr(keep)
        )
    try:
        return Keep(keep)
    except Invalid as error:
        raise Invalid(f"{what}: {error.message}", value=repr(keep)) from None


def _seconds(age: float | None) -> float | None:
    return None if age == math.inf else age


class Pruning:
    """Prunes the store. `pruned` is told how much was forgotten."""

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
        self._look_every = max(_GATHER, min(_LOOK_EVERY, *ages)) if ages else _LOOK_EVERY

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Prune, until cancelled."""
        failing, pause = False, _GATHER
        while True:
            seq = self._stream.last_seq
            try:
                await self._prune_all()
                failing, pause = False, _GATHER
            except Exception as error:
                if not failing:
                    failing = True
                    known = isinstance(error, StoreDown)
                    logger.error(
                        "pruning failed, and is tried again later: %s",
                        error,
                        exc_info=None if known else error,
                    )
                await trio.sleep(pause)
                pause = min(_LONGEST_PAUSE, pause * 2)
                continue
            with trio.move_on_after(self._look_every):
                if not await self._stream.wait_beyond(seq):
                    return
            await trio.sleep(_GATHER)

    async def _prune_all(self) -> None:
        total = 0
        try:
            while count := await self._store.prune(self._retention, self._clock(), _AT_ONCE):
                total += count
                await trio.sleep(_BREATH)
        finally:
            if total:
                logger.debug("%d runs and events were forgotten", total)
                self._pruned(total)
