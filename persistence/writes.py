"""All statements of a commit, by name. `writing.py` provides their rows.

They do not use SQLAlchemy's expressions: a commit is a few statements that never change, for which
SQLAlchemy would cost more time than SQLite.
"""

from __future__ import annotations

from collections.abc import Set
from functools import cache

from . import schema
from .lease import FENCE
from .statements import Delete, Insert, Update, status_in

# The row of the store. A commit begins with the first statement.

ADVANCE = (
    "UPDATE meta SET last_seq = ?, last_place = CASE WHEN last_place < ? THEN ? ELSE last_place END "
    f"WHERE id = 1 AND last_seq = ? AND engine = ? AND {FENCE}"
)
"""Advance the last seq, and the last place if it is higher, if the last seq is the expected one and the store
still belongs to this engine."""

SET_ENGINE = "UPDATE meta SET max_concurrent = ?, draining = ? WHERE id = 1"
"""The global limit, and whether the engine is draining."""

LAST_COMMIT = "SELECT last_seq, engine FROM meta"
"""The last seq and the engine, to check a batch with an unknown outcome."""

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


ADD_TAGS = Insert(schema.run_tags, ("tag", "run"))
"""The tags of new runs."""


@cache
def move_runs(expected: Set[str]) -> Update:
    """Return the compare-and-set of runs, which must have one of the expected statuses."""
    columns = ("status", "place", "ended_seq", "ended_at", "record")
    return Update(schema.runs, "id", columns, status_in(sorted(expected)))


DOOM_FILES = Update(schema.runs, "id", ("files_doomed",))
"""The finished files of these runs must be deleted."""

SET_WAKES = Update(schema.runs, "id", ("wakes_at",))
"""When suspended runs resume."""

SET_CREATED = Update(schema.runs, "id", ("created_seq",))
"""Delayed runs count as submitted with this event, because they wait in their handles from then on."""

SET_TERMS = Update(schema.runs, "id", ("terms",))
"""The terms of runs."""

SET_REQUESTS = Insert(schema.requests, ("request_id", "run", "fingerprint"))
"""The runs of request ids."""

SET_DEATHS = Insert(schema.deaths, ("run", "count"))
"""The numbers of processes that died while executing runs."""

FORGET_DEATHS = Delete(schema.deaths, "run")
"""Remove the numbers of dead processes of runs."""

# Events, and their data in other tables.

ADD_EVENTS = Insert(schema.events, ("seq", "at", "run", "event"))
"""New events."""

ADD_MESSAGES = Insert(schema.messages, ("seq", "run", "value"))
"""Messages and signals that a body has not taken yet."""

TAKE_MESSAGES = Delete(schema.messages, "seq")
"""Messages that a body has taken."""

OPEN = Insert(schema.interrupts, ("id", "run", "question"))
"""Opened interrupts."""

CLOSE = Update(schema.interrupts, "id", ("closed",))
"""Closed interrupts, with their outcome."""

SPEND = Update(schema.interrupts, "id", ("question",))
"""Spent interrupts, whose answers no later body gets."""

SET_LANES = Insert(schema.lanes, ("name", "slots", "generation", "paused", "rules"))
"""The settings of lanes."""

SET_BUCKETS = Insert(schema.buckets, ("id", "lane", "key", "full_at"))
"""The buckets of rates that are not full."""

FORGET_BUCKETS = Delete(schema.buckets, "id")
"""Buckets that are full."""

SET_DRAFTS = Insert(schema.handles, ("name", "params"))
"""The drafts of handles."""

HOLD = Insert(schema.held, ("handle", "run"))
"""Handles held by an abandoned body."""

FREE = Delete(schema.held, "handle")
"""Handles no longer held by an abandoned body."""

# Checkpoints and files.

SET_CHECKPOINTS = Insert(schema.checkpoints, ("id", "handle", "job", "run", "value", "interrupts", "calls"))
"""The last checkpoint of each handle and job."""

