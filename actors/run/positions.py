"""The positions of a body's interrupts and calls of child runs.

A body that resumes from a checkpoint repeats its later interrupts and calls, and must get the answers and
children that the previous body had at the same positions. So positions are counted, the count is committed
with each checkpoint, and the next body continues from it. Requests that are still open when a checkpoint is
saved (in another task of the body) are not counted: the next body repeats them.
"""

from __future__ import annotations

import msgspec


class Positions(msgspec.Struct, gc=False):
    """One counter of positions. Most bodies make no requests, so the set is created on first use."""

    _last: int
    _open: set[int] | None = None

    def begin(self) -> int:
        """Begin a request; returns its position."""
        self._last += 1
        if self._open is None:
            self._open = set()
        self._open.add(self._last)
        return self._last

    def end(self, position: int) -> None:
        """The request is answered, or the body no longer waits for it."""
        assert self._open is not None, "begin() was called before end()"
        self._open.remove(position)

    def save(self) -> int:
        """The count for a checkpoint saved now. From now on this body counts as the next body will."""
        if not self._open:
            return self._last
        self._last = max(self._open)
        return min(self._open) - 1
