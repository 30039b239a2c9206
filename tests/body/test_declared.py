"""What `@jobs.job` does with a function, and how functions are submitted, called, and their results
converted."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import pytest
from trio.testing import MockClock

from greenroom import BlockingRun, Jobs, Run
from greenroom.errors import Invalid, RunFailed
from tests.support import open_engine

if TYPE_CHECKING:
    from decimal import Decimal


class Mirror(msgspec.Struct):
    url: str


class Summary(msgspec.Struct):
    pages: int
    ended: datetime | None = None


@attrs.frozen
class Point:
    x: int


@dataclass
class Pair:
    left: Point
    right: Point


async def result_of(declared: Any, jobs: Jobs, params: Any = None) -> Any:
    async with open_engine(jobs) as engine:
        return await (await engine.submit(declared, handle="a", params=params)).result()


async def test_a_job_is_named_after_its_function_unless_it_is_given_a_name():
    jobs = Jobs()

    @jobs.job
    async def bare(run: Run) -> str:
        return "a"

    @jobs.job(max_attempts=2)
    async def with_options(run: Run) -> str:
        return "b"

    @jobs.job("other")
    async def named(run: Run) -> str:
        return "c"

    assert [job.name for job in (bare, with_options, named)] == ["bare", "with_options", "other"]
    assert jobs.get("with_options").max_attempts == 2
    async with open_engine(jobs) as engine:
        assert await (await engine.submit(named, handle="a")).result() == "c"
        assert await (await engine.submit("bare", handle="a")).result() == "a"
        assert (await engine.list_runs())[-1].job == "other"


async def test_a_declared_function_is_still_the_function():
    jobs = Jobs()

    @jobs.job()
    async def double(run: Any, params: int) -> int:
        """Twice as much."""
        return 2 * params

    assert await double(None, 4) == 8
    assert (double.__name__, double.__doc__) == ("double", "Twice as much.")
    assert double.__code__.co_name == "double"
    assert repr(double).startswith('<job "double": ')
    assert await copy.copy(double)(None, 1) == 2


async def test_a_function_can_be_two_jobs_and_a_function_for_flows():
    jobs = Jobs()

    @jobs.job("first")
    @jobs.job("second", lane="side")
    @jobs.function("third")
    async def work(run: Run) -> str:
        return run.lane

    assert await result_of(work, jobs) == "main"
    assert await result_of("second", jobs) == "side"
    jobs.function("fourth")(work)
    found = jobs.find_function("fourth")
    assert found is not None
    assert not found.in_thread


@pytest.mark.parametrize("function", [lambda run: None, type("Callable", (), {"__call__": lambda self: 1})()])
def test_a_function_without_a_name_requires_a_job_name(function: Callable[..., Any]):
    with pytest.raises(Invalid, match=r'has no name: pass a job name, as in @jobs.job\("…"\)'):
        Jobs().job(function)


async def test_a_function_that_is_no_job_is_refused_with_its_name(autojump_clock: MockClock):
    jobs, others = Jobs(), Jobs()

    async def plain(run: Run) -> None: ...

    @others.job
    async def elsewhere(run: Run) -> None: ...

    @jobs.job
    async def calls(run: Run) -> None:
        await run.call(plain, handle="b")  # type: ignore[call-overload]

    @jobs.job
    async def mistypes(run: Run) -> None:
        await run.call("calls", handle="b", lanes="side")  # type: ignore[call-overload]

    async with open_engine(jobs) as engine:
        with pytest.raises(Invalid, match=r"plain is not registered as a job: decorate it with"):
            await engine.submit(plain, handle="a")  # type: ignore[call-overload]
        with pytest.raises(Invalid, match=r'elsewhere is job "elsewhere" of another Jobs object'):
            await engine.submit(elsewhere, handle="a")
        with pytest.raises(RunFailed, match="plain is not registered as a job"):
            await (await engine.submit(calls, handle="a")).result()
        with pytest.raises(RunFailed, match=r"""call\(\) got .* 'lanes': did you mean "lane"\?"""):
            await (await engine.submit(mistypes, handle="a")).result()
        jobs.job("elsewhere")(elsewhere)
        with pytest.raises(Invalid, match="other Jobs"):
            await engine.submit(elsewhere, handle="a")
        assert len(await engine.list_runs()) == 2


NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("annotation", "returned", "stored"),
    [
        (Summary, Summary(3, NOON), {"pages": 3, "ended": "2030-01-01T12:00:00Z"}),
        (Pair, Pair(Point(1), Point(2)), {"left": {"x": 1}, "right": {"x": 2}}),
        (list[Point], [Point(1)], [{"x": 1}]),
        (dict[str, Point], {"a": Point(1)}, {"a": {"x": 1}}),
        (tuple[int, str], (1, "a"), [1, "a"]),
        (Summary | None, None, None),
        (dict[str, Any], {"a": [1]}, {"a": [1]}),
    ],
)
async def test_a_result_is_stored_as_json_and_returned_as_its_annotated_type(
    annotation: Any, returned: Any, stored: Any, autojump_clock: MockClock
):
    jobs = Jobs()

    async def work(run: Run) -> Any:
        return returned

    work.__annotations__["return"] = annotation
    declared = jobs.job("work")(work)
    assert await result_of(declared, jobs) == returned
    assert await result_of("work", jobs) == stored


async def test_the_result_of_a_child_is_converted_too():
    jobs = Jobs()

    @jobs.job
    async def mirror(run: Run, params: Mirror) -> Summary:
        return Summary(len(params.url))

    @jobs.job
    async def waits(run: Run) -> bool:
        return isinstance(await run.call(mirror, handle="b", params=Mirror("abc")), Summary)

    @jobs.job
    def blocks(run: BlockingRun) -> bool:
        return run.call(mirror, handle="b", params=Mirror("abc")) == Summary(3)

    @jobs.job
    async def by_name(run: Run) -> bool:
        return await run.call("mirror", handle="b", params={"url": "abc"}) == {"pages": 3, "ended": None}

    for job in (waits, blocks, by_name):
        assert await result_of(job, jobs) is True


async def test_a_result_that_does_not_fit_its_annotation_is_an_error(
    autojump_clock: MockClock,
):
    jobs = Jobs()

    @jobs.job
    async def lies(run: Run) -> Summary:
        return {"pages": "three"}  # type: ignore[return-value]

    async with open_engine(jobs) as engine:
        ticket = await engine.submit(lies, handle="a")
        with pytest.raises(Invalid, match=r'result of job "lies", run \w+, does not match .*: result.pages:'):
            await ticket.result()
        assert (await engine.get_run(ticket.id)).result == {"pages": "three"}


async def test_an_annotation_that_cannot_be_read_leaves_the_plain_value():
    jobs = Jobs()

    @jobs.job
    async def late(run: Run) -> Decimal:
        return "1"  # type: ignore[return-value]

    assert await result_of(late, jobs) == "1"


@pytest.mark.parametrize("returned", [{1, 2}, NOON, [Summary], {"a": b"x"}])
async def test_a_result_that_is_neither_json_nor_an_object_fails_the_run(
    returned: Any, autojump_clock: MockClock
):
    jobs = Jobs()

    @jobs.job
    async def work(run: Run) -> Any:
        return returned

    with pytest.raises(RunFailed, match=r"result\S*: .* is not a JSON value"):
        await result_of(work, jobs)


if TYPE_CHECKING:
    from greenroom import Run as RunOfTypeCheckers


async def test_only_the_annotations_of_the_parameters_and_of_the_result_are_evaluated():
    jobs = Jobs()

    @jobs.job
    async def mirror(run: RunOfTypeCheckers, params: Mirror) -> Summary:
        assert isinstance(params, Mirror)
        return Summary(3)

    @jobs.job
    async def unreadable_result(run: Run, params: Mirror) -> Decimal:
        return params.url  # type: ignore[return-value]  # the annotation is for type checkers

    assert await result_of(mirror, jobs, {"url": "a"}) == Summary(3)
    assert await result_of(unreadable_result, jobs, {"url": "a"}) == "a"


class Mirrors:
    host: str = "example.org"

    async def __call__(self, run: Run, params: Mirror) -> Summary:
        return Summary(len(params.url))

    async def with_prefix(self, prefix: str, run: Run, params: Mirror) -> Summary:
        return Summary(len(prefix + params.url))


@pytest.mark.parametrize(
    ("function", "pages"),
    [
        (Mirrors(), 3),
        (functools.partial(Mirrors().with_prefix, "12"), 5),
        (functools.partial(functools.partial(Mirrors.with_prefix, Mirrors()), "12"), 5),
    ],
    ids=["object", "partial", "partial of a partial"],
)
async def test_an_object_and_a_partial_function_have_their_annotations(
    function: Callable[..., Any], pages: int
):
    jobs = Jobs()
    declared = jobs.job("mirror")(function)
    assert await result_of(declared, jobs, {"url": "abc"}) == Summary(pages)
    with pytest.raises(Invalid, match="url"):
        await result_of(declared, jobs, {"url": 3})


async def test_a_parameter_with_a_default_that_is_passed_by_keyword_is_not_for_the_run():
    jobs = Jobs()

    @jobs.job
    async def limited(run: Run, *, most: int = 4) -> int:
        return most

    assert await result_of(limited, jobs) == 4
    with pytest.raises(
        Invalid, match=r"its function is called without keywords: remove the \* before params"
    ):

        @jobs.job
        async def keyword(run: Run, *, params: Mirror) -> None: ...


@pytest.mark.parametrize("attempts", [0, 1.5, "3", True, None])
def test_attempts_that_are_no_positive_integer_are_refused(attempts: Any):
    with pytest.raises(Invalid, match="max_attempts must be an integer, at least 1"):
        Jobs().job("x", max_attempts=attempts)(lambda run: None)
