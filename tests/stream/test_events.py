"""Following the events: from now or from a seq on, all or filtered, in time or too late."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from greenroom import Engine, Run, Ticket, open_engine
from greenroom.errors import Draining, GreenroomError, HandleLocked, Invalid, NoActiveRun
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.store import Batch
from greenroom.protocol.events import Event, EventBase, Filter
from greenroom.protocol.fold import fold
from greenroom.protocol.records import Snapshot

from ..support import Bodies

RING = 8192
"""How many of the latest events are available without a snapshot."""


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


class GatedStore(MemoryStore):
    """While it is shut, commits wait."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Batch] = []
        self._gate = trio.Event()
        self._gate.set()

    def shut(self) -> None:
        self._gate = trio.Event()

    def let_through(self) -> None:
        self._gate.set()

    async def commit(self, batch: Batch) -> None:
        await self._gate.wait()
        await super().commit(batch)
        self.batches.append(batch)

    @property
    def committed(self) -> int:
        return max((event.seq for batch in self.batches for event in batch.events), default=0)


async def some_events(engine: Engine, count: int) -> None:
    """Commit at least this many events."""
    for number in range(count):
        await engine.set_params("someone", {"number": number})


async def many_events(engine: Engine, count: int) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(engine.set_params, "someone", {"number": number})


async def take(events: AsyncIterator[Event | Snapshot], count: int) -> list[Any]:
    return [await anext(events) for _ in range(count)]


# From where.


async def test_events_from_now_on_are_those_after_the_call(bodies, autojump_clock):
    async with open_engine(bodies.jobs, "memory:") as engine:
        await some_events(engine, 3)
        seq = (await engine.snapshot()).seq
        events = engine.events()
        await some_events(engine, 2)

        assert [event.seq for event in await take(events, 2)] == [seq + 1, seq + 2]


async def test_events_after_a_number_are_those_that_follow_it(bodies, autojump_clock):
    async with open_engine(bodies.jobs, "memory:") as engine:
        first = (await engine.snapshot()).seq
        await some_events(engine, 5)

        assert [event.seq for event in await take(engine.events(after=first + 2), 3)] == [
            first + 3,
            first + 4,
            first + 5,
        ]


async def test_events_after_the_last_one_are_awaited(bodies, autojump_clock):
    async with open_engine(bodies.jobs, "memory:") as engine:
        await some_events(engine, 1)
        seq = (await engine.snapshot()).seq
        events = engine.events(after=seq)
        with trio.move_on_after(10) as waiting:
            await anext(events)
        await some_events(engine, 1)

        assert waiting.cancelled_caught
        assert (await anext(events)).seq == seq + 1


async def test_a_future_seq_starts_with_a_snapshot(bodies, autojump_clock):
    async with open_engine(bodies.jobs, "memory:") as engine:
        seq = (await engine.snapshot()).seq
        events = engine.events(after=seq + 1000)

        snapshot = await anext(events)
        await some_events(engine, 1)

        assert isinstance(snapshot, Snapshot)
        assert (snapshot.seq, snapshot.type) == (seq, "snapshot")
        assert (await anext(events)).seq == seq + 1


async def test_seqs_have_no_gap_and_times_never_go_back(bodies, autojump_clock):
    async with open_engine(bodies.jobs, "memory:") as engine:
        events = engine.events()
        tickets = [await engine.submit("wait", handle=f"h{n}", params={}) for n in range(20)]
        await trio.sleep(1)
        bodies.end(*tickets)
        for ticket in tickets:
            await ticket.result()
        last = (await engine.snapshot()).seq
        seen = [await anext(events)]
        while seen[-1].seq < last:
            seen.append(await anext(events))

    assert [event.seq for event in seen] == list(range(seen[0].seq, last + 1))
    assert [event.at for event in seen] == sorted(event.at for event in seen)


async def test_every_reader_gets_every_event_at_its_own_pace(bodies, autojump_clock):
    async with open_engine(bodies.jobs, "memory:") as engine:
        quick, slow = engine.events(), engine.events()
        seen = []
        for _ in range(3):
            await some_events(engine, 10)
            seen += await take(quick, 10)

        assert await take(slow, 30) == seen


# Filters.


