"""The options of a submission, by an application, a client, a body that calls a child, or the command line.

Callers pass keyword arguments (`SubmitKeywords` and those beside it are their types), the engine passes on
one `SubmitOptions`, and the wire has a `SubmitCommand`, or a `NewRun` for each run of a batch (`batches.py`).
A new option must be added to all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack, cast, get_args

import msgspec

from .commandbase import CommandBase, Seconds, Timeout, timeout_from_wire, timeout_to_wire
from .delays import check_delay, unix_seconds
from .errors import Invalid
from .lane_settings import check_priority
from .names import FLOW, check_name, lane_name
from .notify import Notify, plain_notify, read_notify
from .records import RunRecord
from .suggestions import suggestion
from .tracecontext import trace_context
from .validation import check_needs, check_seconds, check_tags, check_version
from .values import shown

OnConflict = Literal["reject", "queue", "replace", "join", "coalesce"]
"""What to do if the handle is busy."""
_ON_CONFLICT = get_args(OnConflict)

OnConflictOfMany = Literal["reject", "queue", "replace", "join"]
"""The same for flows, child runs and the runs of a batch, which do not coalesce."""

WARN_AFTER = 2
"""Seconds after which the engine reports that a run waits, unless its submission says otherwise."""

JOINING: tuple[OnConflict, ...] = ("join", "coalesce")
"""With these, a submission can join the run of another one."""

OnWait = Callable[[float, int, list[str]], Awaitable[object] | object]
"""Called with the seconds that a run has waited, the number of runs ahead, and the ids that block it."""


class CommonKeywords(TypedDict, total=False):
    """The keywords of everything that submits runs. Times are in seconds: `None` means the default,
    `math.inf` no limit.

    Without a `priority`, the run has that of its job, else that of its lane. `notify` is the URL to which the
    events of the run are delivered, or a mapping of `url` and `types`.
    """

    kind: str
    lane: str | None
    queue_timeout: float | None
    run_timeout: float | None
    deadline: float | None
    warn_after: float | None
    priority: int | None
    key: str | None
    tags: Mapping[str, str]
    notify: str | Mapping[str, Any] | Notify | None


class ScheduleKeywords(CommonKeywords, total=False):
    """The keywords of `schedules.put` and `Schedule` for the runs that a schedule submits."""

    on_conflict: OnConflict
    needs: list[str] | tuple[str, ...]


class OnceKeywords(CommonKeywords, total=False):
    """The keywords of everything that submits a run once.

    `start_at` (Unix seconds, or an aware datetime) or `delay` makes a delayed run; with `reserve`, it holds
    its handle from the submission on.
    `traceparent` and `tracestate` are the headers of W3C Trace Context; a text that is not valid is ignored.
    """

    request_id: str | None
    start_at: float | datetime | None
    delay: float | None
    reserve: bool
    traceparent: str | None
    tracestate: str | None
    on_wait: OnWait | None


class SubmitKeywords(OnceKeywords, total=False):
    """The keywords of `submit` in addition to handle and parameters."""

    on_conflict: OnConflict
    needs: list[str] | tuple[str, ...]


class FlowKeywords(OnceKeywords, total=False):
    """The keywords of `flows.start`."""

    on_conflict: OnConflictOfMany


class CallKeywords(FlowKeywords, total=False):
    """The keywords of `run.call`, and of a run of a batch."""

    needs: list[str] | tuple[str, ...]


_KEYWORDS = ("handle", "params", *SubmitKeywords.__annotations__)


def check_keywords(function: str, options: Iterable[str], *others: str) -> None:
    """Raise `TypeError` for an unknown keyword argument of a function that takes `SubmitKeywords` and
    `others`."""
    for name in options:
        if name not in _KEYWORDS and name not in others:
            close = suggestion(name, (*others, *_KEYWORDS))
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{close}")


class SubmitOptions(msgspec.Struct, frozen=True, gc=False, kw_only=True):
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
    warn_after: float | None = WARN_AFTER
    needs: Sequence[str] = ()
    priority: int | None = None
    key: str | None = None
    start_at: float | datetime | None = None
    delay: float | None = None
    reserve: bool = False
    tags: Mapping[str, str] = {}
    notify: str | Mapping[str, Any] | Notify | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    on_wait: OnWait | None = None

    @property
    def has_usual_times(self) -> bool:
        """Whether all times are those of the job."""
        return (
            self.queue_timeout is None
            and self.run_timeout is None
            and self.deadline is None
            and self.warn_after == WARN_AFTER
        )

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
        if self.priority is not None:
            check_priority("priority", self.priority)
        if self.key is not None:
            check_name("key", self.key)
        if not (self.start_at is None and self.delay is None and self.reserve is False):
            check_delay(self.start_at, self.delay, reserve=self.reserve)
        if self.tags != {}:
            check_tags(self.tags)
        if self.notify is not None:
            read_notify("notify", self.notify)
        if self.on_wait is not None and not callable(self.on_wait):
            raise Invalid(f"on_wait must be callable (got {shown(self.on_wait)})")
        if self.traceparent is not None or self.tracestate is not None:
            self.check_trace()

    def check_trace(self) -> None:
        """Raise `Invalid` for what is no text: it does not come from a foreign header, but from an error of
        the caller, who would otherwise miss the trace. The text itself can be anything."""
        for name in TRACE:
            value = getattr(self, name)
            if not isinstance(value, str | None):
                raise Invalid(f"{name} must be a string (got {shown(value)})", value=shown(value))


def flow_options(
    flow: str,
    version: int,
    params: Mapping[str, Any] | None,
    handle: str | None,
    **options: Unpack[FlowKeywords],
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
    priority: int | None = None
    key: str | None = None
    tags: dict[str, str] | None = None
    notify: Notify | str | None = None


class NewRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One run of a batch: the fields of a `submit`, without its `id` and `type`."""

    job: str
    handle: str
    params: Any = None
    kind: str = "start"
    lane: str | None = None
    on_conflict: str = "reject"
    request_id: str | None = None
    queue_timeout: Timeout = None
    run_timeout: Timeout = None
    deadline: Timeout = None
    warn_after: Timeout = None
    needs: tuple[str, ...] = ()
    priority: int | None = None
    key: str | None = None
    start_at: Seconds | None = None
    delay: Seconds | None = None
    reserve: bool = False
    tags: dict[str, str] | None = None
    notify: Notify | str | None = None
    traceparent: str | None = None
    tracestate: str | None = None


