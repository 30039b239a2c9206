"""The flow demo: two orders take the two branches of a choice, and workers execute their nodes.

A large order gets a discount on each item; a small order gets a label. The demo uses the gateway like any
other client.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
from rich.console import Group, RenderableType
from rich.text import Text

from ..actors.engine.open import open_engine
from ..actors.jobs import Jobs
from ..commands.flow.node_runs import show_node_runs
from ..commands.flow.runs import follow_flow, tree_of
from ..commands.output import brief, console
from ..commands.watch import line, live
from ..gateway.client import Client, connect
from ..gateway.server import open_gateway
from ..protocol.events import Event
from ..protocol.records import RunRecord
from ..protocol.states import Status
from .scenario import command, end_at_signal
from .workers import run_workers, wait_registered

FLOW = """
start: total
nodes:
  total:
    kind: executor
    service: sum
    prep: {input_key: $params.prices}
    post: {output_key: total}
  size:
    kind: choice
    choice_cases:
      - {action: large, expr: total gt 100}
    default_action: small
  discount:
    kind: foreach
    service: transform
    exec_type: queue
    parallel_mode: concurrent
    params: {mul: 0.9}
    prep: {input_key: $params.prices}
    post: {output_key: prices}
  reduced:
    kind: executor
    service: sum
    exec_type: queue
    prep: {input_key: prices}
    post: {output_key: total}
  label:
    kind: executor
    service: transform
    params: {op: upper}
    prep: {input_key: $params.customer}
    post: {output_key: label}
  packing:
    kind: timer
    params: {delay_ms: 1500}
edges:
  - {from: total, to: size}
  - {from: size, action: large, to: discount}
  - {from: size, action: small, to: label}
  - {from: discount, to: reduced}
  - {from: reduced, to: packing}
  - {from: label, to: packing}
"""

ORDERS: dict[str, dict[str, Any]] = {
    "large": {"customer": "alice", "prices": [60, 80, 40]},
    "small": {"customer": "bob", "prices": [12, 30]},
}
"""The parameters of the two runs, by the branch that each takes."""


async def play(folder: Path, *, stays: bool) -> bool | None:
    """Run the demo; with `stays`, the server then runs until a signal. Returns whether the runs succeeded;
    `None` if a signal ended the demo before."""
    succeeded: bool | None = None
    store, data = f"sqlite:///{folder / 'greenroom.db'}", folder / "data"
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with (
            open_engine(Jobs(), store, data_dir=data, shutdown_timeout=0) as engine,
            open_gateway(engine, listeners=listeners) as gateway,
            run_workers(gateway.url, folder),
            connect(gateway.url) as client,
            trio.open_nursery() as playing,
        ):
            playing.start_soon(end_at_signal, signals, playing.cancel_scope)
            console().print(f"server  {gateway.url}   store  {folder}", soft_wrap=True)
            succeeded = await _scenario(client)
            if stays:
                _invite(gateway.url)
                await trio.sleep_forever()
            playing.cancel_scope.cancel()
    return succeeded


async def _scenario(client: Client) -> bool:
    """Publish and run the flow, and show the results. Returns whether both runs are as expected."""
    out = console()
    out.print("Starting two workers: the server calls one, the other polls for its work.")
    await wait_registered(client)
    version = await client.flows.publish("order", FLOW)
    out.print(f"Published the flow 'order', version {version.version}. Starting two runs:\n")
    succeeded = True
    for branch, run in (await _watch(client)).items():
        rows = await client.flows.node_runs(run.id)
        nodes = {row.node for row in rows}
        succeeded = (
            succeeded and run.status == Status.SUCCEEDED and ("discount" in nodes) == (branch == "large")
        )
        out.print(f"\nThe {branch} order, run {run.id}: {run.status}", style="bold")
        out.print(brief(run.result if run.error is None else run.error), soft_wrap=True)
        show_node_runs(rows)
    return succeeded


def _invite(url: str) -> None:
    out = console()
    out.print("\nThe server runs until Ctrl-C. In another terminal:")
    run = command(url, "flow", "run", "order", "-p", '{"prices": [5], "customer": "you"}', "--watch")
    for words in (run, command(url, "workers")):
        out.print(f"  {words}", soft_wrap=True)


async def _watch(client: Client) -> dict[str, RunRecord]:
    """Start both runs, and show them until they have ended."""
    begin = client.state.seq
    tickets = {
        branch: await client.flows.start("order", handle=params["customer"], params=params)
        for branch, params in ORDERS.items()
    }
    ended: dict[str, RunRecord] = {}

    async def follow(on_event: Callable[[Event], None]) -> None:
        async with trio.open_nursery() as nursery:
            for branch, ticket in tickets.items():
                nursery.start_soon(keep, branch, ticket.id, on_event)

    async def keep(branch: str, run_id: str, on_event: Callable[[Event], None]) -> None:
        ended[branch] = await follow_flow(client, run_id, begin, on_event)

    if not console().is_terminal:
        await follow(lambda event: console().print(line(event), soft_wrap=True))
        return {branch: ended[branch] for branch in tickets}
    trees = {ticket.id: await tree_of(client, ticket.id) for ticket in tickets.values()}

    def draw(height: int) -> RenderableType:
        room = height // len(trees) - 1
        drawn = [(tree.draw(client.state.runs.get(run), room), Text()) for run, tree in trees.items()]
        return Group(*[part for parts in drawn for part in parts])

    async with live(draw) as redraw:

        def handle_event(event: Event) -> None:
            for tree in trees.values():
                tree.handle_event(event)
            redraw()

        await follow(handle_event)
    return {branch: ended[branch] for branch in tickets}
