"""Every statement that a commit may execute, by name. Which rows they get is decided in `writing.py`.

Nothing here or there goes through SQLAlchemy's expressions: a commit is a handful of statements that never
change, for which all that SQLAlchemy does costs more than SQLite does.
"""

from __future__ import annotations

from collections.abc import Set
from functools import cache

from . import schema
from .lease import FENCE
from .statements import Delete, Insert, Update, status_in

# The store's own row. A batch begins with the first of these.

ADVANCE = (
    "UPDATE meta SET last_seq = ?, last_place = CASE WHEN last_place < ? THEN ? ELSE last_place END "
    f"WHERE id = 1 AND last_seq = ? AND engine = ? AND {FENCE}"
)
"""Move the last seq on, and the last place if it is higher, where the last seq is the expected one and the
store is still this engine's."""

SET_ENGINE = "UPDATE meta SET max_concurrent = ?, draining = ? WHERE id = 1"
"""What the engine was told about itself."""

LAST_COMMIT = "SELECT last_seq, engine FROM meta"
"""How far the store has come, and by whom: for a batch whose outcome is unknown."""

# Runs.

ADD_RUNS = Insert(
    schema.runs,
    (
        "id",
        "handle",
        "lane",
        "status",
        "place",
        "created_seq",
        "ended_seq",
        "ended_at",
        "files_doomed",
        "terms",
        "record",
    ),
)
"""New runs."""


@cache
def move_runs(expected: Set[str]) -> Update:
    """The next state of runs that must have one of the expected statuses: the compare-and-set."""
    columns = ("status", "place", "ended_seq", "ended_at", "record")
    return Update(schema.runs, "id", columns, status_in(sorted(expected)))


DOOM_FILES = Update(schema.runs, "id", ("files_doomed",))
"""The finished files of these runs are to be deleted."""

SET_WAKES = Update(schema.runs, "id", ("wakes_at",))
"""When suspended runs go on by themselves."""

SET_TERMS = Update(schema.runs, "id", ("terms",))
"""What runs were submitted under, as it is now."""

SET_REQUESTS = Insert(schema.requests, ("request_id", "run", "fingerprint"))
"""Which run a request id answers with."""

SET_DEATHS = Insert(schema.deaths, ("run", "count"))
"""How many processes died while they executed a run."""

FORGET_DEATHS = Delete(schema.deaths, "run")
"""No process is known to have died of these runs."""

# Events, and what is kept of them beside.

ADD_EVENTS = Insert(schema.events, ("seq", "at", "run", "event"))
"""What has happened."""

ADD_MESSAGES = Insert(schema.messages, ("seq", "run", "value"))
"""Messages and signals that a body has not taken yet."""

TAKE_MESSAGES = Delete(schema.messages, "seq")
"""A body has taken these."""

ASK = Insert(schema.interrupts, ("id", "run", "question"))
"""Interrupts that were opened."""

CLOSE = Update(schema.interrupts, "id", ("closed",))
"""Interrupts that were closed, and how."""

SPEND = Update(schema.interrupts, "id", ("question",))
"""Interrupts whose answers no later body gets."""

SET_LANES = Insert(schema.lanes, ("name", "slots", "generation"))
"""Limits and generations of lanes."""

SET_DRAFTS = Insert(schema.handles, ("name", "params"))
"""The drafts of handles."""

HOLD = Insert(schema.held, ("handle", "run"))
"""Handles that an abandoned body holds."""

FREE = Delete(schema.held, "handle")
"""Handles that no abandoned body holds any more."""

# What bodies leave.

SET_CHECKPOINTS = Insert(schema.checkpoints, ("id", "handle", "job", "run", "value", "interrupts", "calls"))
"""The last checkpoint of each handle and job."""

ADD_FILES = Insert(schema.files, ("id", "run", "path"))
"""Files that are about to get their final names."""

FORGET_FILES = Delete(schema.files, "id")
"""Files that did not get them, or that are named anew."""

# Flows and workers.

BEGIN_WALKS = Insert(schema.flow_runs, ("run", "version", "numbered", "state"))
"""Runs that begin to walk a flow."""

MOVE_WALKS = Update(schema.flow_runs, "run", ("numbered", "state"))
"""How far runs have walked."""

ADD_NODE_RUNS = Insert(schema.node_runs, ("run", "number", "record"))
"""Attempts of nodes."""

SET_FLOWS = Insert(schema.flows, ("id", "record"))
"""Flows."""

SET_VERSIONS = Insert(schema.flow_versions, ("id", "flow", "version", "status", "created_at", "definition"))
"""Versions of flows."""

SET_WORKERS = Insert(schema.workers, ("id", "record"))
"""Workers that have registered."""

FORGET_WORKERS = Delete(schema.workers, "id")
"""Workers that are gone."""
