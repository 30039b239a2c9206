"""Signals: values that callers write into a flow's shared data at any time."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from greenroom import Jobs, Run
from greenroom.errors import Conflict, Invalid, NoActiveRun, NotFound, NotInteractive, TooLarge
from greenroom.protocol.events import RunLog, RunSignal
from tests.support import open_engine, until_status

from .definitions import Definition
from .restarts import Lives
from .walking import Calls, ended, flow, local, node, start, until_waiting, walk

LOOK = local("echo", {"flag": "$shared.flag"}, "seen")
WAIT = node("wait_event", params={"signal_key": "flag"})


def slow(seconds: float = 10) -> Definition:
    return local("sleep", "$params.seconds", params={"seconds": seconds}, timeout_ms=1e7)


@pytest.mark.usefixtures("each_store")
async def test_a_signal_is_kept_until_the_walk_arrives_at_the_wait(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, flow("a w", a=slow(), w=WAIT), {"seconds": 10})
        await trio.sleep(5)
        await engine.signal(ticket.id, "flag", "early")
        task = await engine.flows.task(ticket.id)
        assert task.shared == {"flag": "early"}
        assert task.node == "a"
        began = trio.current_time()
        done = await ended(engine, ticket)
        assert done.result == {"flag": "early"}
        assert trio.current_time() - began == pytest.approx(5, abs=0.1)


async def test_a_node_in_flight_does_not_see_it_but_the_next_one_does(autojump_clock: MockClock) -> None:
    first = local("sleep", "$params.seconds", "slept")
    async with open_engine(Calls().jobs) as engine:
        both = flow("l a, a m", l=LOOK, a=first, m={**LOOK, "post": {"output_key": "later"}})
        ticket = await start(engine, both, {"seconds": 10})
        await trio.sleep(5)
        await engine.signal(ticket.id, "flag", 1)
        done = await ended(engine, ticket)
        assert done.result == {"seen": {"flag": None}, "slept": 10, "flag": 1, "later": {"flag": 1}}


async def test_the_last_of_several_counts_and_all_are_in_the_history(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, flow("a l", a=slow(), l=LOOK), {"seconds": 10})
        for number in range(5):
            await engine.signal(ticket.id, "flag", number, by="the till")
        done = await ended(engine, ticket)
        assert done.result["seen"] == {"flag": 4}
        signals = [event for event in await engine.history(ticket.id) if isinstance(event, RunSignal)]
        assert [(event.key, event.value, event.by) for event in signals] == [
            ("flag", number, "the till") for number in range(5)
        ]


async def test_signals_set_nested_keys_and_create_missing_objects(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, flow("a b", a=slow(), b=local("echo")), {"seconds": 10})
        for key, value in (("a.b", 1), ("$shared.a.c", [1]), ("a.c[1]", 2), ('$shared["x y"].z', 3)):
            await engine.signal(ticket.id, key, value)
        assert (await ended(engine, ticket)).result == {"a": {"b": 1, "c": [1, 2]}, "x y": {"z": 3}}


async def test_a_signal_that_cannot_be_stored_is_logged_and_the_flow_continues(
    autojump_clock: MockClock,
) -> None:
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, flow("a b", a=slow(), b=local("echo")), {"seconds": 10})
        await engine.signal(ticket.id, "flag", 1)
        await engine.signal(ticket.id, "flag.deeper", 2)
        await engine.signal(ticket.id, "other", 3)
        assert (await engine.flows.task(ticket.id)).shared == {"flag": 1, "other": 3}
        assert (await ended(engine, ticket)).result == {"flag": 1, "other": 3}
        [log] = [event for event in await engine.history(ticket.id) if isinstance(event, RunLog)]
        assert log.level == "warning"
        assert '"flag.deeper" could not be stored in shared' in log.text


async def test_changes_that_a_flow_makes_to_a_signal_do_not_change_its_event(
    autojump_clock: MockClock,
) -> None:
    write = local("echo", {"y": 1}, "flag.x")
    async with open_engine(Calls().jobs) as engine:
        inner = node("subflow", out="s", subflow=flow("w b", w=WAIT, b=write))
        ticket = await start(engine, flow("s l", s=inner, l=LOOK))
        await until_waiting(engine, ticket)
        await engine.signal(ticket.id, "flag", {"x": 0})
        done = await ended(engine, ticket)
        assert done.result == {"flag": {"x": 0}, "s": {"flag": {"x": {"y": 1}}}, "seen": {"flag": {"x": 0}}}
        [event] = [event for event in await engine.history(ticket.id) if isinstance(event, RunSignal)]
        assert event.value == {"x": 0}


async def test_every_level_of_subflows_receives_a_signal(autojump_clock: MockClock) -> None:
    inner = node("subflow", out="inner", subflow=flow("w l", w=WAIT, l=LOOK))
    outer = node("subflow", out="outer", subflow=flow("", i=inner))
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, flow("o l", o=outer, l=LOOK))
        await until_waiting(engine, ticket)
        await engine.signal(ticket.id, "flag", 1)
        done = await ended(engine, ticket)
        seen = {"flag": 1, "seen": {"flag": 1}}
        assert done.result == {**seen, "outer": {"flag": 1, "inner": seen}}


async def test_a_signal_to_a_queued_run_waits_with_it(autojump_clock: MockClock) -> None:
    lives = Lives(Calls().jobs, max_concurrent=1)
    async with lives.clean() as engine:
        await engine.set_concurrency("main", 0)
        ticket = await start(engine, flow("w l", w=WAIT, l=LOOK))
        second = await engine.flows.start("flow", handle=f"task:{ticket.id}", on_conflict="queue")
        for id in (ticket.id, second.id):
            await engine.signal(id, "flag", id)
            assert (await engine.get_run(id)).status == "queued"
            assert (await engine.flows.task(id)).shared == {"flag": id}
    async with lives.clean() as engine:
        await engine.set_concurrency("main", None)
        for id in (ticket.id, second.id):
            assert (await ended(engine, id)).result == {"flag": id, "seen": {"flag": id}}


@pytest.mark.parametrize("how", ["clean", "crash"])
async def test_signals_that_were_not_taken_are_kept_over_a_restart(
    how: str, autojump_clock: MockClock
) -> None:
    lives = Lives(Calls().jobs)
    async with getattr(lives, how)() as engine:
        ticket = await start(engine, flow("a w, w l", a=slow(), w=WAIT, l=LOOK), {"seconds": 10})
        await trio.sleep(1)
        await engine.signal(ticket.id, "flag", 1)
    async with lives.clean() as engine:
        assert (await engine.flows.task(ticket.id)).shared == {"flag": 1}
        await engine.signal(ticket.id, "other", 2)
        assert (await ended(engine, ticket.id)).result == {"flag": 1, "other": 2, "seen": {"flag": 1}}


@pytest.mark.parametrize("first", [WAIT, slow(5)], ids=["after a wait", "after a node that took its time"])
async def test_items_of_a_batch_in_flight_do_not_change_over_a_crash(
    first: Definition, autojump_clock: MockClock
) -> None:
    """The signal arrives when some of the items are done; after the restart it must not change the others."""
    calls = Calls()
    lives = Lives(calls.jobs)
    each = node("foreach", "$shared.flag", "out", exec_type="local", func="sleep")
    async with lives.crash() as engine:
        ticket = await start(engine, flow("a f, f l", a=first, f=each, l=LOOK))
        await trio.sleep(1)
        await engine.signal(ticket.id, "flag", [1, 2, 100])
        await trio.sleep(10)
        await engine.signal(ticket.id, "flag", [5, 6, 7, 8])
        await trio.sleep(1)
    async with lives.clean() as engine:
        done = await ended(engine, ticket.id)
        assert calls.of("sleep")[-4:] == [1, 2, 100, 100]
        assert done.result["out"] == [1, 2, 100]
        assert done.of("f")[0].prep == [1, 2, 100]
        assert done.result["seen"] == {"flag": [5, 6, 7, 8]}


# Refused signals.


async def test_an_ended_run_takes_no_signals(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        done = await walk(engine, flow("", l=LOOK))
        with pytest.raises(NoActiveRun, match="is succeeded: it no longer takes signals"):
            await engine.signal(done.run.id, "flag", 1)
        with pytest.raises(NotFound):
            await engine.signal("nobody", "flag", 1)


async def test_only_flows_take_signals_and_flows_take_no_messages(autojump_clock: MockClock) -> None:
    jobs = Calls().jobs

    @jobs.job("plain")
    async def plain(run: Run) -> None:
        await trio.sleep(100)

    async with open_engine(jobs) as engine:
        ticket = await engine.submit("plain", handle="a")
        await until_status(engine, ticket, "running")
        with pytest.raises(Conflict, match="only flows do"):
            await engine.signal(ticket.id, "flag", 1)
        walking = await start(engine, flow("a b", a=slow(), b=LOOK), {"seconds": 10})
        await trio.sleep(1)
        with pytest.raises(NotInteractive):
            await engine.inject(walking.id, {"a": "message"})
        assert (await ended(engine, walking)).result == {"seen": {"flag": None}}


@pytest.mark.parametrize(
    "key", ["_rt", "_rt.tm:t", '$shared["_rt.sf:s"]', "$params.x", "$input", "$shared", "a..b"]
)
async def test_keys_that_cannot_be_written_are_refused(key: str, autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, flow("", w=WAIT))
        with pytest.raises(Invalid):
            await engine.signal(ticket.id, key, 1)
        assert (await engine.flows.task(ticket.id)).shared.get("flag") is None


async def test_values_that_are_not_json_or_too_large_are_refused(autojump_clock: MockClock) -> None:
    async with open_engine(Jobs(), max_value_bytes=1000) as engine:
        ticket = await start(engine, flow("", w=WAIT))
        with pytest.raises(Invalid):
            await engine.signal(ticket.id, "flag", {1, 2})
        with pytest.raises(TooLarge):
            await engine.signal(ticket.id, "flag", "x" * 2000)
        await engine.signal(ticket.id, "flag", 1)
        assert (await ended(engine, ticket)).result == {"flag": 1}


@pytest.mark.parametrize("kind", ["wait_event", "approval", "timer"])
async def test_an_unrelated_signal_wakes_no_run(kind: str, autojump_clock: MockClock) -> None:
    params = {"signal_key": "a.b", "approval_key": "a.b", "delay_ms": 1e6}
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, flow("", w=node(kind, params=params)))
        await until_waiting(engine, ticket)
        before = await engine.history(ticket.id)
        for key in ("other", "a.c", "a.bb", "b.a", "w"):
            await engine.signal(ticket.id, key, 1)
        await trio.sleep(1)
        told = (await engine.history(ticket.id))[len(before) :]
        assert [type(event) for event in told] == [RunSignal] * 5


async def test_a_signal_wakes_the_right_run_of_many(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs, max_concurrent=2) as engine:
        await engine.flows.publish("flow", flow("", w=WAIT))
        tickets = [await engine.flows.start("flow") for _ in range(100)]
        await until_waiting(engine, tickets[-1])
        await trio.sleep(1)
        for ticket in tickets[::10]:
            await engine.signal(ticket.id, "flag", ticket.id)
        await trio.sleep(1)
        for ticket in tickets:
            run: Any = await engine.get_run(ticket.id)
            if ticket in tickets[::10]:
                assert run.result == {"flag": ticket.id}
            else:
                assert run.status == "suspended"
