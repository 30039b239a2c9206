"""Worlds, servers and clients: what scenarios can do, and what is guaranteed to them."""

import contextlib
import signal
import time

import pytest
import trio

from greenroom import Jobs, Run
from greenroom.actors.journal.stream import Stream
from greenroom.errors import GreenroomError, Invalid, RunCancelled, Unavailable
from greenroom.gateway import GatewayConfig
from greenroom.gateway.client import RunEngine, RunTicket
from greenroom.gateway.client.interface import RunFlows
from greenroom.protocol.events import EventBase, RunLog
from greenroom.protocol.records import Snapshot
from greenroom.simulation import SimulationFailed, World, simulate
from greenroom.simulation.rules.rules import Rules

jobs = Jobs()


@jobs.job("waits", resumable=True)
async def waits(run: Run) -> str:
    await run.sleep(10)
    return "done"


@jobs.job("nothing")
async def nothing(run: Run) -> str:
    return "done"


@jobs.job("says")
async def says(run: Run) -> None:
    await run.log("something")


def fails(scenario, match: str, **options) -> SimulationFailed:
    with pytest.raises(SimulationFailed, match=match) as failed:
        simulate(1, scenario, **options)
    return failed.value


# Servers.


def test_an_accepted_run_continues_after_a_crash_and_after_a_stop():
    async def scenario(world: World) -> None:
        server = await world.serve(jobs)
        ann = world.client("ann")
        ticket = await ann.submit("waits", handle="a")
        await trio.sleep(4)
        await server.crash()
        await server.start()
        await trio.sleep(4)
        await server.stop()
        await server.start(shutdown_timeout=1)
        await trio.sleep(20)
        run = await ann.get_run(ticket.id)
        world.check((run.status, run.result) == ("succeeded", "done"), f"it is {run}")

    figures = simulate(1, scenario).figures

    assert (figures.lives, figures.crashes, figures.commands) == (3, 1, 2)


def test_a_body_takes_each_message_once():
    heard: list[object] = []

    async def scenario(world: World) -> None:
        own = Jobs()

        @own.job("hears", resumable=True)
        async def hears(run: Run) -> None:
            heard.append(await run.next_message())
            heard.append(await run.next_message(release_slot=True))
            await run.save_checkpoint("heard two")
            await run.sleep(10)
            heard.extend(await run.messages())

        server = await world.serve(own)
        ann = world.client("ann")
        ticket = await ann.submit("hears", handle="a")
        for number in range(4):
            await ann.inject("a", {"number": number})
            await trio.sleep(1)
        await ticket.result()
        await ann.submit("hears", handle="a")
        await ann.inject("a", {"number": 4})
        await trio.sleep(1)
        await server.crash()

    simulate(1, scenario)
    assert heard == [{"number": number} for number in range(5)]


def test_a_server_that_is_cancelled_gives_executing_runs_no_time():
    async def scenario(world: World) -> None:
        server = await world.serve(holding)
        ann = world.client("ann")
        await ann.submit("holds", handle="a")
        await trio.sleep(1)
        await server.stop(at_once=True)
        world.check(trio.current_time() == 1, "it took no time")
        await server.start()
        [run] = await ann.list_runs()
        world.check((run.status, run.reason) == ("cancelled", "shutdown"), f"it is {run}")

    simulate(1, scenario)


def test_a_running_server_cannot_be_started_again():
    async def scenario(world: World) -> None:
        server = await world.serve(jobs)
        await server.start()

    fails(scenario, "server is running: stop or crash it")


def test_serve_raises_the_errors_of_open_engine():
    async def scenario(world: World) -> None:
        with pytest.raises(GreenroomError, match="max_concurrent"):
            await world.serve(jobs, max_concurrent=-1)

    simulate(1, scenario)


