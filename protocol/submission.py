"""The options of a submission, by an application, a client, a body that calls a child, or the command line.

Callers pass keyword arguments (`SubmitKeywords` is their type), the engine passes on one `SubmitOptions`, and
the wire has a `SubmitCommand`. A new option must be added to all three.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, cast, get_args

import msgspec

from .commandbase import CommandBase, Timeout, timeout_from_wire, timeout_to_wire
from .errors import Invalid
from .names import FLOW, check_name
from .suggestions import suggestion
from .validation import check_needs, check_seconds, check_version
from .values import shown

OnConflict = Literal["reject", "queue", "replace", "join"]
"""What to do if the handle is busy."""
_ON_CONFLICT = get_args(OnConflict)

OnWait = Callable[[float, int, list[str]], Awaitable[object] | object]
"""Called with the seconds that a run has waited, the number of runs ahead, and the ids that block it."""


class SubmitKeywords(TypedDict, total=False):
    """The keywords of `submit`, `flows.start` and `run.call` in addition to handle and parameters.

    Times are in seconds: `None` means the default, `math.inf` no limit. `flows.start` refuses `needs`.
    """

    kind: str
    lane: str | None
    on_conflict: OnConflict
    request_id: str | None
    queue_timeout: float | None
    run_timeout: float | None
    deadline: float | None
    warn_after: float | None
    needs: list[str] | tuple[str, ...]
    on_wait: OnWait | None


def check_keywords(function: str, options: Iterable[str], *others: str) -> None:
    """Raise `TypeError` for an unknown keyword argument of a function that takes `SubmitKeywords` and
    `others`."""
    known = (*others, "handle", "params", *SubmitKeywords.__annotations__)
    for name in options:
        if name not in known:
            raise TypeError(
                f"{function}() got an unexpected keyword argument {name!r}{suggestion(name, known)}"
            )


class SubmitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One submission, with its defaults.

    Without `params`, the run gets the handle's draft. A run of the job `flow` without a handle gets a new
    handle.
    """

    job: str
    handle: str | None
    params: Any = None
    kind: str = "start"
    lane: str | None = None
    on_conflict: OnConflict = "reject"
    request_id: str | None = None
    queue_timeout: float | None = None
    run_timeout: float | None = None
    deadline: float | None = None
    warn_after: float | None = 2
    needs: Sequence[str] = ()
    on_wait: OnWait | None = None

    def check(self) -> None:
        """Raise `Invalid` for a bad option. Job, handle, lane, parameters and times are checked elsewhere."""
        if self.on_conflict not in _ON_CONFLICT:
            known = ", ".join(_ON_CONFLICT)
            raise Invalid(f"on_conflict must be one of {known} (got {shown(self.on_conflict)})")
        if self.kind not in ("start", "continue"):
            raise Invalid(f'kind must be "start" or "continue" (got {shown(self.kind)})')
        if self.request_id is not None:
            check_name("request_id", self.request_id)
        if self.needs != ():
            check_needs(self.needs)
        if self.on_wait is not None and not callable(self.on_wait):
            raise Invalid(f"on_wait must be callable (got {shown(self.on_wait)})")


def flow_options(
    flow: str,
    version: int,
    params: Mapping[str, Any] | None,
    handle: str | None,
    **options: Unpack[SubmitKeywords],
) -> SubmitOptions:
    """Return the options for a run of a flow, which is a run of the job `flow`."""
    check_keywords("start", options, "version")
    check_version(version)
    walked = {"flow": flow, "version": version, "params": {} if params is None else params}
    return SubmitOptions(job=FLOW, handle=handle, params=walked, **options)


class RunCommand(CommandBase, frozen=True, kw_only=True):
    """The fields of every command that describes a run."""

    params: Any = None
    kind: str = "start"
    lane: str | None = None
    on_conflict: str = "reject"
    queue_timeout: Timeout = None
    run_timeout: Timeout = None
    deadline: Timeout = None
    warn_after: Timeout = None
    needs: tuple[str, ...] = ()


class SubmitCommand(RunCommand, frozen=True, kw_only=True):
    """The fields of every command that submits a run."""

    request_id: str | None = None


_UNCHANGED = ("kind", "lane", "on_conflict", "request_id")
_TIMES = ("queue_timeout", "run_timeout", "deadline", "warn_after")


def from_wire(command: RunCommand) -> SubmitKeywords:
    """Return the options of a command; the engine checks them."""
    options = {name: getattr(command, name, None) for name in (*_UNCHANGED, "needs")}
    options |= {name: timeout_from_wire(getattr(command, name)) for name in _TIMES}
    return cast(SubmitKeywords, options)


def to_wire(options: SubmitOptions) -> dict[str, Any]:
    """Return the fields of a command for these options. `on_wait` is not sent: the caller's side calls it."""
    fields = {name: getattr(options, name) for name in ("handle", *_UNCHANGED)}
    for name in _TIMES:
        seconds: float | None = getattr(options, name)
        fields[name] = None if seconds is None else timeout_to_wire(check_seconds(name, seconds, 0))
    if options.needs:
        fields["needs"] = tuple(options.needs)
    return fields


def to_stored(options: SubmitOptions) -> dict[str, Any]:
    """Return the options of a submission that a schedule repeats: those that are not the default. Raises
    `Invalid` for an option that cannot be repeated."""
    if options.request_id is not None:
        raise Invalid(
            f"request_id cannot be set for a schedule, which has one for each due time "
            f"(got {shown(options.request_id)}): remove it"
        )
    if options.on_wait is not None:
        raise Invalid("on_wait cannot be set for a schedule, which is stored: remove it")
    options.check()
    fields = to_wire(options)
    if options.needs:
        fields["needs"] = list(options.needs)  # as JSON
    defaults = to_wire(SubmitOptions(job=options.job, handle=options.handle))
    return {name: value for name, value in fields.items() if value not in (None, defaults.get(name))}


def from_stored(stored: Mapping[str, Any]) -> SubmitKeywords:
    """Return the options of a submission that a schedule repeats."""
    options = {name: timeout_from_wire(value) if name in _TIMES else value for name, value in stored.items()}
    return cast(SubmitKeywords, options)
