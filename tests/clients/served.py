"""A program to kill: an engine on a SQLite file behind a gateway. Arguments: the file, and the port."""

from __future__ import annotations

import logging
import sys
from typing import Any

import trio

from greenroom import Jobs, Run, open_engine
from greenroom.gateway import GatewayConfig, open_gateway

jobs = Jobs()


@jobs.job("count", resumable=True)
async def count(run: Run, params: dict[str, Any]) -> int:
    """Count slowly, and resume after a crash."""
    for number in range(run.checkpoint or 0, params["to"]):
        await run.save_checkpoint(number + 1)
        await run.progress(number + 1, params["to"])
    return int(params["to"])


async def main(database: str, port: int) -> None:
    config = GatewayConfig(port=port)
    store = f"sqlite:///{database}"
    async with open_engine(jobs, store, max_concurrent=8) as engine, open_gateway(engine, config):
        await trio.sleep_forever()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    trio.run(main, sys.argv[1], int(sys.argv[2]))