class SubmitCommand(RunCommand, frozen=True, kw_only=True):
    """The fields of every command that submits a run once."""

    request_id: str | None = None
    start_at: Seconds | None = None
    delay: Seconds | None = None
    reserve: bool = False
    traceparent: str | None = None
    tracestate: str | None = None


_UNCHANGED = ("kind", "lane", "on_conflict", "request_id")
_DELAY = ("start_at", "delay", "reserve")
TRACE = ("traceparent", "tracestate")
"""The headers of W3C Trace Context, and the options of their names."""
_KEPT_IF_SET = ("tags", "priority", "key")
"""Options that few runs have, and that `rerun` keeps."""
_TIMES = ("queue_timeout", "run_timeout", "deadline", "warn_after")


def from_wire(command: RunCommand | NewRun) -> SubmitKeywords:
    """Return the options of a command, or of a run of a batch; the engine checks them."""
    names = (*_UNCHANGED, "needs", "priority", "key", "notify", *_DELAY, *TRACE)
    options = {name: getattr(command, name) for name in names if hasattr(command, name)}
    options["tags"] = command.tags or {}
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
    if options.priority is not None:
        fields["priority"] = check_priority("priority", options.priority)
    if options.key is not None:
        fields["key"] = check_name("key", options.key)
    if options.start_at is not None or options.delay is not None:
        fields["start_at"] = unix_seconds(options.start_at)
        fields["delay"] = options.delay
        fields["reserve"] = options.reserve
    if options.tags:
        fields["tags"] = dict(options.tags)
    if options.notify is not None:
        fields["notify"] = plain_notify(read_notify("notify", options.notify))
    options.check_trace()
    trace = trace_context(options.traceparent, options.tracestate)
    if trace is not None:
        fields |= trace.headers
    return fields


def again(run: RunRecord, request_id: str | None = None, on_conflict: OnConflict = "reject") -> SubmitOptions:
    """Return the options with which `rerun` submits this run again."""
    set_fields = {name: value for name in _KEPT_IF_SET if (value := getattr(run, name))}
    return SubmitOptions(
        job=run.job,
        handle=run.handle,
        params=run.params,
        kind=run.kind,
        lane=run.lane,
        needs=run.needs,
        on_conflict=on_conflict,
        request_id=request_id,
        **set_fields,
    )


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
    if options.start_at is not None or options.delay is not None or options.reserve:
        raise Invalid(
            "start_at, delay and reserve cannot be set for a schedule, whose runs start at its times: remove "
            "them"
        )
    if options.traceparent is not None or options.tracestate is not None:
        raise Invalid(
            "traceparent and tracestate cannot be set for a schedule, whose runs begin their own traces: "
            "remove them"
        )
    options.check()
    fields = to_wire(options)
    if options.lane is not None:
        fields["lane"] = lane_name(options.lane)
    if options.needs:
        fields["needs"] = list(options.needs)  # as JSON
    defaults = to_wire(SubmitOptions(job=options.job, handle=options.handle))
    return {name: value for name, value in fields.items() if value not in (None, defaults.get(name))}


def from_stored(stored: Mapping[str, Any]) -> SubmitKeywords:
    """Return the options of a submission that a schedule repeats."""
    options = {name: timeout_from_wire(value) if name in _TIMES else value for name, value in stored.items()}
    return cast(SubmitKeywords, options)
