"""The network between the nodes of a cluster: each direction of each pair can be blocked by itself.

A blocked direction delivers nothing; what was sent arrives late, when it is free again, as TCP repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from random import Random

import trio

from ..network import Line

CONNECTS_WITHIN = 3.0
"""Seconds after which an attempt to connect fails if the network delivers nothing."""


class Wires:
    """See the module's docstring. Nodes have names; a connection of a node to itself has no faults."""

    def __init__(self, derived: Callable[..., Random]) -> None:
        self._derived = derived
        self._random = derived("wires")
        self._count = 0
        self._blocked: set[tuple[str, str]] = set()
        self._delays: dict[frozenset[str], tuple[float, float]] = {}
        self._lines: dict[Line, tuple[str, str]] = {}

    def is_fine(self, one: str, other: str) -> bool:
        """Whether nothing is blocked or delayed between two nodes."""
        pair = frozenset((one, other))
        return pair not in self._delays and not {(one, other), (other, one)} & self._blocked

    def block(self, *ways: tuple[str, str]) -> None:
        """Deliver nothing from the first node of each pair to the second."""
        self._blocked.update(ways)
        self._apply()

    def cut_off(self, nodes: Iterable[str], others: Iterable[str]) -> None:
        """Deliver nothing between two groups of nodes."""
        pairs = list(product(nodes, others))
        self.block(*pairs, *((other, node) for node, other in pairs))

    def free(self) -> None:
        """Deliver everything again, without delay."""
        self._blocked.clear()
        self._delays.clear()
        self._apply()

    def hold(self, one: str, other: str) -> list[Line]:
        """Block the present connections between two nodes, but not new ones. Returns them, for `let_go`."""
        lines = [line for line, ends in self._lines.items() if set(ends) == {one, other}]
        for line in lines:
            del self._lines[line]
            line.block(there=True, back=True)
        return lines

    def let_go(self, lines: Iterable[Line]) -> None:
        """Deliver what these connections hold."""
        for line in lines:
            line.block(there=False, back=False)

    def slow_down(self, one: str, other: str, delay: tuple[float, float]) -> None:
        """Delay all data between two nodes: minimum and maximum seconds."""
        self._delays[frozenset((one, other))] = delay
        self._apply()

    def break_off(self, one: str, other: str) -> None:
        """Break the present connections between two nodes."""
        for line, ends in list(self._lines.items()):
            if set(ends) == {one, other}:
                line.cut()

    async def connect(self, source: str, target: str) -> Line:
        """A new connection; the source has its near end. Raises `OSError`."""
        await trio.lowlevel.checkpoint()
        delay = self._delays.get(frozenset((source, target)))
        if delay is not None and source != target:
            await trio.sleep(self._random.uniform(*delay))
        if source != target and {(source, target), (target, source)} & self._blocked:
            await trio.sleep(CONNECTS_WITHIN)
            raise TimeoutError("connection timed out")
        for line in [line for line in self._lines if line.over]:
            del self._lines[line]
        self._count += 1
        line = Line(self._derived("wire", self._count), delay, lambda: None)
        if source != target:
            self._lines[line] = source, target
        return line

    def _apply(self) -> None:
        for line, (source, target) in self._lines.items():
            there, back = (source, target) in self._blocked, (target, source) in self._blocked
            line.block(there=there, back=back)
            line.delay = self._delays.get(frozenset((source, target)))
