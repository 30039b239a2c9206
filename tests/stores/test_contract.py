"""The contract between the journal and every kind of store."""

from __future__ import annotations

from itertools import chain, product

import pytest
from msgspec.structs import replace

from greenroom.actors.engine.recovery import projection_of
from greenroom.errors import Conflict
from greenroom.persistence.failures import StoreBroken
from greenroom.persistence.store import (
    AnswersSpent,
    Checkpoint,
    DeletionDone,
    DeletionOwed,
    FileFinished,
    FileGivenUp,
    FilesDoomed,
    MessagesTaken,
    Requested,
    Retention,
    RunQuery,
    RunWrite,
    ScheduleGone,
    StoredInterrupt,
    StoredLane,
    StoredRequest,
    StoredRun,
    Terms,
    WakesAt,
)
from greenroom.protocol.events import InterruptClosed, InterruptOpened, RunChanged, RunProgress
from greenroom.protocol.executors import JobTerms
from greenroom.protocol.fold import Projection
from greenroom.protocol.patterns import Within, patterns
from greenroom.protocol.records import ExecutorState
from greenroom.protocol.schedules import ScheduleRecord
from greenroom.protocol.states import Status

from .conftest import Place
from .story import (
    NOW,
    Story,
    created,
    draft,
    engine_changed,
    every_kind,
    executor_changed,
    freed,
    lane_changed,
    life,
    moved,
    of,
    opened,
)

DAY = 24 * 3600.0


async def test_a_new_store_gets_the_given_epoch_and_limit(place: Place) -> None:
    store = place.store()
    stored = await store.open("e" * 16, 4, NOW)
    assert (stored.epoch, stored.max_concurrent, stored.last_seq, stored.last_place) == ("e" * 16, 4, 0, 0)
    assert not stored.draining
    assert (stored.lanes, stored.drafts, stored.held) == ({}, {}, {})
    assert (stored.pending, stored.ended, stored.requests) == ([], [], [])
    await store.close()


async def test_an_existing_store_keeps_its_epoch_and_limit(place: Place) -> None:
    store = place.store()
    await store.open("e" * 16, 4, NOW)
    await store.close()
    store = place.store()
    stored = await store.open("f" * 16, 9, NOW)
    assert (stored.epoch, stored.max_concurrent) == ("e" * 16, 4)
    await store.close()


