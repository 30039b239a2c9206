"""Any sequence of messages of one executor: the engine survives it, and the runs of another succeed."""

import json
import logging
from contextlib import suppress

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.errors import GreenroomError
from tests.support import use_place

from .scripted import ENDED, live
from .worlds import TTL, world

numbers = st.one_of(st.integers(0, 8), st.sampled_from([-1, 2**31, 2**53, 2**63, 10**30]))
texts = st.sampled_from(["", "a", "1", "2", "c", "../x", "\0", "x" * 5000, "é"])
values = st.sampled_from([None, 0, -1, 1.5, "x", "\0", [], {}, {"a": [1]}, 2**64, "x" * 2000])
seconds = st.sampled_from([None, 0, 0.5, -1, 100, 1e308])
bodies = st.integers(0, 3)
"""The index of one of the bodies that the executor was sent, or of another one."""

requests = st.one_of(
    st.fixed_dictionaries({"type": st.just("log"), "text": texts, "level": texts}),
    st.fixed_dictionaries(
        {"type": st.just("checkpoint"), "value": values, "interrupts": numbers, "calls": numbers}
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("release_slot"),
            "waiting_for": st.sampled_from(["time", "child", "message", "x"]),
            "within": seconds,
        }
    ),
    st.just({"type": "take_slot"}),
    st.fixed_dictionaries(
        {
            "type": st.just("interrupt"),
            "data": values,
            "timeout": seconds,
            "key": texts,
            "release_slot": st.booleans(),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("phase"),
            "name": st.sampled_from(["interactive", "streaming", "compacting"]),
            "value": st.booleans(),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("call_child"),
            "position": numbers,
            "job": st.sampled_from(["once", "missing"]),
            "handle": texts,
            "params": st.just({}),
            "options": st.sampled_from(
                [{}, {"on_conflict": "join"}, {"on_conflict": "replace"}, {"by": "x"}]
            ),
        }
    ),
    st.fixed_dictionaries({"type": st.just("await_child"), "run": texts}),
    st.fixed_dictionaries({"type": st.just("finish_file"), "path": texts}),
    st.fixed_dictionaries({"type": st.just("give_up_files"), "paths": st.lists(texts, max_size=3)}),
)
reports = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("progress"), "done": seconds, "total": seconds, "stats": st.just({"a": 1})}
    ),
    st.fixed_dictionaries({"type": st.just("took"), "seq": numbers}),
    st.fixed_dictionaries({"type": st.just("withdraw"), "key": texts}),
    st.fixed_dictionaries({"type": st.just("drop_child"), "run": texts}),
    st.fixed_dictionaries({"type": st.just("blocked"), "seconds": seconds, "where": texts}),
)
messages = st.one_of(
    st.fixed_dictionaries({"type": st.just("call"), "call": st.integers(0, 5), "request": requests}),
    st.fixed_dictionaries({"type": st.just("cancel_call"), "call": st.integers(0, 5)}),
    st.fixed_dictionaries({"type": st.just("report"), "report": reports}),
    st.fixed_dictionaries(
        {
            "type": st.just("ended"),
            "outcome": st.sampled_from(["returned", "raised", "stopped", "lapsed", "refused"]),
            "value": values,
            "error": texts,
            "retry_after": seconds,
            "obeyed": st.booleans(),
        }
    ),
    st.fixed_dictionaries({"type": st.just("draining"), "now": st.booleans()}),
    st.fixed_dictionaries({"type": st.just("files_deleted"), "id": numbers}),
    st.fixed_dictionaries({"type": st.just("function_ended"), "id": numbers, "value": values}),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.lists(st.tuples(bodies, messages), min_size=1, max_size=4)),
        st.tuples(st.just("attach"), st.booleans()),
        st.tuples(st.just("sleep"), st.sampled_from([0.1, 5.0, TTL + 1])),
        st.tuples(st.just("cancel"), st.integers(0, 2)),
        st.tuples(st.just("inject"), st.integers(0, 2)),
        st.tuples(st.just("lie"), st.sampled_from([{"first": 0}, {"first": 99}, {"ack": 99}, {"first": 1}])),
    ),
    max_size=12,
)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=steps)
def test_no_sequence_of_messages_harms_others(caplog, store, script):
    use_place(store)
    caplog.clear()
    try:
        trio.run(play, script, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        use_place("memory")
    for record in caplog.records:
        assert record.levelno < logging.CRITICAL, record.getMessage()
        assert record.exc_info is None, record.getMessage()


async def play(script):
    """Play a script against an engine with an honest executor beside the hostile one."""
    async with world(max_concurrent=20) as home:
        honest = await home.executor("honest", "gpu", labels=["gpu"], slots=None)
        hostile = await home.executor("hostile")
        honest_run = await home.engine.submit("gpu", handle="honest", params={})
        body = await honest.receive("execute")
        tickets = [
            await home.engine.submit(job, handle=job, params={}) for job in ("work", "once", "resumable")
        ]
        known = [await hostile.receive("execute") for _ in tickets]
        for action, argument in script:
            known += [each for each in hostile.pending if each["type"] == "execute" and each not in known]
            with suppress(*ENDED):
                await act(home, hostile, [*known[-3:], body], tickets, action, argument)
            await trio.testing.wait_all_tasks_blocked()
        await honest.ask(body, "log", text="still here", level="info")
        await honest.end(body, value="right")
        assert await honest_run.result() == "right"
        await hostile.leave()
        await trio.sleep(TTL + 1)
        await home.attach(honest, resume=True)
        await finish(home, honest, tickets)
        runs = (await home.engine.snapshot()).runs
        assert all(run.ended for run in runs.values())
        another, again = await home.begin(honest, "once", handle="after")
        await honest.end(again, value=1)
        assert await another.result() == 1


async def act(home, hostile, known, tickets, action, argument):
    match action:
        case "send":
            about = ({"run": known[index]["run"], "fence": known[index]["fence"]} for index, _ in argument)
            await hostile.send(*(message | each for each, (_, message) in zip(about, argument, strict=True)))
        case "attach":
            await home.attach(hostile, resume=argument, bodies=[live(each) for each in known])
        case "sleep":
            await trio.sleep(argument)
        case "cancel":
            if not (await home.run(tickets[argument])).ended:
                with trio.move_on_after(1):
                    await quietly(tickets[argument].cancel)
        case "inject":
            await quietly(home.engine.inject, tickets[argument].id, "hello")
        case "lie":
            frame = {"type": "frame", "first": hostile.sent + 1, "ack": hostile.received} | argument
            await hostile.raw(json.dumps(frame).encode())


async def quietly(call, *arguments):
    """Call a command that the engine can refuse."""
    with suppress(GreenroomError):
        await call(*arguments)


async def finish(home, honest, tickets):
    """Let the honest executor execute all runs; cancel those that wait for something."""
    with trio.fail_after(10_000):
        while pending := [run for run in (await home.engine.snapshot()).runs.values() if not run.ended]:
            while honest.has("execute"):
                await honest.end(await honest.receive("execute"), value="honest")
            for run in pending:
                if run.waiting_for not in (None, "slot", "executor"):
                    await quietly(home.engine.cancel, run.id)
            await trio.sleep(10)
