"""The simulated disk: committed data survives, other data is lost, and injected faults occur."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from greenroom import Jobs, Run
from greenroom.errors import Conflict, NotFound, RunFailed, Unavailable
from greenroom.persistence.failures import StoreBroken
from greenroom.persistence.flows import FlowRow, FlowRunQuery, FlowState, NodeRun, VersionRow
from greenroom.persistence.store import Batch, RunQuery, RunWrite, Stored
from greenroom.protocol.records import RunRecord
from greenroom.protocol.states import Status
from greenroom.simulation import World, simulate
from greenroom.simulation.rules.rules import Rules

jobs = Jobs()


@jobs.job("nothing")
async def nothing(run: Run) -> str:
    return "done"


@jobs.job("writes", resumable=True)
async def writes(run: Run) -> None:
    async with run.open_file("finished.txt", overwrite=True) as file:
        await file.write(b"all of it")
    if run.checkpoint is None:
        await run.save_checkpoint("the first file is done")
        async with run.open_file("unfinished.txt") as file:
            await file.write(b"some of it")
            await trio.sleep_forever()


class Process:
    """A process that opens a disk's store without an engine."""

    dead = False

    def die(self, why: str) -> None: ...

    def opened(self, stored: Stored) -> None: ...


@pytest.fixture(params=["memory", "sqlite"])
def play(request) -> Callable[..., Any]:
    def play(scenario, seed: int = 1):
        return simulate(seed, scenario, store=request.param)

    return play


async def submitted(world: World, trouble: str) -> tuple[str, str | None]:
    """The reply to a submission whose commit has trouble, and the status of its run after a restart."""
    server = await world.serve(jobs, max_concurrent=0, shutdown_timeout=60)
    ann = world.client("ann")
    server.disk.fail_commit(trouble)
    try:
        await ann.submit("nothing", handle="a", request_id="mine")
        reply = "accepted"
    except Unavailable:
        reply = "unavailable"
    if server.running:
        await server.crash()
    await server.start()
    runs = await ann.list_runs()
    if not runs:
        return reply, None
    [run] = runs
    world.check(len(await ann.history(run.id)) == 1, "it was submitted once")
    return reply, run.status


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("trouble", "survives"), [("crash_before", False), ("crash_within", False), ("crash_after", True)]
)
def test_a_crash_keeps_committed_data_and_no_other(play, trouble, survives, seed):
    async def scenario(world: World) -> None:
        told, status = await submitted(world, trouble)
        world.check(told == "unavailable", "the outcome is unknown to ann")
        world.check(status == ("queued" if survives else None), f"it is {status}")

    play(scenario, seed)


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_within_a_commit_happens_before_its_end_even_if_it_is_short(play, seed):
    async def scenario(world: World) -> None:
        server = await world.serve(jobs)
        ann = world.client("ann")
        server.disk.fail_commit("crash_within")
        with pytest.raises(Unavailable):
            await ann.set_params("a", "draft")
        await server.start()
        world.check("a" not in (await ann.snapshot()).handles, "nothing was committed")

    play(scenario, seed)


@pytest.mark.parametrize(
    ("trouble", "outcome"),
    [("lost_reply", ("accepted", "queued")), ("lost_request", ("unavailable", None))],
)
def test_an_engine_finds_out_the_outcome_of_a_commit_whose_reply_was_lost(play, trouble, outcome):
    async def scenario(world: World) -> None:
        found = await submitted(world, trouble)
        world.check(found == outcome, f"it was {found}")

    assert play(scenario).figures.faults == 1


def test_a_refused_commit_is_retried_if_the_real_store_retries_it(play, request):
    retries = "sqlite" in request.node.name

    async def scenario(world: World) -> None:
        found = await submitted(world, "refused")
        world.check(
            found == (("accepted", "queued") if retries else ("unavailable", None)), f"it was {found}"
        )

    simulated = play(scenario)
    assert (simulated.figures.simulated_seconds >= 1.0) == retries


