"""Nodes whose work is done by push workers, by polling workers, or by a program on this machine."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from greenroom import Engine
from greenroom.actors.workers.push import PushFailed
from greenroom.errors import Conflict, Invalid
from tests.support import open_engine, until_status

from .definitions import Definition
from .pushing import Answer, Workers
from .restarts import Lives
from .walking import Calls, Walked, ended, flow, local, node, start, walk


def execute(service: str = "work", **fields: Any) -> Definition:
    return node("executor", "$params.x", "out", service=service, **fields)


def broken(code: Any = "reset") -> Answer:
    def answer(request: Any) -> Any:
        raise PushFailed(code, "it is gone")

    return answer


def refusing(request: Any) -> Any:
    raise ValueError("I will not")


async def walked(
    workers: dict[str, Answer | None], definition: Definition, **params: Any
) -> tuple[Walked, Workers]:
    """An engine with these workers for the service `work`."""
    push = Workers()
    async with open_engine(Calls().jobs, push=push) as engine:
        for id, serve in workers.items():
            await push.register(engine, id, "work", serve=serve)
        return await walk(engine, definition, {"x": 5, **params}), push


# Push workers.


@pytest.mark.usefixtures("each_store")
async def test_a_worker_receives_the_input_and_the_parameters_and_its_result_is_the_output(
    autojump_clock: MockClock,
) -> None:
    done, push = await walked(
        {"w": lambda request: 2 * request["input"]}, flow("", a=execute(params={"y": 1}))
    )
    assert done.result == {"out": 10}
    assert push.calls == [("w", "work", {"input": 5, "params": {"x": 5, "y": 1}})]
    assert push.keys == [f"{done.run.id}:a:1:"]
    [row] = done.rows
    assert (row.worker, row.worker_url, row.status, row.output) == ("w", "http://w:80", "ok", 10)
    assert row.input == {"input": 5, "params": {"x": 5, "y": 1}}


async def test_without_a_worker_the_node_fails_with_no_worker(autojump_clock: MockClock) -> None:
    done, _ = await walked({}, flow("", a=execute(max_retries=3)))
    assert done.story == ["a error default"]
    assert (done.rows[0].error or "").startswith("no_worker: ")
    assert done.rows[0].worker is None


async def test_a_retry_goes_to_the_same_worker_with_the_same_key(autojump_clock: MockClock) -> None:
    answers = iter([refusing, broken(), lambda request: "at last"])
    served = {"a": None, "b": lambda request: next(answers)(request), "c": None}
    push = Workers()
    async with open_engine(Calls().jobs, push=push) as engine:
        for id, serve in served.items():
            await push.register(engine, id, "work" if id == "b" else "other", serve=serve)
        await engine.workers.register("a", "http://a:80", ["other", "work"], load=50)
        retried = execute(max_retries=2, wait_ms=1000, weighted_by_load=True)
        began = trio.current_time()
        done = await walk(engine, flow("", a=retried), {"x": 5})
        assert trio.current_time() - began == pytest.approx(2, abs=0.1)
    assert done.result == {"out": "at last"}
    assert push.called == ["b", "b", "b"]
    assert push.keys == [f"{done.run.id}:a:1:"] * 3
    assert [row.error for row in done.rows] == [
        'service_error: worker "b" at http://b:80: I will not',
        'reset: worker "b" at http://b:80: it is gone',
        None,
    ]


@pytest.mark.parametrize("code", ["unreachable", "reset", "bad_http"])
async def test_after_a_fault_of_a_worker_each_other_one_is_called_once(
    code: Any, autojump_clock: MockClock
) -> None:
    done, push = await walked(dict.fromkeys("abc", broken(code)), flow("", a=execute()))
    assert done.story == ["a error", "a error", "a error default"]
    assert sorted(push.called) == ["a", "b", "c"]
    assert [row.worker for row in done.rows] == push.called
    assert (done.rows[-1].error or "").startswith(code)
    served: dict[str, Answer | None] = {"a": broken(code), "b": broken(code), "c": None}
    done, push = await walked(served, flow("", a=execute()))
    assert done.result == {"out": 5}
    assert push.called[-1] == "c"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ((500, b"oops"), "bad_status"),
        ((302, b""), "bad_status"),
        ((200, b"no json"), "bad_json"),
        ((200, b"[1]"), "bad_answer"),
        ((200, b"{}"), "bad_answer"),
    ],
)
async def test_after_an_invalid_response_another_worker_is_called(
    answer: Any, code: str, autojump_clock: MockClock
) -> None:
    done, push = await walked({"a": lambda request: answer, "b": None}, flow("", a=execute()))
    assert done.result == {"out": 5}
    if push.called == ["a", "b"]:
        assert (done.rows[0].error or "").startswith(f"{code}: ")
    done, push = await walked({"a": lambda request: answer}, flow("", a=execute()))
    assert done.error.startswith(f'node "a": {code}: ')


async def test_after_an_error_of_the_service_no_other_worker_is_called(
    autojump_clock: MockClock,
) -> None:
    done, push = await walked(dict.fromkeys("abc", refusing), flow("", a=execute()))
    assert done.story == ["a error default"]
    assert (done.rows[0].error or "").startswith("service_error: ")
    assert len(push.calls) == 1


async def test_max_attempts_limits_the_number_of_workers_and_each_is_retried(
    autojump_clock: MockClock,
) -> None:
    several = execute(max_attempts=2, max_retries=1, wait_ms=1000, attempt_delay_ms=5000)
    began = trio.current_time()
    done, push = await walked(dict.fromkeys("abc", refusing), flow("", a=several))
    assert trio.current_time() - began == pytest.approx(7, abs=0.2)
    assert len(push.calls) == 4
    assert push.called[0] == push.called[1] != push.called[2] == push.called[3]
    assert [row.attempt for row in done.rows] == [1, 2, 3, 4]
    assert set(push.keys) == {f"{done.run.id}:a:1:"}


async def test_an_attempt_without_a_response_in_time_is_a_timeout(autojump_clock: MockClock) -> None:
    push = Workers()
    async with open_engine(Calls().jobs, push=push) as engine:
        await push.register(engine, "w", "hang")
        for timeout, seconds in ((None, 60), (3000, 3)):
            fields = {} if timeout is None else {"timeout_ms": timeout}
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keep_alive, engine, "w")
                done = await walk(engine, flow("", a=execute("hang", on_timeout="late", **fields)), {"x": 5})
                nursery.cancel_scope.cancel()
            assert done.story == ["a timeout late"]
            assert done.rows[0].finished_at - done.rows[0].started_at == pytest.approx(seconds, abs=0.1)
            assert (done.rows[0].error or "").startswith('timeout: worker "w"')
    assert push.cancelled == 2


async def keep_alive(engine: Engine, *workers: str) -> None:
    while True:
        for worker in workers:
            await engine.workers.heartbeat(worker)
        await trio.sleep(5)


async def test_with_weighted_by_load_a_node_calls_the_least_busy_worker(autojump_clock: MockClock) -> None:
    push = Workers()
    async with open_engine(Calls().jobs, push=push) as engine:
        for id, load in (("a", 5), ("b", 1), ("c", 3)):
            await push.register(engine, id, "work", load=load)
        for _ in range(3):
            await walk(engine, flow("", a=execute(weighted_by_load=True)), {"x": 1})
        assert push.called == ["b", "b", "b"]
        await walk(engine, flow("a b, b c", a=execute(), b=execute(), c=execute()), {"x": 1})
        assert sorted(push.called[3:]) == ["a", "b", "c"]


async def test_branches_have_their_own_idempotency_keys(autojump_clock: MockClock) -> None:
    push = Workers()
    async with open_engine(Calls().jobs, push=push) as engine:
        await push.register(engine, "w", "work", "other")
        each = node("foreach", "$params.items", "out", service="work", parallel_mode="concurrent")
        both = node("parallel", "$params.x", "both", parallel_services=["work", "other"])
        inner = node("subflow", subflow=flow("", p=both), out="sub")
        done = await walk(engine, flow("f s", f=each, s=inner), {"x": 1, "items": [1, 2]})
        id = done.run.id
        assert sorted(push.keys) == [f"{id}:f:1:0", f"{id}:f:1:1", f"{id}:s/p:1:0", f"{id}:s/p:1:1"]
        assert done.result["out"] == [1, 2]
        assert done.result["sub"] == {"both": [1, 1]}
        assert {row.worker for row in done.rows if row.branch is not None} == {"w"}


async def test_a_request_that_is_too_large_is_not_sent(autojump_clock: MockClock) -> None:
    push = Workers()
    async with open_engine(Calls().jobs, push=push, max_value_bytes=1000) as engine:
        await push.register(engine, "w", "work", serve=lambda request: "x" * 2000)
        done = await walk(engine, flow("", a=execute()), {"x": "x" * 600})
        assert (done.rows[0].error or "").startswith("too_large: ")
        assert push.calls == []
        done = await walk(engine, flow("", a=execute()), {"x": 1})
        assert (done.rows[0].error or "").startswith("too_large: ")
        assert len(push.calls) == 1


# Polling workers.


QUEUED = flow("a b", a=execute(exec_type="queue"), b=local("echo", {"x": 1}, "b"))


@pytest.mark.usefixtures("each_store")
async def test_work_is_taken_from_the_queue_and_completed(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, QUEUED, {"x": 5})
        item = await engine.workers.poll("puller", ["work"])
        assert item is not None
        assert (item.run, item.node, item.service, item.input) == (ticket.id, "a", "work", 5)
        assert (item.key, item.params) == (f"{ticket.id}:a:1:", {"x": 5})
        await trio.sleep(10)
        await engine.workers.complete(item.id, 10, worker_id="puller")
        rows = await engine.flows.node_runs(ticket.id)
        assert [(row.status, row.output, row.worker) for row in rows][:1] == [("ok", 10, "puller")], (
            "committed"
        )
        done = await ended(engine, ticket)
        assert done.result == {"out": 10, "b": {"x": 1}}
        assert (done.rows[0].worker, done.rows[0].worker_url) == ("puller", None)
        with pytest.raises(Conflict):
            await engine.workers.complete(item.id, 11, worker_id="puller")


async def test_a_waiting_poll_receives_the_work_of_later_flows(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine, trio.open_nursery() as nursery:
        results: list[Any] = []

        async def pull(worker: str) -> None:
            item = await engine.workers.poll(worker, ["work", "other"])
            assert item is not None
            results.append(item.input)
            await engine.workers.complete(item.id, item.input, worker_id=worker)

        for worker in "ab":
            nursery.start_soon(pull, worker)
        await trio.sleep(5)
        each = node(
            "foreach", "$params.items", "out", service="work", exec_type="queue", parallel_mode="concurrent"
        )
        done = await walk(engine, flow("", f=each), {"items": [1, 2]})
        assert done.result == {"out": [1, 2]}
        assert sorted(results) == [1, 2]
        assert {row.worker for row in done.rows if row.branch is not None} == {"a", "b"}


async def test_a_failure_that_a_worker_reports_is_the_nodes(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, flow("", a=execute(exec_type="queue", max_retries=1)), {"x": 5})
        for _ in range(2):
            item = await engine.workers.poll("puller", ["work"])
            assert item is not None
            await engine.workers.complete(item.id, error="I will not", worker_id="puller")
        done = await ended(engine, ticket)
        assert done.error == 'node "a": service_error: I will not'
        assert done.story == ["a error", "a error default"]


async def test_an_expired_lease_is_an_attempt_and_the_work_is_offered_again(
    autojump_clock: MockClock,
) -> None:
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, QUEUED, {"x": 5})
        lost = await engine.workers.poll("dies", ["work"])
        assert lost is not None
        await trio.sleep(61)
        item = await engine.workers.poll("lives", ["work"])
        assert item is not None
        assert (item.id != lost.id, item.key) == (True, lost.key)
        with pytest.raises(Conflict):
            await engine.workers.complete(lost.id, "late", worker_id="dies")
        for _ in range(5):
            await trio.sleep(50)
            await engine.workers.extend(item.id, "lives")
        await engine.workers.complete(item.id, "done", worker_id="lives")
        done = await ended(engine, ticket)
        assert done.result["out"] == "done"
        assert [(row.status, row.worker) for row in done.of("a")] == [("error", "dies"), ("ok", "lives")]
        assert (done.rows[0].error or "").startswith("expired: ")


async def test_work_that_no_worker_completes_fails_eventually(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        ticket = await start(engine, flow("", a=execute(exec_type="queue")), {"x": 5})
        for number in range(3):
            assert await engine.workers.poll(f"dies {number}", ["work"]) is not None
            await trio.sleep(61)
        done = await ended(engine, ticket)
        assert done.error.startswith('node "a": expired: ')
        assert [row.worker for row in done.rows] == ["dies 0", "dies 1", "dies 2"]


async def test_the_wait_in_the_queue_counts_for_the_timeout(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        late = flow("", a=execute(exec_type="queue", timeout_ms=9000, on_timeout="late"))
        ticket = await start(engine, late, {"x": 5})
        await trio.sleep(5)
        item = await engine.workers.poll("slow", ["work"])
        assert item is not None
        done = await ended(engine, ticket)
        assert done.story == ["a timeout late"]
        assert done.rows[0].finished_at - done.rows[0].started_at == pytest.approx(9, abs=0.1)
        assert done.rows[0].worker == "slow"
        with pytest.raises(Conflict):
            await engine.workers.complete(item.id, 1, worker_id="slow")


async def test_a_cancelled_flow_withdraws_its_work(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        taken = await start(engine, QUEUED, {"x": 1})
        item = await engine.workers.poll("puller", ["work"])
        assert item is not None
        untaken = await start(engine, QUEUED, {"x": 2})
        await trio.sleep(1)
        for ticket in (taken, untaken):
            await ticket.cancel()
            assert (await ended(engine, ticket)).story == ["a cancelled"]
        assert (await engine.flows.node_runs(taken.id))[0].worker == "puller"
        with pytest.raises(Conflict):
            await engine.workers.extend(item.id, "puller")
        with pytest.raises(Conflict):
            await engine.workers.complete(item.id, 1, worker_id="puller")
        assert await engine.workers.poll("puller", ["work"], wait=1) is None


async def test_the_worker_is_answered_although_its_output_cannot_be_stored(
    autojump_clock: MockClock,
) -> None:
    async with open_engine(Calls().jobs) as engine:
        a = execute(exec_type="queue")
        a["post"] = {"output_map": {"s": "n", "s.deeper": "n"}}
        ticket = await start(engine, flow("", a=a), {"x": 5})
        item = await engine.workers.poll("puller", ["work"])
        assert item is not None
        began = trio.current_time()
        await engine.workers.complete(item.id, {"n": 1}, worker_id="puller")
        assert trio.current_time() - began < 1
        [row] = (await ended(engine, ticket)).rows
        assert (row.worker, row.status) == ("puller", "error")


# Programs.


def script(*arguments: str, **fields: Any) -> Definition:
    return node(
        "executor",
        "$params.x",
        "out",
        exec_type="local_script",
        script=[sys.executable, "-c", *arguments],
        **fields,
    )


async def run_script(definition: Definition, **params: Any) -> Walked:
    with trio.fail_after(30):
        async with open_engine(Calls().jobs, allow_scripts=True) as engine:
            return await walk(engine, flow("", a=definition), {"x": 5, **params})


async def test_scripts_are_refused_unless_the_operator_allows_them(autojump_clock: MockClock) -> None:
    async with open_engine(Calls().jobs) as engine:
        with pytest.raises(Invalid, match="scripts are not allowed: allow_scripts is off"):
            await engine.flows.publish("flow", flow("", a=script("print(1)")))
        assert (await engine.flows.list())[1] == 0


async def test_a_published_script_does_not_run_if_scripts_are_not_allowed() -> None:
    lives = Lives(Calls().jobs, clock=None)
    async with lives.clean(allow_scripts=True) as engine:
        await engine.flows.publish("flow", flow("", a=script("print(1)")))
    async with lives.clean() as engine:
        done = await ended(engine, await engine.flows.start("flow"))
        assert (done.rows[0].error or "").startswith(
            "service_error: PermissionError: scripts are not allowed"
        )


async def test_a_script_reads_json_and_its_stdout_is_the_output() -> None:
    told = "import json, sys; print(json.dumps({'got': json.load(sys.stdin), 'argv': sys.argv[1:]}))"
    done = await run_script(script(told, "$params.x; echo no shell"))
    assert done.result["out"] == {
        "got": {"input": 5, "params": {"x": 5}},
        "argv": ["$params.x; echo no shell"],
    }
    assert (await run_script(script("print('plain text')"))).result == {"out": "plain text"}


async def test_the_error_of_a_failed_script_contains_its_stderr() -> None:
    done = await run_script(script("import sys; sys.exit('no luck')"))
    assert "exited with code 1: no luck" in (done.rows[0].error or "")
    done = await run_script({**script(""), "script": ["/no/such/program"]})
    assert (done.rows[0].error or "").startswith("service_error: ")


async def test_a_script_that_times_out_or_is_cancelled_is_killed() -> None:
    forever = script("import time; time.sleep(1000)", timeout_ms=300)
    done = await run_script(forever)
    assert done.story == ["a timeout default"]
    with trio.fail_after(30):
        async with open_engine(Calls().jobs, allow_scripts=True) as engine:
            ticket = await start(engine, flow("", a={**forever, "timeout_ms": 1e6}), {"x": 5})
            await until_status(engine, ticket, "running")
            await ticket.cancel()
            assert (await ended(engine, ticket)).story == ["a cancelled"]


async def test_a_script_that_prints_too_much_is_killed() -> None:
    done = await run_script(script("while True: print('x' * 1000)"))
    assert "printed more than" in (done.rows[0].error or "")
