"""Bodies whose parameters are replaced while their runs wait, and whose attempts end with chosen errors.

The parameters of a run contain a number, so that the parameters of no two submissions are equal, and the
name of an error for each attempt.
"""

from __future__ import annotations

from random import Random
from typing import Any

from ...actors.jobs import Jobs
from ...actors.run.api import Run
from ...protocol.retries import Fail, Retry
from ..rules.retries import Error
from .bodies import GRACE, Bodies, draw_moment

JOBS = ("notes", "notes", "picky", "picky", "vague")

_ERRORS: dict[str, tuple[Exception, str]] = {
    "busy": (OSError("busy"), "OSError: busy"),
    "gone": (ConnectionError("gone"), "ConnectionError: gone"),
    "wrong": (ValueError("wrong"), "ValueError: wrong"),
    "both": (ExceptionGroup("", [OSError("busy"), ValueError("wrong")]), "OSError: busy; ValueError: wrong"),
    "later": (Retry(after=2.0), "Retry: another attempt after 2 s"),
    "never": (Fail("no further attempt"), "no further attempt"),
}
"""The errors that bodies raise, and their texts in events."""


class Notes:
    """The jobs `notes`, `picky`, which is retried after some errors, and `vague`, which is retried after all
    with the default backoff."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        jobs: Jobs = bodies.jobs
        jobs.job("notes", grace=GRACE)(self._notes)
        jobs.job(
            "picky",
            grace=GRACE,
            max_attempts=3,
            backoff=lambda attempt, error: attempt * len(str(error)) / 8,
            retry_on=OSError,
            never_on=(ConnectionError,),
        )(self._picky)
        jobs.job("vague", grace=GRACE, max_attempts=3)(self._vague)

    async def _notes(self, run: Run, params: dict[str, Any]) -> int:
        await self._bodies.hold(params.get("seconds", 0.0))
        return run.attempt

    async def _picky(self, run: Run, params: dict[str, Any]) -> int:
        await self._raise(run, params, _picky_delay)
        return run.attempt

    async def _vague(self, run: Run, params: dict[str, Any]) -> int:
        await self._raise(run, params, _vague_delay)
        return run.attempt

    async def _raise(self, run: Run, params: dict[str, Any], delay: Any) -> None:
        """Hold, and raise the error of this attempt, if any. The rules expect what must follow."""
        await self._bodies.hold(params.get("seconds", 0.0))
        names = params.get("errors", [])[run.attempt - 1 :]
        if names:
            error, text = _ERRORS[names[0]]
            expected = Error(text, delay(names[0], run.attempt))
            self._bodies.rules.retries.raises(run.id, run.attempt, expected)
            raise error


def _picky_delay(name: str, attempt: int) -> tuple[float, float] | None:
    if name == "later":
        return 2.0, 2.0
    return (attempt / 2, attempt / 2) if name == "busy" else None


def _vague_delay(name: str, attempt: int) -> tuple[float, float] | None:
    if name == "never":
        return None
    return (2.0, 2.0) if name == "later" else (2.0**attempt / 4, 2.0**attempt / 2)


def draw_note(random: Random) -> dict[str, Any]:
    """Random parameters of a run."""
    errors = [random.choice(tuple(_ERRORS)) for _ in range(random.randint(0, 3))]
    return {"n": random.getrandbits(30), "seconds": draw_moment(random), "errors": errors}
