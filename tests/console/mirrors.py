"""A program to kill: accounts whose sites are mirrored, three at once. Arguments: the file, and the port."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import trio

from greenroom import Jobs, Run, open_engine
from greenroom.gateway import GatewayConfig, open_gateway

jobs = Jobs()


@jobs.job("mirror", resumable=True)
async def mirror(run: Run, params: dict[str, Any]) -> Any:
    """Finish one file, and leave another unfinished until a message tells how to go on."""
    if run.checkpoint is None:
        async with run.open_file("first.html") as file:
            await file.write(params["url"].encode())
        await run.save_checkpoint(1)
    await run.progress(1, 2)
    async with run.open_file("second.html") as file:
        message = await run.next_message()
        if message == "fail":
            raise ConnectionError(params["url"])
        await file.write(b"second")
    await run.progress(2, 2)
    return {"pages": 2}


async def main(database: str, port: int) -> None:
    data = Path(database).parent / "data"
    async with (
        open_engine(jobs, f"sqlite:///{database}", max_concurrent=None, data_dir=data) as engine,
        open_gateway(engine, GatewayConfig(port=port)),
    ):
        await trio.sleep_forever()


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    trio.run(main, sys.argv[1], int(sys.argv[2]))
