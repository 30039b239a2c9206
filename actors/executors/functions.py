"""Calls of functions in executors: the engine's side, for nodes of flows.

A call is made at an attached executor that has the function. It ends when the executor reports its end, or is
lost. A function that was called in an earlier session, before a restart of the engine, can still execute: no
function is called for its run until it has ended, or its executor is gone.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import trio

from ...protocol import executors as wire
from ...protocol.tracecontext import TraceContext
from .peer import Peer

logger = logging.getLogger("greenroom")

_LONGEST_ERROR = 10_000


class FunctionFailed(Exception):
    """A call has failed, with an error code for its node."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class _Call(msgspec.Struct):
    """A call that has not ended."""

    peer: Peer
    ended: trio.Event
    outcome: wire.FunctionEnded | FunctionFailed | None = None


class FunctionCalls:
    """See the module's docstring. `peers` returns the executors. `expects` returns whether an executor that
    was attached before the engine's restart has not attached yet, and is not lost."""

    def __init__(self, peers: Callable[[], Iterable[Peer]], expects: Callable[[], bool]) -> None:
        self._peers = peers
        self._expects = expects
        self._ids = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._older: dict[str, dict[int, str]] = {}  # by executor: the numbers and runs of earlier calls
        self._news = trio.lowlevel.ParkingLot()
        self._left = self._closed = False

    # For walks.

    async def call(
        self,
        name: str,
        input: Any,
        params: dict[str, Any],
        *,
        run: str,
        recovered: bool,
        waits: Callable[[str], None],
        trace: TraceContext | None = None,
    ) -> Any:
        """Call a function. `recovered`: the run began before the engine. `waits` is called with the reason if
        the call waits for an executor. `trace` is the trace of the run. A cancelled call ends when the
        function has ended."""
        peer = await self._choose(name, run, recovered, waits)
        id = next(self._ids)
        call = self._calls[id] = _Call(peer, trio.Event())
        parent, state = (None, None) if trace is None else (trace.parent, trace.state)
        peer.send(wire.CallFunction(id, run, name, input, params, parent, state))
        try:
            await call.ended.wait()
        except trio.Cancelled:
            await self._cancel(id, call)
            if not isinstance(call.outcome, wire.FunctionEnded) or call.outcome.code == "cancelled":
                raise  # otherwise it has ended by itself, before it noticed
        finally:
            del self._calls[id]
        if isinstance(call.outcome, FunctionFailed):
            raise call.outcome
        assert call.outcome is not None, "the call has ended"
        if call.outcome.error is not None:
            raise FunctionFailed(call.outcome.code, call.outcome.error[:_LONGEST_ERROR])
        return call.outcome.value

    async def _choose(self, name: str, run: str, recovered: bool, waits: Callable[[str], None]) -> Peer:
        told = None
        await trio.lowlevel.checkpoint()
        while True:
            why, found = f"no attached executor has function {name!r}", None
            if recovered and self._expects():
                why = "executors that were attached before the restart can still execute its function"
            elif any(run in runs.values() for runs in self._older.values()):
                why = "its function, called before, has not ended"
            else:
                found = self._free(name)
            if found is not None:
                return found  # without a checkpoint, in which it could leave
            if why != told:
                told = why
                waits(why)
            await self._news.park()

    def _free(self, name: str) -> Peer | None:
        able = [peer for peer in self._peers() if peer.accepts and name in peer.functions]
        calls = [call.peer.id for call in self._calls.values()]
        return min(able, key=lambda peer: (calls.count(peer.id), peer.id), default=None)

    async def _cancel(self, id: int, call: _Call) -> None:
        call.peer.send(wire.CancelFunction(id))
        with trio.CancelScope(shield=True):
            while not (call.ended.is_set() or self._closed or (self._left and not call.peer.child)):
                await self._news.park()

    # For the registry.

    def executing(self, peer: Peer) -> bool:
        """Whether an executor has a function that has not ended."""
        return bool(self._older.get(peer.id)) or any(call.peer is peer for call in self._calls.values())

    def new_session(self, peer: Peer, live: Iterable[wire.LiveFunction]) -> None:
        """An executor has begun a session: it cancels the functions of earlier ones."""
        self._older[peer.id] = {function.number: function.run for function in live}
        self._lose(peer, f"its executor {peer.id} has begun a new session")

    def ended(self, peer: Peer, message: wire.FunctionEnded) -> None:
        """A function has ended."""
        if message.id < 0:  # of an earlier session
            self._older.get(peer.id, {}).pop(-message.id, None)
        else:
            call = self._calls.get(message.id)
            if call is not None and call.peer is peer and call.outcome is None:
                call.outcome = message
                call.ended.set()
        self.look()

    def gone(self, peer: Peer, why: str) -> None:
        """An executor is gone, and its functions with it."""
        self._older.pop(peer.id, None)
        self._lose(peer, why)

    def leave(self) -> None:
        """The engine stops. Attached executors cancel their functions when they attach to the next one."""
        self._left = True
        self.look()

    def close(self) -> None:
        """The engine has stopped, in order or by a failure: no answers follow."""
        self._closed = True
        self.look()

    def look(self) -> None:
        """Have the calls that wait check again whether they can be made."""
        self._news.unpark_all()

    def _lose(self, peer: Peer, why: str) -> None:
        for call in self._calls.values():
            if call.peer is peer and call.outcome is None:
                call.outcome = FunctionFailed("crashed", why)
                call.ended.set()
        self.look()