def test_a_broken_store_stops_the_engine_without_a_failure_of_the_simulation(play):
    async def scenario(world: World) -> None:
        server = await world.serve(jobs)
        ann = world.client("ann")
        server.disk.fail_commit("broken")
        with pytest.raises(Unavailable):
            await ann.submit("nothing", handle="a")
        await server.ended()
        world.check(isinstance(server.failure, StoreBroken), f"it was {server.failure!r}")
        await server.start()
        world.check(await (await ann.submit("nothing", handle="a")).result() == "done", "it works again")

    play(scenario)


def test_trouble_can_be_injected_into_a_later_commit(play):
    async def scenario(world: World) -> None:
        server = await world.serve(jobs, max_concurrent=0)
        ann = world.client("ann")
        server.disk.fail_commit("crash_before", after=2)
        await ann.set_params("a", 1)
        await ann.set_params("a", 2)
        with pytest.raises(Unavailable):
            await ann.set_params("a", 3)
        await server.start()
        world.check((await ann.snapshot()).handles["a"].params == 2, "two were committed")

    play(scenario)


def test_while_the_disk_is_down_submissions_are_refused_and_afterwards_runs_continue(play):
    async def scenario(world: World) -> None:
        server = await world.serve(jobs, max_concurrent=1)
        ann = world.client("ann")
        server.disk.down = True
        with pytest.raises(Unavailable):
            await ann.submit("nothing", handle="a")
        await trio.sleep(60)
        server.disk.down = False
        await trio.sleep(10)
        world.check(await (await ann.submit("nothing", handle="a")).result() == "done", "it continues")

    play(scenario)


def test_a_full_disk_can_be_read_but_not_written(play):
    async def scenario(world: World) -> None:
        server = await world.serve(jobs)
        ann = world.client("ann")
        done = await ann.submit("nothing", handle="a")
        await done.result()
        working = await ann.submit("writes", handle="b", on_conflict="queue")
        await trio.sleep(1)
        server.disk.full = True
        with pytest.raises(Unavailable):
            await ann.submit("nothing", handle="a")
        world.check(len(await ann.history(done.id)) == 3, "it can be read")
        server.disk.full = False
        await trio.sleep(10)
        await ann.cancel(working.id)

    play(scenario)


def test_a_body_gets_an_error_if_the_disk_is_full(play):
    filling = Jobs()

    async def scenario(world: World) -> None:
        server = await world.serve(filling)

        @filling.job("fills")
        async def fills(run: Run) -> None:
            async with run.open_file("a.txt") as file:
                server.disk.full = True
                try:
                    await file.write(b"too much")
                finally:
                    server.disk.full = False

        ticket = await world.client("ann").submit("fills", handle="a")
        with pytest.raises(RunFailed, match="simulated disk is full"):
            await ticket.result()
        world.check(not server.disk.files and not server.disk.parts, "no part remains")

    play(scenario)


def test_a_slow_disk_takes_simulated_time(play):
    async def scenario(world: World) -> None:
        server = await world.serve(jobs)
        server.disk.delay = (3.0, 3.0)
        before = trio.current_time()
        await world.client("ann").set_params("a", 1)
        world.check(trio.current_time() - before >= 3.0, "it was too fast")
        server.disk.repair()
        before = trio.current_time()
        await world.client("ann").set_params("a", 2)
        world.check(trio.current_time() == before, "it is repaired")

    play(scenario)


def test_rates_inject_random_trouble_that_is_the_same_for_a_seed(play):
    async def scenario(world: World) -> None:
        server = await world.serve(jobs, max_concurrent=1)
        server.disk.rates = {"refused": 0.1, "lost_reply": 0.1, "crash_after": 0.05}
        ann = world.client("ann")
        for number in range(30):
            try:
                await ann.set_params("a", number)
            except Unavailable:
                await server.start()
        server.disk.repair()

    figures = [play(scenario).figures for _ in range(2)]

    assert figures[0].faults > 1
    assert figures[0].crashes > 0
    assert figures[0].faults == figures[1].faults


