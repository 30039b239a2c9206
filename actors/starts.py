"""The order of starts: slots are given in order of place, and the runs begin in that order for all to see.

A slot goes from the supervisor through a lane to a run, whose actor then commits that it executes. Lanes and
runs work beside each other, so these commits may come in another order than the slots were given in. The
supervisor tells the journal whom it gave slots, and the journal holds a commit back until those before it
have come, or have turned out not to begin after all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from ..protocol.events import RunStateChanged
from ..protocol.states import Status
from .change import Change


class Starting(msgspec.Struct, gc=False):
    """From the supervisor: these runs have been given slots, in this order."""

    runs: list[str]


class NotStarting(msgspec.Struct, gc=False):
    """From the supervisor: this run has given its slot back unused."""

    run: str


class Starts:
    """The runs that are about to begin, in order, each with its commit once that has come."""

    def __init__(self) -> None:
        self._expected: OrderedDict[str, Change | None] = OrderedDict()

    def expect(self, runs: list[str]) -> None:
        """These are about to begin, after those that were before."""
        for run in runs:
            self._expected[run] = None

    def expects(self, change: Change) -> bool:
        """Whether a change is one of those commits."""
        return change.run in self._expected and _is_start(change)

    def in_order(self, change: Change) -> Iterator[Change]:
        """Such a commit has come: the changes that can be decided now."""
        assert change.run is not None, "it is about the run that begins"
        self._expected[change.run] = change
        yield from self._ready()

    def without(self, run: str) -> Iterator[Change]:
        """A run doesn't begin after all: the changes that can be decided now."""
        self._expected.pop(run, None)
        yield from self._ready()

    def _ready(self) -> Iterator[Change]:
        while self._expected:
            run, change = next(iter(self._expected.items()))
            if change is None:
                return
            del self._expected[run]
            yield change


def _is_start(change: Change) -> bool:
    last = change.events[-1] if change.events else None
    return type(last) is RunStateChanged and last.to is Status.RUNNING