async def events_of_two_runs(engine: Engine, bodies: Bodies) -> tuple[Ticket, Ticket, int]:
    """The events of two complete runs in different handles and lanes."""
    seq = (await engine.snapshot()).seq
    one = await engine.submit("wait", handle="ann", lane="main", params={})
    other = await engine.submit("wait", handle="bob", lane="side", params={})
    await engine.set_params("cleo", {"a": 1})
    await engine.set_max_concurrent(5)
    bodies.end(one, other)
    await one.result()
    await other.result()
    return one, other, seq


@pytest.mark.parametrize("as_mapping", [True, False])
@pytest.mark.parametrize(
    ("by", "passes"),
    [
        ("handles", lambda event: getattr(event, "handle", "ann") == "ann"),
        ("lanes", lambda event: getattr(event, "lane", "main") == "main"),
        ("types", lambda event: event.type == "run_state_changed"),
    ],
)
async def test_a_filter_lets_through_what_fits_and_what_has_no_such_field(
    bodies, by, passes, as_mapping, autojump_clock
):
    wanted = {"handles": ["ann"], "lanes": ["main"], "types": ["run_state_changed"]}[by]
    async with open_engine(bodies.jobs, "memory:") as engine:
        _, _, seq = await events_of_two_runs(engine, bodies)
        last = (await engine.snapshot()).seq
        everything = await take(engine.events(after=seq), last - seq)
        expected = [event for event in everything if passes(event)]
        filter: Any = {by: wanted} if as_mapping else Filter(**{by: frozenset(wanted)})

        assert await take(engine.events(seq, filter), len(expected)) == expected
        assert len(expected) < len(everything)


async def test_a_filter_by_run_lets_through_its_events_and_those_of_no_run(bodies, autojump_clock):
    async with open_engine(bodies.jobs, "memory:") as engine:
        one, other, seq = await events_of_two_runs(engine, bodies)
        last = (await engine.snapshot()).seq
        everything = await take(engine.events(after=seq), last - seq)
        expected = [event for event in everything if getattr(event, "run", None) != other.id]

        seen = await take(engine.events(seq, {"runs": [one.id]}), len(expected))

    assert seen == expected
    assert {getattr(event, "run", None) for event in seen} == {one.id, None}


async def test_a_filter_by_several_things_lets_through_what_fits_all(bodies, autojump_clock):
    async with open_engine(bodies.jobs, "memory:") as engine:
        one, _, seq = await events_of_two_runs(engine, bodies)
        filter = {"handles": ["ann"], "types": ["run_state_changed"]}
        events = engine.events(seq, filter)

        seen = await take(events, 3)

    assert [(event.run, event.to) for event in seen] == [
        (one.id, "queued"),
        (one.id, "running"),
        (one.id, "succeeded"),
    ]
    assert [event async for event in events] == []


@pytest.mark.parametrize("filter", [{"handle": ["ann"]}, {"handles": 7}, {"types": [1]}, ["handles"]])
async def test_a_filter_of_another_form_is_refused(bodies, filter, autojump_clock):
    async with open_engine(bodies.jobs, "memory:") as engine:
        with pytest.raises(Invalid):
            engine.events(filter=filter)


# Too slow.


async def test_a_reader_that_is_a_whole_ring_behind_still_gets_every_event(bodies, autojump_clock):
    async with open_engine(bodies.jobs, "memory:") as engine:
        seq = (await engine.snapshot()).seq
        events = engine.events()
        await many_events(engine, RING)

        seen = await take(events, RING)

    assert [event.seq for event in seen] == list(range(seq + 1, seq + RING + 1))


async def test_a_reader_that_falls_out_of_the_ring_receives_a_snapshot_and_continues(bodies, autojump_clock):
    async with open_engine(bodies.jobs, "memory:") as engine:
        events = engine.events()
        await many_events(engine, RING + 1)

        snapshot = await anext(events)
        expected = await engine.snapshot()
        await some_events(engine, 2)
        after = await take(events, 2)

        assert snapshot == expected
        assert [event.seq for event in after] == [snapshot.seq + 1, snapshot.seq + 2]
        assert fold(snapshot, after) == await engine.snapshot()


