"""The fixtures open engines for tests of users, and leave nothing open."""

from __future__ import annotations

from pathlib import Path

from tests.testing.sessions import pytest_in

JOBS = """
    import pytest
    import trio
    from greenroom import Jobs, Run

    jobs = Jobs()

    @jobs.job("sleep", resumable=True)
    async def sleep(run: Run) -> str:
        await trio.sleep(100)
        return "slept"
"""


def test_an_engine_executes_a_job_under_a_mock_clock(tmp_path: Path):
    shown = pytest_in(
        tmp_path,
        test_it=JOBS
        + """
    @pytest.mark.trio
    async def test_it(greenroom_engine, autojump_clock):
        engine = await greenroom_engine(jobs)
        assert await (await engine.submit("sleep", handle="a")).result() == "slept"
    """,
    )
    assert "1 passed" in shown


def test_trio_mode_needs_no_mark(tmp_path: Path):
    shown = pytest_in(
        tmp_path,
        configuration="[pytest]\ntrio_mode = true\n",
        test_it=JOBS
        + """
    async def test_it(greenroom_engine, autojump_clock):
        engine = await greenroom_engine(jobs)
        assert await (await engine.submit("sleep", handle="a")).result() == "slept"
    """,
    )
    assert "1 passed" in shown


def test_an_engine_on_a_file_continues_what_an_earlier_one_began(tmp_path: Path):
    shown = pytest_in(
        tmp_path,
        test_it=JOBS
        + """
    async def runs_continue(greenroom_engine, tmp_path):
        engine = await greenroom_engine(jobs, "sqlite", max_concurrent=0)
        ticket = await engine.submit("sleep", handle="a")
        await greenroom_engine.close(engine)
        await greenroom_engine.close(engine)
        assert (tmp_path / "greenroom.db").exists()
        again = await greenroom_engine(jobs, "sqlite")
        assert (await again.get_run(ticket.id)).handle == "a"

    @pytest.mark.trio
    async def test_in_real_time(greenroom_engine, tmp_path):
        await runs_continue(greenroom_engine, tmp_path)

    @pytest.mark.trio
    async def test_in_mock_time(greenroom_engine, tmp_path, autojump_clock):
        await runs_continue(greenroom_engine, tmp_path)
    """,
    )
    assert "2 passed" in shown


def test_engines_and_their_bodies_end_with_the_test_also_if_it_fails(tmp_path: Path):
    shown = pytest_in(
        tmp_path,
        test_it=JOBS
        + """
    begun, ended = [], []

    @jobs.job("note")
    async def note(run: Run) -> None:
        begun.append(run.handle)
        try:
            await trio.sleep_forever()
        finally:
            ended.append(run.handle)

    @pytest.mark.trio
    async def test_that_fails(greenroom_engine):
        for name in ("first", "second"):
            engine = await greenroom_engine(jobs)
            await engine.submit("note", handle=name)
            while name not in begun:
                await trio.sleep(0.001)
        raise ValueError("as written")

    def test_afterwards():
        assert ended == ["second", "first"]
    """,
    )
    assert "ValueError: as written" in shown
    assert "1 failed, 1 passed" in shown


def test_an_engine_that_fails_fails_the_test(tmp_path: Path):
    shown = pytest_in(
        tmp_path,
        test_it=JOBS
        + """
    @jobs.job("exit")
    async def leave(run: Run) -> None:
        raise SystemExit("the body has left")

    @pytest.mark.trio
    async def test_it(greenroom_engine):
        engine = await greenroom_engine(jobs)
        await engine.submit("exit", handle="a")
        await trio.sleep_forever()
    """,
    )
    assert "the body has left" in shown


def test_what_open_engine_raises_is_raised_in_the_test(tmp_path: Path):
    shown = pytest_in(
        tmp_path,
        test_it=JOBS
        + """
    from greenroom import Conflict, Invalid

    @pytest.mark.trio
    async def test_it(greenroom_engine):
        with pytest.raises(Invalid, match="max_concurrent"):
            await greenroom_engine(jobs, max_concurrent=-1)
        await greenroom_engine(jobs, "sqlite")
        with pytest.raises(Conflict):
            await greenroom_engine(jobs, "sqlite")
    """,
    )
    assert "1 passed" in shown


def test_an_asyncio_test_gets_an_engine_for_asyncio(tmp_path: Path):
    shown = pytest_in(
        tmp_path,
        test_it=JOBS
        + """
    import asyncio

    @pytest.mark.parametrize("store", ["memory:", "sqlite"])
    def test_it(greenroom_aio_engine, store, tmp_path):
        async def main():
            async with greenroom_aio_engine(jobs, store) as engine:
                ticket = await engine.submit("sleep", handle="a")
                return await engine.get_run(ticket.id)

        assert asyncio.run(main()).handle == "a"
        assert (tmp_path / "greenroom.db").exists() == (store == "sqlite")
    """,
    )
    assert "2 passed" in shown


def test_without_pytest_trio_the_error_names_it(tmp_path: Path):
    shown = pytest_in(tmp_path, "-p", "no:trio", test_it="def test_it(greenroom_engine): ...")
    assert (
        "requires pytest-trio, which is not installed or not active: run `pip install pytest-trio`" in shown
    )
    assert "1 error" in shown


def test_a_test_that_is_no_trio_test_is_refused_with_the_remedy(tmp_path: Path):
    shown = pytest_in(tmp_path, test_it="def test_it(greenroom_engine): ...")
    assert "requires a trio test, and 'test_it' is none: mark it with @pytest.mark.trio" in shown
    assert "1 error" in shown


def test_each_of_several_tests_that_are_no_trio_tests_shows_the_remedy(tmp_path: Path):
    shown = pytest_in(
        tmp_path,
        test_it="""
    def test_one(greenroom_engine): ...

    def test_two(greenroom_engine): ...
    """,
    )
    assert "requires a trio test, and 'test_one' is none" in shown
    assert "requires a trio test, and 'test_two' is none" in shown
    assert "2 errors" in shown


def test_a_project_can_have_a_fixture_of_the_same_name(tmp_path: Path):
    shown = pytest_in(
        tmp_path,
        test_it="""
    import pytest

    @pytest.fixture
    def greenroom_engine():
        return "its own"

    def test_it(greenroom_engine):
        assert greenroom_engine == "its own"
    """,
    )
    assert "1 passed" in shown


def test_an_engine_is_closed_in_order_and_its_options_are_those_of_open_engine(tmp_path: Path):
    shown = pytest_in(
        tmp_path,
        test_it=JOBS
        + """
    ended = []

    @jobs.job("note")
    async def note(run: Run) -> None:
        await trio.sleep(5)
        ended.append(run.handle)

    @pytest.mark.trio
    async def test_with_time_to_end(greenroom_engine, autojump_clock):
        engine = await greenroom_engine(jobs, shutdown_timeout=30)
        await engine.submit("note", handle="a")
        await trio.sleep(1)

    def test_afterwards():
        assert ended == ["a"]
    """,
    )
    assert "2 passed" in shown


def test_every_test_that_is_refused_gets_the_remedy(tmp_path: Path):
    tests = """
    def test_one(greenroom_engine): ...
    def test_two(greenroom_engine): ...
    """
    shown = pytest_in(tmp_path, test_it=tests)
    assert "requires a trio test, and 'test_one' is none" in shown
    assert "requires a trio test, and 'test_two' is none" in shown
    assert "2 errors" in shown
