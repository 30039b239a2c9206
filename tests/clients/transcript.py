"""The conversation in docs/how-to/write-a-client.md, with a real gateway.

`python -m tests.clients.transcript` prints it. Ids, clock and randomness are deterministic and time is
mocked, so it is nearly the same each time; only how events share batches varies.
"""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import msgspec
import trio
from trio.testing import MockClock
from trio_websocket import WebSocketConnection, wrap_client_stream

from greenroom import Jobs, Run, open_engine
from greenroom.gateway import open_gateway

SUBPROTOCOL = "greenroom.v1.json"


class Mirror(msgspec.Struct):
    url: str
    pages: int = 2


def make_jobs() -> Jobs:
    jobs = Jobs()

    @jobs.job("mirror")
    async def mirror(run: Run, params: Mirror) -> dict[str, Any]:
        if not await run.interrupt({"question": f"fetch {params.pages} pages?"}):
            return {"pages": 0}
        for page in range(params.pages):
            await trio.sleep(1)
            await run.progress(page + 1, params.pages)
        return {"pages": params.pages}

    return jobs


class Conversation:
    """One connection, and all its messages."""

    def __init__(self, lines: list[str], socket: WebSocketConnection) -> None:
        self.lines = lines
        self.last: dict[str, Any] = {}
        self._socket = socket
        self._ids = itertools.count(1)

    async def say(self, type: str, **fields: Any) -> dict[str, Any]:
        """Send a command, and receive until it is answered."""
        message = {"type": type, "id": next(self._ids), **fields}
        self.lines.append(f"C: {json.dumps(message, separators=(',', ':'))}")
        await self._socket.send_message(json.dumps(message))
        while (heard := await self.hear()).get("id") != message["id"]:
            pass
        return heard

    async def hear(self) -> dict[str, Any]:
        text = await self._socket.get_message()
        self.lines.append(f"S: {text}")
        self.last = json.loads(text)
        return self.last

    async def hear_until(self, type: str) -> dict[str, Any]:
        """Receive until there is an event of this type. Returns the event."""
        while True:
            for event in (await self.hear()).get("events", ()):
                if event["type"] == type:
                    found: dict[str, Any] = event
                    return found


async def hold() -> list[str]:
    """The messages of both sides, one per line: `C:` client, `S:` server, `-` end of a connection."""
    lines: list[str] = []
    ids = (f"01a1ef08c732712b80fc1fdd7c5630{number:02x}" for number in itertools.count(1))
    async with (
        open_engine(
            make_jobs(),
            "memory:",
            clock=lambda: 1795000000.0 + trio.current_time(),
            ids=lambda: next(ids),
            random=random.Random(7),
        ) as engine,
        open_gateway(engine, listeners=()) as gateway,
        trio.open_nursery() as nursery,
    ):

        async def connect() -> Conversation:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(gateway.serve_stream, theirs)
            socket = await wrap_client_stream(
                nursery, ours, "127.0.0.1:8440", "/", subprotocols=[SUBPROTOCOL]
            )
            conversation = Conversation(lines, socket)
            await conversation.hear()
            return conversation

        one = await connect()
        epoch = one.last["epoch"]
        await one.say("subscribe", after=0, epoch="-")
        submit = {
            "job": "mirror",
            "handle": "alice",
            "params": {"url": "https://example.org"},
            "request_id": "7f3a",
        }
        await one.say("submit", **submit)
        asked = await one.hear_until("interrupt_opened")
        await one.say("submit", job="mirror", handle="alice", params={"url": "https://example.org"})
        await one.say("answer", interrupt_id=asked["interrupt"], data=True)
        seen = (await one.hear_until("run_progress"))["seq"]
        await one._socket.aclose()
        lines.append("-")
        await trio.sleep(5)

        two = await connect()
        await two.say("subscribe", after=seen, epoch=epoch)
        await two.hear_until("run_state_changed")
        await two.say("submit", **submit)
        await two.say("snapshot")
        await two._socket.aclose()
        nursery.cancel_scope.cancel()
    return lines


if __name__ == "__main__":
    print("\n".join(trio.run(hold, clock=MockClock(autojump_threshold=0))))
