"""A simulated worker: a process on another machine that an engine calls, or that pulls from its queue.

It registers, sends heartbeats, and executes services. It can die during its work and start again, also under
another URL; it can stop its heartbeats; and each call can have trouble.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import msgspec
import trio

from ....actors.run.failures import error_text
from ....actors.workers.push import PushFailed
from ....actors.workers.workqueue import VISIBLE_FOR
from ....protocol.errors import Conflict, GreenroomError, NotFound
from ....protocol.flow.records import QueueItem
from ....worker.services import Services
from .calls import Call, Trouble, Work, serving

if TYPE_CHECKING:
    from ...world.server import Server
    from ...world.world import World

HEARTBEAT = 5.0
"""Seconds between two heartbeats."""

_LATE = 90.0
"""Seconds: longer than the lease on an item of the queue, and longer than the timeout of a call."""

_EXTEND_EVERY = 25.0


class Worker:
    """See the module's docstring. `rates` contains the probability of each trouble, from 0 to 1. To decide
    for each call, assign a function to `trouble`."""

    def __init__(
        self,
        world: World,
        id: str,
        services: Services | Sequence[str],
        server: Server,
        kind: Literal["http", "queue"],
        work: Work | None,
    ) -> None:
        self.id = id
        self.silent = False
        """Whether it sends no heartbeats."""
        self.rates: dict[Trouble, float] = {}
        self.trouble: Callable[[Call], Trouble | None] = self._draw
        self.kind = kind
        self.url = ""
        self._world = world
        self._server = server
        self._names = services.names if isinstance(services, Services) else services
        self._work = work or serving(services)
        self._random = world.derived("worker", id)
        self._scope = trio.CancelScope()
        self._calls: dict[trio.CancelScope, None] = {}
        self.busy = 0
        """The number of calls and items that it is executing."""
        self._registered = False
        self._ports = 8000
        self.living = False

    # Its process.

    def start(self, *, elsewhere: bool = False) -> None:
        """Start its process; with `elsewhere`, under another URL than before."""
        if self.living:
            raise RuntimeError(f"worker {self.id} is running: call die() before you start it again")
        self.living = True
        self.silent = self._registered = False
        self._ports += elsewhere
        if self.kind == "http":
            self.url = f"http://{self.id}:{self._ports}"
            self._world.network.listen(self.url, self._answer)
        self._scope = trio.CancelScope()
        self._world.trace.add("life", f"worker {self.id}", f"starts{f' at {self.url}' if self.url else ''}")
        self._world.spawn(partial(self._live, self._scope))

    def die(self) -> None:
        """Kill its process immediately, with all calls in progress."""
        if self.living:
            self.living = False
            self._world.trace.add("life", f"worker {self.id}", "dies")
            self._world.network.leave(self.url)
            self._scope.cancel()
            for call in list(self._calls):
                call.cancel()

    async def _live(self, scope: trio.CancelScope) -> None:
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._send_heartbeats)
                    if self.kind == "queue":
                        nursery.start_soon(self._pull, nursery)
        except Exception as error:
            self._world.fail(f"worker {self.id} raised {type(error).__name__}: {error}", error)

    async def _send_heartbeats(self) -> None:
        while True:
            with trio.move_on_after(HEARTBEAT):
                if not self.silent:
                    await self._send_heartbeat()
                await trio.sleep_forever()

    async def _send_heartbeat(self) -> None:
        try:
            with self._server.connection() as engine:
                if self._registered:
                    await engine.workers.heartbeat(self.id, load=self.busy)
                else:
                    await engine.workers.register(self.id, self.url, self._names, kind=self.kind)
                    self._registered = True
        except NotFound:
            self._registered = False
        except GreenroomError:
            return  # the server or its store is down; the next heartbeat tries again

    # Its work.

    def _draw(self, call: Call) -> Trouble | None:
        draw = self._random.random() if self.rates else 1.0
        for trouble, rate in self.rates.items():
            draw -= rate
            if draw < 0:
                return trouble
        return None

    def _meets(self, call: Call) -> Trouble | None:
        trouble = self.trouble(call)
        if trouble is not None:
            self._world.fault(f"worker {self.id}", f"{trouble} at call {call.key}")
        return trouble

    async def _do(self, call: Call) -> tuple[Any, str]:
        """Execute a call. Returns its result and its error text."""
        try:
            return await self._work(call), ""
        except Exception as error:  # any failure of the service is its result
            return None, error_text(error)

    async def _answer(self, service: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Answer an HTTP call. The connection belongs to the caller: cancelling the call closes it."""
        asked = msgspec.json.decode(body)
        call = Call(service, unquote(headers["Idempotency-Key"]), asked["input"], asked["params"])
        self._judge("called", call.key, self.id)
        with trio.CancelScope() as scope:
            self._calls[scope] = None
            self.busy += 1
            try:
                return await self._answer_with(self._meets(call), call)
            finally:
                self.busy -= 1
                del self._calls[scope]
        raise PushFailed("reset", "the worker has died")

    async def _answer_with(self, trouble: Trouble | None, call: Call) -> tuple[int, bytes]:
        match trouble:
            case "unreachable":
                raise PushFailed("unreachable", "no route to the host")
            case "reset":
                raise PushFailed("reset", "connection reset by peer")
            case "status":
                return 500, b"internal server error"
            case "garbage":
                return 200, b"<html>"
            case "shape":
                return 200, b"[1, 2]"
            case "late":
                await trio.sleep(_LATE)
            case "slow":
                await trio.sleep(self._random.choice((0.1, 0.4)))
            case "never":
                await trio.sleep_forever()
            case "dies":
                self.die()
                await trio.sleep_forever()
        result, error = await self._do(call)
        if trouble == "lost":
            raise PushFailed("reset", "connection reset by peer after the service had executed")
        return 200, msgspec.json.encode({"result": result, "error": error})

    async def _pull(self, nursery: trio.Nursery) -> None:
        while True:
            if self.silent:
                await trio.sleep(1.0)
                continue
            try:
                with self._server.connection() as engine:
                    item = await engine.workers.poll(self.id, self._names, self._random.choice((1.0, 25.0)))
            except GreenroomError:
                await trio.sleep(1.0)
                continue
            if item is not None:
                nursery.start_soon(self._take, _Lease(item, self._server.lives))

    async def _take(self, lease: _Lease) -> None:
        self.busy += 1
        try:
            await self._handle(lease)
        finally:
            self.busy -= 1

    async def _handle(self, lease: _Lease) -> None:
        item = lease.item
        call = Call(item.service, item.key, item.input, item.params)
        trouble = self._meets(call)
        match trouble:
            case "dies":
                self.die()
                await trio.sleep_forever()
            case "never" | "unreachable" | "reset" | "lost":
                return
            case "late":
                await trio.sleep(_LATE)
            case "slow":
                await self._extend(lease)
        result, error = await self._do(call)
        if trouble in ("status", "garbage", "shape"):
            result, error = None, f"the worker had trouble: {trouble}"
        await self._complete(lease, result, error)
        if trouble == "twice":
            await self._complete(lease, result, error)

    async def _extend(self, lease: _Lease) -> None:
        for _ in range(self._random.randint(1, 4)):
            await trio.sleep(_EXTEND_EVERY)
            late, now = self._is_late(lease), trio.current_time()
            try:
                with self._server.connection() as engine:
                    await engine.workers.extend(lease.item.id, self.id)
            except GreenroomError:
                return
            if late:
                self._world.fail(
                    f"worker {self.id} extended its lease on {lease.item.key} after it had expired"
                )
            lease.until = now + VISIBLE_FOR

    async def _complete(self, lease: _Lease, result: Any, error: str) -> None:
        item, late = lease.item, self._is_late(lease)
        try:
            with self._server.connection() as engine:
                await engine.workers.complete(item.id, result, error, worker_id=self.id)
        except Conflict:
            self._world.trace.add("note", f"worker {self.id}", f"its completion of {item.key} is refused")
        except GreenroomError:
            return  # whether the engine has accepted it is unknown
        else:
            why = "twice" if lease.completed else "too late" if late else None
            lease.completed = True
            self._judge("acknowledged", item.key, self.id, result, error, why)

    def _is_late(self, lease: _Lease) -> bool:
        return trio.current_time() > lease.until or self._server.lives != lease.life

    def _judge(self, look: str, *arguments: Any) -> None:
        self._server.judge(getattr(self._server.rules.flows, look), *arguments)


class _Lease:
    """A worker's lease on an item of the queue, in one life of the server."""

    def __init__(self, item: QueueItem, life: int) -> None:
        self.item = item
        self.life = life
        self.until = trio.current_time() + VISIBLE_FOR
        self.completed = False
