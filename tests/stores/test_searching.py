"""Searches of runs by a filter: every store finds the same runs, in portions of any size."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import func, select

from greenroom.persistence import schema
from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.store import Requested, Retention, RunQuery, Terms
from greenroom.protocol.patterns import Within, patterns
from greenroom.protocol.records import RunRecord
from greenroom.protocol.states import ENDED, Status

from .conftest import Place
from .story import NOW, Story, created, life, moved, opened

JOBS = ("mirror", "Mirror", 'mir"ror', "flow", "é\\x")
ERRORS = (None, "no route", "No Route", 'quoted "text"\n', "100%", "_x_", "漢字 é", '"job":"mirror"')
TAGS: tuple[dict[str, str], ...] = (
    {},
    {"customer": "42"},
    {"customer": "42", "env": "prod"},
    {"customer": "42 ", "env": "Prod"},
    {"Customer": "42"},
    {"env": ""},
    {"env": "=prod", "é": "漢字"},
)
PARENTS = (None, "r01", None, "r02", "customer=42")


async def filled(story: Story) -> list[RunRecord]:
    """Store runs with all kinds of fields, and return them, newest first."""
    for n in range(60):
        job = JOBS[n % len(JOBS)]
        params: Any = {"text": '"job":"mirror"', "job": "mirror", "error": "no route"}
        if job == "flow":
            params = {"flow": ("nightly", "Nightly")[n % 2], "version": 1, "params": {"flow": "other"}}
        born = created(f"r{n:02}", f"h{n % 3}", f"l{n % 2}", place=n, params=params, job=job)
        born = replace(born, tags=TAGS[n % len(TAGS)], parent=PARENTS[n % len(PARENTS)])
        events = [born, *life(f"r{n:02}", f"h{n % 3}", f"l{n % 2}")[1:2]]
        await story.tell(*events[: 1 + n % 4], at=NOW + n // 2)
        if n % 4 == 3:
            run = story.runs[f"r{n:02}"]
            error = ERRORS[n // 4 % len(ERRORS)]
            end = moved(run, Status.SUCCEEDED if error is None else Status.FAILED, error=error)
            await story.tell(end, at=NOW + 100)
    return [story.runs[f"r{n:02}"] for n in reversed(range(60))]


def queries() -> Iterator[RunQuery]:
    """Single filters with tricky values, and combinations of them."""
    choices: dict[str, list[Any]] = {
        "handle": ["h1", "H1"],
        "lane": ["l1"],
        "job": [*JOBS, "nothing", "mirro", "%", "mirror "],
        "flow": ["nightly", "NIGHTLY", "other"],
        "status": [frozenset({Status.FAILED}), frozenset({Status.QUEUED, Status.SUCCEEDED}), frozenset()],
        "tags": [*TAGS, {"customer": "43"}, {"customer": "42", "env": "Prod"}],
        "parent": ["r01", "r0", "customer=42"],
        "since": [NOW, NOW + 10, NOW + 1000],
        "until": [NOW, NOW + 20, NOW + 1000],
        "error": ["no", "route", "%", "_", '"', "\n", "漢", "é", "text", '"job":"mirror"'],
        "within": [
            Within(jobs=patterns("job", ["mir*"])),
            Within(jobs=patterns("job", ['mir"*', "é\\*"])),
            Within(jobs=patterns("job", ["*"])),
            Within(jobs=patterns("job", [])),
            Within(jobs=patterns("job", ["Mirror", "fl*"]), handles=patterns("handle", ["h1", "h2"])),
            Within(lanes=patterns("lane", ["l0"])),
        ],
        "before": ["r30", "r00"],
    }
    for name, values in choices.items():
        for value in values:
            yield RunQuery(**{name: value}, limit=100)
    random = Random(1)
    for _ in range(100):
        some = random.sample(list(choices), random.randint(2, 4))
        yield RunQuery(
            **{name: random.choice(choices[name]) for name in some}, limit=random.choice((1, 3, 100))
        )


def fits(query: RunQuery, run: RunRecord) -> bool:
    """The filters, as their documentation states them."""
    flow = run.params["flow"] if run.job == "flow" else None
    within = query.within
    return (
        query.handle in (None, run.handle)
        and query.lane in (None, run.lane)
        and query.job in (None, run.job)
        and query.flow in (None, flow)
        and (query.status is None or run.status in query.status)
        and all(run.tags.get(name) == value for name, value in query.tags.items())
        and query.parent in (None, run.parent)
        and (query.since is None or run.created_at >= query.since)
        and (query.until is None or run.created_at < query.until)
        and (query.error is None or query.error in (run.error or ""))
        and (query.before is None or run.id < query.before)
        and (within is None or within.holds(run.handle, run.lane, run.job))
    )


async def test_every_store_finds_the_runs_that_match_all_filters_newest_first(place: Place) -> None:
    async with opened(place) as story:
        every = await filled(story)
        sizes = set()
        for query in queries():
            expected = [run for run in every if fits(query, run)]
            assert await story.store.runs(query) == expected[: query.limit], query
            sizes.add(len(expected))
        assert len(sizes) > 10, "the filters distinguish the runs"


@pytest.mark.parametrize("most", [1, 7, 60, 100])
async def test_a_search_in_portions_finds_each_run_once(place: Place, most: int) -> None:
    async with opened(place) as story:
        every = await filled(story)
        for query in (
            RunQuery(limit=100),
            RunQuery(limit=100, job="mirror"),
            RunQuery(limit=100, error="no", tags={"customer": "42"}),
            RunQuery(limit=100, since=NOW + 10, status=ENDED, before="r50"),
            RunQuery(limit=4, job="flow"),
        ):
            found: list[RunRecord] = []
            before: str | None = query.before
            for _ in range(100):
                portion = replace(query, limit=query.limit - len(found), before=before)
                page = await story.store.search(portion, most)
                found += page.runs
                before = page.reached
                if before is None:
                    break
            assert found == [run for run in every if fits(query, run)][: query.limit], query


async def test_a_portion_reads_no_more_runs_than_it_may(place: Place) -> None:
    async with opened(place) as story:
        await filled(story)
        found = await story.store.search(RunQuery(job="nothing"), 10)
        assert (found.runs, found.reached) == ([], "r50")


async def test_tags_and_parents_survive_a_restart_and_are_deleted_with_their_runs(sql_place: Place) -> None:
    async with opened(sql_place) as story:
        for n in range(4):
            tagged = replace(created(f"r{n}", place=n), tags={"n": str(n), "all": "yes"}, parent="above")
            await story.tell(tagged, *life(f"r{n}")[1:])
    async with opened(sql_place) as story:
        assert [run.id for run in await story.store.runs(RunQuery(tags={"all": "yes"}))] == [
            "r3",
            "r2",
            "r1",
            "r0",
        ]
        await story.store.prune(Retention(keep_runs=1), NOW, 100)
        assert [run.tags for run in await story.store.runs(RunQuery(tags={"all": "yes"}))] == [
            {"n": "3", "all": "yes"}
        ]
        assert [run.id for run in await story.store.runs(RunQuery(parent="above"))] == ["r3"]
        store = story.store
        assert isinstance(store, SqlStore)
        rows = await store._database.read(
            lambda connection: connection.scalar(select(func.count()).select_from(schema.run_tags))
        )
        assert rows == 3


async def test_runs_are_known_by_the_beginnings_of_their_request_ids(place: Place) -> None:
    async with opened(place) as story:
        for n, request_id in enumerate(("bulk:r9", "bulk 2:r9", "other", "Bulk:r8")):
            terms = Terms(request_id=request_id, fingerprint="f" * 32)
            await story.tell(created(f"r{n}", place=n), terms={f"r{n}": terms})
        await story.tell(created("r4", place=4), memos=[Requested("bulk:r7", "r2", "f" * 32)])
        runs = ["r0", "r1", "r2", "r3", "r4"]
        assert await story.store.runs_of_requests(runs, "bulk:") == {"r0", "r2"}, "also of one that joined"
        assert await story.store.runs_of_requests(runs[1:2], "bulk:") == set()
