"""The arguments of bulk operations, which cancel or rerun all runs that match a filter.

Each works on runs of certain statuses. It requires at least one filter and has a limit, so that nobody
cancels or reruns all runs by mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from .errors import Invalid
from .names import MAX_NAME, check_name
from .run_filter import RunFilter, filter_to_wire, run_filter
from .states import ENDED, PENDING, UNSUCCESSFUL, Status
from .validation import check_request_id
from .values import shown

LIMIT = 1000
"""The default for how many runs an operation works on at most."""
HIGHEST_LIMIT = 100_000

BULK_STATUSES = {
    "cancel_many": PENDING - {Status.CANCELLING},
    "rerun_many": ENDED,
    "retry_many": UNSUCCESSFUL,
}
"""The statuses of the runs on which each operation works."""
MAX_BULK_REQUEST_ID = MAX_NAME - 33
"""So that the id of each run can be appended."""


def bulk_filter(function: str, keywords: Mapping[str, Any], limit: object) -> RunFilter:
    """Return the filter of a bulk operation, with the statuses on which it works. Raises `Invalid`."""
    check_bulk_limit(limit)
    found = run_filter(function, keywords)
    allowed = BULK_STATUSES[function]
    words = ", ".join(status for status in Status if status in allowed)
    if found == RunFilter():
        raise Invalid(
            f"{function} requires at least one filter, such as handle, tags or since: for all runs, pass "
            f"these as status: {words}"
        )
    if found.status is None:
        return replace(found, status=allowed)
    if not found.status <= allowed:
        others = ", ".join(sorted(found.status - allowed))
        raise Invalid(f"{function} works on runs with the status {words} (got {others})", value=others)
    return found


def bulk_to_wire(function: str, keywords: Mapping[str, Any], limit: int, dry_run: bool) -> dict[str, Any]:
    """Return the fields of a command for a bulk operation. Raises `Invalid`."""
    fields = filter_to_wire(bulk_filter(function, keywords, limit))
    return fields | {"limit": limit, "dry_run": bool(dry_run)}


def check_bulk_limit(limit: object) -> None:
    """Check how many runs an operation works on at most."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= HIGHEST_LIMIT:
        raise Invalid(
            f"limit must be an integer between 1 and {HIGHEST_LIMIT:,} (got {shown(limit)})",
            value=shown(limit),
        )


def check_bulk_request_id(request_id: str | None) -> None:
    """Check the request id of a bulk operation."""
    if request_id is None:
        return
    if len(check_name("request_id", request_id)) > MAX_BULK_REQUEST_ID:
        raise Invalid(
            f"request_id of a bulk operation must have at most {MAX_BULK_REQUEST_ID} characters "
            f"(got {shown(request_id)}): use a shorter one",
            value=shown(request_id),
        )
    check_request_id(f"{request_id}:")


def request_id_for(request_id: str | None, run: str) -> str | None:
    """Return the request id with which a bulk operation submits this run again."""
    return None if request_id is None else f"{request_id}:{run}"
