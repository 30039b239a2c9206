"""Executors that break the protocol: they harm no run of others, and are disconnected."""

import json
import logging
import time
import tracemalloc

import pytest
import trio

from greenroom import Jobs
from greenroom.actors.executors import peer as peers
from greenroom.actors.executors import registry as registries
from greenroom.protocol.states import Status

from .scripted import ScriptedExecutor, about, ended, live
from .worlds import TTL, world

pytestmark = pytest.mark.usefixtures("store_kind")

FRAME = b'{"type":"frame","first":1,"ack":0,"messages":['


@pytest.fixture(autouse=True)
def no_errors(caplog):
    """The engine logs no unhandled exception."""
    caplog.set_level(logging.INFO)
    yield
    for record in caplog.records:
        assert record.levelno < logging.CRITICAL, record.getMessage()
        assert record.exc_info is None, record.getMessage()


async def others_succeed(home, honest):
    """The runs of the honest executor succeed, and it is still attached."""
    ticket = await home.engine.submit("gpu", handle="honest", params={})
    await honest.end(await honest.receive("execute"), value="honest")
    assert await ticket.result() == "honest"
    assert home.executors()["honest"] == "attached"


async def pair(home, *jobs, **fields):
    """An honest executor, which alone has the label gpu, and a hostile one."""
    return await home.executor("honest", labels=["gpu"]), await home.executor("hostile", *jobs, **fields)


def message(**fields):
    return FRAME + json.dumps(fields).encode() + b"]}"


def call(request, **fields):
    return message(type="call", run="r", fence=1, call=1, request=request, **fields)


@pytest.mark.parametrize(
    "frame",
    [
        b"", b"\0", b"{", b"[]", b"null", b"1", b'"attach"', b"\xff\xfe", b"{}" * 2,
        b'{"type":"steal"}', b'{"type":"frame"}', b'{"type":"attach","executor":"x","start":"y","jobs":[]}',
        b'{"type":"attach","executor":"\xff","start":"y","jobs":[]}',
        b'{"type":"beat","executor":"x","start":"y","sent":NaN}',
        b'{"type":"beat","executor":"x","start":"y","sent":1e999}',
        b'{"type":"beat","executor":"x","start":"y","sent":1%s}' % (b"0" * 400),
        b'{"type":"frame","first":1.0,"ack":0}', b'{"type":"frame","first":"1","ack":0}',
        b'{"type":"frame","first":2,"ack":0}', b'{"type":"frame","first":-1,"ack":0}',
        b'{"type":"frame","first":1,"ack":1}', b'{"type":"frame","first":1,"ack":-1}',
        b'{"type":"frame","first":1%s,"ack":0}' % (b"0" * 400),
        b'{"type":"frame","first":1,"ack":9223372036854775808}',
        FRAME + b'{"type":"ended","run":"r","fence":1,"outcome":"returned","value":%s}]}'
        % (b"[" * 100_000 + b"]" * 100_000),
        FRAME + b'{"type":"ended","run":"r","fence":1,"outcome":"returned","value":"\\ud800"}]}',
        FRAME + b'{"type":"ended","run":"r","fence":1,"outcome":"returned","value":1%s}]}' % (b"0" * 5000),
        message(type="ended", run="r", fence=1, outcome="won"),
        message(type="ended", run="r", fence=-1, outcome="stopped"),
        message(type="ended", run="r", fence=2**63, outcome="stopped"),
        message(type="ended", run=1, fence=1, outcome="stopped"),
        message(type="execute", run="r", fence=1),
        message(type="files_deleted", id=10**400),
        message(type="report", run="r", fence=1, report={"type": "took", "seq": -1}),
        message(type="report", run="r", fence=1, report={"type": "took", "seq": 10**30}),
        message(type="report", run="r", fence=1, report={"type": "progress", "done": "1", "total": 1}),
        call({"type": "release_slot", "waiting_for": "godot"}),
        call({"type": "phase", "name": "interactive", "value": 1}),
        call({"type": "checkpoint", "value": 1, "interrupts": -1, "calls": 0}),
        call({"type": "checkpoint", "value": 1, "interrupts": 0, "calls": 2**63}),
        call({"type": "call_child", "position": -1, "job": "once", "handle": "x"}),
        call({"type": "log", "text": 1, "level": "info"}),
    ],
)  # fmt: skip
async def test_a_malformed_frame_is_refused_and_the_connection_closed(autojump_clock, frame):
    async with world() as home:
        honest, hostile = await pair(home)
        await hostile.raw(frame)
        refused = await hostile.closed()
        assert refused["code"] == "invalid"
        assert refused["message"]
        await others_succeed(home, honest)