async def test_a_reader_that_falls_out_of_the_ring_while_it_reads_misses_nothing(bodies, autojump_clock):
    async with open_engine(bodies.jobs, "memory:") as engine:
        first = await engine.snapshot()
        events = engine.events()
        await many_events(engine, 1000)
        state = fold(first, await take(events, 10))
        await many_events(engine, RING)
        last = await engine.snapshot()
        snapshots = 0
        while state.seq < last.seq:
            event = await anext(events)
            snapshots += isinstance(event, Snapshot)
            state = event if isinstance(event, Snapshot) else fold(state, [event])

        assert snapshots == 1
        assert state == last


async def test_tasks_that_share_an_iterator_receive_each_event_once(bodies, autojump_clock):
    received: list[int] = []
    ended: list[int] = []

    async def read(events: AsyncIterator[Event | Snapshot]) -> None:
        async for event in events:
            received.append(event.seq)
        ended.append(len(received))

    async with open_engine(bodies.jobs, "memory:") as engine, trio.open_nursery() as nursery:
        first = (await engine.snapshot()).seq
        events = engine.events()
        for _ in range(3):
            nursery.start_soon(read, events)
        for _ in range(5):
            await some_events(engine, 4)
            await trio.testing.wait_all_tasks_blocked()
        assert sorted(received) == list(range(first + 1, first + 21))
        assert ended == []
        nursery.cancel_scope.cancel()


async def test_a_seq_before_the_ring_starts_with_a_snapshot(bodies, autojump_clock):
    async with open_engine(bodies.jobs, "memory:") as engine:
        seq = (await engine.snapshot()).seq
        await many_events(engine, RING + 1)

        assert isinstance(await anext(engine.events(after=seq)), Snapshot)
        assert isinstance(await anext(engine.events(after=seq + 1)), EventBase)


async def test_a_reader_that_never_reads_delays_no_other(bodies, autojump_clock):
    async with open_engine(bodies.jobs, "memory:") as engine:
        idle = [engine.events() for _ in range(100)]
        await many_events(engine, RING + 1)
        ticket = await engine.submit("wait", handle="ann", params={})
        bodies.end(ticket)

        assert await ticket.wait()
        assert isinstance(await anext(idle[0]), Snapshot)


# The end.


async def test_an_iteration_ends_with_the_engine_after_the_last_event(bodies, autojump_clock):
    seen: list[Any] = []

    async def follow(engine: Engine) -> None:
        async for event in engine.events():
            seen.append(event)

    async with (
        trio.open_nursery() as outside,
        open_engine(bodies.jobs, "memory:", shutdown_timeout=3) as engine,
    ):
        outside.start_soon(follow, engine)
        ticket = await engine.submit("wait", handle="ann", params={})
        await trio.sleep(1)

    assert [event.to for event in seen if event.run == ticket.id] == [
        "queued",
        "running",
        "cancelling",
        "cancelled",
    ]


async def test_what_there_is_can_still_be_read_when_the_engine_has_ended(bodies, autojump_clock):
    async with open_engine(bodies.jobs, "memory:") as engine:
        events = engine.events()
        await some_events(engine, 3)

    assert len([event async for event in events]) == 3
    assert [event async for event in events] == []


async def test_an_iteration_ends_with_an_engine_that_crashes(bodies, autojump_clock):
    class Broken(MemoryStore):
        broken = False

        async def commit(self, batch: Batch) -> None:
            assert not self.broken, "as asked"
            await super().commit(batch)

    store = Broken()
    ended = trio.Event()

    async def follow(engine: Engine) -> None:
        async for _ in engine.events():
            pass
        ended.set()

    async def crash() -> None:
        async with open_engine(bodies.jobs, store) as engine:
            outside.start_soon(follow, engine)
            await trio.sleep(1)
            store.broken = True
            await engine.set_params("ann", {})

    async with trio.open_nursery() as outside:
        with pytest.raises(AssertionError, match="as asked"):
            await crash()
        with trio.fail_after(10):
            await ended.wait()


# Durable before visible.


Act = Callable[[Engine, Ticket], Awaitable[Any]]