def test_each_server_has_its_own_disk():
    async def scenario(world: World) -> None:
        first = await world.serve(jobs)
        second = await world.serve(jobs, name="the other")
        ann, bob = world.client("ann", first), world.client("bob", second)
        await (await ann.submit("nothing", handle="a")).result()
        world.check(len(await ann.list_runs()) == 1, "the first has a run")
        world.check(await bob.list_runs() == [], "the other has none")
        await first.crash()
        world.check(
            await (await bob.submit("nothing", handle="a")).result() == "done", "the other still runs"
        )

    simulate(1, scenario)


# Crashes.

holding = Jobs()


@holding.job("holds")
async def holds(run: Run) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("seed", range(10))
def test_no_task_of_a_crashed_engine_takes_another_step(seed):
    restless = Jobs()
    alive: list[bool] = []

    async def scenario(world: World) -> None:
        server = await world.serve(restless, max_concurrent=4)

        @restless.job("restless")
        async def restless_job(run: Run) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(step)
                with trio.CancelScope(shield=True):
                    await step()

        async def step() -> None:
            while True:
                alive.append(server.running)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.lowlevel.checkpoint)
                alive.append(server.running)

        for handle in "abc":
            await world.client("ann").submit("restless", handle=handle)
        for _ in range(30):
            await trio.lowlevel.checkpoint()
        await server.crash()

    simulate(seed, scenario)

    assert len(alive) > 10
    assert all(alive)


@pytest.mark.parametrize(
    ("seed", "store"), [(seed, store) for seed in range(5) for store in ("memory", "sqlite")]
)
def test_a_body_that_unwinds_after_a_crash_has_no_effect(seed, store):
    stubborn = Jobs()
    unwound: list[str] = []

    async def scenario(world: World) -> None:
        server = await world.serve(stubborn)

        @stubborn.job("stubborn", resumable=True)
        async def stubborn_job(run: Run) -> None:
            if run.attempt == 1 and not unwound:
                try:
                    await trio.sleep_forever()
                finally:
                    unwound.append("begins")
                    with trio.CancelScope(shield=True):
                        await run.log("logged after the crash")
                        await run.save_checkpoint("saved after the crash")
                        unwound.append("continued")

        ann = world.client("ann")
        ticket = await ann.submit("stubborn", handle="a")
        await trio.sleep(1)
        await server.crash()
        world.check(trio.current_time() == 1, "dying takes no time")
        await server.start()
        await trio.sleep(1)
        said = [event for event in await ann.history(ticket.id) if isinstance(event, RunLog)]
        world.check(not said, f"it logged {said}")

    simulate(seed, scenario, store=store)

    assert unwound == ["begins"]


def test_a_body_that_swallows_every_cancellation_dies_with_its_process():
    clinging = Jobs()

    @clinging.job("clings")
    async def clings(run: Run) -> None:
        while True:
            with contextlib.suppress(trio.Cancelled):
                await trio.sleep_forever()

    async def scenario(world: World) -> None:
        server = await world.serve(clinging)
        ann = world.client("ann")
        ticket = await ann.submit("clings", handle="a")
        await trio.sleep(1)
        await server.crash()
        await server.start()
        await trio.sleep(1)  # its files are searched for in another task
        run = await ann.get_run(ticket.id)
        world.check((run.status, run.reason) == ("failed", "crashed"), f"it is {run}")

    simulate(1, scenario)


