"""Schedules of the configuration: tables of the arguments of `schedules.put`, by the names of the schedules.

A table has no `paused`: operators pause and resume schedules, and that survives a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from ...protocol.errors import GreenroomError, Invalid
from ...protocol.names import FLOW, check_name
from ...protocol.schedules import ScheduleDefinition, ScheduleRecord
from ...protocol.submission import ScheduleKeywords
from ...protocol.suggestions import suggestion
from ...protocol.values import shown
from ..engine.submission_checks import SubmissionChecks
from ..jobs import scheduled
from .declaration import TIMES, Schedule, submission_of
from .machine import MAX_SCHEDULES, Declared
from .messages import Source

Tables = Mapping[str, Mapping[str, Any]]

ARGUMENTS = ("job", "handle", "params", *TIMES, *ScheduleKeywords.__annotations__)
"""The keys of a table."""

PORTION = 100
"""How many schedules are checked, and how many are changed, before other tasks have their turn."""


def configured(tables: Tables, checks: SubmissionChecks) -> list[ScheduleDefinition]:
    """Return the schedules of the configuration, checked as `schedules.put` checks them, except that a flow
    need not exist yet. Raises `Invalid`."""
    check_tables(tables)
    definitions: list[ScheduleDefinition] = []
    for name, table in tables.items():
        try:
            job, schedule = read_schedule(name, table)
            definition = scheduled(checks.jobs.get(job), schedule)
        except GreenroomError as error:
            raise _of_schedule(name, error) from None
        definitions.append(check_declared(definition, checks))
    return definitions


def check_declared(definition: ScheduleDefinition, checks: SubmissionChecks) -> ScheduleDefinition:
    """Return a definition whose submission the engine would not refuse as invalid. Raises `Invalid`."""
    try:
        checks.repeated(submission_of(definition, None))
    except GreenroomError as error:
        raise _of_schedule(definition.name, error) from None
    return definition


def _of_schedule(name: str, error: GreenroomError) -> Invalid:
    return Invalid(f"schedule {shown(name)}: {error.message}", **error.details)


def check_tables(tables: Tables) -> None:
    """Raise `Invalid` for what is no mapping, and for more schedules than an engine can have."""
    if not isinstance(tables, Mapping):
        raise Invalid(f"schedules must be a table for each schedule, by its name (got {shown(tables)})")
    if len(tables) > MAX_SCHEDULES:
        raise Invalid(f"schedules must have at most {MAX_SCHEDULES:,} tables (got {len(tables):,})")


def all_declared(
    in_code: Iterable[ScheduleDefinition], in_configuration: Iterable[ScheduleDefinition]
) -> list[Declared]:
    """Return all schedules that are declared. Raises `Invalid` for a name that is declared twice."""
    found: dict[str, Declared] = {}
    sources: tuple[tuple[Source, Iterable[ScheduleDefinition]], ...] = (
        ("code", in_code),
        ("config", in_configuration),
    )
    for source, definitions in sources:
        for definition in definitions:
            earlier = found.setdefault(definition.name, (definition, source))[0]
            if earlier is not definition:
                raise Invalid(
                    f"schedule {shown(definition.name)} is declared twice, for job {shown(earlier.job)} and "
                    f"for job {shown(definition.job)}: remove one of them, or choose another name",
                    value=definition.name,
                )
    return list(found.values())


def continued(declared: Iterable[Declared], stored: Mapping[str, ScheduleRecord]) -> list[Declared]:
    """Return what is declared for the next leader of a cluster: what its code declares, and the schedules
    that the store has from the configuration, which the earlier leader can have reloaded since."""
    in_code = [definition for definition, source in declared if source == "code"]
    names = {definition.name for definition in in_code}
    kept = [it for it in stored.values() if it.source == "config" and it.name not in names]
    return all_declared(in_code, kept)


def read_schedule(name: str, table: Mapping[str, Any]) -> tuple[str, Schedule]:
    """Return the job and the schedule of a table, with all checks that require no job. Raises `Invalid`."""
    if not isinstance(table, Mapping):
        raise Invalid(f'must be a table, as in {{ job = "report", cron = "0 8 * * *" }} (got {shown(table)})')
    for key in table:
        if key not in ARGUMENTS:
            raise Invalid(
                f"unexpected argument {shown(key)}{suggestion(str(key), ARGUMENTS)}", value=shown(key)
            )
    if "job" not in table:
        raise Invalid("job is required")
    arguments = dict(table)
    job = check_name("job", arguments.pop("job"))
    schedule = Schedule(name=name, **arguments)
    schedule.definition(job, None)
    if job == FLOW and not isinstance(schedule.params, Mapping):
        raise Invalid('params are required for a flow, as in { flow = "order", version = 0, params = {} }')
    return job, schedule


def portions(tables: Tables) -> Iterator[Tables]:
    """Parts of a configuration, each of which is checked in a few milliseconds."""
    items = iter(tables.items())
    while portion := dict(islice(items, PORTION)):
        yield portion
