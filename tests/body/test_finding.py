"""Tags of runs, and filters of lists of runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from greenroom import Engine, Jobs, Run
from greenroom.actors.engine import reads
from greenroom.actors.engine.entry_point import _fingerprint
from greenroom.actors.executors.checks import submit_options
from greenroom.errors import Conflict, Invalid, RunFailed
from greenroom.protocol.executors import CallChild
from greenroom.protocol.records import RunRecord
from greenroom.protocol.run_filter import RunFilter, is_long_before, run_filter
from greenroom.protocol.states import Status
from greenroom.protocol.submission import SubmitOptions, again, to_wire
from tests.support import open_engine

FLOW = {"start": "a", "nodes": {"a": {"kind": "choice"}}, "edges": []}
START = 1_700_000_000.0


def moment(seconds: float) -> datetime:
    """The same time as an aware datetime."""
    return datetime.fromtimestamp(seconds, UTC)


def make_jobs() -> Jobs:
    jobs = Jobs()

    @jobs.job("quick")
    async def quick(run: Run, params: dict[str, Any]) -> Any:
        return params

    @jobs.job("failing")
    async def failing(run: Run, params: dict[str, str]) -> None:
        raise ConnectionError(params["why"])

    @jobs.job("parent")
    async def parent(run: Run) -> Any:
        await run.call("quick", handle="plain child", params={})
        return await run.call("quick", handle="tagged child", params={}, tags={"of": "parent"})

    return jobs


# Tags.


async def test_tags_are_in_the_record_and_in_the_first_event(autojump_clock):
    async with open_engine(make_jobs()) as engine:
        tags = {"customer": "42", "region": ""}
        ticket = await engine.submit("quick", handle="a", params={}, tags=tags)
        tags["customer"] = "changed later"
        await ticket.result()
        expected = {"customer": "42", "region": ""}
        assert (await engine.get_run(ticket.id)).tags == expected
        assert (await engine.snapshot()).runs[ticket.id].tags == expected
        first, *others = await engine.history(ticket.id)
        assert first.tags == expected
        assert not any(event.tags for event in others)


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (["customer"], r'tags must be a mapping of names to values \(got \["customer"\]\): write'),
        ("customer=42", "tags must be a mapping of names to values"),
        ({"customer": 42}, r'tags: value of "customer" must be a string \(got 42\): convert it'),
        ({"customer": None}, 'tags: value of "customer" must be a string'),
        ({"customer": "x" * 257}, 'tags: value of "customer" has 257 characters: at most 256 are allowed'),
        ({"customer": "a\0"}, 'tags: value of "customer" must not contain NUL'),
        ({"a=b": "1"}, 'tags: name "a=b" must not contain ='),
        ({" ": "1"}, "tags: name must not be empty"),
        ({"a\n": "1"}, "contains non-printable characters"),
        ({7: "1"}, r"tags: name must be a string \(got 7\)"),
        ({"x" * 257: "1"}, "has 257 characters"),
        ({f"t{n}": "" for n in range(17)}, r"tags must contain at most 16 tags \(got 17\)"),
    ],
)
async def test_bad_tags_are_refused_and_change_nothing(tags: Any, message: str, autojump_clock):
    async with open_engine(make_jobs()) as engine:
        for call in (
            lambda: engine.submit("quick", handle="a", params={}, tags=tags),
            lambda: engine.list_runs(tags=tags),
        ):
            with pytest.raises(Invalid, match=message):
                await call()
        assert not (await engine.snapshot()).runs


async def test_the_largest_tags_are_accepted(autojump_clock):
    tags = {f"{n:x<256}": "v" * 256 for n in range(16)}
    async with open_engine(make_jobs()) as engine:
        ticket = await engine.submit("quick", handle="a", params={}, tags=tags)
        assert [run.id for run in await engine.list_runs(tags=tags)] == [ticket.id]


async def test_a_child_run_has_only_the_tags_of_its_call(autojump_clock):
    async with open_engine(make_jobs()) as engine:
        await (await engine.submit("parent", handle="a", tags={"of": "a"})).result()
        [plain] = await engine.list_runs(handle="plain child")
        [tagged] = await engine.list_runs(handle="tagged child")
        assert (plain.tags, tagged.tags) == ({}, {"of": "parent"})


async def test_a_child_run_is_found_by_its_parent(autojump_clock):
    async with open_engine(make_jobs()) as engine:
        first = await engine.submit("parent", handle="a")
        await first.result()
        second = await engine.submit("parent", handle="a")
        await second.result()
        children = await engine.list_runs(parent=first.id)
        assert [run.handle for run in children] == ["tagged child", "plain child"]
        assert {run.parent for run in children} == {first.id}
        assert await engine.list_runs(parent=first.id, tags={"of": "parent"}) == children[:1]
        assert await engine.list_runs(parent=children[0].id) == []
        assert (await engine.get_run(first.id)).parent is None
        for child in children:
            created, *others = await engine.history(child.id)
            assert created.parent == first.id
            assert not any(event.parent for event in others)
            assert (await engine.snapshot()).runs[child.id] == child
        again = await engine.get_run((await engine.rerun(children[0].id)).id)
        assert again.parent is None, "no body waits for it"


def test_the_tags_of_a_child_run_arrive_over_a_link() -> None:
    options = SubmitOptions(job="train", handle="child", tags={"of": "parent"})
    fields = to_wire(options)
    received = submit_options(CallChild(1, options.job, fields.pop("handle"), None, fields), None)
    assert received.tags == {"of": "parent"}


def test_tags_are_a_part_of_the_fingerprint_only_if_given() -> None:
    options = SubmitOptions(job="a", handle="h")
    without = _fingerprint(options, "main", {"n": 1})
    assert without == "a4267ce15c026d3426c8edd70e3977a9", "as versions without tags have stored it"
    assert _fingerprint(replace(options, tags={}), "main", {"n": 1}) == without
    one, other = ({"a": "1", "b": "2"}, {"b": "2", "a": "1"})
    tagged = _fingerprint(replace(options, tags=one), "main", {"n": 1})
    assert tagged != without
    assert tagged == _fingerprint(replace(options, tags=other), "main", {"n": 1})


async def test_the_same_request_id_with_other_tags_is_a_conflict(autojump_clock):
    async with open_engine(make_jobs()) as engine:
        same = {"handle": "a", "params": {}, "request_id": "once"}
        ticket = await engine.submit("quick", **same, tags={"n": "1"})
        assert (await engine.submit("quick", **same, tags={"n": "1"})).id == ticket.id
        for tags in ({"n": "2"}, {}):
            with pytest.raises(Conflict):
                await engine.submit("quick", **same, tags=tags)


async def test_rerun_keeps_the_tags_and_the_needs(autojump_clock):
    async with open_engine(make_jobs(), max_concurrent=0) as engine:
        ticket = await engine.submit("quick", handle="a", params={}, tags={"n": "1"}, needs=["gpu"])
        await ticket.cancel()
        again = await engine.get_run((await engine.rerun(ticket.id)).id)
        assert (again.tags, again.needs) == ({"n": "1"}, ("gpu",))


def test_rerun_keeps_other_options_only_if_they_are_set() -> None:
    jobs = {"job": "a", "handle": "h", "params": {}}
    assert again(make_run(**jobs)) == SubmitOptions(**jobs, lane="main")
    assert again(make_run(**jobs, tags={"n": "1"})).tags == {"n": "1"}


async def test_flows_have_tags_and_are_found_by_their_names(autojump_clock):
    async with open_engine(make_jobs()) as engine:
        for name in ("nightly", "hourly"):
            await engine.flows.publish(name, FLOW)
            await engine.flows.start(name, tags={"flow": name})
        await engine.submit("quick", handle="a", params={"flow": "nightly"})
        [run] = await engine.list_runs(flow="nightly")
        assert (run.job, run.tags) == ("flow", {"flow": "nightly"})
        assert await engine.list_runs(flow="Nightly") == []


# Filters.


async def some_runs(engine: Engine) -> dict[str, str]:
    """Runs that were created ten seconds apart; their names by id."""
    names: dict[str, str] = {}
    for name, job, params, tags in (
        ("a", "quick", {}, {"customer": "42"}),
        ("b", "failing", {"why": "no route to host"}, {"customer": "42", "env": "prod"}),
        ("c", "failing", {"why": "No Route"}, {}),
        ("d", "quick", {}, {"customer": "43", "env": "prod"}),
    ):
        ticket = await engine.submit(job, handle=name, params=params, tags=tags)
        await ticket.wait()
        names[ticket.id] = name
        await trio.sleep(10)
    return names


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"tags": {"customer": "42"}}, "ba"),
        ({"tags": {"customer": "42", "env": "prod"}}, "b"),
        ({"tags": {"customer": "4"}}, ""),
        ({"tags": {}}, "dcba"),
        ({"tags": None, "job": None, "since": None}, "dcba"),
        ({"job": "failing"}, "cb"),
        ({"job": "fail"}, ""),
        ({"error": "route"}, "b"),
        ({"error": "Route"}, "c"),
        ({"error": "o"}, "cb"),
        ({"error": "%"}, ""),
        ({"since": START + 10}, "dcb"),
        (
            {
                "since": datetime.fromtimestamp(START + 10, UTC),
                "until": datetime.fromtimestamp(START + 20, UTC),
            },
            "b",
        ),
        ({"until": START + 10}, "a"),
        ({"since": START + 10, "until": START + 20}, "b"),
        ({"since": START + 10, "until": START + 10}, ""),
        ({"status": "failed", "since": START + 15, "tags": {}}, "c"),
        ({"job": "quick", "tags": {"env": "prod"}, "handle": "d", "lane": "main"}, "d"),
        ({"flow": "quick"}, ""),
        ({"job": "failing", "limit": 1}, "c"),
    ],
    ids=str,
)
async def test_list_runs_returns_the_runs_that_match_all_filters(filters, expected, autojump_clock):
    begun = trio.current_time()
    async with open_engine(make_jobs(), clock=lambda: START + trio.current_time() - begun) as engine:
        names = await some_runs(engine)
        assert "".join(names[run.id] for run in await engine.list_runs(**filters)) == expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"job": 7}, r"job must be a string \(got 7\)"),
        ({"flow": "a\0"}, "flow must not contain NUL"),
        ({"error": ""}, "error must not be empty"),
        ({"since": "yesterday"}, r'since must be a time in Unix seconds.* \(got "yesterday"\)'),
        ({"since": float("nan")}, "since must be a time in Unix seconds"),
        ({"until": float("inf")}, "until must be a time in Unix seconds"),
        ({"until": True}, "until must be a time in Unix seconds"),
        ({"until": datetime(2026, 1, 1)}, r"until must have a time zone \(got 2026-01-01T00:00:00\)"),
        ({"since": 20, "until": 10}, r"since must not be later than until \(got 20 and 10\)"),
    ],
    ids=str,
)
async def test_filters_that_mean_nothing_are_refused(wrong: dict[str, Any], message: str, autojump_clock):
    async with open_engine(make_jobs()) as engine:
        with pytest.raises(Invalid, match=message):
            await engine.list_runs(**wrong)


async def test_an_unknown_filter_is_named_with_a_suggestion(autojump_clock):
    async with open_engine(make_jobs()) as engine:
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'tag'.*tags"):
            await engine.list_runs(tag={"a": "1"})  # type: ignore[call-arg]


async def test_pages_of_a_filtered_list_give_each_run_once(autojump_clock):
    async with open_engine(make_jobs()) as engine:
        for n in range(30):
            await engine.submit("quick", handle=f"h{n}", params={}, tags={"third": str(n % 3)})
        filters: dict[str, Any] = {"tags": {"third": "1"}, "job": "quick"}
        whole = [run.id for run in await engine.list_runs(**filters)]
        paged: list[str] = []
        while page := await engine.list_runs(**filters, limit=4, before=paged[-1] if paged else None):
            paged += [run.id for run in page]
        assert paged == whole
        assert len(whole) == 10


async def test_a_search_reads_portions_and_ends_with_the_first_runs(autojump_clock, monkeypatch):
    monkeypatch.setattr(reads, "_PORTION", 5)
    async with open_engine(make_jobs()) as engine:
        for n in range(23):
            await engine.submit("quick", handle=f"h{n}", params={}, tags={"n": str(n)})
        [run] = await engine.list_runs(job="quick", error=None, since=0.0, handle="h0")
        assert run.tags == {"n": "0"}
        assert len(await engine.list_runs(job="quick")) == 23


async def test_a_search_that_reads_too_many_runs_is_refused_and_can_be_continued(autojump_clock, monkeypatch):
    monkeypatch.setattr(reads, "_PORTION", 5)
    monkeypatch.setattr(reads, "_MOST_PORTIONS", 2)
    async with open_engine(make_jobs()) as engine:
        first = await engine.submit("failing", handle="first", params={"why": "no"})
        await first.wait()
        for n in range(12):
            await engine.submit("quick", handle=f"h{n}", params={})
        with pytest.raises(Invalid, match="matches 0 of the 10 runs that were read: add since, ") as refused:
            await engine.list_runs(job="failing")
        before = refused.value.details["before"]
        assert [run.id for run in await engine.list_runs(job="failing", before=before)] == [first.id]
        last = await engine.submit("failing", handle="last", params={"why": "no"})
        await last.wait()
        with pytest.raises(Invalid, match="list the 1 runs with limit=1, and continue with before="):
            await engine.list_runs(job="failing")
        assert [run.id for run in await engine.list_runs(job="failing", limit=1)] == [last.id]


async def test_a_search_since_a_time_stops_at_runs_of_long_before(autojump_clock, monkeypatch):
    monkeypatch.setattr(reads, "_PORTION", 2)
    monkeypatch.setattr(reads, "_MOST_PORTIONS", 4)
    async with open_engine(make_jobs(), clock=lambda: START + trio.current_time()) as engine:
        for n in range(20):
            await engine.submit("quick", handle=f"h{n}", params={})
        await trio.sleep(3 * 86_400)
        now = START + trio.current_time()
        await engine.submit("quick", handle="late", params={})
        [run] = await engine.list_runs(since=now - 10)
        assert run.handle == "late"
        with pytest.raises(Invalid):
            await engine.list_runs(since=now - 10 * 86_400, until=START)


def test_only_ids_with_a_time_show_that_a_run_is_old() -> None:
    id = f"{int(START * 1000):012x}7{'0' * 19}"
    assert is_long_before(id, START + 86_401)
    assert not is_long_before(id, START + 86_399)
    assert not is_long_before("r1", START + 10**9)
    assert not is_long_before("x" * 12 + "7" + "0" * 19, START + 10**9)


def test_no_filter_matches_everything() -> None:
    assert run_filter("list_runs", {}) == RunFilter()
    assert RunFilter().matches(make_run(job="a", handle="h", params=None))


def make_run(**fields: Any) -> RunRecord:
    return RunRecord(
        id="r", lane="main", kind="start", status=Status.FAILED, created_at=START, updated_at=START, **fields
    )


async def test_runs_that_fail_have_their_errors(autojump_clock):
    async with open_engine(make_jobs()) as engine:
        ticket = await engine.submit("failing", handle="a", params={"why": "no route"})
        with pytest.raises(RunFailed):
            await ticket.result()
        assert [run.id for run in await engine.list_runs(error="no route")] == [ticket.id]