LARGE = "x" * (1 << 20)
CHILD = {"type": "call_child", "position": 1, "job": "once", "handle": "c"}
MANY = [f"name {number}" for number in range(1001)]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"executor": ""}, "executor must not be empty"), ({"executor": "x" * 257}, "257 characters"),
        ({"executor": "a\0"}, "non-printable"), ({"executor": 1}, "executor: expected string"),
        ({"executor": "local-1"}, "local-1"), ({"start": ""}, "start must not be empty"),
        ({"slots": 0}, "slots: expected integer >= 1"), ({"slots": -1}, "slots"),
        ({"slots": 10**400}, "slots"),
        ({"slots": 1.5}, "slots"), ({"labels": MANY}, "labels must contain at most 16 labels (got 1,001)"),
        ({"labels": ["a\n"]}, "label"), ({"labels": [f"l{n}" for n in range(100_000)]}, "got 100,000"),
        ({"functions": MANY}, "functions must have at most 1,000"), ({"functions": ["x" * 300]}, "function"),
        ({"jobs": [{"name": name} for name in MANY]}, "jobs must have at most 1,000 entries"),
        ({"jobs": [{"name": "\0"}]}, "job"), ({"jobs": [{"name": "flow"}]}, "reserved for flows"),
        ({"jobs": [{"name": "j", "lane": "\0"}]}, "lane"),
        ({"jobs": [{"name": "j", "max_attempts": 0}]}, "jobs[0].max_attempts"),
        ({"jobs": [{"name": "j", "max_attempts": 2**31}]}, "jobs[0].max_attempts"),
        ({"jobs": [{"name": "j", "run_timeout": -1}]}, "run_timeout must be"),
        ({"jobs": [{"name": "j", "queue_timeout": -1}]}, "queue_timeout must be"),
        ({"jobs": [{"name": "j", "deadline": -1}]}, "deadline must be"),
        ({"jobs": [{"name": "j", "grace": -1}]}, "grace must be"),
        ({"jobs": [{"name": "j", "backoff": -1}]}, "backoff must be"),
        ({"jobs": [{"name": "j", "needs": ["a", "a"]}]}, "needs"),
        ({"jobs": [{"name": "j", "cancel": "never"}]}, "jobs[0].cancel"),
        ({"jobs": [{"name": "j", "params": {"a": 2**64}}]}, "outside"),
        ({"jobs": [{"name": "j", "params": {"a": LARGE}}]}, "too large"),
        ({"folder": "a/\0"}, "folder"), ({"version": "\0"}, "version"), ({"received": -1}, "received"),
        ({"bodies": [{"run": "r", "attempt": 10**30, "fence": 1}]}, "bodies[0].attempt"),
        ({"bodies": [{"run": "r", "attempt": 1, "fence": -1}]}, "bodies[0].fence"),
    ],
)  # fmt: skip
async def test_an_attach_with_an_invalid_field_is_refused(autojump_clock, fields, named):
    async with world() as home:
        honest = await home.executor("honest", labels=["gpu"])
        hostile = ScriptedExecutor(home.engine)
        connection = hostile.connection = await hostile.connect(home.nursery)
        refused = await hostile.exchange(
            {"type": "attach", "executor": "x", "start": "y", "jobs": [], **fields}
        )
        assert (refused["type"], refused.get("retry", False)) == ("refused", False)
        assert named in refused["message"]
        with pytest.raises(trio.EndOfChannel):
            await connection.receive()
        await others_succeed(home, honest)


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ({"type": "log", "text": LARGE, "level": "info"}, "log: too large"),
        ({"type": "log", "text": "x", "level": "x" * 300}, "level"),
        ({"type": "log", "text": "x", "level": "\0"}, "level"),
        ({"type": "checkpoint", "value": LARGE, "interrupts": 0, "calls": 0}, "checkpoint: too large"),
        ({"type": "checkpoint", "value": 2**64, "interrupts": 0, "calls": 0}, "checkpoint"),
        ({"type": "release_slot", "waiting_for": "time", "within": -1}, "within"),
        ({"type": "interrupt", "data": LARGE, "timeout": None, "key": "1"}, "interrupt: too large"),
        ({"type": "interrupt", "data": 1, "timeout": -1, "key": "1"}, "timeout"),
        ({"type": "interrupt", "data": 1, "timeout": 1, "key": "\0"}, "key"),
        (CHILD | {"job": "nope"}, "nope"),
        (CHILD | {"handle": "\0"}, "handle"),
        (CHILD | {"params": LARGE}, "params"),
        (CHILD | {"options": {"kind": "x"}}, "kind"),
        (CHILD | {"options": {"lane": 1}}, "lane"),
        (CHILD | {"options": {"deadline": -1}}, "deadline"),
        ({"type": "await_child", "run": "a\0"}, "NUL"),
        ({"type": "finish_file", "path": "../x"}, "path must be a file inside"),
        ({"type": "finish_file", "path": "/etc/passwd"}, "path must be a file inside"),
        ({"type": "finish_file", "path": "a\0b"}, "path must be a file inside"),
        ({"type": "finish_file", "path": ""}, "path must be a file inside"),
        ({"type": "finish_file", "path": "x" * 10_000}, "path must have at most 4,096 bytes (got 10,000)"),
        ({"type": "give_up_files", "paths": ["a", "../x"]}, "path must be a file inside"),
        ({"type": "give_up_files", "paths": [str(n) for n in range(1001)]}, "paths must have at most 1,000"),
    ],
)  # fmt: skip
async def test_an_invalid_request_is_answered_with_an_error_and_the_body_continues(
    autojump_clock, request_, named
):
    async with world() as home:
        honest, hostile = await pair(home, "once")
        await honest.leave()  # so that the hostile one gets the body
        ticket, body = await home.begin(hostile, "once")
        await home.attach(honest, labels=["gpu"], resume=True)
        fields = {name: value for name, value in request_.items() if name != "type"}
        answer = await hostile.ask(body, request_["type"], **fields)
        assert answer["code"] in ("invalid", "too_large", "not_found"), answer
        assert named in answer["message"]
        assert (await hostile.ask(body, "log", text="x", level="info")).get("code") is None
        await hostile.end(body, value=1)
        assert await ticket.result() == 1
        await others_succeed(home, honest)


