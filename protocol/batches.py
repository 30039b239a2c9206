"""Batches of submissions: their form, what is refused before the engine decides, and the outcome of each run.

A batch is accepted as a whole or not at all (`all_or_nothing`, the default), or each of its runs on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NotRequired, Required, TypeVar

import msgspec

from .errors import GreenroomError, Invalid, TooLarge
from .jobs import AnyJob
from .submission import JOINING, CallKeywords, NewRun, OnWait
from .suggestions import suggestion
from .values import shown

T = TypeVar("T")

MAX_RUNS = 10_000
"""The number of runs in one batch."""


class RunKeywords(CallKeywords, total=False):
    """One run of a batch: the arguments of `submit`, by name."""

    job: Required[str | AnyJob]
    handle: Required[str]
    params: NotRequired[Any]


_KNOWN = frozenset(RunKeywords.__annotations__)
_REQUIRED = frozenset({"job", "handle"})


class Refused(msgspec.Struct, frozen=True):
    """Why a run of a batch was refused, as in the reply `error`."""

    code: str
    message: str
    details: dict[str, Any]


class Submitted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one run of a batch: its id and whether it existed before, or the error."""

    run_id: str | None = None
    joined: bool | None = None
    error: Refused | None = None

    @classmethod
    def refused(cls, error: GreenroomError) -> Submitted:
        """The outcome of a run that was refused with this error."""
        return cls(error=Refused(error.code, error.message, dict(error.details)))


def check_runs(runs: object, all_or_nothing: object) -> None:
    """Raise `Invalid` or `TooLarge` if this is no batch. Its runs are checked one by one."""
    if isinstance(runs, str | bytes | Mapping) or not isinstance(runs, Sequence):
        raise Invalid(f"runs must be a list (got {shown(runs)})", value=shown(runs))
    if not isinstance(all_or_nothing, bool):
        raise Invalid(f"all_or_nothing must be true or false (got {shown(all_or_nothing)})")
    if len(runs) > MAX_RUNS:
        raise TooLarge(
            f"runs must have at most {MAX_RUNS} entries (got {len(runs)}): divide them among several calls",
            size=len(runs),
            limit=MAX_RUNS,
        )


def check_run(run: object) -> None:
    """Raise `Invalid` if this does not have the form of a run of a batch."""
    if not isinstance(run, Mapping):
        raise Invalid(f"must be an object with job, handle and options (got {shown(run)})")
    if not _REQUIRED <= run.keys() <= _KNOWN:
        for name in run:
            if name not in _KNOWN:
                raise Invalid(f"unexpected field {shown(name)}{suggestion(str(name), sorted(_KNOWN))}")
        missing = ", ".join(sorted(_REQUIRED - run.keys()))
        raise Invalid(f"required fields are missing: {missing}")


def with_on_wait(runs: Sequence[RunKeywords], wrap: Callable[[OnWait], OnWait]) -> Sequence[RunKeywords]:
    """Return the runs with `wrap` applied to each `on_wait`, for callers in another thread or loop."""
    wrapped: list[RunKeywords] = []
    for run in runs:
        on_wait = run.get("on_wait") if isinstance(run, Mapping) else None
        wrapped.append({**run, "on_wait": wrap(on_wait)} if callable(on_wait) else run)
    return wrapped


def named(error: GreenroomError, index: int) -> GreenroomError:
    """Return the error of the run at this index, for the refusal of a whole batch."""
    return type(error)(f"runs[{index}]: {error.message}", **{**error.details, "index": index})


class Refusals(Generic[T]):
    """The runs of a batch that are refused before the others are passed on. With `all_or_nothing`, the first
    one refuses the batch."""

    def __init__(self, all_or_nothing: bool) -> None:
        self._all_or_nothing = all_or_nothing
        self._errors: dict[int, GreenroomError] = {}

    def add(self, index: int, error: GreenroomError) -> None:
        """Refuse the run at this index. Raises the error if it refuses the batch."""
        if self._all_or_nothing:
            raise named(error, index) from error
        self._errors[index] = error

    def merged(self, others: Sequence[T | GreenroomError]) -> list[T | GreenroomError]:
        """Return the outcomes of all runs in order, given those of the runs that were passed on."""
        if not self._errors:
            return list(others)
        following = iter(others)
        count = len(others) + len(self._errors)
        return [self._errors[at] if at in self._errors else next(following) for at in range(count)]


def with_drawn_ids(runs: Sequence[NewRun], draw: Callable[[], str]) -> list[NewRun]:
    """Return the runs, each with a request id: those without one have one from `draw`."""
    replace = msgspec.structs.replace
    return [run if run.request_id is not None else replace(run, request_id=draw()) for run in runs]


def existed(run: NewRun, outcome: Submitted) -> bool:
    """Return whether an accepted run existed before. For a `run` without a request id, the sender has drawn
    one, and `joined` only means that the batch was sent twice."""
    return bool(outcome.joined) and (run.request_id is not None or run.on_conflict in JOINING)
