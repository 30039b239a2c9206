"""Submissions and machines for tests without a scheduler."""

from __future__ import annotations

from itertools import count
from typing import Any

import attrs
import msgspec

from greenroom import Jobs
from greenroom.actors.actor import Reply
from greenroom.actors.jobs import Job
from greenroom.actors.messages import OnConflict, Submission, Submit
from greenroom.persistence.store import Terms
from greenroom.protocol.states import Status

jobs = Jobs()


@jobs.job("walk")
async def walk(run: Any, params: dict[str, Any]) -> None: ...


@jobs.job("swim", resumable=True)
async def swim(run: Any, params: dict[str, Any]) -> None: ...


@jobs.job("retry", max_attempts=2, backoff=5)
async def retry(run: Any, params: dict[str, Any]) -> None: ...


@jobs.job("polite", cancel="cooperative", grace=4)
async def polite(run: Any, params: dict[str, Any]) -> None: ...


@jobs.job("calm", cancel="cooperative", grace=4, resumable=True)
async def calm(run: Any, params: dict[str, Any]) -> None: ...


@jobs.job("stream", accepts="streaming")
async def stream(run: Any, params: dict[str, Any]) -> None: ...


def broken_backoff(attempt: int) -> float:
    raise ZeroDivisionError


@jobs.job("broken", max_attempts=9, backoff=broken_backoff)
async def broken(run: Any, params: dict[str, Any]) -> None: ...


class Written(msgspec.Struct, frozen=True):
    """The event that the special job below commits with the end of a run that waits."""

    run: str
    status: Status


class Special:
    """An engine's own job, such as the one that executes flows."""

    async def prepare(self, run: str, params: Any, ask: Any) -> Any:
        raise NotImplementedError

    async def ends_waiting(self, submission: Submission, status: Status) -> tuple[Any, Any]:
        return (), (Written(submission.id, status),)


_ids = count(1)


def job(name: str = "walk") -> Job:
    """A job: `gone` is no longer registered, `flow` is the engine's own."""
    if name == "flow":
        return attrs.evolve(jobs.get("swim"), name="flow", special=Special())
    return jobs.recall(name)


def submission(handle: str = "alice", id: str | None = None, **fields: Any) -> Submission:
    """A submission of an existing job; its `terms` are keyword arguments."""
    named = {name: fields.pop(name) for name in list(fields) if name in Terms.__struct_fields__}
    defaults: dict[str, Any] = {
        "job": job(),
        "lane": "main",
        "kind": "start",
        "params": {},
        "needs": (),
        "by": "app",
        "created_at": 0.0,
        "on_wait": None,
        "ended": Reply(),
    }
    terms = {"queue_timeout": None, "run_timeout": None, "deadline": None, "warn_after": None} | named
    return Submission(id=id or f"run{next(_ids)}", handle=handle, terms=Terms(**terms), **(defaults | fields))


def submit(made: Submission, on_conflict: OnConflict = "reject") -> Submit:
    return Submit(made, on_conflict, Reply())
