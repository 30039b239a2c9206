"""The positions of what a body asks for: its interrupts, and its calls of child runs.

A body that goes on from a checkpoint makes its calls anew, from there on, and must be given the answers and
children that the body before it had at the same positions. So positions are counted, the count is committed
with each checkpoint, and the next body counts on from it. What is still open when a checkpoint is saved (in
another task of the body) is not counted: the next body asks for it once more.
"""

from __future__ import annotations

import msgspec


class Positions(msgspec.Struct, gc=False):
    """One such count. Most bodies ask for nothing, so the set is made when it is needed."""

    _last: int
    _open: set[int] | None = None

    def begin(self) -> int:
        """The position of what is asked for now."""
        self._last += 1
        if self._open is None:
            self._open = set()
        self._open.add(self._last)
        return self._last

    def end(self, position: int) -> None:
        """It was given, or given up."""
        assert self._open is not None, "it begins before it ends"
        self._open.remove(position)

    def save(self) -> int:
        """The count for a checkpoint saved now. From here on this body counts as the next one will."""
        if not self._open:
            return self._last
        self._last = max(self._open)
        return min(self._open) - 1
