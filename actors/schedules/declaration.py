"""`Schedule`: a schedule that is declared in the code of a job, with `@jobs.job(schedule=...)`, and what a
schedule submits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from ...protocol.errors import Invalid
from ...protocol.schedules import Missed, ScheduleDefinition, define
from ...protocol.submission import ScheduleKeywords, SubmitOptions, check_keywords, from_stored, to_stored
from ...protocol.values import shown
from .decisions import check_times


class Schedule:
    """A schedule of a job, by default under the job's name. The arguments are those of `schedules.put`.

    The engine puts it when it opens, changes it when the code has changed, and deletes it when the code no
    longer contains it.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        handle: str | None = None,
        params: Any = None,
        cron: str | None = None,
        every: float | None = None,
        timezone: str = "UTC",
        jitter: float = 0,
        missed: Missed = "latest",
        missed_limit: int = 100,
        **options: Unpack[ScheduleKeywords],
    ) -> None:
        check_keywords("Schedule", options, "name", *TIMES)
        self.params = params
        self._name = name
        self._handle = handle
        self._times: dict[str, Any] = {
            "cron": cron,
            "every": every,
            "timezone": timezone,
            "jitter": jitter,
            "missed": missed,
            "missed_limit": missed_limit,
        }
        self._options = options

    def submission(self, job: str) -> SubmitOptions:
        """What it submits."""
        return SubmitOptions(job=job, handle=self._handle, params=self.params, **self._options)

    def definition(self, job: str, plain_params: Any) -> ScheduleDefinition:
        """The checked definition, with the parameters as JSON values. Raises `Invalid`."""
        definition = define(
            job if self._name is None else self._name,
            job,
            handle=self._handle,
            params=plain_params,
            options=to_stored(self.submission(job)),
            **self._times,
        )
        return check_times(definition)


TIMES = ("cron", "every", "timezone", "jitter", "missed", "missed_limit")


def submission_of(definition: ScheduleDefinition, request_id: str | None) -> SubmitOptions:
    """The submission of a schedule."""
    return SubmitOptions(
        job=definition.job,
        handle=definition.handle,
        params=definition.params,
        **from_stored(definition.options) | {"request_id": request_id},
    )


def as_schedule(job: str, given: object) -> Schedule:
    """Return the schedule that is given for a job: a `Schedule`, or a dict of its arguments."""
    if isinstance(given, Schedule):
        return given
    if isinstance(given, Mapping):
        return Schedule(**given)
    raise Invalid(
        f"job {shown(job)}: schedule must be a Schedule or a dict of its arguments (got {shown(given)})"
    )