ACTS: dict[str, Act] = {
    "submit": lambda engine, _: engine.submit("wait", handle="new", params={}),
    "queue": lambda engine, _: engine.submit("wait", handle="ann", params={}, on_conflict="queue"),
    "cancel": lambda engine, ticket: engine.cancel(ticket.id),
    "inject": lambda engine, ticket: engine.inject(ticket.id, "hello"),
    "set_params": lambda engine, _: engine.set_params("new", {"a": 1}),
    "set_concurrency": lambda engine, _: engine.set_concurrency("side", 4),
    "set_max_concurrent": lambda engine, _: engine.set_max_concurrent(7),
    "clear_lane": lambda engine, _: engine.clear_lane("side"),
    "clear_handle": lambda engine, _: engine.clear_handle("waiting"),
    "reset_lanes": lambda engine, _: engine.reset_lanes(),
    "drain": lambda engine, _: engine.drain(),
    "resume": lambda engine, _: engine.resume(),
}
"""Commands that change something, for an engine in which a run executes, one is queued and one waits."""


async def with_runs(engine: Engine) -> Ticket:
    """A run that executes on handle `ann`, one that is queued in lane `side`, one that waits in `waiting`."""
    await engine.set_concurrency("side", 0)
    executing = await engine.submit("wait", handle="ann", params={})
    await engine.submit("wait", handle="waiting", lane="side", params={})
    await engine.submit("wait", handle="waiting", params={}, on_conflict="queue")
    await trio.testing.wait_all_tasks_blocked()
    return executing


@pytest.mark.parametrize("command", ACTS)
async def test_a_command_is_answered_when_it_is_committed_and_not_before(bodies, command, autojump_clock):
    store = GatedStore()
    answered = trio.Event()
    seen: list[Any] = []

    async def act() -> None:
        await ACTS[command](engine, executing)
        answered.set()

    async def follow() -> None:
        async for event in engine.events():
            assert event.seq <= store.committed
            seen.append(event)

    async with trio.open_nursery() as outside, open_engine(bodies.jobs, store, shutdown_timeout=1) as engine:
        executing = await with_runs(engine)
        outside.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        store.shut()
        outside.start_soon(act)
        await trio.testing.wait_all_tasks_blocked()
        assert not answered.is_set()
        assert not seen
        store.let_through()
        await trio.testing.wait_all_tasks_blocked()
        assert answered.is_set()
        assert seen


@pytest.mark.parametrize("command", ACTS)
async def test_a_command_that_was_answered_is_in_the_next_snapshot(bodies, command, autojump_clock):
    async with open_engine(bodies.jobs, "memory:", shutdown_timeout=1) as engine:
        executing = await with_runs(engine)
        before = await engine.snapshot()
        events = engine.events()

        answer = await ACTS[command](engine, executing)

        after = await engine.snapshot()
        event = await anext(events)
        assert before.seq < event.seq <= after.seq
        assert READ_BACK[command](after, executing, answer)


READ_BACK: dict[str, Callable[[Snapshot, Ticket, Any], bool]] = {
    "submit": lambda state, _, ticket: (
        ticket.id in state.runs and state.handles["new"].active_run == ticket.id
    ),
    "queue": lambda state, _, ticket: state.handles["ann"].waiting == [ticket.id],
    "cancel": lambda state, ticket, run: state.runs[ticket.id].status in ("cancelling", "cancelled"),
    "inject": lambda state, ticket, answer: answer == "accepted",
    "set_params": lambda state, *_: state.handles["new"].params == {"a": 1},
    "set_concurrency": lambda state, *_: state.lanes["side"].limit == 4,
    "set_max_concurrent": lambda state, *_: state.engine.max_concurrent == 7,
    "clear_lane": lambda state, _, count: count == 1 and not state.lanes["side"].queued,
    "clear_handle": lambda state, _, count: count == 1 and not state.handles["waiting"].waiting,
    "reset_lanes": lambda state, ticket, _: state.runs[ticket.id].detached and not state.engine.executing,
    "drain": lambda state, *_: state.engine.draining,
    "resume": lambda state, *_: not state.engine.draining,
}


async def test_a_result_is_known_when_it_is_committed_and_not_before(bodies, autojump_clock):
    store = GatedStore()
    known = trio.Event()

    async def wait(ticket: Ticket) -> None:
        await ticket.result()
        known.set()

    async with trio.open_nursery() as outside, open_engine(bodies.jobs, store) as engine:
        ticket = await engine.submit("wait", handle="ann", params={})
        outside.start_soon(wait, ticket)
        await trio.testing.wait_all_tasks_blocked()
        store.shut()
        bodies.end(ticket)
        await trio.testing.wait_all_tasks_blocked()
        assert not known.is_set()
        store.let_through()
        await trio.testing.wait_all_tasks_blocked()
        assert known.is_set()


