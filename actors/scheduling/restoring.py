"""What the order of starts had when the engine ended. A part of the supervisor."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...persistence.store import BucketsFull, Stored
from ..effects import Effects
from ..engine.recovery import holds_slot
from ..journal.change import Change
from ..messages import Submission
from .order import Order


def restore_order(
    order: Order,
    effects: Effects,
    stored: Stored,
    submissions: Sequence[Submission],
    now: float,
    wall_now: float,
) -> None:
    """Restore what the order depends on: the times at which runs got their places, which are in the order
    of the places whatever the clock did, and the buckets of rates."""
    latest = -math.inf
    placed = (submission for submission in submissions if submission.place is not None)
    for submission in sorted(placed, key=lambda submission: submission.place or 0):
        latest = submission.placed_at = max(latest, submission.placed_at)
    unused = order.restore_buckets(
        [(bucket.lane, bucket.key, now + bucket.full_at - wall_now) for bucket in stored.buckets], now
    )
    for lane, keys in unused.items():
        effects.commit(Change((), memos=(BucketsFull(lane, tuple(keys)),)))


def restore_body(order: Order, submission: Submission, key: str | None, now: float) -> int | None:
    """The run's body can still execute at its executor: it keeps the slot that it had, whose generation is
    returned."""
    run, stored = submission.id, submission.stored
    executor = None if stored is None else stored.record.executor
    assert stored is not None, "the run was stored"
    assert executor is not None, "the run awaits its executor"
    if holds_slot(stored.record):
        generation = order.restore_slot(run, submission.lane, executor, key)
        order.trials.granted(run, now, executor)
        return generation
    order.pool.restore(run, executor, has_slot=False)
    order.trials.granted(run, now, executor)
    order.trials.waits(run)
    return None
