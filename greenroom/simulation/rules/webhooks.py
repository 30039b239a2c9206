"""The rules of webhooks: a receiver gets each event that it should, in order per run, also across crashes.

A receiver calls `gets` for each request, and `accepts` when it responds with success. An event can be sent
again, until its delivery is stored, but never before an earlier one of its run was accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ...protocol.events import Event, RunEvent


class WebhookRules:
    """See the module's docstring. `events` are the committed ones."""

    def __init__(self, events: Callable[[], list[Event]], fault: Callable[[str], None]) -> None:
        self._events = events
        self._fault = fault
        self._wanted: dict[tuple[str, str], Collection[str]] = {}
        self._accepted: dict[tuple[str, str], set[int]] = {}

    def subscribe(self, run: str, url: str, types: Collection[str]) -> None:
        """Record that a receiver gets the events of a run with these types."""
        self._wanted[run, url] = types

    def accepts(self, url: str, run: str, seq: int) -> None:
        """Record that a receiver has accepted an event."""
        self._accepted.setdefault((run, url), set()).add(seq)

    def gets(self, url: str, run: str, seq: int) -> None:
        """Check an event that a receiver gets."""
        accepted = self._accepted.get((run, url), set())
        due = [event.seq for event in self._due(run, url)]
        if (run, url) in self._wanted and seq not in due:
            self._fault(f"{url} got event {seq} of run {run}, which it does not want or which is not stored")
        missing = [each for each in due if each < seq and each not in accepted]
        if missing:
            self._fault(f"{url} got event {seq} of run {run} before {missing}")

    def check_all_delivered(self, dead: Collection[tuple[str, str]]) -> None:
        """Check that each event was delivered, except those of `dead` webhooks, given by run and URL."""
        for (run, url), types in self._wanted.items():
            accepted = self._accepted.get((run, url), set())
            missing = [event.seq for event in self._due(run, url) if event.seq not in accepted]
            if missing and (run, url) not in dead:
                self._fault(f"{url} never got events {missing} of run {run}, of the types {sorted(types)}")

    def _due(self, run: str, url: str) -> list[RunEvent]:
        types = self._wanted.get((run, url), ())
        return [
            event
            for event in self._events()
            if isinstance(event, RunEvent) and event.run == run and event.type in types
        ]
