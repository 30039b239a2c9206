"""`greenroom drain --wait`: what it waits for."""

from __future__ import annotations

import trio

from greenroom import Jobs, Run, connect, open_engine
from greenroom.commands.engine import _until_nothing_executes
from greenroom.gateway import GatewayConfig, open_gateway
from greenroom.protocol.states import Status


async def test_it_waits_for_a_child_that_an_executing_run_calls():
    jobs, calls, ends = Jobs(), trio.Event(), trio.Event()

    @jobs.job("parent")
    async def parent(run: Run) -> None:
        await calls.wait()
        await run.call("child", handle="child")

    @jobs.job("child")
    async def child(run: Run) -> None:
        await ends.wait()

    done = trio.Event()
    async with (
        open_engine(jobs, "memory:") as engine,
        open_gateway(engine, GatewayConfig(port=0)) as gateway,
        connect(f"ws://127.0.0.1:{gateway.port}") as client,
        trio.open_nursery() as nursery,
    ):
        run = await client.submit("parent", handle="parent")
        await client.drain()

        async def wait() -> None:
            await _until_nothing_executes(client)
            done.set()

        nursery.start_soon(wait)
        calls.set()
        async for _ in client.events(after=0):
            if client.state.runs[run.id].status is Status.SUSPENDED:
                break
        await client.get_run(run.id)  # after this reply, the client has received all earlier events
        assert not done.is_set()
        ends.set()
        with trio.fail_after(30):
            await done.wait()
        assert (await client.get_run(run.id)).status is Status.SUCCEEDED
        await client.resume()
