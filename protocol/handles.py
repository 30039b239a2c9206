"""The handles of a projection, each as the record that a snapshot contains.

A change replaces the record, as with runs, so a snapshot only copies one dict. The exception is a long list
of the runs that wait in a handle: it is built when a snapshot needs it, because building it takes time in
proportion to its length.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from .records import HandleState
from .states import HandleStatus

_SHORT = 16
"""A list of waiting runs up to this length is kept up to date in the record."""

_NONE: list[str] = []
"""The list of most handles. It is shared, so that the garbage collector need not track many empty lists."""


class Handles(Mapping[str, HandleState]):
    """Handles by name. Long lists of waiting runs in the records are outdated until `copy` is called."""

    def __init__(self) -> None:
        self._states: dict[str, HandleState] = {}
        self._runs: dict[str, int] = {}  # the number of its runs in the projection
        self._last_ended: dict[str, str] = {}  # the run whose end gave the handle its status
        self._waiting: dict[str, OrderedDict[str, None]] = {}  # of handles in which runs wait
        self._outdated: dict[str, None] = {}

    def __getitem__(self, name: str) -> HandleState:
        return self._states[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def begin(self, name: str, state: HandleState) -> None:
        """Start with a handle from a snapshot. Its runs are added later."""
        if state.waiting:
            self._waiting[name] = OrderedDict.fromkeys(state.waiting)
        elif state.waiting is not _NONE:
            state = HandleState(state.status, state.locked, state.active_run, _NONE, state.params)
        self._states[name] = state
        self._runs[name] = 0

    def copy(self) -> dict[str, HandleState]:
        """Return all handles as they are now."""
        for name in self._outdated:
            state = self._states[name]
            waiting = list(self._waiting[name])
            self._states[name] = HandleState(
                state.status, state.locked, state.active_run, waiting, state.params
            )
        self._outdated.clear()
        return self._states.copy()

    def add_run(self, name: str) -> None:
        """Count a run of this handle that the projection has added."""
        self._runs[name] = self._runs.get(name, 0) + 1
        if name not in self._states:
            self._states[name] = IDLE

    def end_run(self, name: str, run: str) -> None:
        """A run that had a place has ended, or is such a one in a snapshot, in the order of their ends."""
        self._last_ended[name] = run

    def remove_run(self, name: str, run: str) -> None:
        """Count an ended run of this handle that the projection has removed."""
        self._runs[name] -= 1
        if self._last_ended.get(name) == run:
            del self._last_ended[name]
        self._forget(name)

    def admit(self, name: str, run: str) -> None:
        """Admit a run: it holds the handle and is queued in its lane."""
        state = self._states[name]
        self._states[name] = HandleState(HandleStatus.QUEUED, True, run, state.waiting, state.params)

    def advance(self, name: str, run: str, status: HandleStatus, *, frees: bool) -> None:
        """Update the handle after its run changed its status, if this run holds the handle."""
        state = self._states[name]
        if state.active_run == run:
            active = None if frees else run
            self._states[name] = HandleState(status, not frees, active, state.waiting, state.params)

    def wait(self, name: str, run: str, *, front: bool) -> None:
        """Add a run that waits in the handle, after the others or before them."""
        waiting = self._waiting.get(name)
        if waiting is None:
            waiting = self._waiting[name] = OrderedDict()
        waiting[run] = None
        if front:
            waiting.move_to_end(run, last=False)
        self._list(name, waiting)

    def stop_waiting(self, name: str, run: str) -> bool:
        """Remove a run from those that wait in the handle. Returns whether it waited there."""
        waiting = self._waiting.get(name)
        if waiting is None or run not in waiting:
            return False
        del waiting[run]
        self._list(name, waiting)
        if not waiting:
            del self._waiting[name]
        return True

    def set_params(self, name: str, params: Any) -> None:
        """Set the draft."""
        state = self._states.get(name, IDLE)
        self._states[name] = HandleState(state.status, state.locked, state.active_run, state.waiting, params)
        self._runs.setdefault(name, 0)
        self._forget(name)

    def free(self, name: str, run: str) -> None:
        """Free the handle from an ended run whose abandoned body still held it."""
        state = self._states.get(name)
        if state is not None and state.active_run == run:
            self._states[name] = HandleState(state.status, False, None, state.waiting, state.params)
            self._forget(name)

    def _list(self, name: str, waiting: OrderedDict[str, None]) -> None:
        """Update the list in the record, or mark it as outdated if it is long."""
        if len(waiting) > _SHORT:
            self._outdated[name] = None
            return
        self._outdated.pop(name, None)
        state = self._states[name]
        shown = list(waiting) if waiting else _NONE
        self._states[name] = HandleState(state.status, state.locked, state.active_run, shown, state.params)

    def _forget(self, name: str) -> None:
        """Remove a free handle that has no runs and no draft. One without an ended run becomes idle."""
        state = self._states[name]
        if state.active_run is not None:
            return
        if not self._runs[name] and state.params is None:
            del self._states[name]
            del self._runs[name]
        elif name not in self._last_ended and state.status is not HandleStatus.IDLE:
            self._states[name] = HandleState(HandleStatus.IDLE, False, None, state.waiting, state.params)


IDLE = HandleState(HandleStatus.IDLE, False, None, _NONE)
"""A free handle without a draft. It is shared, because there can be very many."""
