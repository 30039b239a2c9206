"""Submissions with `on_conflict="coalesce"`: one run executes, and one waits, with the newest parameters."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.lowlevel

from greenroom import Engine, Jobs, Run, Ticket
from greenroom.errors import Conflict, Invalid, RunTimedOut
from greenroom.protocol.submission import SubmitKeywords
from tests.support import open_engine

from ..support import Bodies, until, until_status


class Pages(Bodies):
    """Bodies that record the parameters with which they begin."""

    def __init__(self) -> None:
        super().__init__()
        self.params: list[Any] = []

    async def wait(self, run: Run, params: dict[str, Any]) -> str:
        self.params.append(params)
        return await super().wait(run, params)


@pytest.fixture
def pages() -> Pages:
    return Pages()


async def coalesce(engine: Engine, n: int, **options: Any) -> Ticket[Any]:
    given: SubmitKeywords = {"on_conflict": "coalesce"}
    return await engine.submit("wait", **({"handle": "alice", "params": {"n": n}} | given | options))


async def executing(engine: Engine) -> Ticket[Any]:
    ticket = await coalesce(engine, 0)
    await until_status(engine, ticket, "running")
    return ticket


async def params_over_time(engine: Engine, run: str) -> list[tuple[str, int]]:
    """The parameters of a run, with the types of the events that set them."""
    return [
        (event.type, event.params["n"])
        for event in await engine.history(run)
        if isinstance(getattr(event, "params", None), dict)
    ]


async def test_one_run_executes_and_one_waits_with_the_newest_parameters(pages: Pages, autojump_clock):
    async with open_engine(pages.jobs) as engine:
        first = await executing(engine)
        later = [await coalesce(engine, n) for n in (1, 2, 3)]
        assert [ticket.joined for ticket in later] == [False, True, True]
        assert len({ticket.id for ticket in later}) == 1
        assert (await engine.snapshot()).handles["alice"].waiting == [later[0].id]
        pages.end(first, later[0])
        assert [await ticket.result() for ticket in later] == ["done for alice"] * 3
        assert pages.params == [{"n": 0}, {"n": 3}]
        assert await params_over_time(engine, later[0].id) == [
            ("run_state_changed", 1),
            ("run_changed", 2),
            ("run_changed", 3),
        ]


async def test_a_run_that_is_queued_in_its_lane_takes_the_parameters(pages: Pages, autojump_clock):
    async with open_engine(pages.jobs, max_concurrent=0) as engine:
        first, second = await coalesce(engine, 1), await coalesce(engine, 2, by="ann")
        assert (second.id, second.joined) == (first.id, True)
        event = (await engine.history(first.id))[-1]
        assert (event.type, event.params, event.by) == ("run_changed", {"n": 2}, "ann")
        await engine.set_max_concurrent(1)
        await until_status(engine, first, "running")
        assert pages.params == [{"n": 2}]
        assert not (await coalesce(engine, 3)).joined
        await engine.cancel(first.id)


async def test_a_run_that_has_begun_keeps_its_parameters_in_every_state(pages: Pages, autojump_clock):
    @pages.jobs.job("sleeps", max_attempts=2, backoff=100)
    async def sleeps(run: Run, params: dict[str, Any]) -> None:
        pages.params.append(params)
        if run.attempt == 1:
            await run.sleep(100)
            raise OSError

    async with open_engine(pages.jobs) as engine:
        given = {"handle": "alice", "on_conflict": "coalesce"}
        first = await engine.submit("sleeps", params={"n": 0}, **given)
        for waiting_for in ("time", "retry"):
            snapshot = await until(
                engine, lambda seen, what=waiting_for: seen.runs[first.id].waiting_for == what
            )
            run = snapshot.runs[first.id]
            later = await engine.submit("sleeps", params={"n": 1}, **given)
            assert (later.id == first.id, run.params) == (False, {"n": 0})
        await first.result()
        await later.result()
    assert pages.params == [{"n": 0}, {"n": 0}, {"n": 1}, {"n": 1}]


@pytest.mark.parametrize("other", [{"lane": "side"}, {"kind": "continue"}, {"needs": ["gpu"]}], ids=str)
async def test_runs_that_differ_in_more_than_parameters_do_not_coalesce(
    pages: Pages, autojump_clock, other: dict[str, Any]
):
    async with open_engine(pages.jobs) as engine:
        await executing(engine)
        one, another = await coalesce(engine, 1), await coalesce(engine, 2, **other)
        assert not another.joined
        again = [await coalesce(engine, 3), await coalesce(engine, 4, **other)]
        assert [ticket.id for ticket in again] == [one.id, another.id]
        await engine.clear_handle("alice")


async def test_the_other_options_remain_those_of_the_waiting_run(pages: Pages, autojump_clock):
    async with open_engine(pages.jobs) as engine:
        await executing(engine)
        start = trio.current_time()
        waiting = await coalesce(engine, 1, queue_timeout=50)
        assert (await coalesce(engine, 2, queue_timeout=5, deadline=5)).id == waiting.id
        with pytest.raises(RunTimedOut) as ended:
            await waiting.result()
        assert (ended.value.run.params, ended.value.run.reason) == ({"n": 2}, "queue_timeout")
        assert trio.current_time() - start == pytest.approx(50)


async def test_a_repeat_of_a_request_gets_the_same_run_and_changes_nothing(pages: Pages, autojump_clock):
    async with open_engine(pages.jobs) as engine:
        await executing(engine)
        waiting = await coalesce(engine, 1)
        assert (await coalesce(engine, 2, request_id="two")).id == waiting.id
        await coalesce(engine, 3)
        again = await coalesce(engine, 2, request_id="two")
        assert (again.id, again.joined) == (waiting.id, True)
        assert (await engine.get_run(waiting.id)).params == {"n": 3}
        with pytest.raises(Conflict, match="already used for another submission"):
            await coalesce(engine, 4, request_id="two")


async def test_parameters_are_checked_and_the_draft_is_taken_as_always(pages: Pages, autojump_clock):
    @pages.jobs.job("typed")
    async def typed(run: Run, params: dict[str, int]) -> None:
        pages.params.append(params)

    async with open_engine(pages.jobs, max_concurrent=0) as engine:
        await engine.set_params("alice", {"n": 5})
        given = {"handle": "alice", "on_conflict": "coalesce"}
        first = await engine.submit("typed", params={"n": 1}, **given)
        with pytest.raises(Invalid, match=r"params\.n"):
            await engine.submit("typed", params={"n": "two"}, **given)
        assert (await engine.get_run(first.id)).params == {"n": 1}
        assert (await engine.submit("typed", **given)).id == first.id
        assert (await engine.get_run(first.id)).params == {"n": 5}


async def test_a_child_run_is_not_changed_by_others_and_can_not_coalesce(autojump_clock):
    jobs, begun, refused = Jobs(), [], []

    @jobs.job("child")
    async def child(run: Run, params: dict[str, int]) -> None:
        begun.append(params)

    @jobs.job("parent")
    async def parent(run: Run) -> None:
        try:
            await run.call("child", handle="c", params={"n": 1}, on_conflict="coalesce")
        except Invalid as error:
            refused.append(error.message)
        await run.call("child", handle="c", params={"n": 1}, lane="paused")

    async with open_engine(jobs, lanes={"paused": 0}) as engine:
        running = await engine.submit("parent", handle="p")
        await until_status(engine, running, "suspended")
        given = {"handle": "c", "on_conflict": "coalesce", "lane": "paused"}
        own = await engine.submit("child", params={"n": 2}, **given)
        assert not own.joined
        await engine.set_concurrency("paused", 1)
        await own.result()
    assert begun == [{"n": 1}, {"n": 2}]
    [message] = refused
    assert message.startswith('on_conflict must not be "coalesce" for a child run')


async def test_a_flow_can_not_coalesce(autojump_clock):
    async with open_engine(Jobs()) as engine:
        with pytest.raises(Invalid, match='on_conflict must not be "coalesce" for a flow'):
            await engine.flows.start("any", handle="alice", on_conflict="coalesce")
