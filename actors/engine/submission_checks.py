"""Checks of submissions that need no actor: of new runs, and of the schedules that submit them later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...protocol.errors import Invalid
from ...protocol.names import check_name, lane_name
from ...protocol.parameters import plain_params
from ...protocol.submission import SubmitOptions
from ...protocol.validation import check_needs
from ...protocol.values import json_value, shown
from ..jobs import Job, Jobs
from ..webhooks.subscribing import Subscriptions


class SubmissionChecks(msgspec.Struct, frozen=True):
    """The checks against the jobs and the limits of an engine."""

    jobs: Jobs
    max_value_bytes: int
    subscriptions: Subscriptions

    def repeated(self, options: SubmitOptions) -> Any:
        """Check the submission of a schedule, except its handle; returns its parameters as JSON values. Which
        flows exist is not checked here. Raises `Invalid`."""
        job = self.jobs.get(options.job)
        self.lane(job, options)
        options.check()
        plain = self.params(job, options.params)
        if options.needs:
            needs_of(job, options.needs)
        if options.on_conflict == "coalesce":
            check_coalesces(job)
        if options.notify is not None:
            self.subscriptions.check(options.notify)
        return plain

    def lane(self, job: Job, options: SubmitOptions) -> str:
        """The lane of a submission."""
        return job.lane if options.lane is None else check_name("lane", lane_name(options.lane))

    def params(self, job: Job, params: Any) -> Any:
        """Convert parameters to JSON values and validate them."""
        if params is None:
            return None
        plain = json_value(plain_params(params, job.params_type), "params", self.max_value_bytes)
        job.check(plain)
        return plain


def needs_of(job: Job, needs: Sequence[str]) -> tuple[str, ...]:
    """The labels that the job and the submission require of an executor."""
    labels = check_needs(needs)
    if job.special is not None:
        raise Invalid(
            f"needs must be empty for a flow, which executes in the engine's process "
            f"(got {shown(list(labels))}): remove needs"
        )
    return tuple(sorted({*job.needs, *labels}))


def check_coalesces(job: Job) -> None:
    """Raise `Invalid` for a flow, whose parameters cannot be replaced by others."""
    if job.special is not None:
        raise Invalid(
            'on_conflict must not be "coalesce" for a flow, whose run is prepared with its parameters: use '
            '"queue" or "replace"'
        )