async def test_what_a_body_logs_and_saves_is_committed_when_the_call_returns(bodies, autojump_clock):
    store = GatedStore()
    steps: list[str] = []

    @bodies.jobs.job("reports")
    async def reports(run: Run) -> None:
        await trio.sleep(1)
        await run.log("hello")
        steps.append("logged")
        await run.save_checkpoint(1)
        steps.append("saved")

    async with open_engine(bodies.jobs, store) as engine:
        ticket = await engine.submit("reports", handle="ann")
        await trio.sleep(0.5)
        store.shut()
        await trio.sleep(1)
        assert steps == []
        store.let_through()
        await ticket.result()
        assert steps == ["logged", "saved"]


REFUSALS: dict[str, tuple[type[GreenroomError], Act, Act]] = {
    "draining": (
        Draining,
        lambda engine, _: engine.drain(),
        lambda engine, _: engine.submit("wait", handle="new", params={}),
    ),
    "handle_locked": (
        HandleLocked,
        lambda engine, _: engine.submit("wait", handle="new", params={}),
        lambda engine, _: engine.set_params("new", {}),
    ),
    "not_interactive": (
        GreenroomError,
        lambda engine, ticket: engine.cancel(ticket.id),
        lambda engine, ticket: engine.inject(ticket.id, "hello"),
    ),
    "conflict": (
        GreenroomError,
        lambda engine, _: engine.submit("wait", handle="new", params={}),
        lambda engine, _: engine.submit("wait", handle="new", params={}),
    ),
    "conflict of a cancel": (
        GreenroomError,
        lambda engine, ticket: engine.cancel(ticket.id),
        lambda engine, ticket: engine.cancel(ticket.id),
    ),
}
"""An error, a command, and what is refused because of it."""


@pytest.mark.parametrize("code", REFUSALS)
async def test_a_refusal_that_names_what_is_being_committed_waits_for_the_commit(
    bodies, code, autojump_clock
):
    error, cause, refused = REFUSALS[code]
    store = GatedStore()
    heard: list[BaseException] = []

    async def act() -> None:
        await cause(engine, executing)

    async def be_refused() -> None:
        with pytest.raises(error) as raised:
            await refused(engine, executing)
        heard.append(raised.value)

    async with trio.open_nursery() as outside, open_engine(bodies.jobs, store, shutdown_timeout=1) as engine:
        executing = await with_runs(engine)
        store.shut()
        outside.start_soon(act)
        await trio.testing.wait_all_tasks_blocked()
        outside.start_soon(be_refused)
        await trio.testing.wait_all_tasks_blocked()
        assert not heard
        store.let_through()
        await trio.testing.wait_all_tasks_blocked()
        assert heard


async def test_a_handle_that_is_about_to_be_free_is_still_taken_for_everyone(bodies, autojump_clock):
    """Its run has ended, but that is not committed yet."""
    store = GatedStore()

    async def submit() -> None:
        accepted.append(await engine.submit("wait", handle="ann", params={}, on_conflict="queue"))

    accepted: list[Ticket] = []
    async with trio.open_nursery() as outside, open_engine(bodies.jobs, store, shutdown_timeout=1) as engine:
        first = await engine.submit("wait", handle="ann", params={})
        await trio.testing.wait_all_tasks_blocked()
        store.shut()
        bodies.end(first)
        await trio.testing.wait_all_tasks_blocked()
        outside.start_soon(submit)
        await trio.testing.wait_all_tasks_blocked()
        assert bodies.begun == [first.id]
        store.let_through()
        await trio.testing.wait_all_tasks_blocked()
        assert bodies.begun == [first.id, accepted[0].id]


async def test_an_inject_to_a_handle_whose_run_has_ended_is_refused_once_that_is_committed(
    bodies, autojump_clock
):
    async with open_engine(bodies.jobs, "memory:") as engine:
        ticket = await engine.submit("wait", handle="ann", params={})
        bodies.end(ticket)
        await ticket.result()

        with pytest.raises(NoActiveRun):
            await engine.inject("ann", "hello")
