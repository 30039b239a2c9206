"""Which of the events of a commit concern webhooks: their runs' rows are marked in the same transaction, so
that a delivery survives a crash at any moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...persistence.webhooks import WebhooksMarked
from ...protocol.events import Event, RunEvent

Types = Mapping[str, frozenset[str]]
"""The types of events that the webhooks of pending runs deliver, by run."""


def marks(events: Sequence[Event], ended: Collection[str], types: Types, now: float) -> list[WebhooksMarked]:
    """Return the marks of the events of a batch, in which these runs have `ended`."""
    last: dict[str, int] = {}
    for event in events:
        if isinstance(event, RunEvent):
            wanted = types.get(event.run)
            if wanted is not None and (event.type in wanted or event.run in ended):
                last[event.run] = event.seq
    return [WebhooksMarked(run, seq, now, run in ended) for run, seq in last.items()]
