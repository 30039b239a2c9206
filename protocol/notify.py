"""`notify`: where the events of runs are delivered. An option of submissions, and a rule of lanes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .errors import Invalid
from .suggestions import suggestion
from .urls import url_fault
from .values import shown

TYPES = (
    "run_state_changed",
    "run_changed",
    "run_log",
    "run_waiting",
    "run_message",
    "run_signal",
    "node_started",
    "node_ran",
    "interrupt_opened",
    "interrupt_closed",
)
"""The types of events that can be delivered: all events of runs, except progress, which is not stored."""

USUAL_TYPES = ("run_state_changed",)


class Notify(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """The URL of a receiver, and the types of the events that it gets."""

    url: str
    types: tuple[str, ...] = USUAL_TYPES


def read_notify(what: str, notify: object) -> Notify:
    """Read a URL, or a mapping of `url` and `types`. Raises `Invalid`."""
    if isinstance(notify, str):
        return Notify(_url(what, notify))
    if isinstance(notify, Notify):
        return Notify(_url(what, notify.url), _types(what, notify.types))
    if not isinstance(notify, Mapping) or "url" not in notify:
        raise Invalid(
            f'{what} must be a URL, or {{"url": …, "types": […]}} (got {shown(notify)})', value=shown(notify)
        )
    for name in notify:
        if name not in ("url", "types"):
            raise Invalid(f"{what} has an unexpected field {shown(name)}: expected url and types")
    return Notify(_url(what, notify["url"]), _types(what, notify.get("types", USUAL_TYPES)))


def plain_notify(notify: Notify) -> str | dict[str, Any]:
    """Return it as JSON values: only the URL, if the types are the usual ones."""
    if notify.types == USUAL_TYPES:
        return notify.url
    return {"url": notify.url, "types": list(notify.types)}


def _url(what: str, url: object) -> str:
    fault = "is not a string" if not isinstance(url, str) else url_fault(url)
    if not isinstance(url, str) or fault is not None:
        raise Invalid(
            f"{what}: url {shown(url)} {fault}: write it like https://example.org/hooks", value=shown(url)
        )
    return url


def _types(what: str, types: object) -> tuple[str, ...]:
    if isinstance(types, str) or not isinstance(types, list | tuple) or not types:
        raise Invalid(
            f'{what}: types must be a list of event types, such as ["run_state_changed"] '
            f"(got {shown(types)})",
            value=shown(types),
        )
    for name in types:
        if name == "run_progress":
            raise Invalid(f"{what}: run_progress cannot be delivered, because progress is not stored")
        if name not in TYPES:
            hint = suggestion(name, TYPES) if isinstance(name, str) else ""
            raise Invalid(f"{what}: {shown(name)} is not an event type of runs{hint}", value=shown(name))
    return tuple(sorted(set(types)))
