"""The rules for batches of submissions: one commit creates the runs of a batch, in their order, and with
`all_or_nothing` it creates all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from ...protocol.events import Event, RunStateChanged


@attrs.define
class ModelBatch:
    """A batch that a client has submitted, and whether a commit has created runs of it."""

    runs: Sequence[Mapping[str, Any]]
    all_or_nothing: bool
    is_created: bool = False


class BatchRules:
    """See the module's docstring. A client that submits a batch makes no other submission under its name."""

    def __init__(self, wrong: Callable[[str], None]) -> None:
        self._batches: dict[str, ModelBatch] = {}
        self._wrong = wrong

    def submitted(self, client: str, batch: ModelBatch) -> None:
        """A client is about to submit a batch."""
        self._batches[client] = batch

    def commit(self, events: Sequence[Event]) -> None:
        """Check the runs that one commit has created."""
        created: dict[str, list[RunStateChanged]] = {}
        for event in events:
            if isinstance(event, RunStateChanged) and event.from_ is None and event.by in self._batches:
                created.setdefault(event.by, []).append(event)
        for client, runs in created.items():
            batch = self._batches[client]
            if batch.is_created:
                self._wrong(f"the runs of the batch of {client} were created by several commits")
            batch.is_created = True
            if not _fits(batch.runs, runs, batch.all_or_nothing):
                ids = ", ".join(event.run for event in runs)
                self._wrong(f"the batch of {client} has created only or also these runs: {ids}")


def _fits(
    runs: Sequence[Mapping[str, Any]], created: Sequence[RunStateChanged], all_or_nothing: bool
) -> bool:
    """Whether these runs can have been created for a batch, in this order. Each of its runs was created,
    unless it can have joined another run or, without `all_or_nothing`, was refused."""
    if not runs:
        return not created
    run, *others = runs
    if created and _is_of(created[0], run) and _fits(others, created[1:], all_or_nothing):
        return True
    may_join = run["on_conflict"] == "join" or "request_id" in run
    return (may_join or not all_or_nothing) and _fits(others, created, all_or_nothing)


def _is_of(created: RunStateChanged, run: Mapping[str, Any]) -> bool:
    return (created.job, created.handle, created.params) == (run["job"], run["handle"], run["params"])
