"""The jobs of a simulated server: wrappers that report when a body starts, ends or takes messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from ...actors.jobs import Function, Job, Jobs
from ...actors.run.api import Run
from ...protocol.errors import Invalid
from ...protocol.executors import JobTerms
from ...protocol.jobs import AnyJob

if TYPE_CHECKING:
    from collections.abc import Sequence


class Listener(Protocol):
    """The process in which bodies execute."""

    def body_begins(self, run: Run) -> None:
        """A body starts."""

    def body_takes(self, run: Run, messages: Sequence[Any], *, all_: bool) -> None:
        """A body has taken messages; with `all_`, it requested all waiting messages."""

    def body_ends(self, run: Run, how: str) -> None:
        """A body has ended."""


class ReportingRun(Run):
    """A run that reports the messages that its body takes."""

    def __init__(self, run: Run, listener: Listener) -> None:
        vars(self).update(vars(run))
        self._listener = listener

    async def messages(self) -> list[Any]:
        messages = await super().messages()
        self._listener.body_takes(self, messages, all_=True)
        return messages

    async def next_message(self, release_slot: bool = False) -> Any:
        message = await super().next_message(release_slot)
        self._listener.body_takes(self, [message], all_=False)
        return message


class TracedJobs(Jobs):
    """See the module's docstring. Jobs that are registered later are included."""

    def __init__(self, jobs: Jobs, listener: Listener) -> None:
        super().__init__()
        self._given = jobs
        self._listener = listener
        self._traced: dict[Job, Job] = {}
        self._taken_in: dict[str, Job] = {}

    @property
    def all(self) -> Sequence[Job]:
        return self._given.all

    @property
    def function_names(self) -> Sequence[str]:
        return self._given.function_names

    def find(self, name: str) -> Job | None:
        found = self._given.find(name)
        return None if found is None else self._trace(found)

    def get(self, name: object) -> Job:
        return self._trace(self._given.get(name))

    def recall(self, name: str, announced: JobTerms | None = None) -> Job:
        return self._trace(self._given.recall(name, announced))

    def find_function(self, name: str) -> Function | None:
        found = self._given.find_function(name)
        if found is not None and found.in_thread:
            raise Invalid(
                f"function {name!r} is a plain def and needs a thread, but a simulation has no threads: "
                "use async def"
            )
        return found

    def takes_in(self, job: Job) -> Job:
        self._taken_in[job.name] = job
        return self._trace(job)

    def declared(self, name: str, announced: JobTerms | None = None) -> Job:
        """A registered, announced or internal job, as its author has declared it."""
        return self._taken_in.get(name) or self._given.recall(name, announced)

    def __contains__(self, name: object) -> bool:
        return name in self._given

    def _declares(self, job: AnyJob) -> bool:
        return self._given._declares(job)

    def _trace(self, job: Job) -> Job:
        if not job.registered:
            return job
        if job.in_thread:
            raise Invalid(
                f"job {job.name!r} is a plain def and needs a thread, but a simulation has no threads: "
                "use async def"
            )
        if job.loop == "asyncio":
            raise Invalid(
                f"job {job.name!r} executes in an asyncio loop, which needs a thread and real time, but a "
                "simulation has neither: simulate a trio job that makes the same calls on its run"
            )
        traced = self._traced.get(job)
        if traced is None:
            traced = self._traced[job] = attrs.evolve(job, function=self._reporting(job))
        return traced

    def _reporting(self, job: Job) -> Callable[..., Awaitable[Any]]:
        listener = self._listener

        @wraps(job.function)
        async def body(run: Run, *params: Any) -> Any:
            listener.body_begins(run)
            how = "is stopped"
            try:
                result = await job.function(ReportingRun(run, listener), *params)
                how = "returns"
                return result
            except Exception as error:
                how = f"raises {type(error).__name__}: {error}"
                raise
            finally:
                listener.body_ends(run, how)

        return body
