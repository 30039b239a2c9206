"""Clearing queued runs: select the runs and cancel them in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...protocol.errors import GreenroomError
from ..channel import Reply
from ..messages import Cancel, Clear, Submission

_BATCH_SIZE = 500


def select_runs(message: Clear, pending: Iterable[Submission]) -> list[str]:
    """Select the runs of a clear and mark them as cleared: those of the lane or the handle that have not
    begun, except for the run that holds the handle."""
    by_lane = message.reason == "lane_cleared"
    runs: list[str] = []
    for submission in pending:
        name = submission.lane if by_lane else submission.handle
        if (
            name == message.name
            and (by_lane or submission.place is None)
            and not (submission.cleared or submission.begun)
        ):
            submission.cleared = True
            runs.append(submission.id)
    return runs


async def cancel_all(runs: list[str], message: Clear, tell: Callable[[Cancel], None]) -> None:
    """Cancel the runs in batches, so that a long queue does not wake all its runs at the same time; then
    answer with the count."""
    count = 0
    for start in range(0, len(runs), _BATCH_SIZE):
        replies: list[Reply[Any]] = []
        for run in runs[start : start + _BATCH_SIZE]:
            reply: Reply[Any] = Reply()
            replies.append(reply)
            tell(Cancel(run, message.by, message.reason, "keep", reply))
        for reply in replies:
            try:
                count += await reply.get() is not None
            except GreenroomError:
                continue  # it has ended in another way
    message.reply.set(count)
