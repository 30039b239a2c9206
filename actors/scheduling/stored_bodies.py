"""Which stored runs had a body when the engine ended, and where that body can still execute.

Bodies in the engine's own process and in its child processes ended with the engine. The body of another
executor continues: the run keeps its slot and its handle until that executor attaches, or counts as lost.
"""

from __future__ import annotations

from ...persistence.store import Stored, StoredRun
from ...protocol.records import RunRecord
from ...protocol.states import Status

CHILD_PREFIX = "local-"
"""The ids of the engine's child processes begin with this; no other executor's id does."""


def is_child(executor: str) -> bool:
    """Whether this is the id of a child process of the engine."""
    return executor.startswith(CHILD_PREFIX)


def held_elsewhere(stored: Stored) -> dict[str, RunRecord]:
    """The ended runs whose abandoned bodies can still execute at an attached executor, by handle."""
    return {run.handle: run for run in stored.abandoned if _is_attached(run)}


def _is_attached(run: RunRecord) -> bool:
    return run.executor is not None and not is_child(run.executor)


def had_body(run: StoredRun) -> bool:
    """Whether the run had a body that had not been requested to end."""
    record = run.record
    if record.status is Status.SUSPENDED:
        return record.waiting_for not in ("slot", "retry") and not run.terms.bodiless
    return record.status is Status.RUNNING


def never_began(record: RunRecord) -> bool:
    """Whether the last body of a run has not begun, so its attempt does not count."""
    return record.status is Status.SUSPENDED and record.reason in ("not_begun", "executor_refused")


def awaits_executor(run: StoredRun) -> bool:
    """Whether the run's body can still execute at an attached executor, also while it is being cancelled."""
    if not _is_attached(run.record):
        return False
    return run.record.status is Status.CANCELLING or had_body(run)
