"""Checks of the arguments of an engine's methods. Clients make the same checks before they send a command."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, get_args

from .errors import Invalid
from .flow.paths import Path, parse_target
from .flow.records import WorkerKind
from .names import check_name
from .states import Status
from .values import shown

FilesFate = Literal["keep", "delete"]
"""What happens to the files that a cancelled run has finished."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

_RESERVED = re.compile(r"schedule:|[0-9a-f]{32}\.")

_HIGHEST_LIMIT = 2**31 - 1

HIGHEST_SEQ = 2**63 - 1
"""The highest seq that every store can keep."""

LONGEST_POLL = 25.0
"""The maximum time that a poll waits, in seconds."""

MAX_SERVICES = 1000
MAX_LABELS = 16
"""The number of labels of an executor, of a job, and of a submission."""
MAX_TAGS = 16
MAX_TAG_VALUE = 256
"""The number of characters of a tag's value."""
_HIGHEST_LOAD = 1e15
HIGHEST_TIME = 1e12
"""The highest time in Unix seconds, and without its sign the lowest."""


def check_text(what: str, value: object) -> None:
    """Check an id, a name to look up, or free text: any text that every store can keep."""
    if not isinstance(value, str):
        raise Invalid(f"{what} must be a string (got {shown(value)})", value=shown(value))
    if "\0" in value or (not value.isprintable() and _LONE_SURROGATE.search(value)):
        raise Invalid(f"{what} must not contain NUL characters or lone surrogates (got {shown(value)})")


def check_request_id(request_id: str, own: str | None = None) -> None:
    """Refuse the request ids of firings and of child runs, except those that begin with the caller's `own`
    prefix. Whoever took one in advance would decide which run the firing or the call gets."""
    reserved = _RESERVED.match(request_id)
    if reserved is not None and not (own is not None and request_id.startswith(own)):
        owner = "schedules" if reserved[0] == "schedule:" else "the children of that run"
        raise Invalid(
            f"request_id {shown(request_id)} begins with {shown(reserved[0])}, which is reserved for "
            f"{owner}: use another request_id",
            value=shown(request_id),
        )


def check_limit(what: str, limit: object) -> int:
    """Check a limit: a non-negative integer that every store and codec can keep."""
    return _whole(what, limit, _HIGHEST_LIMIT)


def check_seq(what: str, seq: object) -> int:
    """Check a seq: the number of an event, or 0 for before the first one."""
    return _whole(what, seq, HIGHEST_SEQ)