async def test_events_of_every_kind_are_read_back_unchanged(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(*every_kind("r1"))
    async with opened(place) as again:
        said = [event for event in story.events if not isinstance(event, RunProgress)]
        assert await again.store.events(0, 100) == said
        assert await again.store.history("r1") == [event for event in said if getattr(event, "run", "")]
        assert await again.store.run("r1") == story.runs["r1"]
        assert again.seq == len(story.events), "progress counts, too"


async def test_a_pending_run_is_read_back_with_all_its_data(place: Place) -> None:
    terms = Terms(
        request_id="once",
        fingerprint="f" * 32,
        queue_timeout=1.5,
        run_timeout=2.5,
        deadline=3.5,
        parent="r0",
        ancestors=("a", "b"),
        front=True,
        announced=JobTerms(
            name="job", params={"type": "object"}, resumable=True, run_timeout=None, grace=2.5, needs=("gpu",)
        ),
    )
    async with opened(place) as story:
        first = await story.tell(*every_kind("r1"), terms={"r1": terms})
        [message] = [event.seq for event in first.events if event.type == "run_message"]
        await story.tell(
            memos=[FileFinished("r1", "a/b.jpg"), FilesDoomed("r1"), WakesAt("r1", NOW + 5.125)],
        )
    store = place.store()
    stored = await store.open("", 1, NOW)
    [pending] = stored.pending
    pending.interrupts.sort(key=lambda interrupt: interrupt.id)
    assert pending == StoredRun(
        record=story.runs["r1"],
        terms=terms,
        wakes_at=NOW + 5.125,
        files_doomed=True,
        messages=[(message, {"text": "hello"})],
        interrupts=[
            StoredInterrupt("r1.1", "r1", "1", {"ask": "?"}, NOW, NOW + 60, "answered", {"approved": True}),
            StoredInterrupt("r1.2", "r1", "two", None, NOW, None),
        ],
        files=["a/b.jpg"],
    )
    assert stored.requests == [StoredRequest("once", "r1", "f" * 32, None)]
    assert (pending.record.executor, pending.record.fence) == ("gpu-1", 4)
    assert stored.executors == {"gpu-1": ExecutorState("draining", 4, ("gpu", "big"), ("job", "other"))}
    assert stored.lanes == {"uploads": StoredLane(2, 1)}
    assert stored.drafts == {"alice": {"draft": 1}}
    assert (stored.max_concurrent, stored.draining, stored.last_place) == (5, True, 7)
    await store.close()


async def test_taken_messages_and_given_up_files_are_removed(place: Place) -> None:
    async with opened(place) as story:
        batch = await story.tell(*every_kind("r1"), memos=[FileFinished("r1", "a"), FileFinished("r1", "b")])
        [message] = [event.seq for event in batch.events if event.type == "run_message"]
        await story.tell(memos=[MessagesTaken("r1", (message,)), FileGivenUp("r1", "a")])
    store = place.store()
    [pending] = (await store.open("", 1, NOW)).pending
    assert (pending.messages, pending.files) == ([], ["b"])
    await store.close()


async def test_a_file_is_kept_for_each_data_folder_that_contains_it(place: Place) -> None:
    long = "ünïcödé 漢字 " * 20
    async with opened(place) as story:
        await story.tell(
            created("r1"),
            memos=[
                FileFinished("r1", "a", "there"),
                FileFinished("r1", "a"),
                FileFinished("r1", "b", "there"),
                FileFinished("r1", "c", long),
            ],
        )
        await story.tell(memos=[FileFinished("r1", "a", "there"), FileGivenUp("r1", "b", "there")])
        await story.tell(memos=[FileGivenUp("r1", "c")])
    store = place.store()
    [pending] = (await store.open("", 1, NOW)).pending
    assert (pending.files, pending.foreign_files) == (["a"], {"there": ["a"], long: ["c"]})
    await store.close()


async def test_files_to_delete_elsewhere_are_kept_until_they_are_deleted(place: Place) -> None:
    text = "ünïcödé 漢字 " * 20
    owed = [
        DeletionOwed("f1", text, "r1", ("a", text)),
        DeletionOwed("f1", "alice", "r2", ()),
        DeletionOwed("f2", "alice", "r1", ("b",)),
    ]
    async with opened(place) as story:
        await story.tell(*life("r1"), memos=[owed[2], DeletionOwed("f1", "alice", "r1", ()), owed[0]])
        await story.tell(memos=[owed[1], DeletionOwed("f3", "alice", "r1", ("c",))])
        await story.tell(memos=[DeletionDone("f3", "r1"), DeletionDone("f3", "unknown")])
    async with opened(place) as again:
        assert again.stored.deletions == owed
        assert await again.store.prune(Retention(keep_runs=0), NOW + 10 * DAY, 100) == 1
    async with opened(place) as again:
        assert again.stored.deletions == owed, "the files still exist"
        await again.tell(memos=[DeletionDone("f1", "r1"), owed[0], DeletionDone("f1", "r1")])
        await again.tell(memos=[DeletionDone("f1", "r2")])
    async with opened(place) as again:
        assert again.stored.deletions == [owed[2]]


async def test_schedules_are_kept_until_they_are_deleted(place: Place) -> None:
    name = "ünïcödé 漢字 " * 12
    first = ScheduleRecord(
        name=name,
        job="job",
        handle="h",
        params={"text": name, "n": [1, None]},
        options={"needs": ["gpu"], "run_timeout": "none"},
        cron="0 3 * * *",
        timezone="Europe/Berlin",
        id="i1",
        source="api",
        paused=False,
        since=NOW,
        decided_until=NOW,
        next=(NOW + 60.0, NOW + 120.5),
    )
    other = replace(first, name="other", cron=None, every=60.0, timezone="UTC")
    later = replace(first, decided_until=NOW + 60.0, next=(), paused=True, last_run="r1", last_fired=NOW)
    async with opened(place) as story:
        await story.tell(memos=[first, replace(first, name=name.upper()), other])
        await story.tell(*life("r1"), memos=[later])
        await story.tell(memos=[ScheduleGone(name.upper()), ScheduleGone("unknown")])
    async with opened(place) as again:
        assert again.stored.schedules == {"other": other, name: later}
        assert list(again.stored.schedules) == ["other", name]
        await again.tell(memos=[ScheduleGone("other"), other, ScheduleGone(name)])
    async with opened(place) as again:
        assert again.stored.schedules == {"other": other}


async def test_executors_are_kept_until_they_are_gone(place: Place) -> None:
    long = "ünïcödé 漢字 " * 20
    async with opened(place) as story:
        await story.tell(executor_changed(long, jobs=(long,)), executor_changed("b", slots=2))
        await story.tell(executor_changed("c"), executor_changed("c", "gone"), executor_changed("a"))
        await story.tell(executor_changed("a", "gone"))
        await story.tell(executor_changed("b", "disconnected", slots=3, ttl=2.5, start="p1"))
        await story.tell(executor_changed("a", labels=("gpu",)), executor_changed("unknown", "gone"))
    async with opened(place) as again:
        assert list(again.stored.executors.items()) == [
            ("a", ExecutorState("attached", None, ("gpu",), ())),
            ("b", ExecutorState("disconnected", 3, (), (), 2.5, "p1")),
            (long, ExecutorState("attached", None, (), (long,))),
        ]


async def test_a_restored_projection_has_the_executors_and_runs_of_the_one_before(place: Place) -> None:
    before = Projection("0123456789abcdef", max_concurrent=3)
    async with opened(place) as story:
        first = created("r2", place=8)
        await story.tell(*every_kind("r1"), executor_changed("gpu-2", slots=1), first)
        await story.tell(RunChanged(**of("r2"), waiting_for="executor"), executor_changed("gpu-1", "gone"))
        for event in story.events:
            before.apply(event)
    async with opened(place) as again:
        restored = projection_of(again.stored).snapshot()
        assert restored == before.snapshot()
        assert list(restored.executors) == ["gpu-2"]
        assert restored.runs["r2"].waiting_for == "executor"


async def test_a_file_can_be_finished_given_up_and_finished_again_in_one_batch(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(*every_kind("r1"), memos=[FileFinished("r1", "a")])
        await story.tell(
            memos=[FileFinished("r1", "a"), FileGivenUp("r1", "a"), FileFinished("r1", "a")],
        )
    store = place.store()
    [pending] = (await store.open("", 1, NOW)).pending
    assert pending.files == ["a"]
    await store.close()


async def test_the_last_checkpoint_of_a_handle_and_job_is_kept(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(
            *life("r1", "alice"),
            memos=[
                Checkpoint("alice", "job", "r1", 1),
                Checkpoint("alice", "job", "r1", {"page": 2}),
                Checkpoint("alice", "other", "r1", None),
            ],
        )
        await story.tell(memos=[Checkpoint("alice", "job", "r1", {"page": 3})])
    async with opened(place) as again:
        store = again.store
        assert await store.checkpoint("alice", "job") == Checkpoint("alice", "job", "r1", {"page": 3})
        assert await store.checkpoint("alice", "other") == Checkpoint("alice", "other", "r1", None)
        assert await store.checkpoint("Alice", "job") is None


async def test_a_checkpoint_keeps_its_counts_and_spends_the_answers_before_it(place: Place) -> None:
    about = of("r1", "alice")
    async with opened(place) as story:
        await story.tell(*life("r1", "alice")[:2])
        for number in (1, 2):
            id = f"r1.{number}"
            await story.tell(
                InterruptOpened(**about, interrupt=id, key="key", data="?", deadline=None),
                InterruptClosed(**about, interrupt=id, outcome="answered", answer=number),
                memos=[AnswersSpent("r1", ("r1.1",))] if number == 1 else [],
            )
        await story.tell(memos=[Checkpoint("alice", "job", "r1", 1, interrupts=1, calls=7)])
    async with opened(place) as again:
        assert await again.store.checkpoint("alice", "job") == Checkpoint("alice", "job", "r1", 1, 1, 7)
    store = place.store()
    [pending] = (await store.open("", 1, NOW)).pending
    try:
        kept = {interrupt.id: interrupt for interrupt in pending.interrupts}
        assert [kept[f"r1.{n}"].spent for n in (1, 2)] == [True, False]
        assert kept["r1.2"].answer == 2
        closed = await store.closed_interrupt("r1.1")
        assert closed is not None
        assert closed.answer == 1
    finally:
        await store.close()


async def test_the_outcome_of_an_interrupt_can_be_queried_while_its_run_is_kept(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(*every_kind("r1"))
    async with opened(place) as again:
        closed = await again.store.closed_interrupt("r1.1")
        assert closed is not None
        assert (closed.outcome, closed.answer) == ("answered", {"approved": True})
        assert await again.store.closed_interrupt("r1.2") is None
        assert await again.store.closed_interrupt("r1.3") is None


async def test_an_interrupt_can_be_opened_and_closed_in_one_batch(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(*every_kind("r1"))
        assert await story.store.closed_interrupt("r1.1") is not None


async def test_several_transitions_of_a_run_in_one_batch_are_one_row_and_all_their_events(
    place: Place,
) -> None:
    async with opened(place) as story:
        first = created("r1", place=1)
        await story.tell(first)
        second = moved(story.runs["r1"], Status.RUNNING, attempt=1)
        third = moved(second, Status.SUSPENDED, reason="time", waiting_for="time")
        fourth = moved(third, Status.RUNNING)
        await story.tell(second, third, fourth, moved(fourth, Status.SUCCEEDED, result={"x": 1}))
    async with opened(place) as again:
        assert await again.store.run("r1") == story.runs["r1"]
        history = await again.store.history("r1")
        assert [event.to for event in history] == ["queued", "running", "suspended", "running", "succeeded"]
        assert [event.seq for event in history] == [1, 2, 3, 4, 5]
        for after, limit, before, seqs in (
            (1, 2, None, [2, 3]),
            (0, 2, 5, [3, 4]),
            (2, 2, 4, [3]),
            (0, None, 3, [1, 2]),
            (4, 9, 4, []),
        ):
            assert [
                event.seq for event in await again.store.history("r1", after, limit, before=before)
            ] == seqs


async def test_a_run_can_be_created_and_end_within_one_batch(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(*life("r1", result="done"))
    store = place.store()
    stored = await store.open("", 1, NOW)
    assert stored.pending == []
    assert stored.ended == [story.runs["r1"]]
    await store.close()


async def test_ended_runs_are_read_back_in_the_order_in_which_they_ended(place: Place) -> None:
    async with opened(place) as story:
        firsts = {id: created(id, place=n) for n, id in enumerate(("r1", "r2", "r3"))}
        await story.tell(*firsts.values())
        for id in ("r2", "r3", "r1"):
            await story.tell(moved(story.runs[id], Status.CANCELLED))
    store = place.store()
    assert [run.id for run in (await store.open("", 1, NOW)).ended] == ["r2", "r3", "r1"]
    await store.close()


async def test_only_the_last_thousand_ended_runs_are_loaded(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(*(event for n in range(1010) for event in life(f"r{n:04}", place=n)))
    store = place.store()
    ended = (await store.open("", 1, NOW)).ended
    assert [run.id for run in ended] == [f"r{n:04}" for n in range(10, 1010)]
    await store.close()


async def test_a_handle_stays_held_until_it_is_freed(place: Place) -> None:
    async with opened(place) as story:
        for id in ("r1", "r2"):
            await story.tell(*life(id, id.upper())[:2])
            end = moved(story.runs[id], Status.CANCELLED, reason="abandoned", holds_handle=True)
            await story.tell(end)
        await story.tell(freed("R1", "r1"))
    store = place.store()
    assert (await store.open("", 1, NOW)).held == {"R2": "r2"}
    await store.close()


async def test_the_last_of_several_changes_of_a_lane_a_draft_or_the_engine_is_stored(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(lane_changed("a", 1), draft("h", 1), engine_changed(1, draining=True))
        await story.tell(
            *(lane_changed("a", None, 1), lane_changed("a", 0, 2), lane_changed("b", None)),
            *(draft("h", {"n": 2}), draft("h", {"n": 3}), draft("g", 1), draft("g", None)),
            *(engine_changed(2, draining=True), engine_changed(6)),
        )
    store = place.store()
    stored = await store.open("", 1, NOW)
    assert stored.lanes == {"a": StoredLane(0, 2), "b": StoredLane(None, 0)}
    assert stored.drafts == {"h": {"n": 3}}
    assert (stored.max_concurrent, stored.draining) == (6, False)
    await store.close()


# Refusals.


async def test_a_transition_from_another_status_than_the_stored_one_rolls_the_batch_back(
    sql_place: Place,
) -> None:
    async with opened(sql_place) as story:
        await story.tell(*life("r1")[:2], *life("r2", place=2)[:2])
        batch = story.batch(
            *life("r3", place=3),
            moved(story.runs["r1"], Status.SUCCEEDED),
            moved(story.runs["r2"], Status.SUCCEEDED),
            draft("alice", 1),
            memos=[Checkpoint("alice", "job", "r1", 1)],
        )
        batch.runs["r2"].expected = frozenset({Status.QUEUED})
        with pytest.raises(StoreBroken) as refused:
            await story.store.commit(batch)
        assert "queued" in refused.value.message
        assert await story.store.run("r1") == story.runs["r1"]
        assert await story.store.run("r3") is None
        assert len(await story.store.events(0, 100)) == 4
        assert await story.store.checkpoint("alice", "job") is None
        await story.tell(moved(story.runs["r2"], Status.SUCCEEDED))  # the store continues where it was


async def test_a_write_that_changes_nothing_in_a_row_still_matches_it(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(created("r1", place=1))
        batch = story.batch(created("r2", place=2))
        batch.runs["r1"] = RunWrite(story.runs["r1"], frozenset({Status.QUEUED}))
        await story.store.commit(batch)
        assert await story.store.run("r1") == story.runs["r1"]


async def test_a_batch_that_does_not_follow_the_last_seq_is_refused(sql_place: Place) -> None:
    async with opened(sql_place) as story:
        await story.tell(created("r1", place=1))
        for seq in (0, 2):
            story.seq = seq
            with pytest.raises(StoreBroken):
                await story.tell(created("r2", place=2))
        assert await story.store.run("r2") is None


async def test_a_batch_of_an_engine_that_lost_the_store_to_another_is_refused(sql_place: Place) -> None:
    async with opened(sql_place) as story:
        await story.tell(created("r1", place=1))
        await _let_another_engine_in(story)
        with pytest.raises(StoreBroken):
            await story.tell(created("r2", place=2))


async def test_memos_of_an_engine_that_lost_the_store_are_refused_too(sql_place: Place) -> None:
    async with opened(sql_place) as story:
        await story.tell(*life("r1", "alice")[:2])
        await _let_another_engine_in(story)
        with pytest.raises(StoreBroken):
            await story.tell(memos=[Checkpoint("alice", "job", "r1", 1)])


async def _let_another_engine_in(story: Story) -> None:
    """Open the store for another engine, as if the lock had been lost."""
    database = story.store._database  # type: ignore[attr-defined]
    await database.run(lambda connection: connection.exec_driver_sql("UPDATE meta SET engine = 'other'"))


@pytest.mark.parametrize("count", [63, 64, 65, 200])
async def test_every_row_of_a_large_batch_is_stored(sql_place: Place, count: int) -> None:
    async with opened(sql_place) as story:
        await story.tell(*(event for n in range(count) for event in life(f"r{n:03}", place=n)))
        assert await story.store.events(0, 1000) == story.events
        assert await story.store.runs(RunQuery(limit=1000)) == list(story.runs.values())[::-1]


async def test_the_last_place_is_kept_when_its_run_is_deleted(sql_place: Place) -> None:
    async with opened(sql_place) as story:
        await story.tell(*life("r1", place=7))
        await story.tell(*life("r2", place=5))
        assert await story.store.prune(Retention(keep_runs=0), NOW, 100) == 2
    store = sql_place.store()
    assert (await store.open("", 1, NOW)).last_place == 7
    await store.close()


async def test_whether_a_batch_is_committed_can_be_queried(place: Place) -> None:
    async with opened(place) as story:
        batch = story.batch(created("r1", place=1))
        assert not await story.store.committed(batch)
        await story.store.commit(batch)
        assert await story.store.committed(batch)


async def test_the_query_whether_a_batch_is_committed_is_refused_if_the_store_has_advanced_without_it(
    sql_place: Place,
) -> None:
    async with opened(sql_place) as story:
        batch = story.batch(created("r1", place=1))
        await story.tell(created("r2", place=1), created("r3", place=2))
        with pytest.raises(StoreBroken):
            await story.store.committed(batch)


async def test_a_second_engine_is_refused_with_the_store_and_its_holder(sql_place: Place) -> None:
    async with opened(sql_place) as story:
        second = sql_place.store()
        with pytest.raises(Conflict) as refused:
            await second.open("", 1, NOW)
        await second.close()
        assert refused.value.details["store"].split("?")[0] in refused.value.message
        assert refused.value.details["holder"] in refused.value.message
        assert "secret" not in refused.value.message
        assert "se/cr" not in refused.value.message
        await story.tell(created("r1", place=1))  # the first one is not disturbed


async def test_after_the_first_engine_has_closed_the_next_one_gets_the_store(place: Place) -> None:
    for n in range(3):
        async with opened(place) as story:
            await story.tell(created(f"r{n}", place=n))


# Queries.


async def test_runs_are_listed_newest_first_in_pages(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(*(event for n in range(25) for event in life(f"r{n:02}", place=n)))
        pages: list[list[str]] = []
        before = None
        while page := await story.store.runs(RunQuery(limit=10, before=before)):
            pages.append([run.id for run in page])
            before = page[-1].id
        assert [len(page) for page in pages] == [10, 10, 5]
        assert list(chain.from_iterable(pages)) == [f"r{n:02}" for n in reversed(range(25))]


async def test_runs_are_listed_by_handle_lane_and_status_and_their_combinations(place: Place) -> None:
    async with opened(place) as story:
        for n in range(24):
            events = life(f"r{n:02}", f"h{n % 2}", f"l{n % 3}", place=n)
            await story.tell(*events[: 1 + n % 4 % 3])
        every = [story.runs[f"r{n:02}"] for n in reversed(range(24))]
        for query in (
            RunQuery(handle="h1"),
            RunQuery(lane="l2"),
            RunQuery(status=frozenset({Status.QUEUED})),
            RunQuery(status=frozenset({Status.QUEUED, Status.RUNNING})),
            RunQuery(handle="h0", lane="l1", status=frozenset({Status.SUCCEEDED}), before="r15"),
            RunQuery(status=frozenset()),
            RunQuery(handle="nobody"),
            RunQuery(handle="h1", before="r00"),
        ):
            expected = [
                run
                for run in every
                if query.handle in (None, run.handle)
                and query.lane in (None, run.lane)
                and (query.status is None or run.status in query.status)
                and (query.before is None or run.id < query.before)
            ]
            assert await story.store.runs(query) == expected, query


async def test_runs_are_listed_by_case_sensitive_patterns_of_handles_and_lanes(place: Place) -> None:
    within = Within(handles=patterns("handle", ["alice/*", "Bob", "é%_*"]), lanes=patterns("lane", ["l*"]))
    names = ("alice/1", "Alice/1", "alice", "Bob", "bob", "Bob ", "é%_x", "é%_", "éxx", "ALICE/2", "alice/é")
    async with opened(place) as story:
        for n, (handle, lane) in enumerate(product(names, ("l1", "L1", "k"))):
            await story.tell(*life(f"r{n:02}", handle, lane, place=n))
        found = await story.store.runs(RunQuery(within=within, limit=100))
        assert sorted(run.handle for run in found) == ["Bob", "alice/1", "alice/é", "é%_", "é%_x"]
        assert {run.lane for run in found} == {"l1"}
        everything = Within(handles=patterns("handle", ["*"]))
        assert len(await story.store.runs(RunQuery(within=everything, limit=100))) == 3 * len(names)


async def test_events_after_a_seq_are_in_order_and_at_most_the_limit(place: Place) -> None:
    async with opened(place) as story:
        for n in range(10):
            await story.tell(created(f"r{n}", place=n), lane_changed(f"l{n}", n), draft(f"d{n}", n))
        assert [event.seq for event in await story.store.events(0, 1000)] == list(range(1, 31))
        assert [event.seq for event in await story.store.events(12, 5)] == [13, 14, 15, 16, 17]
        assert await story.store.events(30, 5) == []


async def test_queries_for_an_unknown_run_return_nothing(place: Place) -> None:
    async with opened(place) as story:
        assert await story.store.run("nobody") is None
        assert await story.store.history("nobody") == []


# Values and names.

AWKWARD = [
    "plain",
    "Ünïcödé 漢字 العربية",
    "👩‍👩‍👧‍👦 𝄞",
    "it's \"quoted\" `so` \\ and \\' so",
    "100% %s %(name)s {} ? :name $1",
    "; DROP TABLE runs; --",
    "_%[a-z]*",
    "x" * 256,
    "𝄞" * 256,
]


@pytest.mark.parametrize("text", AWKWARD, ids=range(len(AWKWARD)))
async def test_every_name_and_text_is_read_back_unchanged(place: Place, text: str) -> None:
    terms = Terms(request_id=text, fingerprint="f" * 32)
    async with opened(place) as story:
        first = created("r1", text, text, place=1, params={text: text}, job=text)
        second = moved(first, Status.RUNNING, attempt=1)
        end = moved(second, Status.FAILED, error=text, reason="error", result={text: [text]})
        await story.tell(first, terms={"r1": terms})
        await story.tell(
            *(second, lane_changed(text, 1), draft(text, {text: text})),
            memos=[Checkpoint(text, text, "r1", {text: text}), FileFinished("r1", text)],
        )
    store = place.store()
    stored = await store.open("", 1, NOW)
    [pending] = stored.pending
    assert (pending.record, pending.files) == (story.runs["r1"], [text])
    assert stored.lanes == {text: StoredLane(1, 0)}
    assert stored.drafts == {text: {text: text}}
    assert [request.request_id for request in stored.requests] == [text]
    story = Story(store, stored)
    await story.tell(end)
    assert await store.run("r1") == story.runs["r1"]
    assert await store.runs(RunQuery(handle=text, lane=text)) == [story.runs["r1"]]
    saved = await store.checkpoint(text, text)
    assert saved is not None
    assert saved.value == {text: text}
    await store.close()


TWINS = [
    ("Alice", "alice"),
    ("a", "ä"),
    ("ß", "ss"),
    ("e\u0301", "é"),
    ("a", "a "),  # which some databases treat as equal
    ("i", "I"),
    ("x" * 255 + "y", "x" * 256),
]


@pytest.mark.parametrize(("one", "other"), TWINS, ids=range(len(TWINS)))
async def test_different_names_are_distinguished(place: Place, one: str, other: str) -> None:
    async with opened(place) as story:
        await story.tell(
            *(created("r1", one, one, place=1), created("r2", other, other, place=2)),
            *(lane_changed(one, 1), lane_changed(other, 2), draft(one, 1), draft(other, 2)),
            memos=[Checkpoint(one, one, "r1", 1), Checkpoint(other, other, "r2", 2)],
            terms={"r1": Terms(request_id=one), "r2": Terms(request_id=other)},
        )
        await story.tell(lane_changed(one, 3))
    store = place.store()
    stored = await store.open("", 1, NOW)
    assert stored.lanes == {one: StoredLane(3, 0), other: StoredLane(2, 0)}
    assert stored.drafts == {one: 1, other: 2}
    assert {request.request_id: request.run for request in stored.requests} == {one: "r1", other: "r2"}
    assert [run.id for run in await store.runs(RunQuery(handle=one))] == ["r1"]
    assert [run.id for run in await store.runs(RunQuery(lane=other))] == ["r2"]
    await store.close()


async def test_values_of_a_mebibyte_are_read_back_complete(place: Place) -> None:
    large = "ä'%\\" * ((1 << 20) // 5)
    async with opened(place) as story:
        first = created("r1", place=1, params={"large": large})
        second = moved(first, Status.RUNNING, attempt=1)
        await story.tell(first, second, draft("h", large), memos=[Checkpoint("h", "job", "r1", large)])
        runs = [created(f"s{n}", place=2 + n, params=large) for n in range(12)]
        await story.tell(*runs)
        await story.tell(*(moved(story.runs[f"s{n}"], Status.CANCELLED) for n in range(12)))
    async with opened(place) as again:
        await again.tell(moved(again.runs["r1"], Status.SUCCEEDED, result=large))
        assert await again.store.run("r1") == again.runs["r1"]
        assert await again.store.run("s11") == story.runs["s11"]
        saved = await again.store.checkpoint("h", "job")
        assert saved is not None
        assert saved.value == large


async def test_numbers_are_read_back_exactly(place: Place) -> None:
    params = [0.1, -0.0, 1e-300, 1.7976931348623157e308, 2**53 + 1, -(2**63), 2**64 - 1, True, None]
    async with opened(place) as story:
        await story.tell(created("r1", place=1, params=params), at=1_700_000_000.123456)
        await story.tell(memos=[WakesAt("r1", 1_700_000_000.123456)])
    store = place.store()
    [pending] = (await store.open("", 1, NOW)).pending
    assert pending.record.params == params
    assert str(pending.record.params[1]) == "-0.0"
    assert pending.record.created_at == pending.wakes_at == 1_700_000_000.123456
    await store.close()


async def test_five_thousand_runs_change_through_every_status_in_large_batches(place: Place) -> None:
    ids = [f"r{n:04}" for n in range(5000)]
    async with opened(place) as story:
        terms = {id: Terms(request_id=f"request {id}") for id in ids}
        await story.tell(*(created(id, place=n) for n, id in enumerate(ids)), terms=terms)
        await story.tell(
            *(moved(story.runs[id], Status.RUNNING, attempt=1) for id in ids),
            *(draft(id, id) for id in ids),
            memos=[WakesAt(id, NOW) for id in ids]
            + [FilesDoomed(id) for id in ids]
            + [FileFinished(id, id) for id in ids]
            + [Checkpoint(id, "job", id, id) for id in ids]
            + [Requested(f"again {id}", id, None) for id in ids],
        )
        half = ids[:2500]
        await story.tell(
            *(moved(story.runs[id], Status.SUCCEEDED) for id in half),
            *(moved(story.runs[id], Status.SUSPENDED) for id in ids[2500:]),
            memos=[FileGivenUp(id, id) for id in ids],
        )
    store = place.store()
    stored = await store.open("", 1, NOW)
    assert [run.record for run in stored.pending] == [story.runs[id] for id in ids[2500:]]
    assert all(run.files_doomed and run.wakes_at == NOW and not run.files for run in stored.pending)
    assert len(stored.requests) == 10_000
    assert len(stored.drafts) == 5000
    await store.close()


# Retention.


async def _ended_at(story: Story, id: str, at: float, terms: Terms | None = None) -> None:
    await story.tell(*life(id, place=1), at=at, terms={id: terms} if terms else None)


async def test_ended_runs_beyond_a_number_are_deleted_oldest_first_in_small_steps(
    place: Place,
) -> None:
    async with opened(place) as story:
        await story.tell(*every_kind("a"))
        for n in range(10):
            await _ended_at(story, f"r{n}", NOW)
        retention = Retention(keep_runs=3)
        assert await story.store.prune(retention, NOW, 5) == 5
        left = [run.id for run in await story.store.runs(RunQuery())]
        assert left == ["r9", "r8", "r7", "r6", "r5", "a"]
        assert await story.store.prune(retention, NOW, 5) == 2
        assert await story.store.prune(retention, NOW, 5) == 0
        assert [run.id for run in await story.store.runs(RunQuery())] == ["r9", "r8", "r7", "a"]
        assert await story.store.run("r0") is None
        assert await story.store.history("r0") == []
        assert len(await story.store.history("r9")) == 3
        assert len(await story.store.history("a")) == 10
    store = place.store()
    stored = await store.open("", 1, NOW)
    assert [run.id for run in stored.ended] == ["r7", "r8", "r9"]
    assert stored.last_seq == story.seq, "forgetting changes no number"
    await store.close()


async def test_ended_runs_that_are_too_old_are_deleted(place: Place) -> None:
    async with opened(place) as story:
        for n in range(5):
            await _ended_at(story, f"r{n}", NOW + n)
        await story.store.prune(Retention(keep_runs_for=100), NOW + 102.5, 100)
        assert [run.id for run in await story.store.runs(RunQuery())] == ["r4", "r3"]


async def test_pending_runs_and_their_events_are_never_deleted(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(*every_kind("a"))
        await story.tell(created("b", place=8))
        events = await story.store.history("a")
        retention = Retention(keep_runs=0, keep_runs_for=0, keep_events=0, keep_events_for=0)
        await story.store.prune(retention, NOW + 10 * DAY, 1000)
        assert [run.id for run in await story.store.runs(RunQuery())] == ["b", "a"]
        assert await story.store.history("a") == events
        assert len(await story.store.history("b")) == 1


async def test_the_data_of_a_deleted_run_is_deleted(place: Place) -> None:
    async with opened(place) as story:
        await story.tell(*every_kind("a"), memos=[FileFinished("a", "x")])
        await story.tell(moved(story.runs["a"], Status.FAILED))
        await story.store.prune(Retention(keep_runs=0), NOW, 1000)
        assert await story.store.closed_interrupt("a.1") is None
        assert await story.store.history("a") == []


async def test_old_events_of_ended_runs_are_deleted_by_number_and_by_age(place: Place) -> None:
    async with opened(place) as story:
        for n in range(10):
            await _ended_at(story, f"r{n}", NOW + n)
        await story.store.prune(Retention(keep_events=20), NOW + 10, 1000)
        assert [event.seq for event in await story.store.events(0, 1000)] == list(range(11, 31))
        await story.store.prune(Retention(keep_events_for=5), NOW + 10.5, 1000)
        assert [event.seq for event in await story.store.events(0, 1000)] == list(range(19, 31))
        assert len(await story.store.runs(RunQuery())) == 10, "the runs themselves stay"


async def test_a_run_whose_request_id_can_be_repeated_is_kept_for_a_day_after_its_end(place: Place) -> None:
    retention = Retention(keep_runs=0)
    async with opened(place) as story:
        await _ended_at(story, "r1", NOW, Terms(request_id="once", fingerprint="f"))
        await _ended_at(story, "r2", NOW)
        await story.tell(memos=[Requested("joined", "r1", "g")])
        await story.store.prune(retention, NOW + DAY - 1, 100)
        assert [run.id for run in await story.store.runs(RunQuery())] == ["r1"]
    store = place.store()
    stored = await store.open("", 1, NOW + DAY - 1)
    assert sorted(stored.requests, key=lambda request: request.request_id) == [
        StoredRequest("joined", "r1", "g", NOW),
        StoredRequest("once", "r1", "f", NOW),
    ]
    await store.close()
    store = place.store()
    assert (await store.open("", 1, NOW + DAY + 1)).requests == []
    await store.prune(retention, NOW + DAY + 1, 100)
    assert await store.runs(RunQuery()) == []
    await store.close()


async def test_an_expired_request_id_can_be_used_for_a_new_run(place: Place) -> None:
    async with opened(place) as story:
        await _ended_at(story, "r1", NOW, Terms(request_id="once", fingerprint="f"))
    async with opened(place, now=NOW + 2 * DAY) as again:
        await again.tell(created("r2", place=2), terms={"r2": Terms(request_id="once", fingerprint="g")})
    store = place.store()
    stored = await store.open("", 1, NOW + 2 * DAY)
    assert stored.requests == [StoredRequest("once", "r2", "g", None)]
    await store.close()
