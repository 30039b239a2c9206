"""Kinds of settings: each kind checks a value and reports what is accepted.

A kind raises `ValueError` with a text that follows the setting's path: "gateway.port" + "must be an integer
…". It raises `Several` if several parts of a value are invalid.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from ..actors.engine.retention import Keep
from ..actors.schedules.configured import check_tables, read_schedule
from ..actors.workers.networks import Networks
from ..persistence.addresses import parse_addresses
from ..protocol.errors import GreenroomError
from ..protocol.lane_settings import LaneSettings, read_lane
from ..protocol.names import check_name, lane_name
from ..protocol.structuring import Several
from ..protocol.values import shown
from ..protocol.webhooks import check_secret
from .durations import duration

_NONE = "none"


@attrs.frozen
class Kind:
    """`read` checks a TOML value; `from_text` converts the text of a variable to one. `merge` combines the
    value of an earlier source with that of a later one, which otherwise replaces it. All can raise
    `ValueError`."""

    read: Callable[[Any], Any]
    from_text: Callable[[str], Any] = str
    merge: Callable[[Any, Any], Any] | None = None


def _number(text: str) -> Any:
    """Return the number in a text; if there is none, the text itself, which the kind then refuses."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def whole(least: int, most: int | None = None) -> Kind:
    """An integer within bounds."""
    bounds = f", {least} or more" if most is None else f" between {least} and {most}"

    def read(value: Any) -> int:
        fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
        if not fits or (most is not None and value > most):
            raise ValueError(f"must be an integer{bounds} (got {shown(value)})")
        return int(value)

    return Kind(read, _number)


def _truth(text: str) -> Any:
    """Return the truth value of a word; for any other word the text itself, which the kind then refuses."""
    return {"true": True, "false": False}.get(text.strip().lower(), text)


def _read_truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false (got {shown(value)})")
    return value


def _read_time(value: Any) -> float:
    seconds = duration(value) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise ValueError(f'must be a duration, in seconds or like "90m", "12h", "30d" (got {shown(value)})')
    return float(seconds)


def _read_seconds(value: Any) -> float:
    seconds = _read_time(value)
    if not seconds:
        raise ValueError("must be a duration above 0 (got 0)")
    return seconds


def _read_rate(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"must be a number above 0 (got {shown(value)})")
    return float(value)


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be a non-empty string (got {shown(value)})")
    return value


def _read_texts(value: Any) -> tuple[str, ...]:
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) and part for part in parts):
        raise ValueError(f'must be a list of strings, as in ["one", "two"] (got {shown(value)})')
    return tuple(parts)


def networks(setting: str) -> Kind:
    """A list of networks."""

    def read(value: Any) -> tuple[str, ...]:
        texts = _read_texts(value) if value else ()
        try:
            Networks(texts, setting=setting)
        except GreenroomError as error:
            raise ValueError(f"is not valid: {error.message}") from None
        return texts

    return Kind(read)


def _read_secret(value: Any) -> str:
    try:
        check_secret(value)
    except GreenroomError as error:
        raise ValueError(error.message.removeprefix("webhook_secret ")) from None
    return str(value)