def _whole(what: str, value: object, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise Invalid(
            f"{what} must be an integer between 0 and {most:,} (got {shown(value)})", value=shown(value)
        )
    return value


def check_page(limit: object, offset: object = 0) -> None:
    """Check a page of a list: its size, and how many entries to skip."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 1000:
        raise Invalid(
            f"limit must be an integer between 1 and 1,000 (got {shown(limit)})", value=shown(limit)
        )
    check_limit("offset", offset)


def check_seconds(what: str, value: object, default: float) -> float:
    """Return a duration in seconds: `None` means the default, `math.inf` no limit. Raises `Invalid`."""
    if value is None:
        return default
    # NaN is not `>= 0`. `math.isnan` would refuse an integer that is too large for a float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise Invalid(
            f"{what} must be a number of seconds, 0 or more (got {shown(value)})",
            value=shown(value),
        )
    try:
        return float(value)
    except OverflowError:
        raise Invalid(f"{what} is too large (got {shown(value)}): set no limit", value=shown(value)) from None


def check_files(files: object) -> None:
    """Check what happens to files: `keep` or `delete`."""
    if files not in get_args(FilesFate):
        raise Invalid(f'files must be "keep" or "delete" (got {shown(files)})', value=shown(files))


def check_needs(needs: object) -> tuple[str, ...]:
    """Return the labels that an executor must have, sorted. Raises `Invalid`."""
    return tuple(sorted(check_labels("needs", needs)))


def check_labels(what: str, labels: object) -> tuple[str, ...]:
    """Return labels of executors: those that one has, or those that a body needs. Raises `Invalid`."""
    if not isinstance(labels, list | tuple):
        raise Invalid(
            f'{what} must be a list of labels (got {shown(labels)}): write ["gpu"] for a single one',
            value=shown(labels),
        )
    if len(labels) > MAX_LABELS:
        raise Invalid(
            f"{what} must contain at most {MAX_LABELS} labels (got {len(labels):,})", value=len(labels)
        )
    names = tuple(check_name(f"{what}[{index}]", label) for index, label in enumerate(labels))
    for name in names:
        if names.count(name) > 1:
            raise Invalid(f"{what} must contain each label once (got {shown(name)} twice)", value=name)
    return names


def check_tags(tags: object) -> dict[str, str]:
    """Return the tags of a submission, or those that a query requires. Raises `Invalid`."""
    if not isinstance(tags, Mapping):
        raise Invalid(
            f'tags must be a mapping of names to values (got {shown(tags)}): write {{"customer": "42"}}',
            value=shown(tags),
        )
    if len(tags) > MAX_TAGS:
        raise Invalid(f"tags must contain at most {MAX_TAGS} tags (got {len(tags):,})", value=len(tags))
    return {check_name("tags: name", name): _tag_value(name, value) for name, value in tags.items()}


def _tag_value(name: str, value: object) -> str:
    if "=" in name:
        raise Invalid(f"tags: name {shown(name)} must not contain =, which ends a name", value=shown(name))
    what = f"tags: value of {shown(name)}"
    if not isinstance(value, str):
        raise Invalid(f"{what} must be a string (got {shown(value)}): convert it", value=shown(value))
    check_text(what, value)
    if len(value) > MAX_TAG_VALUE:
        raise Invalid(
            f"{what} has {len(value):,} characters: at most {MAX_TAG_VALUE} are allowed", value=shown(value)
        )
    return value


def check_time(what: str, time: object) -> float:
    """Return a time in Unix seconds, which is given so or as an aware datetime. Raises `Invalid`."""
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            raise Invalid(
                f"{what} must have a time zone (got {time.isoformat()}): for example "
                "datetime.now(timezone.utc), or datetime.astimezone() for local time",
                value=time.isoformat(),
            )
        return time.timestamp()
    if isinstance(time, bool) or not isinstance(time, int | float) or not abs(time) <= HIGHEST_TIME:
        raise Invalid(
            f"{what} must be a time in Unix seconds, or an aware datetime (got {shown(time)})",
            value=shown(time),
        )
    return float(time)


def check_version(version: object) -> None:
    """Check the number for a new version of a flow."""
    if version is None:
        return
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= _HIGHEST_LIMIT:
        raise Invalid(
            f"version must be an integer between 0 (the next) and {_HIGHEST_LIMIT:,} (got {shown(version)})",
            value=shown(version),
        )


def check_version_status(status: object) -> None:
    """Check the status of a version of a flow: only a published one can be run."""
    if status not in ("draft", "published"):
        raise Invalid(f'status must be "draft" or "published" (got {shown(status)})', value=shown(status))


def check_statuses(status: str | Iterable[str]) -> frozenset[Status]:
    """Return the statuses of a query: one, or several."""
    try:
        return frozenset(Status(one) for one in ([status] if isinstance(status, str) else list(status)))
    except (TypeError, ValueError):
        known = ", ".join(Status)
        raise Invalid(
            f"status must be one or more of {known} (got {shown(status)})", value=shown(status)
        ) from None


def check_target(key: str) -> Path:
    """Return the path that a signal writes to. Raises `Invalid`."""
    try:
        return parse_target(key)
    except Invalid as error:
        raise Invalid(f"key: {error.message}", **error.details) from None


# Workers.


def check_services(services: object) -> tuple[str, ...]:
    """Return the names of services without duplicates, in their order."""
    if isinstance(services, str) or not isinstance(services, Sequence):
        raise Invalid(
            f'services must be a list of names (got {shown(services)}): write ["transform"] for a single one',
            value=shown(services),
        )
    if not 1 <= len(services) <= MAX_SERVICES:
        raise Invalid(
            f"services must contain between 1 and {MAX_SERVICES:,} names (got {len(services):,})",
            value=len(services),
        )
    return tuple(dict.fromkeys(check_name(f"services[{i}]", name) for i, name in enumerate(services)))


def check_kind(kind: object) -> WorkerKind:
    """Return the kind of a worker: `http` (it is called) or `queue` (it polls)."""
    for known in get_args(WorkerKind):
        if kind == known:
            return known  # type: ignore[no-any-return]  # one of the literals
    raise Invalid(f'kind must be "http" or "queue" (got {shown(kind)})', value=shown(kind))


def check_load(load: object) -> float:
    """Return the load of a worker: any number that grows with its work."""
    if isinstance(load, bool) or not isinstance(load, int | float):
        raise Invalid(f"load must be a number (got {shown(load)})", value=shown(load))
    if not 0 <= load <= _HIGHEST_LOAD:  # NaN is not between them, either
        raise Invalid(f"load must be between 0 and {_HIGHEST_LOAD:g} (got {shown(load)})", value=shown(load))
    return float(load)


def check_wait(wait: float) -> None:
    """Check how long a poll waits, in seconds."""
    if not 0 <= check_seconds("wait", wait, LONGEST_POLL) <= LONGEST_POLL:
        raise Invalid(
            f"wait must be between 0 and {LONGEST_POLL:g} seconds (got {shown(wait)})", value=shown(wait)
        )
