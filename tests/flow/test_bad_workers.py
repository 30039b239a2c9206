"""Misbehaving workers, on real sockets: another worker executes the node, or it fails with a named error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio

from greenroom import Engine, Jobs, Ticket, open_engine
from greenroom.errors import Conflict, RunCancelled, RunFailed
from greenroom.protocol.flow.records import NodeRun
from tests.workers.support import Handler, read_request, response, serving

PATIENCE = 30.0
"""Seconds for what should happen immediately."""

MEGABYTE = 1 << 20


async def good(stream: trio.SocketStream) -> None:
    while (await read_request(stream))[0]:
        await stream.send_all(response(b'{"result": "done", "error": ""}'))


async def never(stream: trio.SocketStream) -> None:
    await read_request(stream)
    await stream.receive_some()


async def garbage(stream: trio.SocketStream) -> None:
    await read_request(stream)
    await stream.send_all(b"\x00\xff who is there?\r\n\r\n")


async def not_json(stream: trio.SocketStream) -> None:
    await read_request(stream)
    await stream.send_all(response(b"<html>"))


async def not_an_answer(stream: trio.SocketStream) -> None:
    await read_request(stream)
    await stream.send_all(response(b"[1, 2, 3]"))


async def broken(stream: trio.SocketStream) -> None:
    await read_request(stream)
    await stream.send_all(response(b"oh no", "500 Internal Server Error"))


async def dies(stream: trio.SocketStream) -> None:
    await read_request(stream)
    await stream.send_all(response(b'{"result": "half"}')[:-10])


async def huge(stream: trio.SocketStream) -> None:
    await read_request(stream)
    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (100 * MEGABYTE))
    for _ in range(100):
        await stream.send_all(b" " * MEGABYTE)


async def complains(stream: trio.SocketStream) -> None:
    await read_request(stream)
    await stream.send_all(response(b'{"result": null, "error": "no such account"}'))


BAD = {
    never: "timeout",
    garbage: "bad_http",
    not_json: "bad_json",
    not_an_answer: "bad_answer",
    broken: "bad_status",
    dies: "reset",
    huge: "too_large",
}
bad_workers = pytest.mark.parametrize("bad", BAD, ids=[bad.__name__ for bad in BAD])


@asynccontextmanager
async def at_work(*workers: Handler, **node: Any) -> AsyncIterator[Engine]:
    """An engine whose flow `do` has one node, for a service that these workers serve, the first one first."""
    definition = {
        "start": "do",
        "nodes": {"do": {"kind": "executor", "service": "do", "post": {"output_key": "done"}, **node}},
        "edges": [],
    }
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serving(worker)) for worker in workers]
        stack.enter_context(trio.fail_after(1000 * PATIENCE if not workers else PATIENCE))  # of mock time
        engine = await stack.enter_async_context(open_engine(Jobs(), "memory:", shutdown_timeout=0))
        for number, url in enumerate(urls, 1):
            await engine.workers.register(f"w{number}", url, ["do"])
        await engine.flows.publish("do", definition)
        yield engine


async def tries(engine: Engine, ticket: Ticket) -> list[NodeRun]:
    return list(await engine.flows.node_runs(ticket.id))


@bad_workers
async def test_a_node_is_executed_by_another_worker(bad: Handler):
    async with at_work(bad, good, timeout_ms=500) as engine:
        ticket = await engine.flows.start("do")
        if BAD[bad] == "too_large":  # not the worker's fault: another response would be as large
            with pytest.raises(RunFailed, match="too_large"):
                await ticket.result()
            return
        assert await ticket.result() == {"done": "done"}
        first, second = await tries(engine, ticket)
        assert (first.status, first.worker) == ("timeout" if bad is never else "error", "w1")
        assert (first.error or "").startswith(f"{BAD[bad]}: ")
        assert (second.status, second.worker, second.attempt) == ("ok", "w2", 2)


@bad_workers
async def test_without_another_worker_it_fails_with_a_named_error(bad: Handler):
    async with at_work(bad, timeout_ms=500) as engine:
        ticket = await engine.flows.start("do")
        with pytest.raises(RunFailed, match=f'node "do": {BAD[bad]}: '):
            await ticket.result()
        [only] = await tries(engine, ticket)
        assert (only.worker, only.last) == ("w1", True)
        assert only.worker_url is not None


async def test_an_error_of_the_service_causes_no_call_of_another_worker():
    async with at_work(complains, good) as engine:
        ticket = await engine.flows.start("do")
        with pytest.raises(RunFailed, match=r"service_error: .*no such account"):
            await ticket.result()
        assert len(await tries(engine, ticket)) == 1


async def test_an_error_of_the_service_causes_another_call_if_the_node_has_max_attempts():
    async with at_work(complains, good, max_attempts=2) as engine:
        ticket = await engine.flows.start("do")
        assert await ticket.result() == {"done": "done"}
        assert [(one.status, one.worker) for one in await tries(engine, ticket)] == [
            ("error", "w1"),
            ("ok", "w2"),
        ]


async def test_a_worker_that_returns_at_another_port_is_called_there():
    async with at_work(good) as engine, serving(good) as url:
        await engine.workers.register("w1", url, ["do"])
        ticket = await engine.flows.start("do")
        assert await ticket.result() == {"done": "done"}
        [only] = await tries(engine, ticket)
        assert only.worker_url == url


async def test_a_worker_that_has_ended_is_unreachable_and_another_one_is_called():
    async with at_work(good) as engine:
        async with serving(good) as url:
            pass  # the worker has ended and released its port
        await engine.workers.register("gone", url, ["do"])
        done = [await (await engine.flows.start("do")).result() for _ in range(4)]
        assert done == [{"done": "done"}] * 4


async def test_a_cancel_closes_the_connection_and_leaves_one_cancelled_node_run():
    hung_up = trio.Event()
    called = trio.Event()

    async def holds(stream: trio.SocketStream) -> None:
        await read_request(stream)
        called.set()
        assert not await stream.receive_some()
        hung_up.set()

    async with at_work(holds) as engine:
        ticket = await engine.flows.start("do")
        await called.wait()
        with trio.fail_after(30):
            await ticket.cancel()
            await hung_up.wait()
            with pytest.raises(RunCancelled):
                await ticket.result()
        [only] = await tries(engine, ticket)
        assert (only.status, only.worker) == ("cancelled", "w1")


async def test_a_late_result_of_an_expired_item_is_refused_and_the_next_worker_completes_it(
    autojump_clock: Any,
):
    async with at_work(exec_type="queue") as engine:
        ticket = await engine.flows.start("do")
        lost = await engine.workers.poll("slow", ["do"])
        assert lost is not None
        taken = None
        while taken is None:  # until the slow worker's lease has expired
            taken = await engine.workers.poll("quick", ["do"])
        with pytest.raises(Conflict):
            await engine.workers.complete(lost.id, "late", worker_id="slow")
        await engine.workers.complete(taken.id, "done", worker_id="quick")
        with pytest.raises(Conflict):
            await engine.workers.complete(taken.id, "twice", worker_id="quick")
        assert await ticket.result() == {"done": "done"}
        assert [(one.status, one.worker) for one in await tries(engine, ticket)] == [
            ("error", "slow"),
            ("ok", "quick"),
        ]
