"""Workers that are called over HTTP, without a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import trio

from greenroom import Engine
from greenroom.actors.workers.push import PushFailed

Answer = Callable[[Any], Any]


class Workers:
    """Push workers without a network. Each serves with a function of the request. An exception other than
    `PushFailed` is reported as an error; bytes are sent unchanged."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, dict[str, Any]]] = []  # worker, service, request
        self.keys: list[str] = []
        self.cancelled = 0
        self._serve: dict[str, Answer] = {}

    async def register(
        self, engine: Engine, id: str, *services: str, serve: Answer | None = None, load: float = 0
    ) -> None:
        """Register a worker, and keep it online."""
        self._serve[id] = serve or (lambda request: request["input"])
        await engine.workers.register(id, f"http://{id}:80", services, load=load)

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        worker, _, service = url.removeprefix("http://").partition(":80/exec/")
        request = msgspec.json.decode(body)
        self.calls.append((worker, service, request))
        self.keys.append(headers["Idempotency-Key"])
        await trio.lowlevel.checkpoint()
        if service == "hang":
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                self.cancelled += 1
                raise
        try:
            result = self._serve[worker](request)
        except PushFailed:
            raise
        except Exception as error:
            return 200, msgspec.json.encode({"result": None, "error": str(error)})
        return result if isinstance(result, tuple) else (200, msgspec.json.encode({"result": result}))

    @property
    def called(self) -> list[str]:
        return [worker for worker, _, _ in self.calls]