async def test_values_of_the_maximum_size_are_accepted(autojump_clock):
    async with world(max_value_bytes=1000) as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor)
        largest = "x" * 998
        for request in (
            {"request": "log", "text": largest, "level": "info"},
            {"request": "checkpoint", "value": largest, "interrupts": 0, "calls": 0},
        ):
            assert (await executor.ask(body, **request)).get("code") is None
        await executor.end(body, value=largest)
        assert await ticket.result() == largest


async def test_a_result_that_is_too_large_fails_the_attempt(autojump_clock):
    async with world(max_value_bytes=1000) as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor, "once")
        await executor.end(body, value="x" * 999)
        run = await home.until_status(ticket, Status.FAILED)
        assert "result: too large: 1001 bytes" in run.error


@pytest.mark.parametrize("report", [
    {"type": "progress", "done": 1, "total": 2, "stats": {"x": LARGE}},
    {"type": "progress", "done": 1, "total": 2, "stats": {"x": 2**64}},
    {"type": "blocked", "seconds": -1, "where": "x"},
    {"type": "blocked", "seconds": 1, "where": LARGE},
])  # fmt: skip
async def test_an_invalid_report_closes_the_connection(autojump_clock, report):
    async with world() as home:
        hostile = await home.executor("hostile")
        _ticket, body = await home.begin(hostile)
        await hostile.send(about(body, "report", report=report))
        assert (await hostile.closed())["code"] in ("invalid", "too_large")
        await others_succeed(home, await home.executor("honest", labels=["gpu"]))