def test_a_body_that_changes_its_values_changes_no_stored_value(play):
    mutating = Jobs()

    @mutating.job("mutates")
    async def mutates(run: Run, params: dict) -> None:
        params["list"].append("mine")
        run.params["list"].append("mine, too")
        await run.sleep(1)

    async def scenario(world: World) -> None:
        server = await world.serve(mutating)
        ann = world.client("ann")
        given = {"list": ["given"]}
        ticket = await ann.submit("mutates", handle="a", params=given)
        given["list"].append("later")
        await trio.sleep(0.5)
        await server.crash()
        await server.start()
        run = await ann.get_run(ticket.id)
        world.check(run.params == {"list": ["given"]}, f"it has {run.params}")

    play(scenario)


def test_an_engine_shares_no_value_with_the_disk(play, monkeypatch):
    """Checked at the store itself, because the engine does not share its values either."""
    monkeypatch.setattr(Rules, "commit", lambda rules, batch: None)
    params = {"list": ["given"]}
    created = {"id": "r", "handle": "a", "lane": "main", "job": "nothing", "kind": "start", "created_at": 0.0}
    record = RunRecord(**created, params=params, status=Status.QUEUED, updated_at=0.0)

    async def scenario(world: World) -> None:
        server = await world.serve(jobs)
        await server.stop()
        store = server.disk.store_of(Process())
        before = (await store.open("epoch", 1, 0.0)).last_seq
        await store.commit(Batch(before, [], {"r": RunWrite(record, None, created=1)}, []))
        params["list"].append("later")
        found = await store.run("r")
        world.check(found is not None and found.params == {"list": ["given"]}, f"it holds {found}")
        found.params["list"].append("by a reader")
        await store.close()
        stored = await store.open("epoch", 1, 0.0)
        world.check(stored.pending[0].record.params == {"list": ["given"]}, f"it holds {stored.pending}")
        stored.pending[0].record.params["list"].append("by the next engine")
        [found] = await store.runs(RunQuery())
        world.check(found.params == {"list": ["given"]}, f"it holds {found}")

    play(scenario)


def test_the_records_of_flows_are_stored_and_not_shared_with_the_disk(play, monkeypatch):
    monkeypatch.setattr(Rules, "commit", lambda rules, batch: None)
    run = {"id": "r", "handle": "a", "lane": "main", "job": "nothing", "kind": "start", "created_at": 0.0}
    record = RunRecord(**run, params=None, status=Status.QUEUED, updated_at=0.0)
    walk = FlowState("r", "v1", "{}", 0)
    version = VersionRow("v1", "f1", 1, "published", 0.0, "{}")
    tried = {"run": "r", "number": 1, "node": "n", "visit": 1, "attempt": 1, "status": "ok"}

    async def scenario(world: World) -> None:
        server = await world.serve(jobs)
        await server.stop()
        store = server.disk.store_of(Process())
        before = (await store.open("epoch", 1, 0.0)).last_seq
        output = {"list": ["given"]}
        node_run = NodeRun(**tried, output=output, started_at=0.0, finished_at=1.0)
        memos = [walk, node_run, version, FlowRow("f1", "flow", "", 0.0)]
        await store.commit(Batch(before, [], {"r": RunWrite(record, None, created=1)}, memos))
        output["list"].append("later")
        for _ in range(2):
            for [found] in (await store.node_runs("r"), (await store.flow("r")).later):
                world.check(found.output == {"list": ["given"]}, f"it holds {found}")
                found.output["list"].append("by a reader")
        page = await store.flow_runs(FlowRunQuery())
        world.check((page.runs, page.total) == ([(record, walk)], 1), f"it lists {page}")
        world.check(await store.version("v1") == version, "it holds the version")
        world.check(await store.version("v2") is None, "there is no other")
        world.check(await store.flow("s") is None, "there is no other")
        await store.close()
        stored = await store.open("epoch", 1, 0.0)
        world.check([flow.name for flow in stored.flows] == ["flow"], f"it holds {stored.flows}")

    play(scenario)


