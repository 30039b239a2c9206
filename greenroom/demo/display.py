"""What people see of the demo: the live table with the story below it; lines, where there is no terminal."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import trio
from rich.console import Group, RenderableType
from rich.text import Text

from ..commands.live_table import Board
from ..commands.output import console
from ..protocol.records import Snapshot

_LINES = 7


class Stage(Board):
    """A board with a title above and the story's last lines below."""

    def __init__(self, keys: str) -> None:
        super().__init__()
        self._title: list[str] = []
        self._keys = keys
        self._told: deque[str] = deque(maxlen=_LINES)
        self._out = console()
        self.live = self._out.is_terminal
        """Whether there is a terminal to draw on; else the story is told in lines."""

    def tell(self, text: str) -> None:
        """A line of the story."""
        self._told.append(text)
        if not self.live:
            self._out.print(text, soft_wrap=True)

    def announce(self, *lines: str) -> None:
        """What stands above the table."""
        self._title = list(lines)
        if not self.live:
            for line in lines:
                self._out.print(line, soft_wrap=True)

    def draw(self, state: Snapshot, height: int) -> RenderableType:
        above = [Text(line, "dim") for line in self._title]
        below = [Text(f"• {line}", no_wrap=True, overflow="ellipsis") for line in self._told]
        keys = [Text(self._keys, "dim")] if self._keys else []
        room = height - len(above) - len(below) - len(keys) - 4
        return Group(*above, Text(), super().draw(state, room), Text(), *below, *keys)


@contextmanager
def keyboard() -> Iterator[Callable[[], AsyncIterator[str]] | None]:
    """The keys as they are pressed, while the block lasts; `None` where there is no terminal for it."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
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
