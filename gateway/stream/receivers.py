"""The receivers of webhooks in schedules and rules of lanes, hidden from callers who may not see them.

A URL can contain a token of its receiver. Only operators and admins without limits see it, who also see the
webhooks themselves. All others see that there is a receiver, and the types of the events that it gets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ...protocol.events import Event, LaneChanged, ScheduleChanged, ScheduleFired
from ...protocol.lanes import LaneRules
from ...protocol.records import LaneState, Snapshot
from ...protocol.schedules import ScheduleRecord

HIDDEN = "(hidden)"
"""In place of a URL. It is not one, so nobody can put it back."""

_URL = re.compile(r"https?://[^\s\"]+")


def of_rules(rules: LaneRules) -> LaneRules:
    """Rules of a lane without the URL."""
    return rules if rules.notify is None else replace(rules, notify=replace(rules.notify, url=HIDDEN))


def of_lane(lane: LaneState) -> LaneState:
    """A lane without the URL."""
    return lane if lane.rules.notify is None else replace(lane, rules=of_rules(lane.rules))


def of_schedule(schedule: ScheduleRecord) -> ScheduleRecord:
    """A schedule without the URL."""
    if schedule.last_error is not None:  # it can name the receiver
        schedule = replace(schedule, last_error=_URL.sub(HIDDEN, schedule.last_error))
    notify: Any = schedule.options.get("notify")
    if notify is None:
        return schedule
    hidden = {**notify, "url": HIDDEN} if isinstance(notify, Mapping) else HIDDEN
    return replace(schedule, options={**schedule.options, "notify": hidden})


def of_event(event: Event) -> Event:
    """An event without the URL; most events are returned as they are."""
    if type(event) is LaneChanged:
        return event if event.rules.notify is None else replace(event, rules=of_rules(event.rules))
    if type(event) is ScheduleChanged and event.state is not None:
        state = of_schedule(event.state)
        return event if state is event.state else replace(event, state=state)
    if type(event) is ScheduleFired and event.error is not None:  # it can name the receiver
        return replace(event, error=_URL.sub(HIDDEN, event.error))
    return event


def of_snapshot(snapshot: Snapshot) -> Snapshot:
    """A snapshot without the URLs."""
    lanes = {name: of_lane(lane) for name, lane in snapshot.lanes.items()}
    schedules = {name: of_schedule(schedule) for name, schedule in snapshot.schedules.items()}
    return replace(snapshot, lanes=lanes, schedules=schedules)
