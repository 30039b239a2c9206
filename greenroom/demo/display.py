"""The demo's output: on a terminal the live table with the last messages, otherwise lines."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

try:
    import termios
    import tty
except ModuleNotFoundError:  # on Windows
    _HAS_KEYS = False
else:
    _HAS_KEYS = True

import trio
from rich.console import Group, RenderableType
from rich.text import Text

from ..commands.live_table import Board
from ..commands.output import console
from ..protocol.records import Snapshot

_LINES = 7


class Display(Board):
    """A board with a title above, and the last messages below."""

    def __init__(self, keys: str) -> None:
        super().__init__()
        self._title: list[str] = []
        self._keys = keys
        self._messages: deque[str] = deque(maxlen=_LINES)
        self._out = console()
        self.live = self._out.is_terminal
        """Whether the output is a terminal."""

    def show(self, text: str) -> None:
        """Show a message."""
        self._messages.append(text)
        if not self.live:
            self._out.print(text, soft_wrap=True)

    def announce(self, *lines: str) -> None:
        """Show lines above the table."""
        self._title = list(lines)
        if not self.live:
            for line in lines:
                self._out.print(line, soft_wrap=True)

    def draw(self, state: Snapshot, height: int) -> RenderableType:
        room = height - len(self._title) - len(self._messages) - bool(self._keys) - 4
        return self.around(super().draw(state, room))

    def around(self, *content: RenderableType) -> RenderableType:
        """The content with the title above, and the last messages below."""
        above = [Text(line, "dim") for line in self._title]
        below = [Text(f"• {line}", no_wrap=True, overflow="ellipsis") for line in self._messages]
        keys = [Text(self._keys, "dim")] if self._keys else []
        return Group(*above, Text(), *content, Text(), *below, *keys)


@contextmanager
def keyboard() -> Iterator[Callable[[], AsyncIterator[str]] | None]:
    """The keys that are pressed during the block; `None` without a terminal."""
    if not (_HAS_KEYS and sys.stdin.isatty() and sys.stdout.isatty()):
        yield None
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    async def pressed() -> AsyncIterator[str]:
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            data = os.read(descriptor, 64)
            if not data:
                return
            for key in data.decode(errors="ignore"):
                yield key

    try:
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
