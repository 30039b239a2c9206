"""The list of jobs: those of the engine, and those that attached executors announce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import attrs
import msgspec
import pytest

from greenroom import Jobs, Run
from greenroom.errors import Unavailable
from greenroom.protocol.records import JobInfo
from tests.support import open_engine

from .worlds import world

NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}


class Page(msgspec.Struct):
    url: str
    depth: Annotated[int, msgspec.Meta(ge=0)] = 1


@dataclass
class Dated:
    url: str


@attrs.define
class Defined:
    url: str


class Typed(TypedDict):
    url: str


def jobs_with(kind: Any) -> Jobs:
    jobs = Jobs()

    async def body(run: Run, params: kind) -> None: ...

    jobs.job("job", lane="web")(body)
    return jobs


async def listed(jobs: Jobs) -> list[JobInfo]:
    async with open_engine(jobs) as engine:
        return await engine.list_jobs()


@pytest.mark.parametrize("kind", [Page, Dated, Defined, Typed])
async def test_a_job_is_listed_with_its_lane_and_the_schema_of_its_parameters(kind, autojump_clock):
    [job] = await listed(jobs_with(kind))
    assert (job.name, job.lane) == ("job", "web")
    assert job.params == msgspec.json.schema(kind)
    assert job.params["$defs"][kind.__name__]["properties"]["url"] == {"type": "string"}


@pytest.mark.parametrize("kind", [Any, dict, dict[str, Any], object])
async def test_a_type_that_names_no_fields_has_no_schema(kind, autojump_clock):
    assert await listed(jobs_with(kind)) == [JobInfo("job", "web", None)]


async def test_a_job_without_parameters_has_a_schema_without_fields(autojump_clock):
    jobs = jobs_with(None)

    @jobs.job
    async def bare(run: Run) -> None: ...

    assert [job.params for job in await listed(jobs)] == [NOTHING, NOTHING]


async def test_jobs_are_listed_by_name_and_flows_are_not_among_them(autojump_clock):
    jobs = Jobs()

    async def body(run: Run) -> None: ...

    jobs.job("zebra")(body)
    jobs.job("Bee")(body)
    async with open_engine(jobs) as engine:
        assert [job.name for job in await engine.list_jobs()] == ["Bee", "zebra"]
        jobs.job("ape")(body)  # registered later
        assert [job.name for job in await engine.list_jobs()] == ["Bee", "ape", "zebra"]
    with pytest.raises(Unavailable):
        await engine.list_jobs()


async def test_jobs_of_executors_are_listed_while_their_executor_is_known(autojump_clock):
    schema = msgspec.json.schema(Page)
    async with world(jobs_with(Page)) as home:
        described = {"name": "crawl", "lane": "far", "params": schema}
        loose = {"name": "loose", "params": {"type": "object"}}
        other = {"name": "job", "lane": "elsewhere"}  # the engine's own counts
        executor = await home.executor("e1", described, loose, {"name": "bare"}, other, ttl=5)
        assert await home.engine.list_jobs() == [
            JobInfo("bare", "main", NOTHING),
            JobInfo("crawl", "far", schema),
            JobInfo("job", "web", schema),
            JobInfo("loose", "main", None),
        ]
        await executor.leave()
        await home.until(lambda now: not now.executors)
        assert [job.name for job in await home.engine.list_jobs()] == ["job"]