def _read_jobs(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[\w.]+:[\w.]+", value):
        raise ValueError(f'must be a module and a name in it, as in "app.jobs:jobs" (got {shown(value)})')
    return value


def _read_store(value: Any) -> str | tuple[str, ...]:
    if not isinstance(value, str) and not (
        isinstance(value, list) and value and all(isinstance(one, str) for one in value)
    ):
        raise ValueError("must be an address, or a list of addresses")  # not shown: it can contain a password
    if value == "memory:":
        return "memory:"
    try:
        parse_addresses(value)
    except GreenroomError as error:
        raise ValueError(f"is not valid: {error.message}") from None
    return value if isinstance(value, str) else tuple(value)


def _read_lanes(value: Any) -> dict[str, LaneSettings]:
    value = _lanes_from_text(value) if isinstance(value, str) else value
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a table of limits, as in {{ images = 2 }} (got {shown(value)})")
    lanes: dict[str, LaneSettings] = {}
    faults: dict[str, str] = {}
    for name, settings in value.items():
        try:
            lane = check_name("lane", lane_name(name))
        except GreenroomError as error:
            faults[name] = f"is not a valid lane name: {error.message}"
            continue
        try:
            lanes[lane] = _read_lane(lane, settings)
        except ValueError as error:
            faults[name] = str(error)
        except GreenroomError as error:
            faults[name] = f"is not valid: {error.message}"
    if faults:
        raise Several(((name,), text) for name, text in faults.items())
    return lanes


def _read_lane(lane: str, settings: Any) -> LaneSettings:
    """Check a limit, or a table of a limit and rules; `none` is written for what a rule or a limit lacks."""
    if isinstance(settings, Mapping):
        table = {name: None if value == _NONE else value for name, value in settings.items()}
        age = table.get("age")
        if isinstance(age, str):
            table["age"] = duration(age) or age
        read_lane(lane, table)
        return table
    try:
        return None if settings == _NONE else whole(0).read(settings)
    except ValueError as error:
        raise ValueError(f'{error}, or "none" for only the global limit, or a table of rules') from None


def _lanes_from_text(text: str) -> Any:
    """Read a JSON object, or limits such as `images=2, mail=none`."""
    if text.lstrip().startswith("{"):
        return _json(text)
    return dict(_pair(part) for part in text.split(",") if part.strip())


def _merge_lanes(earlier: Any, later: Any) -> Any:
    """Set limits and rules of single lanes; those that `later` does not name stay."""
    earlier = _lanes_from_text(earlier) if isinstance(earlier, str) else earlier
    if not isinstance(earlier, Mapping) or not isinstance(later, Mapping):
        return earlier if isinstance(later, Mapping) else later  # refused when it is read
    merged = dict(earlier)
    written = {lane_name(name): name for name in earlier}
    for name, settings in later.items():
        name = written.get(lane_name(name), name)
        before = merged.get(name)
        if isinstance(before, Mapping):
            settings = settings if isinstance(settings, Mapping) else {"limit": settings}
            settings = {**before, **settings}
        merged[name] = settings
    return merged


def _pair(text: str) -> tuple[str, Any]:
    name, _, limit = text.partition("=")
    return name.strip(), _number(limit.strip())


def _read_schedules(value: Any) -> dict[str, dict[str, Any]]:
    """Check a table of schedules. Times can be durations, and `none` is written for no limit."""
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a table for each schedule, as in [schedules.nightly] (got {shown(value)})")
    try:
        check_tables(value)
    except GreenroomError as error:
        raise ValueError(error.message.removeprefix("schedules ")) from None
    tables: dict[str, dict[str, Any]] = {}
    faults: dict[tuple[str, ...], str] = {}
    for name, table in value.items():
        tables[name] = given = dict(table) if isinstance(table, Mapping) else {}
        for key in given.keys() & _SCHEDULE_TIMES.keys():
            try:
                given[key] = _SCHEDULE_TIMES[key](given[key])
            except ValueError as error:
                faults[name, key] = str(error)
        if not any(place[0] == name for place in faults):
            try:
                read_schedule(name, given if isinstance(table, Mapping) else table)
            except GreenroomError as error:
                faults[name,] = f"is not valid: {error.message}"
    if faults:
        raise Several(faults.items())
    return tables


def _json(text: str) -> Any:
    """Return the value of a JSON text. Raises `ValueError`, also for an object that has a key twice."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        place = f"{error.msg} in line {error.lineno}, column {error.colno}"
    except RecursionError:
        place = "it is nested too deeply"
    raise ValueError(f"must be JSON, and is not valid: {place}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"must have each key once (got {shown(twice)} twice)")
    return found


def _read_timeout(value: Any) -> float:
    return math.inf if value == _NONE else _read_time(value)


_SCHEDULE_TIMES: dict[str, Callable[[Any], float]] = {
    "every": _read_time,
    "jitter": _read_time,
    **dict.fromkeys(("queue_timeout", "run_timeout", "deadline", "warn_after"), _read_timeout),
}


def _read_keep(value: Any) -> Keep:
    """Check a count, an age, or a table with both."""
    if isinstance(value, Mapping):
        faults = {key: "is unknown: expected count or age" for key in value if key not in _KEEP}
        kept: dict[str, Any] = {}
        for key in _KEEP.keys() & value.keys():
            try:
                kept[key] = _KEEP[key](value[key])
            except ValueError as error:
                faults[key] = str(error)
        if faults:
            raise Several(((name,), text) for name, text in faults.items())
        return Keep(**kept)
    if isinstance(value, str) and (age := duration(value)):
        return Keep(age=age)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(
            f'must be a number, a duration like "30d", or {{ count = …, age = … }} (got {shown(value)})'
        )
    return Keep(value)


_KEEP: dict[str, Callable[[Any], Any]] = {"count": whole(0).read, "age": _read_seconds}


def one_of(*choices: str) -> Kind:
    """One of some words."""

    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"must be {' or '.join(choices)} (got {shown(value)})")
        return str(value)

    return Kind(read)


TIME = Kind(_read_time)
SECONDS = Kind(_read_seconds)
RATE = Kind(_read_rate, _number)
TEXT = Kind(_read_text)
TRUTH = Kind(_read_truth, _truth)
TEXTS = Kind(_read_texts)
SECRET = Kind(_read_secret)
JOBS = Kind(_read_jobs)
STORE = Kind(_read_store)
LANES = Kind(_read_lanes, _lanes_from_text, _merge_lanes)
SCHEDULES = Kind(_read_schedules, _json)
KEEP = Kind(_read_keep, _number)