# Bodies and runs of others.


async def test_reports_about_bodies_of_others_change_nothing(autojump_clock):
    async with world() as home:
        honest, hostile = await pair(home)
        ticket = await home.engine.submit("gpu", handle="h", params={})
        body = await honest.receive("execute")
        await honest.ask(body, "interrupt", data="Deploy?", timeout=100, key="1")
        before = (await home.engine.snapshot()).seq
        for fence in (body["fence"], body["fence"] + 1, 0):
            stolen = body | {"fence": fence}
            await hostile.send(
                about(stolen, "report", report={"type": "progress", "done": 9, "total": 9}),
                about(stolen, "report", report={"type": "withdraw", "key": "1"}),
                about(stolen, "report", report={"type": "drop_child", "run": ticket.id}),
                about(stolen, "cancel_call", call=1),
            )
            assert (await hostile.ask(stolen, "log", text="x", level="info"))["code"] == "abandoned"
            assert (await hostile.ask(stolen, "give_up_files", paths=["a"]))["code"] == "abandoned"
            await hostile.end(stolen, value="stolen")
        await trio.sleep(1)
        assert (await home.engine.snapshot()).seq == before
        await honest.end(body, value="right")
        assert await ticket.result() == "right"


async def test_only_its_own_child_runs_can_be_dropped(autojump_clock):
    async with world() as home:
        honest, hostile = await pair(home, "once")
        parent = await home.engine.submit("gpu", handle="h", params={})
        body = await honest.receive("execute")
        calling = {"position": 1, "job": "resumable", "handle": "c", "params": {}}
        child = (await honest.ask(body, "call_child", **calling))["value"]
        of_child = await honest.receive("execute")
        await honest.leave()
        ticket, own = await home.begin(hostile, "once", handle="mine")
        await home.attach(honest, labels=["gpu"], resume=True)
        for run in (child, parent.id, ticket.id, "missing"):
            await hostile.report(own, "drop_child", run=run)
        joined = await hostile.ask(own, "call_child", **calling | {"options": {"on_conflict": "join"}})
        assert joined["value"] == child
        await hostile.report(own, "drop_child", run=child)
        await hostile.end(own)
        await trio.sleep(1)
        assert (await home.run(parent)).status is Status.RUNNING
        assert (await home.engine.snapshot()).runs[child].status is Status.RUNNING
        await honest.end(of_child)
        await honest.end(body, value=1)
        assert await parent.result() == 1


@pytest.mark.parametrize("options", [
    {"by": "admin"}, {"parent": "other"}, {"ancestors": ["x"]}, {"job": "work", "handle": "other"},
])  # fmt: skip
async def test_options_that_a_body_cannot_set_are_refused(autojump_clock, options):
    async with world() as home:
        executor = await home.executor()
        _ticket, body = await home.begin(executor)
        calling = {"position": 1, "job": "once", "handle": "c", "params": {}, "options": options}
        answer = await executor.ask(body, "call_child", **calling)
        assert answer["code"] == "invalid"
        assert next(iter(options)) in answer["message"]
        assert len((await home.engine.snapshot()).runs) == 1


async def test_files_of_another_executor_cannot_be_confirmed_as_deleted(autojump_clock):
    async with world() as home:
        honest = await home.executor("honest", folder="a" * 32)
        ticket, body = await home.begin(honest, "once")
        await honest.ask(body, "finish_file", path="report.txt")
        hostile = await home.executor("hostile")
        await ticket.cancel(files="delete")
        await honest.end(body, "stopped")
        deletion = await honest.receive("delete_files")
        await hostile.send(*({"type": "files_deleted", "id": number} for number in range(10)))
        await trio.sleep(1)
        await home.attach(honest, folder="a" * 32, session=None)
        again = await honest.receive("delete_files")
        assert again["paths"] == deletion["paths"] == ["report.txt"]
        await honest.send({"type": "files_deleted", "id": again["id"]})
        await trio.sleep(1)
        await home.attach(honest, folder="a" * 32, session=None)
        await trio.sleep(1)
        assert honest.has("delete_files") == 0


