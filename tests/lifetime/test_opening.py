"""The arguments of `open_engine`, and the errors that it raises."""

import gc
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from greenroom import Jobs, Run, open_engine
from greenroom.errors import Invalid, RunFailed, Unavailable
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.store import Batch

from ..support import Bodies

PATIENCE = 1000.0


class Stop(BaseException):
    """An exception that is not an `Exception`."""


class Bug(Exception):
    """The error that makes an actor crash."""


class WatchedStore(MemoryStore):
    """A store that records whether it is open, and fails where the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = self.closed = 0
        self.fails: dict[str, BaseException] = {}

    async def open(self, *given: Any) -> Any:
        self._fail("open")
        self.opened += 1
        return await super().open(*given)

    async def commit(self, batch: Batch) -> None:
        self._fail("commit")
        await super().commit(batch)

    async def close(self) -> None:
        self.closed += 1
        self._fail("close")

    def _fail(self, what: str) -> None:
        if what in self.fails:
            raise self.fails[what]


class FailingClock:
    """A clock that fails on request; the journal reads it for every batch."""

    def __init__(self) -> None:
        self.fails: BaseException | None = None

    def __call__(self) -> float:
        if self.fails is not None:
            raise self.fails
        return trio.current_time()


async def what_comes_out(block: Callable[[], Awaitable[None]]) -> BaseException:
    """What a block around an engine raises; fails if it hangs."""
    with trio.fail_after(PATIENCE):
        try:
            await block()
        except trio.Cancelled:
            raise
        except BaseException as error:
            return error
    return pytest.fail("nothing came out")


# The block.


@pytest.mark.parametrize("error", [ValueError("mine"), ExceptionGroup("mine", [ValueError()]), Stop()])
async def test_an_exception_of_the_block_is_raised_unchanged(autojump_clock, error):
    async def block() -> None:
        async with open_engine(Jobs(), "memory:"):
            raise error

    assert await what_comes_out(block) is error


async def test_an_exception_of_the_block_is_raised_unchanged_while_bodies_execute(autojump_clock):
    bodies = Bodies()
    error = ValueError("mine")

    async def block() -> None:
        async with open_engine(bodies.jobs, "memory:", shutdown_timeout=1) as engine:
            await engine.submit("wait", handle="ann", params={})
            raise error

    assert await what_comes_out(block) is error


async def test_the_value_of_a_block_that_ends_well_is_an_engine_that_has_stopped(autojump_clock):
    store = WatchedStore()

    async with open_engine(Jobs(), store) as engine:
        assert not store.closed

    assert (store.opened, store.closed) == (1, 1)
    with pytest.raises(Unavailable):
        await engine.snapshot()


# Bodies.


async def test_an_exception_of_a_body_fails_its_run_and_nothing_else(autojump_clock):
    jobs = Jobs()

    @jobs.job("fails")
    async def fails(run: Run) -> None:
        raise ValueError("as asked")

    async with open_engine(jobs, "memory:") as engine:
        for _ in range(2):
            ticket = await engine.submit("fails", handle="ann")
            with pytest.raises(RunFailed, match="ValueError: as asked"):
                await ticket.result()


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), SystemExit(3), Stop(), BaseExceptionGroup("several", [Stop(), ValueError()])],
)
async def test_a_base_exception_of_a_body_is_raised_unchanged(autojump_clock, error):
    jobs, store, tickets = Jobs(), WatchedStore(), []

    @jobs.job("stops")
    async def stops(run: Run) -> None:
        await trio.sleep(1)
        raise error

    async def block() -> None:
        async with open_engine(jobs, store) as engine:
            tickets.append(await engine.submit("stops", handle="ann"))
            await trio.sleep(PATIENCE)
            pytest.fail("the block went on")

    assert await what_comes_out(block) is error
    assert trio.current_time() < PATIENCE
    assert store.closed == 1
    run = await store.run(tickets[0].id)
    assert run is not None
    assert run.status == "failed"


async def test_such_an_exception_ends_the_other_bodies_in_order(autojump_clock):
    bodies, store, other = Bodies(), WatchedStore(), []

    @bodies.jobs.job("stops")
    async def stops(run: Run) -> None:
        raise Stop

    async def block() -> None:
        async with open_engine(bodies.jobs, store) as engine:
            other.append(await engine.submit("wait", handle="bob", params={}))
            await engine.submit("stops", handle="ann")
            await trio.sleep(PATIENCE)

    assert isinstance(await what_comes_out(block), Stop)
    run = await store.run(other[0].id)
    assert run is not None
    assert (run.status, run.reason) == ("cancelled", "shutdown")


async def test_such_an_exception_is_raised_although_the_block_raises_too(autojump_clock):
    jobs = Jobs()
    stop = Stop()

    @jobs.job("stops")
    async def stops(run: Run) -> None:
        raise stop

    async def block() -> None:
        async with open_engine(jobs, "memory:") as engine:
            await engine.submit("stops", handle="ann")
            try:
                await trio.sleep(PATIENCE)
            finally:
                raise ValueError("the block's own")

    assert await what_comes_out(block) is stop


# Arguments.


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_concurrent": -1},
        {"max_concurrent": "3"},
        {"max_concurrent": True},
        {"lanes": {"side": -1}},
        {"lanes": {"side": 1.5}},
        {"lanes": {"\0": 1}},
        {"max_pending": -1},
        {"max_value_bytes": "1 MiB"},
        {"shutdown_timeout": -1},
        {"shutdown_timeout": "soon"},
        {"shutdown_timeout": float("nan")},
    ],
    ids=repr,
)
async def test_a_bad_argument_is_refused_and_leaves_no_store_open(autojump_clock, arguments):
    store = WatchedStore()

    async def block() -> None:
        async with open_engine(Jobs(), store, **arguments):
            pytest.fail("it was taken")

    assert isinstance(await what_comes_out(block), Invalid)
    assert store.opened == store.closed


@pytest.mark.parametrize("store", ["", "memory", "oracle://host/database"])
async def test_an_unknown_kind_of_store_is_refused_by_name(autojump_clock, store):
    async def block() -> None:
        async with open_engine(Jobs(), store):
            pytest.fail("it was taken")

    raised = await what_comes_out(block)
    assert isinstance(raised, Invalid)
    assert "store" in str(raised)


# Crashes.


async def test_a_store_that_cannot_be_opened_raises_its_own_error(autojump_clock):
    store = WatchedStore()
    error = store.fails["open"] = OSError("no such disk")

    async def block() -> None:
        async with open_engine(Jobs(), store):
            pytest.fail("it was opened")

    assert await what_comes_out(block) is error


async def test_a_crash_while_opening_is_raised_unchanged(autojump_clock):
    store = WatchedStore()
    bug = store.fails["commit"] = Bug()

    async def block() -> None:
        async with open_engine(Jobs(), store, lanes={"side": 2}):
            pytest.fail("it was opened")

    assert await what_comes_out(block) is bug
    assert store.closed == 1


async def test_a_store_that_cannot_be_closed_raises_its_own_error(autojump_clock):
    store = WatchedStore()
    error = store.fails["close"] = OSError("disk full")

    async def block() -> None:
        async with open_engine(Jobs(), store):
            pass

    assert await what_comes_out(block) is error


async def test_an_exception_of_the_block_is_raised_when_the_store_cannot_be_closed_too(autojump_clock):
    store = WatchedStore()
    store.fails["close"] = OSError("disk full")

    async def block() -> None:
        async with open_engine(Jobs(), store):
            raise ValueError("mine")

    raised = await what_comes_out(block)
    chain = [raised, raised.__context__, raised.__cause__]
    assert any(isinstance(error, ValueError) for error in chain)


@pytest.mark.parametrize("crashing", ["store", "clock"])
async def test_a_crash_of_an_actor_stops_the_engine_with_the_original_error(autojump_clock, crashing):
    bodies, store, clock = Bodies(), WatchedStore(), FailingClock()
    bug = Bug()

    async def block() -> None:
        async with open_engine(bodies.jobs, store, clock=clock) as engine:
            await engine.submit("wait", handle="ann", params={})
            await engine.submit("wait", handle="ann", params={}, on_conflict="queue")
            await trio.sleep(1)
            if crashing == "store":
                store.fails["commit"] = bug
            else:
                clock.fails = bug
            with pytest.raises((Unavailable, trio.Cancelled)):
                await engine.submit("wait", handle="bob", params={})
            await trio.sleep(PATIENCE)

    assert await what_comes_out(block) is bug
    assert store.closed == 1
    assert trio.current_time() < 60  # a body gets at most its grace


async def test_an_actor_that_crashes_while_the_block_is_left_stops_the_engine_with_that_error(autojump_clock):
    bodies, store = Bodies(), WatchedStore()
    bug = Bug()

    async def block() -> None:
        async with open_engine(bodies.jobs, store) as engine:
            await engine.submit("wait", handle="ann", params={})
            await trio.sleep(1)
            store.fails["commit"] = bug

    assert await what_comes_out(block) is bug


async def test_a_crash_is_logged_with_the_actor_and_the_types_and_ids_of_its_messages(autojump_clock, caplog):
    bodies, store, ids = Bodies(), WatchedStore(), []
    caplog.set_level(logging.CRITICAL, "greenroom")

    async def block() -> None:
        async with open_engine(bodies.jobs, store) as engine:
            ticket = await engine.submit("wait", handle="ann", params={"secret": "xyzzy"})
            ids.append(ticket.id)
            await trio.sleep(1)
            store.fails["commit"] = Bug("the cause")
            bodies.end(ticket)
            await trio.sleep(PATIENCE)

    assert isinstance(await what_comes_out(block), Bug)
    (record,) = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "journal" in record.getMessage()
    assert f"Change({ids[0]})" in record.getMessage()
    assert "xyzzy" not in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], Bug)


@pytest.mark.parametrize("crashing", [True, False])
async def test_callers_outside_the_block_receive_unavailable_when_the_engine_stops(autojump_clock, crashing):
    """They wait for a run's end, for the release of a slot, and (during the stop) for a commit."""
    bodies, store = Bodies(), WatchedStore()
    outcomes: dict[str, BaseException | Any] = {}

    async def note(what: str, call: Any) -> None:
        try:
            outcomes[what] = await call()
        except Exception as error:
            outcomes[what] = error

    async with trio.open_nursery() as outside:
        try:
            async with open_engine(bodies.jobs, store, shutdown_timeout=2) as engine:
                executing = await engine.submit("wait", handle="ann", params={})
                queued = await engine.submit("wait", handle="ann", params={}, on_conflict="queue")
                outside.start_soon(note, "result", executing.result)
                outside.start_soon(note, "queued result", queued.result)
                outside.start_soon(note, "wait_for_active", engine.wait_for_active)
                await trio.sleep(1)
                if crashing:
                    store.fails["commit"] = Bug()
                    outside.start_soon(note, "drain", engine.drain)
                    await trio.sleep(PATIENCE)
        except Bug:
            pass
        with trio.fail_after(1):
            await note("submit", lambda: engine.submit("wait", handle="cleo", params={}))
            await note("get_run", lambda: engine.get_run(queued.id))
            await note("late result", queued.result)

    assert trio.current_time() < 60
    assert isinstance(outcomes.pop("submit"), Unavailable)
    assert isinstance(outcomes.pop("get_run"), Unavailable)
    assert isinstance(outcomes.pop("late result"), Unavailable)
    assert isinstance(outcomes.pop("queued result"), Unavailable)
    if crashing:
        assert {type(error) for error in outcomes.values()} == {Unavailable}
    else:
        assert outcomes["wait_for_active"] is True


async def test_the_collector_of_the_host_program_is_left_alone(monkeypatch, tmp_path):
    touched: list[str] = []
    for name in ("disable", "enable", "freeze", "unfreeze", "set_threshold", "collect"):
        monkeypatch.setattr(gc, name, lambda *_, name=name: touched.append(name))
    store = f"sqlite:///{tmp_path / 'store.db'}"
    for _ in range(2):
        async with open_engine(Bodies().jobs, store, data_dir=tmp_path, max_concurrent=0) as engine:
            await engine.submit("wait", handle=f"h{len(await engine.list_runs())}", params={})
    assert touched == []
