"""For comparison: `websockets`, which broadcasts the messages in a file, one per line, to all its clients.

`python -m tests.benchmarks.broadcasting FILE`; each line on its standard input starts one broadcast.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from websockets.asyncio.server import ServerConnection, broadcast, serve


async def main(messages: list[bytes]) -> None:
    connections: set[ServerConnection] = set()

    async def handler(connection: ServerConnection) -> None:
        connections.add(connection)
        try:
            await connection.wait_closed()
        finally:
            connections.remove(connection)

    # Without compression, like the gateway.
    async with serve(handler, "127.0.0.1", 0, compression=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        orders = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
        while await orders.readline():
            for message in messages:
                broadcast(connections, message, text=True)
                await asyncio.sleep(0)  # so that it also reads, and sends what was not sent immediately
            print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).read_bytes().splitlines()))
