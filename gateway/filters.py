"""Whether a subscriber may have a filter."""

from __future__ import annotations

from ..protocol.errors import Invalid
from ..protocol.events import Filter


def check_filter(filter: Filter | None, most: int) -> None:
    """Refuse a filter that names too much. Raises `Invalid`."""
    if filter is None:
        return
    given = (filter.handles, filter.lanes, filter.runs, filter.types)
    count = sum(len(names) for names in given if names is not None)
    if count > most:
        raise Invalid(f"filter: it names {count} handles, lanes, runs and types; at most {most} are allowed")
