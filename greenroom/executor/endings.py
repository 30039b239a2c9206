"""`ending`: the message that tells the engine how a body has ended."""

from __future__ import annotations

import random
import traceback
from typing import Any

from ..actors.jobs import Jobs
from ..actors.run.body_messages import Raised, Returned, Stopped
from ..actors.run.failures import has_traceback
from ..actors.run.retries import decide, own_delay
from ..protocol.errors import RunCancelled
from ..protocol.executors import Ended, Execute

_LONGEST_TRACEBACK = 50_000


def ending(order: Execute, outcome: Returned | Raised | Stopped, jobs: Jobs) -> Ended:
    """The message about the end of this body."""
    about: dict[str, Any] = {"run": order.run, "fence": order.fence}
    if isinstance(outcome, Returned):
        return Ended(**about, outcome="returned", value=outcome.value, obeyed=outcome.obeyed)
    if isinstance(outcome, Stopped):
        return Ended(**about, outcome="stopped")
    error = outcome.error
    job = jobs.recall(order.job)
    decision = decide(job, order.attempt, error)
    after = decision.after
    if after is None and decision.retries and callable(job.backoff):
        after = own_delay(job, order.attempt, error, random.random)
    return Ended(
        **about,
        outcome="raised",
        error=decision.text,
        traceback=_traceback(error),
        retries=decision.retries,
        retry_after=after,
        child_cancelled=isinstance(error, RunCancelled),
    )


def lapsed(order: Execute) -> Ended:
    """The message about a body that was ended because the executor could not reach its engine."""
    return Ended(run=order.run, fence=order.fence, outcome="lapsed")


def refused(order: Execute, why: str) -> Ended:
    """The message about a body that this executor cannot execute."""
    return Ended(run=order.run, fence=order.fence, outcome="refused", error=why)


def _traceback(error: BaseException) -> str | None:
    if not has_traceback(error):
        return None
    text = "".join(traceback.format_exception(error)).rstrip("\n")
    return text[-_LONGEST_TRACEBACK:].encode(errors="backslashreplace").decode()
