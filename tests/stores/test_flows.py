"""The contract of every kind of store for flows and workers."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from greenroom.persistence.failures import StoreBroken
from greenroom.persistence.flows import (
    FlowMemo,
    FlowRow,
    FlowRunPage,
    FlowRunQuery,
    FlowState,
    NodeRun,
    StoredFlow,
    VersionRow,
    WorkerGone,
    WorkerRow,
)
from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.store import (
    Batch,
    Checkpoint,
    Memo,
    MessagesTaken,
    Retention,
    Store,
    Stored,
    Terms,
)
from greenroom.protocol.events import FlowChanged, NodeRan, NodeStarted, NodeWorkerChanged, RunSignal
from greenroom.protocol.states import ENDED, Status

from .conftest import Place
from .story import NOW, Story, created, moved, of, opened
from .test_contract import AWKWARD, TWINS


def state(run: str, numbered: int = 0, *, version: str = "v1", text: str = "{}") -> FlowState:
    return FlowState(run, version, text, numbered)


def node_run(run: str, number: int, **fields: Any) -> NodeRun:
    fields = {"node": "pay", "visit": 1, "attempt": 1, "status": "ok"} | fields
    return NodeRun(run=run, number=number, started_at=NOW, finished_at=NOW + 0.5, **fields)


def ran(row: NodeRun) -> NodeRan:
    """The event of a node run."""
    return NodeRan(
        **of(row.run),
        node=row.node,
        kind="local",
        visit=row.visit,
        attempt=row.attempt,
        status=row.status,
        started_at=row.started_at,
    )


def signal(run: str, key: str, value: Any) -> RunSignal:
    return RunSignal(**of(run), key=key, value=value)


def version(id: str, number: int, *, flow: str = "f1", definition: str = '{"start":"a"}') -> VersionRow:
    return VersionRow(id, flow, number, "published", NOW, definition)


def worker(id: str, at: float = NOW, **fields: Any) -> WorkerRow:
    return WorkerRow(
        **{"id": id, "url": "http://w:1", "services": ("sum",), "kind": "http", "load": 0.5} | fields,
        registered_at=at,
    )


async def begin_flow(story: Story, run: str, **fields: Any) -> None:
    """Create a run of a flow."""
    await story.tell(created(run, place=1), memos=[state(run, **fields)])


async def step(story: Story, row: NodeRun, text: str) -> None:
    """Commit one step of a walk, as the engine does after each node."""
    await story.tell(ran(row), memos=[row, state(row.run, row.number, text=text)])


async def stored_in(place: Place) -> Stored:
    """Return what the next engine reads at the opening."""
    store = place.store()
    stored = await store.open("", 1, NOW)
    await store.close()
    return stored


async def test_a_new_store_has_no_flows_and_no_workers(place: Place) -> None:
    stored = await stored_in(place)
    assert (stored.flows, stored.versions, stored.workers) == ([], [], [])
    async with opened(place) as story:
        store = story.store
        assert await store.version("v1") is None
        assert await store.flow("r1") is None
        assert await store.node_runs("r1") == []
        assert await store.flow_runs(FlowRunQuery()) == FlowRunPage([], 0)


async def test_the_request_ids_of_runs_can_be_queried(place: Place) -> None:
    async with opened(place) as story:
        terms = {run: Terms(request_id=f"for {run}", fingerprint="f") for run in ("r1", "r3")}
        await story.tell(*(created(f"r{n}", place=n) for n in (1, 2, 3)), terms=terms)
        assert await story.store.request_ids(["r1", "r2", "nobody"]) == {"r1": "for r1"}
        assert await story.store.request_ids([]) == {}


# Flows, versions and workers.


async def test_flows_and_versions_are_loaded_at_the_opening_without_definitions(
    place: Place,
) -> None:
    flows = [FlowRow(f"f{n}", f"flow {n}", "what it is for", NOW - n) for n in range(3)]
    versions = [version("v2", 2), version("v10", 10), version("v1", 1), version("w1", 1, flow="f2")]
    async with opened(place) as story:
        changed = FlowChanged(seq=0, at=0, by="test", flow="f1", name="flow 1", version=2, status="published")
        await story.tell(changed, memos=[*flows, *versions])
    stored = await stored_in(place)
    assert stored.flows == flows[::-1], "those that were made first come first"
    assert [row for row in stored.versions if row.flow == "f1"] == [
        replace(versions[n], definition="") for n in (2, 0, 1)
    ]
    assert len(stored.versions) == 4
    async with opened(place) as again:
        assert await again.store.version("v2") == versions[0]
        assert await again.store.version("w1") == versions[3]
        assert await again.store.version("f1") is None


async def test_a_draft_is_replaced_and_becomes_a_published_version(place: Place) -> None:
    draft = replace(version("v1", 1), status="draft", definition="{}")
    async with opened(place) as story:
        await story.tell(memos=[FlowRow("f1", "a", "", NOW), draft])
        await story.tell(memos=[replace(draft, definition="[1]"), FlowRow("f1", "b", "better", NOW)])
        await story.tell(memos=[replace(draft, definition="[2]"), version("v1", 1, definition="[3]")])
    stored = await stored_in(place)
    assert stored.flows == [FlowRow("f1", "b", "better", NOW)]
    assert stored.versions == [version("v1", 1, definition="")]
    async with opened(place) as again:
        assert await again.store.version("v1") == version("v1", 1, definition="[3]")


async def test_the_last_registration_of_a_worker_is_kept_until_it_is_removed(place: Place) -> None:
    async with opened(place) as story:
        said = NodeWorkerChanged(
            seq=0,
            at=0,
            by="test",
            worker="w1",
            url="http://w:1",
            services=("sum",),
            kind="http",
            status="online",
        )
        await story.tell(said, memos=[worker("w1"), worker("w2", NOW - 1), worker("w3")])
        moved_on = worker("w1", NOW + 5, url="http://w:2", services=("sum", "route"), kind="queue", load=0.0)
        await story.tell(memos=[moved_on, WorkerGone("w3"), worker("w4", NOW + 6), WorkerGone("nobody")])
        await story.tell(memos=[WorkerGone("w4"), worker("w4", NOW + 7), worker("w5"), WorkerGone("w5")])
    assert (await stored_in(place)).workers == [worker("w2", NOW - 1), moved_on, worker("w4", NOW + 7)]


# Walks.


async def test_a_walk_is_read_back_with_its_state_and_all_its_node_runs(place: Place) -> None:
    every = node_run(
        "r1",
        2,
        node="each",
        visit=3,
        attempt=2,
        branch="4",
        status="error",
        prep={"n": 1},
        input=[1, 2.5, None],
        output={"x": "y"},
        error="no answer",
        action="failed",
        worker="w1",
        worker_url="http://w:1",
        last=False,
    )
    async with opened(place) as story:
        await begin_flow(story, "r1")
        await story.tell(moved(story.runs["r1"], Status.RUNNING, attempt=1))
        await story.tell(NodeStarted(**of("r1"), node="pay", kind="local", visit=1))
        await step(story, node_run("r1", 1), '{"shared":{"n":1}}')
        await step(story, every, '{"shared":{"n":2}}')
        assert await story.store.flow("r1") == StoredFlow(state("r1", 2, text='{"shared":{"n":2}}'), [], [])
    async with opened(place) as again:
        assert await again.store.flow("r1") == StoredFlow(state("r1", 2, text='{"shared":{"n":2}}'), [], [])
        assert await again.store.node_runs("r1") == [node_run("r1", 1), every]
        said = [event.type for event in await again.store.history("r1")]
        assert said == [*["run_state_changed"] * 2, "node_started", "node_ran", "node_ran"]
        await step(again, node_run("r1", 3), "{}")
        assert len(await again.store.node_runs("r1")) == 3


async def test_a_node_run_that_version_0_1_wrote_as_canceled_is_read_as_cancelled(tmp_path: Path) -> None:
    file = tmp_path / "greenroom.db"
    place = Place("sqlite", lambda: SqlStore(f"sqlite:///{file}"))
    async with opened(place) as story:
        await begin_flow(story, "r1")
        await step(story, node_run("r1", 1, status="cancelled", output={"status": "cancelled"}), "{}")
    with closing(sqlite3.connect(file)) as connection, connection:
        [[record]] = connection.execute("SELECT record FROM node_runs").fetchall()
        old = record.replace('"status":"cancelled"', '"status":"canceled"')
        connection.execute("UPDATE node_runs SET record = ?", [old])
    async with opened(place) as again:
        [row] = await again.store.node_runs("r1")
        assert row == node_run("r1", 1, status="cancelled", output={"status": "canceled"}), "values are kept"


async def test_node_runs_after_the_state_are_returned_with_it_in_order(place: Place) -> None:
    rows = [node_run("r1", number, branch=str(number)) for number in range(1, 13)]
    async with opened(place) as story:
        await begin_flow(story, "r1")
        await begin_flow(story, "r2")
        await story.tell(ran(rows[0]), memos=[rows[0], state("r1", 1)])
        await story.tell(memos=[rows[2], rows[1], node_run("r2", 2)])
        await story.tell(memos=rows[3:])
    async with opened(place) as again:
        found = await again.store.flow("r1")
        assert found == StoredFlow(state("r1", 1), [], rows[1:])
        assert await again.store.node_runs("r1") == rows


async def test_the_last_of_several_states_of_a_run_in_one_batch_is_stored(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(created("r1", place=1), memos=[state("r1"), state("r1", 1, text="[1]")])
        assert await story.store.flow("r1") == StoredFlow(state("r1", 1, text="[1]"), [], [])
        await begin_flow(story, "r2")
        await story.tell(
            created("r3", place=3),
            memos=[
                *(state("r1", 2), state("r2", 1), state("r3", 1)),
                *(state("r3", 2, text="[3]"), state("r2", 3, text="[2]"), state("r1", 4, text="[4]")),
            ],
        )
        for run, last in (("r1", 4), ("r2", 3), ("r3", 2)):
            text = f"[{run[1] if run != 'r1' else 4}]"
            assert await story.store.flow(run) == StoredFlow(state(run, last, text=text), [], [])


async def test_a_state_that_changes_nothing_still_matches_its_row(place: Place) -> None:
    async with opened(place) as story:
        await begin_flow(story, "r1")
        await story.tell(memos=[state("r1")])
        assert await story.store.flow("r1") == StoredFlow(state("r1"), [], [])


async def test_signals_wait_in_order_until_they_are_taken(place: Place) -> None:
    values: list[Any] = [{"approved": True}, None, "ä", [1, 2.5]]
    async with opened(place) as story:
        await begin_flow(story, "r1")
        await begin_flow(story, "r2")
        batch = await story.tell(*(signal("r1", f"key {n}", value) for n, value in enumerate(values)))
        await story.tell(signal("r2", "other", 1))
        seqs = [event.seq for event in batch.events]
        await story.tell(memos=[MessagesTaken("r1", (seqs[1],)), state("r1", 1)])
    left = [(seqs[n], {"key": f"key {n}", "value": values[n]}) for n in (0, 2, 3)]
    [first, _] = (await stored_in(place)).pending
    assert first.messages == left
    async with opened(place) as again:
        assert await again.store.flow("r1") == StoredFlow(state("r1", 1), left, [])
        said = [event.value for event in await again.store.history("r1") if isinstance(event, RunSignal)]
        assert said == values


# Lists.


def fitting(story: Story, states: Iterable[FlowState], query: FlowRunQuery) -> FlowRunPage:
    """The page, computed by the test."""
    fit = [
        (story.runs[walk.run], walk)
        for walk in sorted(states, key=lambda walk: walk.run, reverse=True)
        if query.version in (None, walk.version)
        and (query.status is None or story.runs[walk.run].status in query.status)
    ]
    return FlowRunPage(fit[query.offset : query.offset + query.limit], len(fit))


async def test_runs_of_flows_are_listed_newest_first_by_status_and_version_and_counted(place: Place) -> None:
    states = {f"r{n:02}": state(f"r{n:02}", n, version=f"v{n % 3}") for n in range(0, 48, 2)}
    async with opened(place) as story:
        for n in range(48):  # every second one is the run of a job
            run = f"r{n:02}"
            await story.tell(created(run, place=n), memos=[states[run]] if run in states else [])
            if n % 8 > 1:
                await story.tell(moved(story.runs[run], Status.RUNNING, attempt=1))
            if n % 8 > 4:
                await story.tell(moved(story.runs[run], Status.SUCCEEDED))
        running, queued = frozenset({Status.RUNNING}), frozenset({Status.QUEUED})
        for query in (
            FlowRunQuery(),
            FlowRunQuery(limit=100),
            FlowRunQuery(limit=5, offset=10),
            FlowRunQuery(limit=5, offset=22),
            FlowRunQuery(offset=24),
            FlowRunQuery(limit=0),
            FlowRunQuery(status=running),
            FlowRunQuery(status=running | queued, limit=3, offset=3),
            FlowRunQuery(version="v1"),
            FlowRunQuery(version="v2", limit=2, offset=1),
            FlowRunQuery(version="v0", status=queued),
            FlowRunQuery(version="v0", status=frozenset(Status), limit=1, offset=7),
            FlowRunQuery(status=frozenset()),
            FlowRunQuery(status=frozenset({Status.REJECTED})),
            FlowRunQuery(version="nothing"),
        ):
            assert await story.store.flow_runs(query) == fitting(story, states.values(), query), query
        assert (await story.store.flow_runs(FlowRunQuery())).total == 24


@pytest.mark.parametrize("most", [1, 2_500, 10_000, 10**6])
async def test_a_page_of_large_entries_is_limited_by_its_size(
    place: Place, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps({"text": "x" * 1000})
    numbers = range(1, 6)
    async with opened(place) as story:
        await story.tell(memos=[FlowRow("f1", "f", "", NOW)])
        for n in numbers:
            await story.tell(memos=[version(f"v{n}", n, definition=text)])
            await begin_flow(story, f"r{n}", text=text)
            await step(story, node_run("r1", n, output="x" * 1000), text)
        monkeypatch.setattr("greenroom.persistence.flows.PAGE_BYTES", most)
        store = story.store
        page = await store.flow_runs(FlowRunQuery())
        lengths = {
            "versions": [row.version for row in await store.versions([f"v{n}" for n in numbers])],
            "node runs": [row.number for row in await store.node_runs("r1", limit=5)],
            "runs": [6 - int(run.id[1:]) for run, _ in page.runs],
        }
        assert page.total == 5
        for found in lengths.values():
            assert found == list(numbers)[: len(found)]
            assert len(found) == {1: 1, 10**6: 5}.get(most, len(found))
            assert len(found) <= max(1, most // 1000)


# Refusals.

REFUSED: dict[str, list[FlowMemo]] = {
    "a node run that is there already": [node_run("r1", 1)],
    "the same node run twice": [node_run("r1", 2), node_run("r1", 2)],
    "the state of a run that walks no flow": [state("job")],
    "the state of no run": [state("nobody")],
    "another version of the same number": [version("v2", 1)],
    "two versions of the same number": [version("v2", 2), version("v3", 2)],
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
async def test_a_batch_with_a_refused_memo_is_rolled_back(place: Place, refused: list[FlowMemo]) -> None:
    async with opened(place) as story:
        await begin_flow(story, "r1")
        await step(story, node_run("r1", 1), "[1]")
        await story.tell(created("job", place=2), memos=[version("v1", 1), worker("w1")])
        memos: list[Memo] = [
            *(state("r1", 5), state("r2"), node_run("r1", 5), FlowRow("f2", "x", "", NOW)),
            *(version("v9", 9), WorkerGone("w1"), worker("w2"), Checkpoint("h", "job", "job", 1)),
        ]
        batch = story.batch(
            *(signal("r1", "k", 1), moved(story.runs["job"], Status.RUNNING), created("r2", place=3)),
            memos=[*memos[:4], *refused, *memos[4:]],
        )
        with pytest.raises(StoreBroken):
            await story.store.commit(batch)
        await _is_untouched(story.store, story)
        await step(story, node_run("r1", 2), "[2]")  # the store continues where it was
    stored = await stored_in(place)
    assert (stored.flows, stored.versions) == ([], [version("v1", 1, definition="")])
    assert stored.workers == [worker("w1")]


async def _is_untouched(store: Store, story: Story) -> None:
    assert await store.flow("r1") == StoredFlow(state("r1", 1, text="[1]"), [], [])
    assert await store.node_runs("r1") == [node_run("r1", 1)]
    assert await store.run("job") == story.runs["job"]
    assert await store.run("r2") is None
    assert await store.flow("r2") is None
    assert await store.version("v9") is None
    assert await store.checkpoint("h", "job") is None
    assert len(await store.events(0, 100)) == story.seq


async def test_memos_of_flows_are_rolled_back_with_a_refused_transition(place: Place) -> None:
    async with opened(place) as story:
        await begin_flow(story, "r1")
        batch: Batch = story.batch(
            moved(story.runs["r1"], Status.RUNNING),
            memos=[state("r1", 1), node_run("r1", 1), version("v1", 1), FlowRow("f1", "x", "", NOW)],
        )
        batch.runs["r1"].expected = frozenset({Status.SUSPENDED})
        with pytest.raises(StoreBroken):
            await story.store.commit(batch)
        assert await story.store.flow("r1") == StoredFlow(state("r1"), [], [])
        assert await story.store.node_runs("r1") == []
        assert await story.store.version("v1") is None


# Values and names.


@pytest.mark.parametrize("text", [*AWKWARD, "", " ", "a\0b\n\t\x7f"], ids=range(len(AWKWARD) + 3))
async def test_every_name_and_text_of_a_flow_is_read_back_unchanged(place: Place, text: str) -> None:
    flow = FlowRow("f1", text, text, NOW)
    row = node_run(
        *("r1", 1),
        **dict.fromkeys(("node", "branch", "error", "action", "worker", "worker_url"), text),
        **{name: {text: [text]} for name in ("prep", "input", "output")},
    )
    someone = worker(text, url=text, services=(text, text))
    async with opened(place) as story:
        await begin_flow(story, "r1")
        batch = await story.tell(
            *(signal("r1", text, {text: text}), ran(row)), memos=[flow, row, someone, worker(f"{text}!")]
        )
        await story.tell(memos=[WorkerGone(f"{text}!")])
        seq = batch.events[0].seq
    stored = await stored_in(place)
    assert (stored.flows, stored.workers) == ([flow], [someone])
    async with opened(place) as again:
        found = StoredFlow(state("r1"), [(seq, {"key": text, "value": {text: text}})], [row])
        assert await again.store.flow("r1") == found


@pytest.mark.parametrize(("one", "other"), TWINS, ids=range(len(TWINS)))
async def test_workers_with_different_names_are_distinguished(place: Place, one: str, other: str) -> None:
    async with opened(place) as story:
        await story.tell(memos=[worker(one), worker(other, load=1.0)])
        await story.tell(memos=[WorkerGone(one)])
    assert (await stored_in(place)).workers == [worker(other, load=1.0)]


async def test_definitions_states_and_values_of_a_mebibyte_are_read_back_complete(place: Place) -> None:
    large = "ä'%\\" * ((1 << 20) // 5)
    row = node_run("r1", 1, input=large, output=[large])
    text = f'"{large}"'.replace("\\", "\\\\")
    async with opened(place) as story:
        await story.tell(memos=[version("v1", 1, definition=text)])
        await begin_flow(story, "r1", text=text)
        await step(story, row, text + " ")
        runs = [f"s{n}" for n in range(6)]
        await story.tell(*(created(run, place=2) for run in runs), memos=[state(run) for run in runs])
        await story.tell(
            memos=[memo for run in runs for memo in (state(run, 1, text=text), node_run(run, 1))]
        )
    async with opened(place) as again:
        assert await again.store.version("v1") == version("v1", 1, definition=text)
        assert await again.store.flow("r1") == StoredFlow(state("r1", 1, text=text + " "), [], [])
        assert await again.store.node_runs("r1") == [row]
        assert await again.store.flow("s5") == StoredFlow(state("s5", 1, text=text), [], [])


# Retention.


async def test_the_walk_of_a_deleted_run_is_deleted(place: Place) -> None:
    async with opened(place) as story:
        for run in ("r1", "r2", "r3"):
            await begin_flow(story, run)
            await step(story, node_run(run, 1), "[1]")
            await story.tell(signal(run, "k", 1))
            if run != "r3":
                await story.tell(moved(story.runs[run], Status.CANCELLED))
        assert (await story.store.flow_runs(FlowRunQuery(status=ENDED))).total == 2
        await story.tell(memos=[version("v1", 1)])
        assert await story.store.prune(Retention(keep_runs=1), NOW, 100) == 1
        store = story.store
        assert await store.flow("r1") is None
        assert await store.node_runs("r1") == []
        assert await store.flow("r2") is not None
        assert len(await store.node_runs("r2")) == 1
        assert (await store.flow_runs(FlowRunQuery())).total == 2
        await store.prune(Retention(keep_runs=0, keep_events=0), NOW, 100)
        page = await store.flow_runs(FlowRunQuery())
        assert [run.id for run, _ in page.runs] == ["r3"], "a run that is pending keeps all that it has"
        assert page.total == 1
        found = await store.flow("r3")
        assert found is not None
        assert [value for _, value in found.signals] == [{"key": "k", "value": 1}]
        assert await store.version("v1") is not None
    async with opened(place) as again:
        assert await again.store.node_runs("r3") == [node_run("r3", 1)]