ADD_FILES = Insert(schema.files, ("id", "run", "path", "folder"))
"""Files about to get their final names."""

FORGET_FILES = Delete(schema.files, "id")
"""Files that did not get their final names, or that are recorded again."""

OWE_DELETIONS = Insert(schema.deletions, ("id", "record"))
"""Files to delete from the data folders of executors."""

FORGET_DELETIONS = Delete(schema.deletions, "id")
"""Deletions that are done, or recorded again."""

# Schedules, executors, flows and workers.

SET_SCHEDULES = Insert(schema.schedules, ("id", "record"))
"""Schedules."""

FORGET_SCHEDULES = Delete(schema.schedules, "id")
"""Schedules that were deleted, or have changed."""

SET_EXECUTORS = Insert(schema.executors, ("id", "executor", "record"))
"""Executors that are not gone."""

FORGET_EXECUTORS = Delete(schema.executors, "id")
"""Executors that are gone, or have changed."""

BEGIN_WALKS = Insert(schema.flow_runs, ("run", "version", "numbered", "state"))
"""The first states of walks."""

MOVE_WALKS = Update(schema.flow_runs, "run", ("numbered", "state"))
"""Later states of walks."""

ADD_NODE_RUNS = Insert(schema.node_runs, ("run", "number", "record"))
"""Node runs."""

SET_FLOWS = Insert(schema.flows, ("id", "record"))
"""Flows."""

SET_VERSIONS = Insert(schema.flow_versions, ("id", "flow", "version", "status", "created_at", "definition"))
"""Versions of flows."""

SET_WORKERS = Insert(schema.workers, ("id", "record"))
"""Registered workers."""

FORGET_WORKERS = Delete(schema.workers, "id")
"""Removed workers."""

# Webhooks. `next_at` is null while there is nothing to deliver, which these statements decide themselves: an
# event can be committed between the delivery of the last one and its record.

ADD_WEBHOOKS = Insert(
    schema.webhooks,
    (
        "id",
        "run",
        "receiver",
        "url",
        "types",
        "delivered",
        "marked",
        "ended",
        "next_at",
        "attempts",
    ),
)
"""The webhooks of new runs."""

MARK_WEBHOOKS = (
    "UPDATE webhooks SET marked = ?, ended = ?, "
    "next_at = CASE WHEN dead_at IS NULL THEN COALESCE(next_at, ?) ELSE NULL END WHERE run = ?"
)
"""A run has an event that concerns its webhooks."""

SETTLE_WEBHOOK = (
    "UPDATE webhooks SET delivered = ?, next_at = CASE WHEN marked > ? THEN ? ELSE NULL END, "
    "attempts = 0, failing_since = NULL, error = NULL WHERE id = ?"
)
"""All events up to a seq are delivered."""

END_WEBHOOK = "DELETE FROM webhooks WHERE id = ? AND ended = ? AND marked <= delivered"
"""Remove a webhook if all events of its run, which has ended, are delivered."""

FAIL_WEBHOOK = (
    "UPDATE webhooks SET attempts = ?, failing_since = ?, next_at = ?, error = ?, dead_at = ? WHERE id = ?"
)
"""An attempt has failed."""

REVIVE_WEBHOOK = (
    # MySQL assigns from left to right, so `dead_at` is cleared last.
    "UPDATE webhooks SET next_at = ?, attempts = CASE WHEN dead_at IS NULL THEN attempts ELSE 0 END, "
    "failing_since = CASE WHEN dead_at IS NULL THEN failing_since ELSE NULL END, dead_at = NULL "
    "WHERE id = ? AND failing_since IS NOT NULL"
)
"""A failing or dead webhook is due now. A dead one begins anew."""

DROP_WEBHOOK = "DELETE FROM webhooks WHERE id = ? AND failing_since IS NOT NULL"
"""Remove a failing or dead webhook."""