# Numbers, repetitions, and what does not fit the state.


async def test_bodies_that_were_never_begun_can_end_any_number_of_times(autojump_clock):
    async with world() as home:
        honest, hostile = await pair(home)
        await hostile.send(*(ended({"run": f"r{n}", "fence": n}, value=n) for n in range(2000)))
        for _ in range(2000):
            await hostile.receive("settled")
        await others_succeed(home, honest)


async def test_a_body_that_has_ended_makes_no_calls(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor)
        await executor.send(
            ended(body, value=1),
            executor.calling(body, 1, "log", text="late", level="info"),
            executor.calling(body, 2, "take_slot"),
            about(body, "report", report={"type": "progress", "done": 1, "total": 1}),
            ended(body, value=2),
        )
        assert (await executor.answer(1))["code"] == "abandoned"
        assert (await executor.answer(2))["code"] == "abandoned"
        assert await ticket.result() == 1


@pytest.mark.parametrize("outcome", ["returned", "raised", "stopped", "lapsed", "refused"])
@pytest.mark.parametrize("state", ["begun", "interrupt", "released", "resuming", "child", "cancelling"])
async def test_a_body_can_end_in_any_state_with_any_outcome(autojump_clock, outcome, state):
    async with world() as home:
        hostile = await home.executor("hostile", slots=1)
        ticket, body = await home.begin(hostile)
        match state:
            case "interrupt":
                await hostile.ask(body, "interrupt", data=1, timeout=None, key="1", release_slot=True)
            case "released":
                await hostile.ask(body, "release_slot", waiting_for="time", within=1e308)
            case "resuming":
                await hostile.ask(body, "release_slot", waiting_for="child")
                await home.engine.submit("once", handle="other", params={})
                await hostile.receive("execute")
                await hostile.call(body, "take_slot")
                await hostile.call(body, "take_slot")
            case "child":
                await hostile.ask(body, "call_child", position=1, job="once", handle="c", params={})
            case "cancelling":
                await ticket.cancel()
        await hostile.end(body, outcome, error="e\0rror", value=1)
        await hostile.leave()
        honest = await home.executor("honest", "gpu", labels=["gpu"])
        await others_succeed(home, honest)
        await trio.sleep(2 * TTL)
        await home.attach(honest, resume=True)
        while not (await home.run(ticket)).ended:
            if (await home.run(ticket)).waiting_for in ("answer", "time", "child"):
                await ticket.cancel()
                break
            again = await honest.receive("execute")
            await honest.end(again, value="honest")
        await home.until(lambda now: now.runs[ticket.id].ended)


async def test_a_body_with_more_than_1000_calls_without_an_answer_is_refused(autojump_clock):
    async with world() as home:
        honest, hostile = await pair(home, "work")
        await honest.leave()
        ticket, body = await home.begin(hostile)
        await home.attach(honest, labels=["gpu"], resume=True)
        await hostile.send(
            *(hostile.calling(body, n, "interrupt", data=1, timeout=100, key=str(n)) for n in range(1001))
        )
        assert "more than 1000 calls without an answer" in (await hostile.closed())["message"]
        await others_succeed(home, honest)
        again = await honest.receive("execute")
        assert again["run"] == ticket.id