def test_a_crash_while_the_engine_is_being_stopped_and_while_it_starts():
    async def scenario(world: World) -> None:
        server = await world.serve(holding, shutdown_timeout=10)
        await world.client("ann").submit("holds", handle="a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.stop)
            await trio.sleep(5)
            await server.crash()
        world.check(trio.current_time() == 5, "it did not wait for its ten seconds")
        server.disk.delay = (2, 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start_in_vain, server)
            await trio.sleep(1)
            await server.crash()
        server.disk.repair()
        await server.start()

    async def start_in_vain(server) -> None:
        with pytest.raises(Unavailable, match="died while it was starting"):
            await server.start()

    simulate(1, scenario)


# Clients.


def test_a_client_has_the_methods_that_engine_and_connected_client_share():
    missing: list[str] = []

    async def scenario(world: World) -> None:
        await world.serve(jobs)
        ann = world.client("ann")
        ticket = await ann.submit("nothing", handle="a")
        for shared, simulated in ((RunEngine, ann), (RunFlows, ann.flows), (RunTicket, ticket)):
            missing.extend(
                name for name in dir(shared) if not name.startswith("_") and not hasattr(simulated, name)
            )

    simulate(1, scenario)

    assert missing == ["workers"]  # simulated workers are created by `World.worker`


def test_clients_list_the_jobs():
    found = []

    async def scenario(world: World) -> None:
        await world.serve(jobs, gateway=GatewayConfig())
        async with world.connect("bob") as bob:
            for client in (world.client("ann"), bob):
                found.append([job.name for job in await client.list_jobs()])

    simulate(1, scenario)

    assert found == [["nothing", "says", "waits"]] * 2


def test_a_job_can_be_given_as_its_function_by_clients_and_in_bodies():
    called = Jobs()

    @called.job()
    async def child(run: Run, pages: tuple[int, int]) -> tuple[int, int]:
        return pages

    @called.job()
    async def parent(run: Run) -> bool:
        return await run.call(child, handle="b", params=(1, 2)) == (1, 2)

    async def scenario(world: World) -> None:
        await world.serve(called, gateway=GatewayConfig())
        ann = world.client("ann")
        async with world.connect("bob") as bob:
            for client in (ann, bob):
                ticket = await client.submit(child, handle="a", params=(1, 2))
                world.check(await ticket.result() == (1, 2), "the result has the function's type")
            world.check(await (await ann.submit(parent, handle="a")).result(), "the body called the child")

    text = simulate(1, scenario).trace.text()

    assert 'ann #1: submit ["child",{"handle":"a","params":[1,2]}]' in text


def test_a_function_of_other_jobs_is_refused():
    others = Jobs()

    @others.job("nothing")
    async def other(run: Run) -> None: ...

    async def scenario(world: World) -> None:
        await world.serve(jobs)
        with pytest.raises(Invalid, match="of another Jobs object"):
            await world.client("ann").submit(other, handle="a")

    simulate(1, scenario)


def test_a_client_waits_for_a_run_and_reads_flows():
    async def scenario(world: World) -> None:
        await world.serve(jobs)
        ann = world.client("ann")
        ticket = await ann.submit("waits", handle="a")
        world.check((await ann.wait("a", 1)).status == "suspended", "it has not ended yet")
        world.check((await ann.wait(ticket.id)).result == "done", "it has ended")
        graph = {"start": "a", "nodes": {"a": {"kind": "timer", "params": {"delay_ms": 1000}}}}
        world.check(not (await ann.flows.check(graph)).errors, "the graph has no errors")
        published = await ann.flows.publish("later", graph)
        rows, total = await ann.flows.list()
        world.check(([row.name for row in rows], total) == (["later"], 1), "the flow is listed")
        world.check((await ann.flows.version(published.id)).id == published.id, "the version is found")

    simulate(1, scenario)


def test_a_client_raises_unavailable_while_the_server_is_down():
    async def scenario(world: World) -> None:
        server = await world.serve(jobs)
        ann = world.client("ann")
        await server.stop()
        with pytest.raises(Unavailable, match="server is down"):
            await ann.submit("nothing", handle="a")
        await server.start()
        world.check(await (await ann.submit("nothing", handle="a")).result() == "done", "it works again")

    simulate(1, scenario)


def test_a_call_raises_unavailable_if_the_server_dies_meanwhile():
    async def scenario(world: World) -> None:
        server = await world.serve(jobs)
        ann = world.client("ann")
        ticket = await ann.submit("waits", handle="a")
        outcomes: list[str] = []

        async def wait() -> None:
            try:
                await ticket.result()
            except Unavailable as error:
                outcomes.append(error.message)

        async def follow() -> None:
            try:
                async for _ in ann.events():
                    pass
            except Unavailable as error:
                outcomes.append(error.message)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(follow)
            await trio.sleep(1)
            await server.crash()
        world.check(
            len(outcomes) == 2 and all("died during the call" in one for one in outcomes), f"got {outcomes}"
        )

    simulate(1, scenario)


def test_a_client_follows_events_until_the_server_stops():
    shown: list[str] = []

    async def scenario(world: World) -> None:
        server = await world.serve(jobs)
        ann = world.client("ann")

        async def follow() -> None:
            async for event in ann.events(after=0):
                shown.append("snapshot" if isinstance(event, Snapshot) else event.by)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await (await ann.submit("nothing", handle="a")).result()
            await server.stop()

    simulate(1, scenario)

    assert shown[:2] == ["ann", "engine"]


def test_every_command_is_in_the_trace_with_its_result():
    async def scenario(world: World) -> None:
        await world.serve(jobs, max_concurrent=1)
        ann = world.client("ann")
        ticket = await ann.submit("waits", handle="a", params=None, lane="side")
        await ann.inject("a", {"text": "hello"})
        await ann.set_params("b", {"draft": 1})
        await ann.set_concurrency("side", 2)
        await ann.set_max_concurrent(2)
        await ann.clear_lane("side")
        await ann.clear_handle("a")
        await ann.release_handle("a")
        await ann.reset_lanes()
        await ann.drain()
        await ann.resume()
        await ann.snapshot()
        await ann.wait_for_active(1)
        await ticket.cancel()
        with pytest.raises(RunCancelled):
            await ticket.result()
        world.check(await ticket.wait(1), "it has ended")
        world.note("that was all")

    trace = simulate(1, scenario).trace
    text = trace.text()

    assert 'ann #1: submit ["waits",{"handle":"a","lane":"side"}]' in text
    assert "ann #1 <- run " in text
    assert 'ann #2: inject ["a",{"text":"hello"}]' in text
    assert "ann #2 <- " in text
    assert "ann #15 <- RunCancelled: " in text
    assert "note: that was all" in text
    for name in "clear_lane clear_handle release_handle reset_lanes drain resume snapshot".split():
        assert f": {name}" in text
    assert [event.seq for event in trace.events()] == list(range(1, len(list(trace.events())) + 1))
    assert all(isinstance(event, EventBase) and event.by for event in trace.events())


def test_the_messages_between_actors_are_in_the_trace_but_not_in_its_text():
    runs: list[str] = []

    async def scenario(world: World) -> None:
        await world.serve(jobs)
        ticket = await world.client("ann").submit("nothing", handle="a")
        await ticket.result()
        runs.append(ticket.id)

    trace = simulate(1, scenario).trace
    [run] = runs
    told = {
        (entry.what.by, entry.who, entry.what.message) for entry in trace.entries if entry.kind == "message"
    }

    assert ("journal", f"run {run}", "Started") in told
    assert (f"body of run {run}", f"run {run}", "BodyEnded") in told
    assert "Started" not in trace.text()


# Failures.


def test_a_check_that_is_false_fails_with_its_text():
    async def scenario(world: World) -> None:
        world.check(1 + 1 == 2, "arithmetics")
        world.check(1 + 1 == 3, "one and one is not three")

    failed = fails(scenario, "seed 1: one and one is not three")
    assert failed.invariant == "one and one is not three"
    assert failed.trace.text().endswith("FAILED: one and one is not three\n")


def test_a_check_in_a_body_fails_the_simulation_and_not_just_the_run():
    checking = Jobs()

    async def scenario(world: World) -> None:
        @checking.job("checks")
        async def checks(run: Run) -> None:
            world.check(run.attempt == 2, "attempts begin with two")

        await world.serve(checking)
        await world.client("ann").submit("checks", handle="a")
        await trio.sleep(1)

    fails(scenario, "attempts begin with two")


@pytest.mark.parametrize(
    ("broken", "match"),
    [
        (lambda: False, "small_enough does not hold"),
        (lambda: "it is too large", "small_enough: it is too large"),
        (lambda: 1 / 0, "small_enough: ZeroDivisionError"),
    ],
)
def test_an_invariant_is_checked_whenever_no_task_is_runnable(broken, match):
    async def scenario(world: World) -> None:
        now = [0]

        @world.invariant
        def small_enough() -> object:
            return broken() if now[0] > 2 else None

        for second in range(10):
            await trio.sleep(1)
            now[0] = second

    failed = fails(scenario, match)
    assert failed.figures.simulated_seconds == 4


def test_an_error_of_the_scenario_is_the_failure():
    async def scenario(world: World) -> None:
        await world.serve(jobs)
        raise LookupError("nothing to see")

    failed = fails(scenario, "the scenario raised LookupError: nothing to see")
    assert isinstance(failed.__cause__, LookupError)


def test_an_engine_that_stops_with_an_error_is_a_failure(monkeypatch):
    publishes, up = Stream.publish, trio.Event()

    def publish(self, events) -> None:
        if up.is_set():
            raise RuntimeError("a bug in the engine")
        publishes(self, events)

    async def scenario(world: World) -> None:
        monkeypatch.setattr(Stream, "publish", publish)
        await world.serve(jobs)
        up.set()
        await world.client("ann").submit("nothing", handle="a")

    fails(scenario, "the engine stopped with RuntimeError: a bug in the engine")


def test_a_fault_in_a_commit_is_a_failure(monkeypatch):
    commits = Rules.commit

    def commit(self, batch) -> None:
        commits(self, batch)
        if any(isinstance(event, RunLog) for event in batch.events):
            self.faults.append("no body may log")

    async def scenario(world: World) -> None:
        await world.serve(jobs)
        monkeypatch.setattr(Rules, "commit", commit)
        await (await world.client("ann").submit("says", handle="a")).result()

    failed = fails(scenario, "no body may log")
    assert [entry.kind for entry in failed.trace.entries[-2:]] == ["event", "fault"]


def test_rules_that_raise_are_a_failure_too(monkeypatch):
    def commit(self, batch) -> None:
        raise LookupError("no such run")

    async def scenario(world: World) -> None:
        await world.serve(jobs)
        monkeypatch.setattr(Rules, "commit", commit)
        await world.client("ann").submit("nothing", handle="a")

    fails(scenario, "a check of the rules raised LookupError: no such run")


async def in_the_scenario(world: World) -> None:
    server = world.servers[0] if world.servers else await world.serve(holding)
    await world.client("ann", server).submit("holds", handle="a")
    signal.raise_signal(signal.SIGINT)
    await trio.sleep_forever()


async def in_a_task_of_the_scenario(world: World) -> None:
    await world.serve(holding)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_the_scenario, world)


