"""An executor in another language: the program of the protocol's page, with a real engine and gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import trio

from greenroom import Engine, Jobs, open_engine
from greenroom.gateway import Gateway, GatewayConfig, Role, add_token, open_gateway
from greenroom.protocol.events import RunStateChanged

from .javascript import PATIENCE, ROOT, needs_node, node, run_node

pytestmark = needs_node

PROGRAM = ROOT / "tests" / "examples" / "executor.mjs"


@asynccontextmanager
async def executing(url: str, token: str = "") -> AsyncIterator[trio.Process]:
    """The program, attached as `js-1` or about to attach."""
    executable = node()
    assert executable is not None, "the tests are marked with `needs_node`"
    command = [executable, str(PROGRAM), url.replace("http", "ws", 1) + "/executor", "js-1"]
    process = await trio.lowlevel.open_process(command, env={"GREENROOM_TOKEN": token})
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


@asynccontextmanager
async def serving(
    store: str = "memory:", port: int = 0, tokens: str | None = None
) -> AsyncIterator[tuple[Engine, Gateway]]:
    """An engine that has no jobs and executes no bodies itself."""
    config = GatewayConfig(port=port, token_file=tokens)
    with trio.fail_after(PATIENCE):
        async with open_engine(Jobs(), store, executors=0) as engine, open_gateway(engine, config) as gateway:
            yield engine, gateway


async def until_attached(engine: Engine) -> None:
    async for _ in engine.events(after=0):
        if [executor.status for executor in await engine.executors.list()] == ["attached"]:
            return


async def until_progress(engine: Engine, run: str, done: float) -> None:
    async for _ in engine.events(after=0):
        record = await engine.get_run(run)
        if record.progress is not None and record.progress["done"] >= done:
            return


async def test_bodies_report_and_return():
    async with serving() as (engine, gateway), executing(gateway.url):
        await until_attached(engine)
        [listed] = await engine.executors.list()
        assert (listed.id, listed.slots, listed.labels) == ("js-1", 8, ("js",))
        assert listed.jobs == ("count", "deploy")
        ticket = await engine.submit("count", handle="a", params={"to": 3})
        assert await ticket.result() == 3
        run = await engine.get_run(ticket.id)
        assert (run.executor, run.attempt, run.progress) == ("js-1", 1, {"done": 3, "total": 3})
        logged = [event for event in await engine.history(ticket.id) if event.type == "run_log"]
        assert [event.text for event in logged] == ["counted to 3"]


async def test_an_interrupt_is_answered():
    async with serving() as (engine, gateway), executing(gateway.url):
        await until_attached(engine)
        ticket = await engine.submit("deploy", handle="a")
        async for event in engine.events(after=0):
            if event.type == "interrupt_opened":
                break
        assert await engine.answer(ticket.id, True, key="1") == "resolved"
        assert await ticket.result() == "deployed"


async def test_a_cancel_stops_the_body():
    async with serving() as (engine, gateway), executing(gateway.url):
        await until_attached(engine)
        ticket = await engine.submit("count", handle="a", params={"to": 100_000, "pause": 0.01})
        await until_progress(engine, ticket.id, 1)
        await ticket.cancel()
        await ticket.wait()
        assert (await engine.get_run(ticket.id)).status == "cancelled"


async def test_an_executor_needs_its_token(tmp_path: Path):
    file = str(tmp_path / "tokens")
    token = add_token(file, "js", Role.EXECUTOR)
    async with serving(tokens=file) as (engine, gateway), executing(gateway.url, token):
        await until_attached(engine)


async def test_a_drained_executor_exits_with_0():
    async with serving() as (engine, gateway), executing(gateway.url) as process:
        await until_attached(engine)
        ticket = await engine.submit("count", handle="a", params={"to": 20, "pause": 0.01})
        await until_progress(engine, ticket.id, 1)
        await engine.executors.drain("js-1")
        assert await ticket.result() == 20
        assert await process.wait() == 0


async def test_the_client_in_javascript_lists_and_drains_it():
    client = """
        const client = await connect(argument);
        const listed = await client.executors.list();
        await client.executors.drain("js-1");
        answer(listed);
        client.close();
    """
    async with serving() as (engine, gateway), executing(gateway.url) as process:
        await until_attached(engine)
        [listed] = await run_node(client, gateway.url)
        assert (listed["id"], listed["status"], listed["bodies"]) == ("js-1", "attached", 0)
        assert await process.wait() == 0


async def test_a_body_survives_the_restart_of_the_engine(tmp_path: Path):
    store = f"sqlite:///{tmp_path / 'greenroom.db'}"
    async with AsyncExitStack() as stack:
        async with serving(store) as (engine, gateway):
            port = gateway.port
            await stack.enter_async_context(executing(gateway.url))
            await until_attached(engine)
            ticket = await engine.submit("count", handle="a", params={"to": 300, "pause": 0.01})
            await until_progress(engine, ticket.id, 5)
        async with serving(store, port) as (engine, _):
            run = await engine.wait(ticket.id, timeout=PATIENCE)
            history = await engine.history(ticket.id)
    assert (run.status, run.result, run.attempt) == ("succeeded", 300, 1)
    starts = [event for event in history if isinstance(event, RunStateChanged) and event.to == "running"]
    assert [start.executor for start in starts] == ["js-1"]
