"""The handles of a projection, each as the record that a snapshot shows.

A record is replaced when it changes, as those of runs are, so a snapshot takes them all by copying one dict.
Only the list of the runs that wait in a handle is made when a snapshot needs it, where it is long: a change
of it would cost as much as it is long.
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
"""What waits in most handles. One list for all: else most of what the collector looks at were empty lists."""


class Handles(Mapping[str, HandleState]):
    """See the module's text. The lists in the records are outdated until `refresh`."""

    def __init__(self) -> None:
        self._states: dict[str, HandleState] = {}
        self._runs: dict[str, int] = {}  # how many of its runs the projection holds
        self._waiting: dict[str, OrderedDict[str, None]] = {}  # where any wait
        self._outdated: dict[str, None] = {}

    def __getitem__(self, name: str) -> HandleState:
        return self._states[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def begin(self, name: str, state: HandleState) -> None:
        """Go on with a handle as a snapshot shows it. Its runs are still to be added."""
        if state.waiting:
            self._waiting[name] = OrderedDict.fromkeys(state.waiting)
        elif state.waiting is not _NONE:
            state = HandleState(state.status, state.locked, state.active_run, _NONE, state.params)
        self._states[name] = state
        self._runs[name] = 0

    def copy(self) -> dict[str, HandleState]:
        """All of them, as of now."""
        for name in self._outdated:
            state = self._states[name]
            waiting = list(self._waiting[name])
            self._states[name] = HandleState(
                state.status, state.locked, state.active_run, waiting, state.params
            )
        self._outdated.clear()
        return self._states.copy()

    def add_run(self, name: str) -> None:
        """The projection holds one run more of this handle."""
        self._runs[name] = self._runs.get(name, 0) + 1
        if name not in self._states:
            self._states[name] = _IDLE

    def remove_run(self, name: str) -> None:
        """The projection holds one run less of it."""
        self._runs[name] -= 1
        self._forget(name)

    def admit(self, name: str, run: str) -> None:
        """A run holds the handle, and is queued in its lane."""
        state = self._states[name]
        self._states[name] = HandleState(HandleStatus.QUEUED, True, run, state.waiting, state.params)

    def advance(self, name: str, run: str, status: HandleStatus, *, frees: bool) -> None:
        """The run has changed its state: what that says of the handle, if it is the one that holds it."""
        state = self._states[name]
        if state.active_run == run:
            active = None if frees else run
            self._states[name] = HandleState(status, not frees, active, state.waiting, state.params)

    def wait(self, name: str, run: str, *, front: bool) -> None:
        """A run waits in the handle, behind the others or before them."""
        waiting = self._waiting.get(name)
        if waiting is None:
            waiting = self._waiting[name] = OrderedDict()
        waiting[run] = None
        if front:
            waiting.move_to_end(run, last=False)
        self._list(name, waiting)

    def stop_waiting(self, name: str, run: str) -> bool:
        """A run waits in the handle no longer. Returns whether it did."""
        waiting = self._waiting.get(name)
        if waiting is None or run not in waiting:
            return False
        del waiting[run]
        self._list(name, waiting)
        if not waiting:
            del self._waiting[name]
        return True

    def set_params(self, name: str, params: Any) -> None:
        """The draft has changed."""
        state = self._states.get(name, _IDLE)
        self._states[name] = HandleState(state.status, state.locked, state.active_run, state.waiting, params)
        self._runs.setdefault(name, 0)
        self._forget(name)

    def free(self, name: str, run: str) -> None:
        """A run that has ended lets go of the handle only now."""
        state = self._states.get(name)
        if state is not None and state.active_run == run:
            self._states[name] = HandleState(state.status, False, None, state.waiting, state.params)
            self._forget(name)

    def _list(self, name: str, waiting: OrderedDict[str, None]) -> None:
        """Show in the record which runs wait, or note that it doesn't."""
        if len(waiting) > _SHORT:
            self._outdated[name] = None
            return
        self._outdated.pop(name, None)
        state = self._states[name]
        shown = list(waiting) if waiting else _NONE
        self._states[name] = HandleState(state.status, state.locked, state.active_run, shown, state.params)

    def _forget(self, name: str) -> None:
        """Let go of a handle of which there is nothing to show."""
        state = self._states[name]
        if self._runs[name] or state.active_run is not None:
            return
        if state.params is None:
            del self._states[name]
            del self._runs[name]
        elif state.status is not HandleStatus.IDLE:
            self._states[name] = HandleState(HandleStatus.IDLE, False, None, state.waiting, state.params)


_IDLE = HandleState(HandleStatus.IDLE, False, None, _NONE)