async def in_a_body(world: World) -> None:
    interrupting = Jobs()

    @interrupting.job("interrupts")
    async def interrupts(run: Run) -> None:
        signal.raise_signal(signal.SIGINT)

    await world.serve(interrupting)
    await world.serve(holding, name="the other")
    await world.client("ann", world.servers[0]).submit("interrupts", handle="a")
    await trio.sleep_forever()


async def between_tasks(world: World) -> None:
    await world.serve(holding)
    trio.lowlevel.current_trio_token().run_sync_soon(signal.raise_signal, signal.SIGINT)
    with trio.CancelScope(shield=True):
        await trio.sleep(1000)


@pytest.mark.parametrize("scenario", [in_the_scenario, in_a_task_of_the_scenario, in_a_body, between_tasks])
def test_ctrl_c_ends_a_simulation_immediately_in_any_code(scenario):
    with pytest.raises(KeyboardInterrupt):
        simulate(1, scenario)

    simulate(1, nothing_happens)


async def nothing_happens(world: World) -> None: ...


def test_simulations_are_fast():
    """The documented figure is 2,000 commands per second; this leaves room for a busy machine."""

    async def scenario(world: World) -> None:
        await world.serve(jobs, max_concurrent=4)
        ann = world.client("ann")
        for number in range(300):
            await ann.submit("nothing", handle=f"h{number % 20}", on_conflict="queue")

    began = time.process_time()
    figures = simulate(1, scenario).figures

    assert figures.commands == 300
    assert figures.commands / (time.process_time() - began) > 400
