"""The rules of webhooks: a receiver gets each event that it should, in order per run, also across crashes.

A receiver calls `gets` for each request, and `accepts` when it responds with success. An event can be sent
again, until its delivery is stored, but never before an earlier one of its run was accepted. After a
webhook was dropped, its receiver gets nothing more. A webhook is dead only after the engine has attempted
deliveries for an hour since its start, or since its clock was set: call `interrupted` at both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import trio

from ...protocol.events import Event, RunEvent, WebhookChanged
from ...protocol.webhooks import SETTLING_TIME, Webhook, webhook_id


class _Stretch(NamedTuple):
    """A time without interruptions: the last event before it, its beginning, and what the time of day is
    ahead of the steady time."""

    after: int
    began: float
    offset: float


class WebhookRules:
    """See the module's docstring. `events` are the committed ones."""

    def __init__(self, events: Callable[[], list[Event]], fault: Callable[[str], None]) -> None:
        self._events = events
        self._fault = fault
        self._wanted: dict[tuple[str, str], Collection[str]] = {}
        self._accepted: dict[tuple[str, str], set[int]] = {}
        self._attempts: dict[str, list[float]] = {}
        self._dropped: set[str] = set()
        self._perhaps_dropped: set[str] = set()
        self._stretches: list[_Stretch] = []

    def subscribe(self, run: str, url: str, types: Collection[str]) -> None:
        """Record that a receiver gets the events of a run with these types."""
        self._wanted[run, url] = types

    def accepts(self, url: str, run: str, seq: int) -> None:
        """Record that a receiver has accepted an event."""
        self._accepted.setdefault((run, url), set()).add(seq)

    def gets(self, url: str, run: str, seq: int) -> None:
        """Check an event that a receiver gets."""
        id = webhook_id(run, url)
        if id in self._dropped:
            self._fault(f"{url} got event {seq} of run {run}, whose webhook was dropped")
        self._attempts.setdefault(id, []).append(trio.current_time())
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
            gone = webhook_id(run, url) in self._dropped | self._perhaps_dropped
            if missing and not gone and (run, url) not in dead:
                self._fault(f"{url} never got events {missing} of run {run}, of the types {sorted(types)}")

    def drops(self, id: str) -> None:
        """Record that a caller begins to drop a webhook: after a crash it can be dropped."""
        self._perhaps_dropped.add(id)

    def dropped(self, id: str) -> None:
        """Record that a webhook was dropped."""
        self._dropped.add(id)

    def listed(self, webhook: Webhook) -> None:
        """Check a webhook that was listed as failing."""
        failing = webhook.attempts and webhook.error and webhook.failing_since is not None
        if not failing or webhook.next_at is None or webhook.dead_at is not None:
            self._fault(f"webhook {webhook} is listed as failing")

    def interrupted(self, now: float) -> None:
        """Record that the engine starts, or that its clock was set to this time."""
        events = self._events()
        steady = trio.current_time()
        self._stretches.append(_Stretch(events[-1].seq if events else 0, steady, now - steady))

    def check_deaths(self) -> None:
        """Check that each dead webhook was attempted for long enough."""
        for event in self._events():
            if isinstance(event, WebhookChanged) and event.to == "dead":
                self._check_death(event)

    def _check_death(self, event: WebhookChanged) -> None:
        stretch = [each for each in self._stretches if each.after < event.seq][-1]
        died = event.at - stretch.offset
        if died < stretch.began:
            return  # decided before the clock was set
        attempts = [at for at in self._attempts[event.webhook] if stretch.began <= at <= died]
        if died - stretch.began < SETTLING_TIME or len(attempts) < 2:
            self._fault(
                f"webhook {event.webhook} was dead {died - stretch.began:g} s after the engine started or "
                f"its clock was set, with {len(attempts)} attempts since"
            )

    def _due(self, run: str, url: str) -> list[RunEvent]:
        types = self._wanted.get((run, url), ())
        return [
            event
            for event in self._events()
            if isinstance(event, RunEvent) and event.run == run and event.type in types
        ]
