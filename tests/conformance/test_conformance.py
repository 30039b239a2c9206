"""Every implementation of the fold, including the one in write-a-client.md, passes all vectors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import trio

from greenroom.protocol.events import Event
from greenroom.protocol.fold import fold
from greenroom.protocol.records import Snapshot
from greenroom.protocol.states import Status
from tests.clients.javascript import needs_node, run_node

from .stories import STORIES
from .vectors import NAMES, as_json, vector

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-client.md"
Fold = Callable[[Any, list[Any]], Any]


def in_python(snapshot: Any, events: list[Any]) -> Any:
    found = fold(msgspec.convert(snapshot, Snapshot), msgspec.convert(events, list[Event]))
    return as_json(found)


def as_documented(snapshot: Any, events: list[Any]) -> Any:
    [program] = re.findall(r"```python\n(ENDED = .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(program, PAGE.name, "exec"), names)
    state = deepcopy(snapshot)
    for event in events:
        names["apply"](state, event)
    return state


def check(found: Any, expected: Any) -> None:
    assert found == expected
    assert list(found["runs"]) == list(expected["runs"]), "the runs are in the same order"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("implementation", [in_python, as_documented])
def test_the_fold_gives_the_expected_snapshot(implementation: Fold, name: str) -> None:
    read = vector(name)
    check(implementation(read["snapshot"], read["events"]), read["expected"])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("implementation", [in_python, as_documented])
def test_the_fold_can_continue_from_a_snapshot_in_the_middle(implementation: Fold, name: str) -> None:
    read = vector(name)
    middle = len(read["events"]) // 2
    state = implementation(read["snapshot"], read["events"][:middle])
    check(implementation(json.loads(json.dumps(state)), read["events"][middle:]), read["expected"])


@needs_node
def test_the_fold_in_javascript_gives_the_expected_snapshots() -> None:
    program = "answer(argument.map(({ snapshot, events }) => fold(snapshot, events)));"
    found = trio.run(run_node, program, [vector(name) for name in NAMES])
    for name, snapshot in zip(NAMES, found, strict=True):
        check(snapshot, vector(name)["expected"])


def test_there_is_a_vector_for_every_story() -> None:
    assert sorted(STORIES) == NAMES, "run `python -m tests.conformance`"


def test_the_vectors_have_every_type_of_event_and_every_field() -> None:
    known = {
        (str(type_.__struct_config__.tag), field)
        for type_ in get_args(Event)
        for field in type_.__struct_encode_fields__
    }
    found = {
        (event["type"], field)
        for name in NAMES
        for event in vector(name)["events"]
        for field in event
        if field != "type"
    }
    assert found == known - NEVER_GIVEN


NEVER_GIVEN = {
    *((("node_ran"), field) for field in ("branch", "error", "worker")),  # the fold ignores them
}


def test_the_vectors_have_every_status() -> None:
    statuses = {
        event["to"]
        for name in NAMES
        for event in vector(name)["events"]
        if event["type"] == "run_state_changed"
    }
    assert statuses == set(Status) - {Status.REJECTED}, "only a restart without the job rejects a run"
