"""SIGKILL in the middle of a flow: its result is the same, and completed nodes are not executed again.

A separate process walks each flow up to the place of the plan. There it is killed, and another process
continues. `executed` contains what each of the two has executed; `story` is the content of the node runs.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.flow.definitions import Definition, flow, goes_on

from . import flow_killed
from .flow_killed import Plan

MODES: dict[str, Definition] = {
    "sequential": {},
    "concurrent": {"parallel_mode": "concurrent"},
    "two at once": {"parallel_mode": "concurrent", "max_parallel": 2},
}


def local(input: Any, out: str | None = None, **fields: Any) -> Definition:
    post = {} if out is None else {"post": {"output_key": out}}
    return {"kind": "local", "func": "step", "prep": {"input_key": f"$params.n{input}"}, **post, **fields}


END = local(2, "end")
PARAMS = {f"n{number}": number for number in range(1, 9)}


@attrs.frozen
class Case:
    """A plan, and the expected end: the shared data, or the error; what was executed in the first life and in
    the second; and the node runs, in any order if they are of several branches."""

    name: str
    plan: Plan
    result: Definition | str
    executed: tuple[list[int], list[int]]
    story: list[str]


def foreach(**fields: Any) -> Definition:
    fields = {"prep": {"input_key": "$params.items"}, "post": {"output_key": "out"}, **fields}
    return {"kind": "foreach", "exec_type": "local", "func": "step", **fields}


def parallel(services: list[int], **fields: Any) -> Definition:
    names = [f"step{number}" for number in services]
    return {
        "kind": "parallel",
        "exec_type": "local",
        "parallel_services": names,
        "post": {"output_key": "out"},
        **fields,
    }


def branches() -> Iterator[Case]:
    """Each mode and strategy, for both kinds: two are done, one has failed, and the next is in flight. Under
    `fail_fast`, the failure occurs after the crash."""
    error = {"error": "service_error: ValueError: 1 is odd"}
    for kind, mode, strategy in itertools.product(
        ("foreach", "parallel"), MODES, ("collect_errors", "ignore_errors")
    ):
        items = [2, 1, 4, 6, 8]
        fields: Definition = {"failure_strategy": strategy, **MODES[mode]}
        node = foreach(**fields) if kind == "foreach" else parallel(items, **fields)
        ahead = {"sequential": [], "concurrent": [8], "two at once": [8]}[mode]
        collected = [20, error, 40, 60, 80]
        out = collected if strategy == "collect_errors" else [one for one in collected if one is not error]
        yield Case(
            f"{kind} {mode} {strategy}",
            Plan(
                flow("f end", f=node, end=END),
                {"items": items},
                hold=(6,),
                node_runs=3 + len(ahead),
            ),
            {"out": out, "end": 20},
            (sorted([2, 1, 4, 6, *ahead]), sorted([6, 2] + ([] if ahead else [8]))),
            ["f[0] ok", "f[1] error", "f[2] ok", "f[3] ok", "f[4] ok", "f ok default", "end ok default"],
        )
    for kind, mode in itertools.product(("foreach", "parallel"), MODES):
        sequential = mode == "sequential"
        items = [2, 4, 6, 1, 8] if sequential else [2, 6, 1]
        node = foreach(**MODES[mode]) if kind == "foreach" else parallel(items, **MODES[mode])
        story = ["f[0] ok", "f[1] ok"] + (["f[2] ok", "f[3] error"] if sequential else ["f[2] error"])
        yield Case(
            f"{kind} {mode} fail_fast",
            Plan(
                goes_on(flow("f end", f=node, end=END)),
                {"items": items},
                hold=(6,) if sequential else (1,),
                node_runs=2,
            ),
            {"out": [20, 40, 60] if sequential else [20, 60], "end": 20},
            ([2, 4, 6], [1, 2, 6]) if sequential else ([1, 2, 6], [1, 2]),
            [*story, "f error default", "end ok default"],
        )
        yield Case(
            f"{kind} {mode} fail_fast that had failed",
            Plan(
                goes_on(flow("f end", f=node, end=END)),
                {"items": items},
                stop_after=("f", "3" if sequential else "2"),
            ),
            {"out": [20, 40, 60] if sequential else [20, 60], "end": 20},
            (sorted(items[:4]), [2]),
            [*story, "f error default", "end ok default"],
        )


def within(definition: Definition, **fields: Any) -> Definition:
    return {"kind": "subflow", "subflow": definition, "post": {"output_key": "sub"}, **fields}


def others() -> Iterator[Case]:
    three = flow("a b, b end", a=local(2, "a"), b=local(4, "b"), end=END)
    result = {"a": 20, "b": 40, "end": 20}
    story = ["a ok default", "b ok default", "end ok default"]
    yield Case("local", Plan(three, hold=(4,), node_runs=1), result, ([2, 4], [4, 2]), story)
    executor = {**three["nodes"]["b"], "kind": "executor", "exec_type": "local"}
    executing = flow("a b, b end", a=local(2, "a"), b=executor, end=END)
    yield Case("executor", Plan(executing, hold=(4,), node_runs=1), result, ([2, 4], [4, 2]), story)
    yield Case("between two nodes", Plan(three, stop_after=("a", None)), result, ([2], [4, 2]), story)
    last = Plan(three, stop_after=("end", None))
    yield Case("after the last node", last, result, ([2, 4, 2], []), story)

    choice = {"kind": "choice", "choice_cases": [{"action": "big", "expr": "$shared.a gt 10"}]}
    choosing = flow("a c, c:big b", a=local(2, "a"), c=choice, b=local(4, "b"))
    chosen = ["a ok default", "c ok big", "b ok default"]
    yield Case("choice", Plan(choosing, stop_after=("c", None)), {"a": 20, "b": 40}, ([2], [4]), chosen)

    failing = flow("a:sorry end", a=local(1, on_error="sorry"), end=END)
    sorry = ["a error sorry", "end ok default"]
    yield Case("a failure", Plan(failing, stop_after=("a", None)), {"end": 20}, ([1], [2]), sorry)
    failed = 'node "a": service_error: ValueError: 1 is odd'
    final = Plan(flow("", a=local(1)), stop_after=("a", None))
    yield Case("the last failure", final, failed, ([1], []), ["a error default"])
    retried = Plan(flow("", a=local(1, max_retries=2)), stop_after=("a", None))
    tries = ["a error", "a error", "a error default"]
    yield Case("a try that failed", retried, failed, ([1], [1, 1]), tries)

    inner = flow("a f, f b", a=local(2, "a"), f=foreach(**MODES["concurrent"]), b=local(4, "b"))
    subflow = flow("s end", s=within(inner), end=END)
    sub = {"a": 20, "out": [60, 80], "b": 40}
    told = ["s/a ok default", "s/f[0] ok", "s/f[1] ok", "s/f ok default", "s/b ok default", "s ok default"]
    told.append("end ok default")
    yield Case(
        "subflow",
        Plan(subflow, {"items": [6, 8]}, hold=(8,), node_runs=2),
        {"sub": sub, "end": 20},
        ([2, 6, 8], [2, 4, 8]),
        told,
    )
    deep = flow("", s=within(inner))
    yield Case(
        "subflow in subflow",
        Plan(flow("o end", o=within(deep), end=END), {"items": [6, 8]}, hold=(4,), node_runs=4),
        {"sub": {"sub": sub}, "end": 20},
        ([2, 4, 6, 8], [2, 4]),
        [f"o/{line}" for line in told[:-1]] + ["o ok default", "end ok default"],
    )
    yield Case(
        "at the end of a subflow",
        Plan(subflow, {"items": [6, 8]}, stop_after=("s/b", None)),
        {"sub": sub, "end": 20},
        ([2, 4, 6, 8], [2]),
        told,
    )
    ref = {"kind": "flow_ref", "flow": "inner", "post": {"output_key": "sub"}}
    yield Case(
        "flow_ref",
        Plan(
            flow("s end", s=ref, end=END), {"items": [6, 8]}, hold=(8,), node_runs=2, others={"inner": inner}
        ),
        {"sub": sub, "end": 20},
        ([2, 6, 8], [2, 4, 8]),
        told,
    )


def waits() -> Iterator[Case]:
    timer = {"kind": "timer", "params": {"delay_ms": 300}}
    event = {"kind": "wait_event", "params": {"signal_key": "go"}, "post": {"output_key": "came"}}
    late = {"kind": "wait_event", "params": {"signal_key": "go", "timeout_ms": 300}, "on_timeout": "late"}
    ask = {"kind": "approval", "params": {"approval_key": "ok"}}
    go = {"go": {"x": 1}, "came": {"x": 1}, "end": 20}
    for nested in (False, True):

        def waiting(node: Definition, edges: str, nested: bool = nested) -> Definition:
            inner = flow(edges, w=node, end=END)
            return flow("", s=within(inner)) if nested else inner

        def case(
            name: str, plan: Plan, result: Definition, action: str, how: str = "ok", nested: bool = nested
        ) -> Case:
            story = [f"w {how} {action}", "end ok default"]
            if nested:
                story = [f"s/{line}" for line in story] + ["s ok default"]
            shared = (
                {"sub": {**result}, **{key: result[key] for key in ("go",) if key in result}}
                if nested
                else result
            )
            return Case(f"{name}{' within' * nested}", plan, shared, ([], [2]), story)

        waits_for_it = waiting(event, "w end")
        yield case("timer", Plan(waiting(timer, "w end")), {"end": 20}, "default")
        yield case("wait_event", Plan(waits_for_it, after="signals"), go, "default")
        vain = Plan(waits_for_it, before="signals_in_vain", after="opens_the_lane")
        yield case("a signal that was not taken", vain, go, "default")
        yield case("late", Plan(waiting(late, "w:late end")), {"end": 20}, "late", "timeout")
        agreed = waiting(ask, "w:approved end")
        ok = {"ok": True, "end": 20}
        yield case("approval", Plan(agreed, after="answers"), ok, "approved")
        vain = Plan(agreed, before="answers_in_vain", after="opens_the_lane")
        yield case("an answer that was not taken", vain, ok, "approved")


def queued() -> Iterator[Case]:
    pulled = {"kind": "executor", "service": "step", "exec_type": "queue"}
    b = {**pulled, "prep": {"input_key": "$params.n4"}, "post": {"output_key": "b"}}
    definition = flow("a b, b end", a=local(2, "a"), b=b, end=END)
    story = ["a ok default", "b ok default", "end ok default"]
    taken = Plan(definition, before="takes_work", after="works")
    yield Case("queue", taken, {"a": 20, "b": 40, "end": 20}, ([2], [2]), story)


CASES = [*branches(), *others(), *waits(), *queued()]


def live(folder: Path, plan: Plan, life: int, there: Callable[[], object] | None = None) -> Any:
    """Execute one life of the program; return what it prints at its end, or before it is killed."""
    # A server with all imports forks the programs, which saves the start of the interpreter.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([flow_killed.__name__])
    ours, its = context.Pipe()
    program = context.Process(target=flow_killed.main, args=(folder, plan, life, its))
    program.start()
    its.close()
    said = ours.recv()
    if life == 1:
        if there is not None:
            there()
        program.kill()
    program.join()
    assert program.exitcode == (-signal.SIGKILL if life == 1 else 0)
    return said


def story(rows: list[Definition]) -> list[str]:
    lines = []
    for row in rows:
        branch = "" if row["branch"] is None else f"[{row['branch']}]"
        lines.append(f"{row['node']}{branch} {row['status']} {row['action'] or ''}".rstrip())
    return lines


def check_rows(told: Definition) -> None:
    """Check that the node runs have numbers without a gap, and consecutive attempts up to the last one."""
    rows = told["rows"]
    assert [row["number"] for row in rows] == list(range(1, len(rows) + 1))
    tries: dict[Any, list[Definition]] = {}
    for row in rows:
        tries.setdefault((row["node"], row["visit"], row["branch"]), []).append(row)
    for each in tries.values():
        assert [row["attempt"] for row in each] == list(range(1, len(each) + 1))
        assert [row["last"] for row in each] == [False] * (len(each) - 1) + [True]
    assert told["events"] == [[row[of] for of in ("node", "branch", "attempt", "status")] for row in rows]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_killed_flow_ends_with_the_same_result(case: Case, tmp_path: Path) -> None:
    plan = attrs.evolve(case.plan, params={**PARAMS, **case.plan.params})
    live(tmp_path, plan, 1)
    told = live(tmp_path, plan, 2)
    run = told["run"]
    if isinstance(case.result, str):
        assert (run["status"], run["error"]) == ("failed", case.result)
    else:
        assert (run["status"], run["result"]) == ("succeeded", case.result), run["error"]
        assert told["shared"] == case.result
    lines = [line.split() for line in (tmp_path / "executed").read_text().splitlines()]
    first, second = ([int(number) for life, number in lines if life == which] for which in "12")
    assert (sorted(first), sorted(second)) == tuple(map(sorted, case.executed))
    assert sorted(story(told["rows"])) == sorted(case.story)
    assert run["attempt"] == 1, "it costs no attempt"
    assert told["handle"] in ("Done", "Failed")
    check_rows(told)


# Workers that are called.


class Worker:
    """A real worker. It delays its answers for inputs in `hold` until `release`."""

    def __init__(self, hold: set[int]) -> None:
        self.calls: list[tuple[int, str]] = []  # inputs, and idempotency keys
        self.holding: queue.Queue[int] = queue.Queue()
        self.release = threading.Event()
        worker = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                input = request["input"]
                worker.calls.append((input, self.headers["Idempotency-Key"]))
                if input in hold and not worker.release.is_set():
                    worker.holding.put(input)
                    worker.release.wait(20)
                    return  # the client has died
                body = json.dumps({"result": 10 * input, "error": ""}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def serving(hold: set[int]) -> Iterator[Worker]:
    worker = Worker(hold)
    thread = threading.Thread(target=worker.server.serve_forever)
    thread.start()
    try:
        yield worker
    finally:
        worker.release.set()
        worker.server.shutdown()
        thread.join()
        worker.server.server_close()


@pytest.mark.parametrize("mode", [None, *MODES])
def test_a_flow_killed_during_a_call_of_a_worker_repeats_the_call_with_the_same_key(
    mode: str | None, tmp_path: Path
) -> None:
    each: Definition = {"kind": "foreach", "service": "step", "prep": {"input_key": "$params.items"}}
    one: Definition = {"kind": "executor", "service": "step", "prep": {"input_key": "$params.n4"}}
    node = one if mode is None else {**each, **MODES[mode]}
    definition = flow("a b, b end", a=local(2), b={**node, "post": {"output_key": "out"}}, end=END)
    done = {None: [], "sequential": [2], "concurrent": [2, 6], "two at once": [2, 6]}[mode]
    with serving({4}) as worker:
        plan = Plan(
            definition, {**PARAMS, "items": [2, 4, 6]}, hold=(4,), node_runs=1 + len(done), worker=worker.url
        )
        id = live(tmp_path, plan, 1, lambda: worker.holding.get(timeout=20))
        assert sorted(input for input, _ in worker.calls) == sorted([4, *done])
        worker.release.set()
        told = live(tmp_path, plan, 2)
    assert told["run"]["result"] == {"out": 40 if mode is None else [20, 40, 60], "end": 20}
    again = [input for input, _ in worker.calls[1 + len(done) :]]
    assert again == ([4] if mode is None or 6 in done else [4, 6])
    keys = [key for input, key in worker.calls if input == 4]
    assert keys == [f"{id}:b:1:{'' if mode is None else 1}"] * 2
    check_rows(told)