@pytest.mark.parametrize("seed", range(8))
def test_files_outlive_a_crash_and_recovery_deletes_unfinished_ones(play, seed):
    async def scenario(world: World) -> None:
        server = await world.serve(jobs)
        disk = server.disk
        ticket = await world.client("ann").submit("writes", handle="a")
        await trio.sleep(1)
        world.check(list(disk.parts) == [("a", "unfinished.txt", ticket.id)], f"parts: {disk.parts}")
        await server.crash()
        await trio.sleep(1)
        world.check(
            list(disk.parts) == [("a", "unfinished.txt", ticket.id)], "a dead process removes nothing"
        )
        world.check(disk.files["a", "finished.txt"].content == b"all of it", "it was finished")
        world.check(disk.files["a", "finished.txt"].run == ticket.id, "by this run")
        await server.start()
        await trio.sleep(1)
        world.check(not disk.parts, f"parts: {disk.parts}")
        world.check(list(disk.files) == [("a", "finished.txt")], f"files: {disk.files}")

    play(scenario, seed)


def test_an_unfinished_file_that_the_disk_failed_to_delete_is_no_fault_of_the_engine(play):
    unlucky = Jobs()

    async def scenario(world: World) -> None:
        server = await world.serve(unlucky)

        @unlucky.job("unlucky")
        async def unlucky_job(run: Run) -> None:
            async with run.open_file("a.txt") as file:
                await file.write(b"some of it")
                server.disk.down = True
                raise ValueError("and that is all")

        ann = world.client("ann")
        ticket = await ann.submit("unlucky", handle="a")
        await trio.sleep(30)
        server.disk.down = False
        await trio.sleep(30)
        world.check((await ann.get_run(ticket.id)).status == "failed", "it has failed")
        world.check(len(server.disk.parts) == 1, "the part remains")

    play(scenario)


def test_an_existing_file_is_refused_without_overwrite(play):
    careless = Jobs()

    @careless.job("careless")
    async def careless_job(run: Run) -> None:
        async with run.open_file("a.txt") as file:
            await file.write(b"mine")

    async def scenario(world: World) -> None:
        await world.serve(careless)
        ann = world.client("ann")
        await (await ann.submit("careless", handle="a")).result()
        with pytest.raises(RunFailed, match="overwrite=True"):
            await (await ann.submit("careless", handle="a")).result()

    play(scenario)


def test_a_second_engine_on_a_disk_is_refused(play):
    async def scenario(world: World) -> None:
        first = await world.serve(jobs)
        with pytest.raises(Conflict, match="in use by another engine"):
            await world.serve(jobs, disk=first.disk)
        await first.stop()
        await world.servers[1].start()

    play(scenario)


def test_the_simulated_store_answers_queries_like_the_real_one(play):
    async def scenario(world: World) -> None:
        await world.serve(jobs)
        ann = world.client("ann")
        first = await ann.submit("nothing", handle="a", request_id="one")
        await first.result()
        second = await ann.rerun(first.id)
        await second.result()
        world.check(
            [run.id for run in await ann.list_runs(handle="a")] == [second.id, first.id], "newest first"
        )
        again = await ann.submit("nothing", handle="a", request_id="one")
        world.check(again.id == first.id and again.joined, "one request is one run")
        with pytest.raises(NotFound):
            await ann.get_run("unknown")
        world.check(await ann.answer("unknown.1", 1) == "not_found", "nobody has asked that")

    play(scenario)


def test_pruning_works_on_a_simulated_disk(play):
    async def scenario(world: World) -> None:
        await world.serve(jobs, keep_runs=2)
        ann = world.client("ann")
        for _ in range(6):
            await (await ann.submit("nothing", handle="a")).result()
            await trio.sleep(2)
        world.check(len(await ann.list_runs()) <= 3, "the old ones are forgotten")

    play(scenario)


def test_a_simulation_ends_even_if_the_disk_is_never_repaired(play):
    async def scenario(world: World) -> None:
        server = await world.serve(jobs, shutdown_timeout=5)
        server.disk.down = True
        with pytest.raises(Unavailable):
            await world.client("ann").submit("nothing", handle="a")

    assert play(scenario).figures.simulated_seconds < 60
