"""`HeldBody`: the abandoned body of a run that has ended. It still holds its handle.

After a restart of the engine the run has no actor, so this object waits for the end of the body.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol import executors as wire
from .calls import Send, abandoned


class HeldBody:
    """See the module's docstring. `on_gone` is called when the body has ended, or is lost."""

    number = 0

    def __init__(self, run: str, fence: int, on_gone: Callable[[], object]) -> None:
        self.fence = fence
        self._run = run
        self._on_gone = on_gone
        self._peer: Send | None = None

    def adopt(self, peer: Send, received: int) -> None:
        """The executor has attached with this body: have it close the body."""
        self._peer = peer
        peer.send(wire.CloseBody(self._run, self.fence, "the run has ended without this body"))

    def receive(self, message: wire.FromExecutor) -> None:
        """Handle a message about this body."""
        assert self._peer is not None, "only an adopted body sends messages"
        match message:
            case wire.Call():
                self._peer.send(abandoned(self._run, self.fence, message.call))
            case wire.Ended():
                self._peer.send(wire.Settled(self._run, self.fence))
                self._on_gone()

    def lose(self, why: str, *, died: bool = False, forgotten: bool = False) -> None:
        """The executor is lost, and the body with it; or it has forgotten the body."""
        self._on_gone()
