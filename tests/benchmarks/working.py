"""A push worker that registers nowhere: `python -m tests.benchmarks.working`."""

from __future__ import annotations

import trio

from greenroom.worker.calls import Calls
from greenroom.worker.examples import services
from greenroom.worker.push import Push


async def main() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(listeners[0].socket.getsockname()[1], flush=True)
    await Push(listeners, Calls(100), services).run()


if __name__ == "__main__":
    trio.run(main)
