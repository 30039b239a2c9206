"""What an executor announces about its jobs."""

from __future__ import annotations

import math

from ..actors.jobs import Job, Jobs
from ..protocol.executors import JobTerms
from ..protocol.parameters import params_schema


def announced(jobs: Jobs) -> tuple[JobTerms, ...]:
    """The terms of all jobs."""
    return tuple(_terms(job) for job in jobs.all)


def _terms(job: Job) -> JobTerms:
    return JobTerms(
        name=job.name,
        params=None if job.params_type is None else params_schema(job.params_type),
        lane=job.lane,
        max_attempts=job.max_attempts,
        backoff=None if callable(job.backoff) else job.backoff,
        resumable=job.resumable,
        run_timeout=_limit(job.run_timeout),
        queue_timeout=_limit(job.queue_timeout),
        deadline=_limit(job.deadline),
        grace=_limit(job.grace),
        cancel=job.cancel,
        accepts=job.accepts,
        needs=job.needs,
        priority=job.priority,
    )


def _limit(seconds: float) -> float | None:
    return None if seconds == math.inf else seconds