async def test_repeated_call_numbers_are_answered_once(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        _ticket, body = await home.begin(executor)
        asking = executor.calling(body, 5, "interrupt", data=1, timeout=100, key="1")
        await executor.send(asking, asking, asking)
        await executor.answer(5)
        await trio.sleep(1)
        assert executor.has("answered") == 0
        assert len((await home.engine.snapshot()).interrupts) == 1


# Floods and silence.


async def test_an_executor_that_never_acknowledges_is_disconnected_and_memory_is_bounded(autojump_clock):
    async with world() as home:
        honest, hostile = await pair(home)
        hostile.acknowledges = False
        hostile.received = 0
        [peer] = [each for each in home.engine.executors._registry.peers.values() if each.id == "hostile"]
        for _ in range(25):
            frame = [ended({"run": "r", "fence": n}) for n in range(1000)]
            first, hostile.sent = hostile.sent + 1, hostile.sent + 1000
            try:
                await hostile.raw(
                    json.dumps({"type": "frame", "first": first, "ack": 0, "messages": frame}).encode()
                )
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                break
            await trio.sleep(0.01)
        refused = await hostile.closed()
        assert "messages unacknowledged" in refused["message"]
        assert len(peer.outgoing) <= peers.MOST_KEPT + 1000
        await others_succeed(home, honest)


async def test_what_an_executor_does_not_acknowledge_is_limited_by_size(autojump_clock, monkeypatch):
    monkeypatch.setattr(peers, "MOST_KEPT_BYTES", 10_000)
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor)
        executor.acknowledges = False
        received = executor.received
        for _ in range(3):
            await home.engine.inject(ticket.id, "x" * 5000)
        for _ in range(3):
            await executor.receive("message")
        executor.received = received
        await executor.send(executor.calling(body, 1, "take_slot"))
        refused = await executor.closed()
        assert "bytes of messages unacknowledged" in refused["message"]
        assert refused["retry"]
        executor.acknowledges, executor.received = True, received + 3
        executor.sent -= 1
        assert (await home.attach(executor, resume=True))["resumed"]
        await executor.end(body, value=1)
        assert await ticket.result() == 1


async def test_an_executor_that_reads_nothing_is_lost_and_its_runs_continue_elsewhere(autojump_clock):
    async with world() as home:
        hostile = ScriptedExecutor(home.engine)
        connection = await hostile.connect(home.nursery)
        attach = {"type": "attach", "executor": "deaf", "start": "s", "jobs": [{"name": "work"}]}
        await connection.send(json.dumps(attach).encode())
        ticket = await home.engine.submit("work", handle="h", params={})
        for number in range(1, 200):
            frame = {
                "type": "frame",
                "first": number,
                "ack": 0,
                "messages": [ended({"run": "r", "fence": 1})],
            }
            await connection.send(json.dumps(frame).encode())
        await trio.sleep(TTL + 1)
        assert home.executors() == {}
        honest = await home.executor("honest", labels=["gpu"])
        assert (await honest.receive("execute"))["run"] == ticket.id


async def test_an_executor_that_did_not_read_its_attach_gets_no_bodies_after_it_is_lost(autojump_clock):
    async with world() as home:

        class Stuck:
            """A connection whose other side does not read."""

            def __init__(self):
                self.frames = [json.dumps(ATTACH).encode()]

            async def send(self, frame):
                await trio.sleep_forever()

            async def receive(self):
                if not self.frames:
                    await trio.sleep_forever()
                await trio.lowlevel.checkpoint()
                return self.frames.pop()

            async def aclose(self):
                await trio.lowlevel.checkpoint()

        home.nursery.start_soon(home.engine.executors.serve, Stuck())
        await trio.sleep(TTL + 5)
        assert home.executors() == {}
        ticket = await home.engine.submit("work", handle="h", params={})
        await trio.sleep(5)
        assert (await home.run(ticket)).waiting_for == "executor"


ATTACH = {"type": "attach", "executor": "stuck", "start": "s", "jobs": [{"name": "work"}]}


async def test_a_connection_that_sends_nothing_is_closed_after_ten_seconds(autojump_clock):
    async with world() as home:
        hostile = ScriptedExecutor(home.engine)
        connection = await hostile.connect(home.nursery)
        began = trio.current_time()
        refused = json.loads(await connection.receive())
        assert trio.current_time() - began == 10
        assert refused["message"] == "no attach or beat received within 10 s"


