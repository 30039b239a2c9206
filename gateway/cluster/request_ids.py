"""Request ids that a node draws for submissions that have none: so it can send them to the next leader if
one is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ...protocol.batches import existed, with_drawn_ids
from ...protocol.commandbase import submits_runs
from ...protocol.commands import SubmitMany
from ...protocol.schedule_commands import TriggerSchedule
from ...protocol.submission import JOINING
from ..commands.entries import Fields


def with_request_ids(command: Any, draw: Callable[[], str]) -> Any:
    """The command with a request id for each submission; the same object if nothing lacks one."""
    if submits_runs(command) and command.request_id is None:
        return replace(command, request_id=draw())
    if isinstance(command, SubmitMany) and any(run.request_id is None for run in command.runs):
        return replace(command, runs=with_drawn_ids(command.runs, draw))
    return command


def with_true_joins(command: Any, fields: Fields) -> Fields:
    """The reply to a command for which request ids were drawn: what is `joined` because it was sent twice did
    not exist before."""
    if isinstance(command, SubmitMany):
        pairs = zip(command.runs, fields["submitted"], strict=True)
        fields["submitted"] = [
            outcome if outcome.error is not None else replace(outcome, joined=existed(run, outcome))
            for run, outcome in pairs
        ]
    elif fields.get("joined") and not _can_join(command):
        fields["joined"] = False
    return fields


def _can_join(command: Any) -> bool:
    """Whether the run can have existed before the command. What a schedule does on a conflict is not known
    here."""
    return isinstance(command, TriggerSchedule) or getattr(command, "on_conflict", "reject") in JOINING
