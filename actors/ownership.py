"""Who owns a handle: the one engine that may admit runs for it.

A handle's actor claims its handle when it wakes and releases it when it goes to sleep. In one process the
answer is always yes; with several engines on one store this is where a lease with a fencing number goes.
"""

from __future__ import annotations

from typing import Protocol


class Ownership(Protocol):
    """Claims on handles."""

    def claim(self, handle: str) -> None:
        """Become the owner; raises if someone else is."""

    def release(self, handle: str) -> None:
        """Give the handle up."""


class LocalOwnership:
    """Ownership within one engine: a second claim would mean two actors for one handle, which is a bug."""

    def __init__(self) -> None:
        self._claimed: set[str] = set()

    def claim(self, handle: str) -> None:
        if handle in self._claimed:
            raise RuntimeError(f"handle {handle!r} has two actors")
        self._claimed.add(handle)

    def release(self, handle: str) -> None:
        self._claimed.remove(handle)
