"""Shrinking: leave out the steps of a failing seed that the failure does not need.

The remaining steps are the same as before, but the timing between them changes, and the failure can disappear
although the steps that cause it are there. So the result is small, but not always the smallest.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from itertools import chain, combinations

from ..simulate import Game, SimulationFailed, hidden

SECONDS = 30.0
"""The limit of real time for the search."""

_ALIKE = 0.6
_DETAILS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}|<[^<>]*>|'[^']*'|\"[^\"]*\"")

_now = time.monotonic


def shrink(failed: SimulationFailed, game: Game, *, seconds: float = SECONDS) -> SimulationFailed:
    """Replay a failed seed with fewer and fewer of its steps, as long as it fails in the same way; returns
    the smallest failure."""
    smallest, until, kind = failed, _now() + seconds, _kind(failed.invariant)

    def fails(kept: Sequence[int]) -> bool:
        __tracebackhide__ = hidden
        nonlocal smallest
        try:
            game.play(failed.seed, kept)
        except SimulationFailed as error:
            if _alike(_kind(error.invariant), kind):
                smallest = error
                return True
        return False

    taken = failed.keep if failed.keep is not None else range(1, failed.figures.steps + 1)
    minimize(taken, fails, lambda: _now() < until)
    return smallest


def minimize(steps: Sequence[int], fails: Callable[[Sequence[int]], bool], go_on: Callable[[], bool]) -> None:
    """Find a few steps with which the scenario still fails. `fails` is called with the steps to keep.

    First by delta debugging: leave out halves of the remaining steps, then quarters and so on, down to single
    steps, until none can be left out. Then try all combinations of up to three of the remaining steps: a step
    can be necessary only because others are there.
    """
    left = list(steps)
    if not left or not go_on() or fails([]):
        return
    left = _leave_out(left, fails, go_on)
    for few in chain.from_iterable(combinations(left, size) for size in range(1, min(4, len(left)))):
        if not go_on() or fails(few):
            return


def _leave_out(
    left: list[int], fails: Callable[[Sequence[int]], bool], go_on: Callable[[], bool]
) -> list[int]:
    parts = 2
    while go_on():
        size = max(1, len(left) // parts)
        for start in range(0, len(left), size):
            kept = left[:start] + left[start + size :]
            if kept and fails(kept):
                left, parts = kept, max(2, parts - 1)
                break
            if not go_on():
                return left
        else:
            if size == 1:
                return left
            parts = min(len(left), parts * 2)
    return left


def _kind(invariant: str) -> list[str]:
    """The words of an invariant's text, without details such as runs and numbers."""
    text, before = invariant, ""
    while text != before:
        text, before = _DETAILS.sub(" ", text), text
    return [word for word in text.split() if not any(letter.isdigit() for letter in word)]


def _alike(one: list[str], other: list[str]) -> bool:
    return SequenceMatcher(None, one, other, autojunk=False).ratio() >= _ALIKE
