"""Checks of what callers give to an engine. Its client makes the same ones, before anything is sent."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from .errors import Invalid
from .flow.paths import Path, parse_target
from .flow.records import WorkerKind
from .names import check_name
from .states import Status
from .values import shown

FilesFate = Literal["keep", "delete"]
"""What becomes of the files that a cancelled run has finished."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

_HIGHEST_LIMIT = 2**31 - 1

HIGHEST_SEQ = 2**63 - 1
"""The highest number of an event that every store can hold."""

LONGEST_POLL = 25.0
"""Seconds that a poll may wait."""

MAX_SERVICES = 1000
_HIGHEST_LOAD = 1e15


def check_text(what: str, value: object) -> None:
    """An id or a name to look for, or words for people: any text that every store can hold."""
    if not isinstance(value, str):
        raise Invalid(f"{what} must be a string, not {shown(value)}", value=shown(value))
    if "\0" in value or (not value.isprintable() and _LONE_SURROGATE.search(value)):
        raise Invalid(f"{what} contains characters that no text has: {shown(value)}")


def check_limit(what: str, limit: object) -> int:
    """A limit: a whole number from 0, that every store and codec can hold."""
    return _whole(what, limit, _HIGHEST_LIMIT)


def check_seq(what: str, seq: object) -> int:
    """The number of an event, or 0 for the place before the first one."""
    return _whole(what, seq, HIGHEST_SEQ)


def _whole(what: str, value: object, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Invalid(f"{what} must be a whole number, 0 or more, not {shown(value)}", value=shown(value))
    if value > most:
        raise Invalid(f"{what} must be at most {most:,}, not {value:,}", value=shown(value))
    return value


def check_page(limit: object, offset: object = 0) -> None:
    """A page of a list: how many, and how many to leave out before."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 1000:
        raise Invalid(f"limit must be from 1 to 1000, not {shown(limit)}", value=shown(limit))
    check_limit("offset", offset)


def check_seconds(what: str, value: object, default: float) -> float:
    """A duration: `None` means the default, `math.inf` no limit; a negative or absurd one is `Invalid`."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value < 0:
        raise Invalid(
            f"{what} must be a number of seconds, 0 or more, not {shown(value)}",
            value=shown(value),
        )
    try:
        return float(value)
    except OverflowError:
        raise Invalid(f"{what} is longer than any time: set no limit instead", value=shown(value)) from None


def check_files(files: object) -> None:
    """What becomes of files."""
    if files not in get_args(FilesFate):
        raise Invalid(f'files must be "keep" or "delete", not {shown(files)}', value=shown(files))


def check_version(version: object) -> None:
    """The number that a version of a flow is to have."""
    if version is None:
        return
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= _HIGHEST_LIMIT:
        raise Invalid(
            f"version must be a number from 1 to {_HIGHEST_LIMIT:,}, or 0 for the next, not {shown(version)}",
            value=shown(version),
        )


def check_version_status(status: object) -> None:
    """Whether a version of a flow may be run."""
    if status not in ("draft", "published"):
        raise Invalid(f'status must be "draft" or "published", not {shown(status)}', value=shown(status))


def check_statuses(status: str | Iterable[str]) -> frozenset[Status]:
    """A status, or several."""
    try:
        return frozenset(Status(one) for one in ([status] if isinstance(status, str) else list(status)))
    except (TypeError, ValueError):
        known = ", ".join(Status)
        raise Invalid(
            f"status must be one or several of {known}, not {shown(status)}", value=shown(status)
        ) from None


def check_target(key: str) -> Path:
    """Where a signal puts its value."""
    try:
        return parse_target(key)
    except Invalid as error:
        raise Invalid(f"key: {error.message}", **error.details) from None


# Of workers.


def check_services(services: object) -> tuple[str, ...]:
    """The names of services, each once, in their order."""
    if isinstance(services, str) or not isinstance(services, Sequence):
        raise Invalid(
            f'services must be a list of names, not {shown(services)}: write ["transform"] for a single one',
            value=shown(services),
        )
    if not 1 <= len(services) <= MAX_SERVICES:
        raise Invalid(
            f"services must be 1 to {MAX_SERVICES:,} names, not {len(services):,}", value=len(services)
        )
    return tuple(dict.fromkeys(check_name(f"services[{i}]", name) for i, name in enumerate(services)))


def check_kind(kind: object) -> WorkerKind:
    """How work gets to a worker."""
    for known in get_args(WorkerKind):
        if kind == known:
            return known  # type: ignore[no-any-return]  # one of the literals
    raise Invalid(f'kind must be "http" or "queue", not {shown(kind)}', value=shown(kind))


def check_load(load: object) -> float:
    """How busy a worker is: any number that grows with it."""
    if isinstance(load, bool) or not isinstance(load, int | float):
        raise Invalid(f"load must be a number, not {shown(load)}", value=shown(load))
    if not (math.isfinite(load) and 0 <= load <= _HIGHEST_LOAD):
        raise Invalid(f"load must be from 0 to {_HIGHEST_LOAD:g}, not {shown(load)}", value=shown(load))
    return float(load)


def check_wait(wait: float) -> None:
    """How long a poll may wait."""
    if not 0 <= check_seconds("wait", wait, LONGEST_POLL) <= LONGEST_POLL:
        raise Invalid(
            f"wait must be from 0 to {LONGEST_POLL:g} seconds, not {shown(wait)}", value=shown(wait)
        )
