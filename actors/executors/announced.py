"""Jobs that only executors have: the engine knows them by the terms that were announced."""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence

from ...protocol.executors import JobTerms

logger = logging.getLogger("greenroom")


class AnnouncedJobs:
    """The jobs that attached executors have announced. `given` are the engine's own, which it prefers."""

    def __init__(self, given: Container[str]) -> None:
        self._given = given
        self._by_executor: dict[str, dict[str, JobTerms]] = {}

    def announce(self, executor: str, jobs: Sequence[JobTerms]) -> None:
        """An executor has announced its jobs."""
        terms = {job.name: job for job in jobs}
        for name, job in terms.items():
            known = self.find(name)
            if known is not None and known != job and name not in self._given:
                logger.warning(
                    "executor %s announces job %s with other parameters or options than another executor: "
                    "new runs use those of the executor that attached last",
                    executor,
                    name,
                )
        self._by_executor.pop(executor, None)
        self._by_executor[executor] = terms  # the last one counts

    def withdraw(self, executor: str) -> None:
        """An executor is gone."""
        self._by_executor.pop(executor, None)

    def find(self, name: str) -> JobTerms | None:
        """The terms of a job, as the executor that attached last has announced them."""
        for terms in reversed(self._by_executor.values()):
            if name in terms:
                return terms[name]
        return None

    def names(self) -> set[str]:
        """The names of all announced jobs."""
        return {name for terms in self._by_executor.values() for name in terms}
