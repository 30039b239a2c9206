"""Rule 11: at most one leader commits in a term, and terms only grow.

The leader of each term announces itself in its first commits, by an event with its term.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.events import Event, LeaderChanged


class ClusterRules:
    """See the module's docstring."""

    def __init__(self, fault: Callable[[str], None]) -> None:
        self._fault = fault
        self._leaders: dict[int, str] = {}  # by term: the process that has committed in it
        self._term = 0  # of the last commit
        self._announced = 0

    def commits(self, process: str, term: int, events: list[Event]) -> None:
        """Check a commit of a leader. `process` identifies it and its life."""
        if term < self._term:
            self._fault(f"{process} commits in term {term}, after a commit in term {self._term}")
        self._term = term
        leader = self._leaders.setdefault(term, process)
        if leader != process:
            self._fault(f"{process} commits in term {term}, in which {leader} has committed")
        for event in events:
            if isinstance(event, LeaderChanged):
                if event.term <= self._announced or event.term != term:
                    self._fault(f"{event}: committed in term {term}, after term {self._announced}")
                self._announced = event.term