async def test_reports_of_blocked_loops_do_not_accumulate(autojump_clock):
    async with world() as home:
        executor = await home.executor()
        ticket, body = await home.begin(executor)
        report = about(body, "report", report={"type": "blocked", "seconds": 2.5, "where": "a.py:1"})
        await executor.send(*[report] * 1000)
        await executor.end(body, value=1)
        await ticket.result()
        logs = [event for event in await home.engine.history(ticket.id) if event.type == "run_log"]
        assert 1 <= len(logs) < 10
        assert home.engine.executors.blocked == (1000, 2500.0)


async def test_a_flood_does_not_stop_the_loop_for_long(autojump_clock):
    async with world() as home:
        honest, hostile = await pair(home)
        flood = FRAME + b",".join(
            b'{"type":"call","run":"r","fence":1,"call":1,"request":{"type":"take_slot"}}'
            for _ in range(19_000)
        ) + b"]}"  # fmt: skip
        tracemalloc.start()
        began = time.perf_counter()
        await hostile.raw(flood)
        await trio.testing.wait_all_tasks_blocked()
        took, (_, peak) = time.perf_counter() - began, tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert took < 10  # some 0.1 s without tracing
        assert peak < 100 << 20
        await others_succeed(home, honest)


async def test_the_number_of_executors_is_limited(autojump_clock, monkeypatch):
    monkeypatch.setattr(registries, "MOST_EXECUTORS", 20)
    async with world() as home:
        honest = await home.executor("honest", labels=["gpu"])
        refused = 0
        for number in range(100):
            hostile = ScriptedExecutor(home.engine, f"x{number}", beat=None)
            answer = await home.attach(hostile, "none")
            refused += answer["type"] == "refused" and answer["retry"]
            await hostile.leave()
        assert refused == 81
        await others_succeed(home, honest)
        await trio.sleep(TTL + 1)
        assert home.executors() == {"honest": "attached"}
        await home.executor("another")


async def test_attaching_in_a_loop_leaves_nothing_behind(autojump_clock):
    async with world() as home:
        honest, hostile = await pair(home)
        for number in range(300):
            await home.attach(hostile, "none", resume=number % 2 == 0, bodies=[live(BODY)])
        assert home.executors() == {"honest": "attached", "hostile": "attached"}
        await others_succeed(home, honest)


BODY = {"run": "r", "attempt": 1, "fence": 1}


async def test_a_hostile_executor_cannot_replace_the_bodies_of_another_by_its_name(autojump_clock):
    async with world() as home:
        honest = await home.executor("honest", labels=["gpu"])
        ticket = await home.engine.submit("gpu", handle="h", params={})
        body = await honest.receive("execute")
        hostile = ScriptedExecutor(home.engine, "honest", start="stolen")
        assert (await home.attach(hostile, bodies=[live(body)]))["code"] == "conflict"
        await honest.leave()
        assert (await home.attach(hostile, bodies=[live(body)]))["code"] == "conflict"
        await home.attach(honest, labels=["gpu"], resume=True)
        await honest.end(body, value="right")
        assert await ticket.result() == "right"


async def test_announced_jobs_of_an_executor_that_left_are_forgotten(autojump_clock):
    async with world(Jobs()) as home:
        executor = await home.executor("e1", *(f"job {number}" for number in range(1000)), beat=None)
        await home.engine.submit("job 7", handle="h", params=None)
        await executor.leave()
        await trio.sleep(TTL + 1)
        with pytest.raises(Exception, match="not found"):
            await home.engine.submit("job 8", handle="i", params=None)


async def test_repeated_waits_for_a_child_run_in_new_sessions_leave_no_tasks_behind(autojump_clock):
    async with world() as home:
        executor = await home.executor(beat=None)
        _ticket, body = await home.begin(executor)
        child = (await executor.ask(body, "call_child", position=1, job="work", handle="child"))["value"]
        other = await executor.receive("execute")
        tasks = []
        for _ in range(5):
            await home.attach(executor, bodies=[live(body), live(other)])
            for _ in range(20):
                await executor.call(body, "await_child", run=child)
            await trio.testing.wait_all_tasks_blocked()
            tasks.append(trio.lowlevel.current_statistics().tasks_living)
        assert max(tasks) == min(tasks)
