"""The synchronous client where it differs from the others: threads, other loops, Ctrl-C, and its end."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from greenroom import Client, Jobs, Run, errors, open_engine, sync
from greenroom.gateway import GatewayConfig, open_gateway
from greenroom.gateway.client import ClientTicket
from greenroom.gateway.client.cluster import ClientCluster
from greenroom.gateway.client.executors import ClientExecutors
from greenroom.gateway.client.flows import ClientFlows
from greenroom.gateway.client.schedules import ClientSchedules
from greenroom.gateway.client.webhooks import ClientWebhooks
from greenroom.gateway.client.workers import ClientWorkers

PATIENCE = 30

JOBS = Jobs()


class Sum(msgspec.Struct):
    total: int


@JOBS.job
async def add(run: Run, params: list[int]) -> Sum:
    return Sum(sum(params))


@JOBS.job
async def wait(run: Run) -> Any:
    return await run.next_message()


@pytest.fixture
def url() -> Iterator[str]:
    """A server that this thread does not run, as it is for programs."""
    started: list[str] = []
    ready = threading.Event()
    ended: list[Callable[[], object]] = []

    async def serve() -> None:
        with trio.CancelScope() as scope:
            async with (
                open_engine(JOBS, "memory:", max_concurrent=100, shutdown_timeout=0) as engine,
                open_gateway(engine, GatewayConfig(port=0)) as gateway,
            ):
                token = trio.lowlevel.current_trio_token()
                ended.append(partial(token.run_sync_soon, scope.cancel))
                started.append(gateway.url)
                ready.set()
                await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    assert ready.wait(PATIENCE)
    yield started[0]
    ended[0]()
    thread.join(PATIENCE)


def client_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "greenroom client"]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_job_is_submitted_as_its_function_and_its_result_is_of_its_type(url: str):
    with sync.connect(url) as client:
        ticket = client.submit(add, handle="alice", params=[1, 2])
        assert ticket.result() == Sum(3)
        assert client.submit("add", handle="alice", params=[1, 2]).result(timeout=PATIENCE) == {"total": 3}
        assert client.state.runs[ticket.id].result == {"total": 3}
        assert (client.connected, client.role) == (True, "admin")


@pytest.mark.parametrize(
    ("blocking", "other"),
    [
        (sync.Client, Client),
        (sync.Ticket, ClientTicket),
        (sync.Flows, ClientFlows),
        (sync.Workers, ClientWorkers),
        (sync.Executors, ClientExecutors),
        (sync.Schedules, ClientSchedules),
        (sync.Webhooks, ClientWebhooks),
        (sync.Cluster, ClientCluster),
    ],
)
def test_it_has_all_that_the_other_client_has(blocking: type, other: type):
    assert {name for name in dir(other) if not name.startswith("_")} - {"send_submission"} <= set(
        dir(blocking)
    )


def test_it_is_found_in_the_package_without_being_imported():
    program = "import greenroom; print(greenroom.sync.connect.__module__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "greenroom.sync\n"


def test_many_threads_use_one_client(url: str):
    with sync.connect(url) as client, ThreadPoolExecutor(16) as threads:

        def work(number: int) -> int:
            return client.submit(add, handle=f"h{number}", params=[number, 1]).result().total

        assert list(threads.map(work, range(100))) == list(range(1, 101))


def test_it_works_where_an_asyncio_loop_is_running(url: str):
    async def cell() -> Sum:
        with sync.connect(url) as client:
            return client.submit(add, handle="alice", params=[1]).result()

    assert asyncio.run(cell()) == Sum(1)


def test_results_are_in_the_order_of_their_ends(url: str):
    with sync.connect(url) as client:
        slow, fast = (client.submit(wait, handle=handle) for handle in ("slow", "fast"))
        ended = sync.as_completed([slow, fast])
        client.inject("fast", 1)
        assert next(ended) is fast
        client.inject("slow", 2)
        assert [ticket.result() for ticket in ended] == [2]


def test_waiting_for_results_ends_with_its_timeout_and_the_runs_go_on(url: str):
    with sync.connect(url) as client:
        ticket = client.submit(wait, handle="alice")
        with pytest.raises(TimeoutError):
            list(sync.as_completed([ticket], timeout=0.01))
        with pytest.raises(TimeoutError, match=f"run {ticket.id} has not ended within 0.01 s"):
            ticket.result(timeout=0.01)
        assert client.inject("alice", "hello") == "accepted"
        assert ticket.result() == "hello"


def test_events_are_iterated(url: str):
    with sync.connect(url) as client:
        events = client.events(after=client.state.seq, filter={"types": ["run_state_changed"]})
        client.submit(add, handle="alice", params=[1]).result()
        assert [next(events).to for _ in range(3)] == ["queued", "running", "succeeded"]  # type: ignore[union-attr]


def test_closing_ends_what_waits_in_other_threads_and_the_thread(url: str):
    client = sync.connect(url)
    ticket = client.submit(wait, handle="alice")
    events = client.events()
    heard: list[str] = []

    def listen(wait: Callable[[], object]) -> None:
        try:
            wait()
        except errors.Unavailable as error:
            heard.append(error.message)
        except StopIteration:
            heard.append("no more")

    def drain() -> None:
        while True:
            next(events)

    threads = [threading.Thread(target=listen, args=(act,)) for act in (ticket.result, drain)]
    for thread in threads:
        thread.start()
    until(lambda: client.state.runs[ticket.id].status == "running")
    client.close()
    client.close()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(heard) == 2
    assert set(heard) <= {"the client is closed", "no more"}
    assert not client_threads()
    for act in (client.snapshot, ticket.result, lambda: client.state, lambda: client.events()):
        with pytest.raises(errors.Unavailable, match="the client is closed"):
            act()


def test_an_unreferenced_client_is_closed(url: str):
    ticket = sync.connect(url).submit(add, handle="alice", params=[1])
    assert ticket.result() == Sum(1)  # which still has it
    assert client_threads()
    del ticket
    gc.collect()
    assert not client_threads()


def test_what_prevents_the_connection_is_raised_and_leaves_no_thread():
    with pytest.raises(errors.Unavailable, match=r"connection to .* failed"):
        sync.connect("ws://127.0.0.1:9")
    with pytest.raises(errors.Invalid, match="url must be like"):
        sync.connect("127.0.0.1")
    assert not client_threads()


def test_a_callback_can_use_the_client(url: str):
    heard: list[Any] = []
    with sync.connect(url) as client:
        client.set_max_concurrent(0)
        ticket = client.submit(
            add,
            handle="alice",
            params=[1],
            warn_after=0.01,
            on_wait=lambda *what: heard.append(client.get_run("alice").id),
        )
        until(lambda: heard)
        assert heard == [ticket.id]


def test_a_call_in_the_clients_own_thread_is_refused_instead_of_waiting_for_itself(url: str):
    with sync.connect(url) as client:

        async def call() -> None:
            client.snapshot()

        with pytest.raises(RuntimeError, match="in the client's own thread"):
            client._thread.call(call)


def test_a_forked_process_must_connect_again(url: str):
    with sync.connect(url) as client:
        client._thread._process += 1
        with pytest.raises(errors.Unavailable, match="which has forked: connect in each process"):
            client.snapshot()
        client._thread._process -= 1


PROGRAM = """
import sys, greenroom
from greenroom import sync
with sync.connect(sys.argv[1]) as client:
    ticket = client.submit("wait", handle="alice")
    try:
        print("waiting", flush=True)
        ticket.result()
    except KeyboardInterrupt:
        print(client.cancel("alice").status in ("cancelling", "cancelled"), flush=True)
print("left", flush=True)
"""


@pytest.mark.parametrize("ending", ["", "\nclient = sync.connect(sys.argv[1])  # never closed"])
def test_ctrl_c_ends_a_blocking_call_and_the_program_continues(url: str, ending: str):
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + ending, url],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent,
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "waiting\n"
        with sync.connect(url) as client:
            until(lambda: client.get_run("alice").status == "running")
        program.send_signal(signal.SIGINT)
        assert program.communicate(timeout=PATIENCE)[0] == "True\nleft\n"
        assert program.returncode == 0
    finally:
        program.kill()
        program.wait()
