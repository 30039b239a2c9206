"""What a run is submitted with: by an application, a client, a body that calls a child, or a command line.

Callers write it as keywords, which `SubmitKeywords` names for type checkers; what is passed on inside is one
`SubmitOptions`; and over the wire it is a `SubmitCommand`. An option is added in these three, and in whatever
acts on it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypedDict, Unpack, cast, get_args

import msgspec

from .commandbase import CommandBase, Timeout, timeout_from_wire, timeout_to_wire
from .errors import Invalid
from .names import FLOW, check_name
from .validation import check_seconds, check_version
from .values import shown

OnConflict = Literal["reject", "queue", "replace", "join"]
"""What to do if the handle is busy."""
_ON_CONFLICT = get_args(OnConflict)

OnWait = Callable[[float, int, list[str]], Awaitable[object] | object]
"""Called with how long a run has waited, how many are ahead of it, and the ids of those that block it."""


class SubmitKeywords(TypedDict, total=False):
    """What `submit`, `flows.start` and `run.call` take beside the handle and the parameters.

    Times are in seconds: `None` means the default, `math.inf` no limit.
    """

    kind: str
    lane: str | None
    on_conflict: OnConflict
    request_id: str | None
    queue_timeout: float | None
    run_timeout: float | None
    deadline: float | None
    warn_after: float | None
    on_wait: OnWait | None


class SubmitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One submission, with the defaults of what nobody has said. Without `params`, the handle's draft is
    taken. A run of the job `flow` without a handle gets one of its own."""

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
    on_wait: OnWait | None = None

    def check(self) -> None:
        """Raise `Invalid` for what is no option. Job, handle, lane, parameters and times are checked where it
        is known what they mean."""
        if self.on_conflict not in _ON_CONFLICT:
            known = ", ".join(_ON_CONFLICT)
            raise Invalid(f"on_conflict must be one of {known}, not {shown(self.on_conflict)}")
        if self.kind not in ("start", "continue"):
            raise Invalid(f'kind must be "start" or "continue", not {shown(self.kind)}')
        if self.request_id is not None:
            check_name("request_id", self.request_id)
        if self.on_wait is not None and not callable(self.on_wait):
            raise Invalid(f"on_wait must be callable, not {shown(self.on_wait)}")


def flow_options(
    flow: str,
    version: int,
    params: Mapping[str, Any] | None,
    handle: str | None,
    **options: Unpack[SubmitKeywords],
) -> SubmitOptions:
    """A run of a flow is one of the job `flow`."""
    check_version(version)
    walked = {"flow": flow, "version": version, "params": {} if params is None else params}
    return SubmitOptions(job=FLOW, handle=handle, params=walked, **options)


class SubmitCommand(CommandBase, frozen=True, kw_only=True):
    """What the commands that submit a run have in common."""

    params: Any = None
    kind: str = "start"
    lane: str | None = None
    on_conflict: str = "reject"
    request_id: str | None = None
    queue_timeout: Timeout = None
    run_timeout: Timeout = None
    deadline: Timeout = None
    warn_after: Timeout = None


_AS_THEY_ARE = ("kind", "lane", "on_conflict", "request_id")
_TIMES = ("queue_timeout", "run_timeout", "deadline", "warn_after")


def from_wire(command: SubmitCommand) -> SubmitKeywords:
    """The options of a command; the engine checks them."""
    options = {name: getattr(command, name) for name in _AS_THEY_ARE}
    options |= {name: timeout_from_wire(getattr(command, name)) for name in _TIMES}
    return cast(SubmitKeywords, options)


def to_wire(options: SubmitOptions) -> dict[str, Any]:
    """The fields of a command for these options. `on_wait` stays with the caller."""
    fields = {name: getattr(options, name) for name in ("handle", *_AS_THEY_ARE)}
    for name in _TIMES:
        seconds: float | None = getattr(options, name)
        fields[name] = None if seconds is None else timeout_to_wire(check_seconds(name, seconds, 0))
    return fields
