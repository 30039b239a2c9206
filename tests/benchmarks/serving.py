"""An engine with a gateway: `python -m tests.benchmarks.serving STORE`, then orders on its standard input.

`max_batch N`: from now on, a message contains at most N events. `together N`: execute N runs, as fast as
possible. `in turn N`: execute N runs, each after the end of the previous one. When an order is done, the
process prints the seconds that it took; for `in turn 1` these are the cost of a run of an embedded engine.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import AsyncIterator

import trio

from greenroom import Engine, open_engine
from greenroom.gateway import Gateway, GatewayConfig, Limits, open_gateway

from .memory import MAX_CONCURRENT, jobs

_CLIENTS = 100


async def main(store: str) -> None:
    logging.getLogger("greenroom").setLevel(logging.ERROR)
    async with (
        open_engine(jobs, store=store, max_concurrent=MAX_CONCURRENT, shutdown_timeout=0) as engine,
        open_gateway(engine, _config()) as gateway,
    ):
        print(gateway.port, flush=True)
        async for order in _lines():
            what, number = order.rsplit(" ", 1)
            start = time.perf_counter()
            await _obey(engine, gateway, what, int(number))
            print(time.perf_counter() - start, flush=True)


async def _obey(engine: Engine, gateway: Gateway, what: str, number: int) -> None:
    if what == "max_batch":
        gateway.reconfigure(_config(number))
    else:
        clients = _CLIENTS if what == "together" else 1
        async with trio.open_nursery() as nursery:
            for client in range(clients):
                nursery.start_soon(_submit, engine, f"handle {client}", number // clients)


async def _submit(engine: Engine, handle: str, count: int) -> None:
    for _ in range(count):
        ticket = await engine.submit("nothing", handle=handle, warn_after=math.inf)
        await ticket.result()


def _config(max_batch: int = Limits().max_batch) -> GatewayConfig:
    """No limit refuses anything, because the cost is measured."""
    return GatewayConfig(port=0, limits=Limits(max_batch=max_batch, rate=1e9, burst=1_000_000_000))


async def _lines() -> AsyncIterator[str]:
    rest = b""
    async for data in trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.decode()


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
