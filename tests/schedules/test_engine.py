"""Schedules of an engine, in mock time."""

from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from greenroom import Conflict, Invalid, Jobs, NotFound, Run, Schedule
from greenroom.actors.schedules.configured import continued
from greenroom.errors import TooLarge
from greenroom.persistence.memory import MemoryStore
from greenroom.protocol.events import ScheduleChanged, ScheduleFired, ScheduleMissed
from greenroom.protocol.fold import fold
from tests.support import Bodies, open_engine, outliving_store, until

from .making import definition, record

pytestmark = pytest.mark.usefixtures("store_kind")

BEGAN = 1_795_000_000.0
WEEK = 7 * 86_400.0


class Wall:
    """A clock that follows trio's, and can be set."""

    def __init__(self) -> None:
        self.offset = BEGAN - trio.current_time()

    def __call__(self) -> float:
        return trio.current_time() + self.offset

    def passed(self, at: float) -> float:
        return round(at - BEGAN, 3)


def quick() -> Jobs:
    """The job `quick`, which ends at once."""
    jobs = Jobs()

    @jobs.job("quick")
    async def body(run: Run, params: dict[str, Any]) -> Any:
        return params

    return jobs


@pytest.fixture
async def wall() -> Wall:
    return Wall()


@pytest.fixture
def store(store_kind, request) -> Any:
    """A store that outlives its engines."""
    return outliving_store(request)


async def firings(engine, wall, name="tick"):
    """The times for which a schedule has fired, after the start of the test."""
    events = await engine._store.events(0, 10_000)
    return [
        wall.passed(event.at_planned)
        for event in events
        if isinstance(event, ScheduleFired) and event.schedule == name and not event.triggered
    ]


async def left_out(engine):
    events = await engine._store.events(0, 10_000)
    return [event.count for event in events if isinstance(event, ScheduleMissed)]


@asynccontextmanager
async def opened(wall, jobs=None, **options):
    async with open_engine(jobs or quick(), clock=wall, **options) as engine:
        yield engine


async def test_a_schedule_submits_its_run_at_each_due_time(autojump_clock, wall):
    async with opened(wall) as engine:
        before = await engine.snapshot()
        put = await engine.schedules.put(
            "tick",
            job="quick",
            handle="alice",
            params={"page": 1},
            every=10,
            lane="slow",
            on_conflict="queue",
        )
        assert put.options == {"lane": "slow", "on_conflict": "queue"}
        await trio.sleep(35)
        assert await firings(engine, wall) == [10, 20, 30]
        now = await engine.snapshot()
        runs = list(now.runs.values())
        assert [run.created_at - BEGAN for run in runs] == pytest.approx([10, 20, 30])
        assert {(run.handle, run.lane, run.result["page"]) for run in runs} == {("alice", "slow", 1)}
        record = now.schedules["tick"]
        assert (record.last_run, wall.passed(record.last_fired)) == (runs[-1].id, 30)
        assert [wall.passed(at) for at in record.next] == [40, 50, 60]
        assert record == await engine.schedules.get("tick")
        assert [record] == await engine.schedules.list()
        events = await engine._store.events(before.seq, 1000)
        assert fold(before, events) == now


async def test_a_firing_is_one_commit_with_the_run_that_it_creates(autojump_clock, wall):
    async with opened(wall) as engine:
        await engine.schedules.put("tick", job="quick", every=10)
        events = engine.events()
        await trio.sleep(11)
        created, fired = await anext(events), await anext(events)
        assert (created.type, created.by, created.run) == ("run_state_changed", "schedule:tick", fired.run)
        assert (fired.type, fired.seq) == ("schedule_fired", created.seq + 1)
        terms = (await engine._store.request_ids([fired.run]))[fired.run]
        record = await engine.schedules.get("tick")
        assert terms == f"schedule:tick:{record.id}:{BEGAN + 10:.3f}"


async def test_a_cron_schedule_follows_its_time_zone(autojump_clock, wall):
    async with opened(wall) as engine:
        record = await engine.schedules.put(
            "nightly", job="quick", cron="0 3 * * *", timezone="Europe/Berlin"
        )
        await trio.sleep(2 * 86_400)
        assert await firings(engine, wall, "nightly") == [wall.passed(at) for at in record.next[:2]]


@pytest.mark.parametrize(
    ("missed", "expected", "count"),
    [("skip", [100], [6047]), ("latest", [100, WEEK], [6046]), ("all", [100, WEEK - 100, WEEK], [6045])],
)
async def test_an_engine_that_was_off_for_a_week(autojump_clock, wall, store, missed, expected, count):
    async with opened(wall, store=store()) as engine:
        await engine.schedules.put(
            "tick", job="quick", every=100, missed=missed, missed_limit=2, on_conflict="queue"
        )
        await trio.sleep(110)
    wall.offset += WEEK - 40
    async with opened(wall, store=store()) as engine:
        await trio.sleep(10)
        assert await left_out(engine) == count
        assert await firings(engine, wall) == expected
        await trio.sleep(30)
        assert (await firings(engine, wall))[-1] == WEEK + 100, "a restart does not shift the times"


async def test_a_restart_within_a_minute_misses_nothing(autojump_clock, wall, store):
    async with opened(wall, store=store()) as engine:
        await engine.schedules.put("tick", job="quick", every=100, missed="skip")
        await trio.sleep(90)
    wall.offset += 60
    async with opened(wall, store=store()) as engine:
        await trio.sleep(1)
        assert await firings(engine, wall) == [100]


async def test_everything_is_restored(autojump_clock, wall, store):
    async with opened(wall, store=store()) as engine:
        await engine.schedules.put("b", job="quick", cron="0 3 * * *", jitter=60, needs=["gpu"], deadline=5)
        await engine.schedules.put("a", job="quick", every=60, paused=True)
        await engine.schedules.put("c", job="quick", every=60)
        await engine.schedules.delete("c")
        before = (await engine.snapshot()).schedules
    async with opened(wall, store=store()) as engine:
        assert (await engine.snapshot()).schedules == before
        assert [record.name for record in await engine.schedules.list()] == ["a", "b"]


async def test_a_clock_that_is_set_back_by_an_hour_fires_nothing_again(autojump_clock, wall):
    async with opened(wall) as engine:
        await engine.schedules.put("tick", job="quick", every=100)
        await trio.sleep(250)
        wall.offset -= 3600
        await trio.sleep(3600)
        assert await firings(engine, wall) == [100, 200]
        await trio.sleep(100)
        assert await firings(engine, wall) == [100, 200, 300]


@pytest.mark.parametrize(("missed", "expected"), [("skip", []), ("latest", [3600]), ("all", [3500, 3600])])
async def test_a_clock_that_is_set_forward_by_an_hour_is_noticed_soon(autojump_clock, wall, missed, expected):
    async with opened(wall) as engine:
        await engine.schedules.put(
            "tick", job="quick", every=100, missed=missed, missed_limit=2, on_conflict="queue"
        )
        await trio.sleep(5)
        wall.offset += 3660
        await trio.sleep(30)
        assert await firings(engine, wall) == expected


async def test_a_firing_that_is_refused_is_an_event(autojump_clock, wall):
    bodies = Bodies()
    async with opened(wall, bodies.jobs) as engine:
        await engine.schedules.put("tick", job="wait", handle="alice", every=10)
        await trio.sleep(25)
        events = [e for e in await engine._store.events(0, 100) if isinstance(e, ScheduleFired)]
        assert [(event.refused, event.run is None) for event in events] == [(None, False), ("conflict", True)]
        assert events[1].error is not None
        assert "alice" in events[1].error
        record = await engine.schedules.get("tick")
        assert (record.last_run, wall.passed(record.last_fired)) == (None, 20)
        assert record.last_error == events[1].error
        for run in (await engine.snapshot()).runs:
            await engine.cancel(run)


async def test_a_firing_that_joins_a_run_is_an_event(autojump_clock, wall):
    bodies = Bodies()
    async with opened(wall, bodies.jobs) as engine:
        await engine.schedules.put("tick", job="wait", handle="alice", every=10, on_conflict="join")
        await trio.sleep(25)
        first, second = [e for e in await engine._store.events(0, 100) if isinstance(e, ScheduleFired)]
        assert (first.joined, second.joined, second.run) == (False, True, first.run)
        await engine.cancel(second.run or "")


async def test_a_job_that_no_longer_exists_is_refused_and_the_schedule_stays(autojump_clock, wall, store):
    async with opened(wall, store=store()) as engine:
        await engine.schedules.put("tick", job="quick", every=10)
    async with opened(wall, Bodies().jobs, store=store()) as engine:
        await trio.sleep(15)
        [fired] = [e for e in await engine._store.events(0, 100) if isinstance(e, ScheduleFired)]
        assert (fired.refused, fired.error) == (
            "invalid",
            'job "quick" not found; registered jobs: stubborn, wait',
        )
        assert (await engine.schedules.get("tick")).next


async def test_while_the_engine_drains_firings_wait(autojump_clock, wall):
    async with opened(wall) as engine:
        await engine.schedules.put("tick", job="quick", every=100, missed="skip")
        await engine.drain()
        await trio.sleep(330)
        assert await firings(engine, wall) == []
        await engine.resume()
        await trio.sleep(1)
        assert (await firings(engine, wall), await left_out(engine)) == ([300], [2])


async def test_a_paused_schedule_misses_nothing(autojump_clock, wall):
    async with opened(wall) as engine:
        await engine.schedules.put("tick", job="quick", every=100, missed="all")
        paused = await engine.schedules.pause("tick")
        assert (paused.paused, paused.next) == (True, ())
        await trio.sleep(350)
        resumed = await engine.schedules.resume("tick")
        assert wall.passed(resumed.next[0]) == 400
        await trio.sleep(100)
        assert (await firings(engine, wall), await left_out(engine)) == ([400], [])


async def test_a_trigger_fires_once_and_shifts_nothing(autojump_clock, wall):
    async with opened(wall) as engine:
        await engine.schedules.put("tick", job="quick", every=100, params={"page": 1}, paused=True)
        before = await engine.schedules.get("tick")
        ticket = await engine.schedules.trigger("tick", by="alice")
        assert await ticket.result() == {"page": 1}
        assert await engine.schedules.get("tick") == before
        [fired] = [e for e in await engine._store.events(0, 100) if isinstance(e, ScheduleFired)]
        assert (fired.run, fired.by, fired.triggered) == (ticket.id, "alice", True)


async def test_a_trigger_that_is_refused_or_joins(autojump_clock, wall):
    bodies = Bodies()
    async with opened(wall, bodies.jobs) as engine:
        await engine.schedules.put("tick", job="wait", every=1000)
        first = await engine.schedules.trigger("tick")
        with pytest.raises(Conflict):
            await engine.schedules.trigger("tick")
        await engine.schedules.put("tick", job="wait", every=1000, on_conflict="join")
        second = await engine.schedules.trigger("tick")
        assert (second.id, second.joined) == (first.id, True)
        events = [e for e in await engine._store.events(0, 100) if isinstance(e, ScheduleFired)]
        assert [event.joined for event in events] == [False, True]
        with pytest.raises(NotFound, match='schedule "tock" not found'):
            await engine.schedules.trigger("tock")
        await first.cancel()


async def test_a_trigger_that_is_repeated_with_its_request_id_fires_once(autojump_clock, wall):
    bodies = Bodies()
    async with opened(wall, bodies.jobs) as engine:
        await engine.schedules.put("tick", job="wait", every=1000, on_conflict="join")
        first = await engine.schedules.trigger("tick", request_id="1")
        again = await engine.schedules.trigger("tick", request_id="1")
        other = await engine.schedules.trigger("tick", request_id="2")
        await engine.schedules.trigger("tick", request_id="2")
        assert {first.id, again.id, other.id} == {first.id}
        assert (first.joined, again.joined) == (False, True)
        events = [e for e in await engine._store.events(0, 100) if isinstance(e, ScheduleFired)]
        assert [event.joined for event in events] == [False, True]
        await first.cancel()
        with pytest.raises(Invalid, match="reserved for schedules"):
            await engine.schedules.trigger("tick", request_id="schedule:tick:1")


@pytest.mark.parametrize(
    "times", [{"cron": "0 3 * * *", "timezone": "Asia/Tokyo"}, {"cron": "*/7 * * * *"}, {"every": 10}]
)
async def test_a_preview_has_the_times_of_the_schedule_and_stores_nothing(times, autojump_clock, wall):
    async with opened(wall) as engine:
        seq = (await engine.snapshot()).seq
        next = await engine.schedules.preview(**times)
        assert (await engine.snapshot()).seq == seq
        assert (await engine.schedules.put("tick", job="quick", **times)).next == tuple(next)


async def test_a_deleted_schedule_can_be_put_anew(autojump_clock, wall):
    async with opened(wall) as engine:
        first = await engine.schedules.put("tick", job="quick", every=10)
        await trio.sleep(15)
        await engine.schedules.delete("tick")
        wall.offset -= 15
        second = await engine.schedules.put("tick", job="quick", every=10)
        assert first.id != second.id
        await trio.sleep(15)
        assert await firings(engine, wall) == [10, 10]
        assert len((await engine.snapshot()).runs) == 2
        await engine.schedules.delete("tick")
        for call in (engine.schedules.delete, engine.schedules.get, engine.schedules.pause):
            with pytest.raises(NotFound):
                await call("tick")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"job": "slow"}, 'job "slow" not found'),
        ({"params": 5}, "parameters of job"),
        ({"kind": "begin"}, "kind must be"),
        ({"on_conflict": "wait"}, "on_conflict must be one of"),
        ({"request_id": "r"}, "request_id cannot be set for a schedule"),
        ({"on_wait": print}, "on_wait cannot be set for a schedule"),
        ({"run_timeout": -1}, "run_timeout must be"),
        ({"needs": "gpu"}, "needs must be a list"),
        ({"cron": "x", "every": None}, "cron must have five fields"),
        ({"paused": 1}, "paused must be true or false"),
        ({"by": ""}, "by must not be empty"),
    ],
)
async def test_a_bad_schedule_is_refused_and_changes_nothing(autojump_clock, wall, options, complaint):
    async with opened(wall) as engine:
        before = await engine.snapshot()
        with pytest.raises(Invalid) as error:
            await engine.schedules.put("tick", **{"job": "quick", "every": 10, **options})
        assert complaint in error.value.message
        assert await engine.snapshot() == before


async def test_an_unknown_option_is_named(autojump_clock, wall):
    async with opened(wall) as engine:
        with pytest.raises(TypeError, match="on_conflct"):
            await engine.schedules.put("tick", job="quick", every=10, on_conflct="queue")


async def test_a_schedule_of_a_flow(autojump_clock, wall):
    definition = """
    start: done
    nodes:
      done: {kind: choice, prep: {input_map: {paid: paid}}, post: {output_key: outcome}}
    edges: []
    """
    async with opened(wall) as engine:
        flow = {"flow": "order", "version": 0, "params": {"paid": True}}
        with pytest.raises(NotFound):
            await engine.schedules.put("tick", job="flow", params=flow, every=10)
        await engine.flows.publish("order", definition)
        await engine.schedules.put("tick", job="flow", params=flow, every=10)
        await trio.sleep(15)
        tasks, total = await engine.flows.tasks()
        assert total == 1
        assert tasks[0].run.status == "succeeded"


def declaring(**schedules: Any) -> Jobs:
    """Jobs with these schedules."""
    jobs = Jobs()
    for name, schedule in schedules.items():

        @jobs.job(name, schedule=schedule)
        async def body(run: Run, params: dict[str, Any]) -> None:
            pass

    return jobs


async def test_schedules_of_code_are_put_changed_and_deleted_with_it(autojump_clock, wall, store):
    first = declaring(
        a=Schedule(every=10), b={"every": 20, "name": "tick", "handle": "bob", "params": {"x": 1}}
    )
    async with opened(wall, first, store=store()) as engine:
        records = {record.name: record for record in await engine.schedules.list()}
        assert {name: (r.job, r.handle, r.source) for name, r in records.items()} == {
            "a": ("a", "schedule:a", "code"),
            "tick": ("b", "bob", "code"),
        }
        await engine.schedules.pause("a")
        with pytest.raises(Conflict, match='declared in the code of job "b"'):
            await engine.schedules.delete("tick")
        with pytest.raises(Conflict, match='declared in the code of job "b"'):
            await engine.schedules.put("tick", job="a", every=5)
        await trio.sleep(25)
        assert await firings(engine, wall) == [20]
    second = declaring(a=Schedule(every=10), c=Schedule(cron="0 3 * * *"))
    async with opened(wall, second, store=store()) as engine:
        again = {record.name: record for record in await engine.schedules.list()}
        assert again.keys() == {"a", "c"}
        assert (again["a"].paused, again["a"].id) == (True, records["a"].id)


async def test_code_that_stays_the_same_changes_nothing(autojump_clock, wall, store):
    jobs = declaring(a=Schedule(every=10))
    async with opened(wall, jobs, store=store()):
        pass
    async with opened(wall, jobs, store=store()) as engine:
        changes = [e for e in await engine._store.events(0, 100) if isinstance(e, ScheduleChanged)]
        assert len(changes) == 1


async def test_schedules_of_the_configuration_follow_it(autojump_clock, wall, store):
    tick = {"job": "quick", "every": 20, "params": {"x": 1}, "on_conflict": "queue"}
    first = {"tick": tick, "night": {"job": "quick", "cron": "0 3 * * *", "lane": "slow"}}
    async with opened(wall, store=store(), schedules=first) as engine:
        assert [(it.name, it.source) for it in await engine.schedules.list()] == [
            ("night", "config"),
            ("tick", "config"),
        ]
        before = await engine.schedules.pause("night")
        with pytest.raises(Conflict, match="declared in the configuration: remove it there"):
            await engine.schedules.delete("tick")
        with pytest.raises(Conflict, match="declared in the configuration: change it there"):
            await engine.schedules.put("tick", job="quick", every=5)
        await engine.schedules.put("own", job="quick", every=60, handle="bob")
        await trio.sleep(25)
        assert await firings(engine, wall) == [20]
    async with opened(wall, store=store(), schedules={"night": first["night"]}) as engine:
        assert await engine.schedules.get("night") == before
        assert [it.name for it in await engine.schedules.list()] == ["night", "own"]
        own = {"job": "quick", "every": 60, "handle": "carol"}
        await engine.schedules.configure({"own": own, "tick": tick}, by="SIGHUP")
        records = {it.name: it for it in await engine.schedules.list()}
        assert {name: it.source for name, it in records.items()} == {"own": "config", "tick": "config"}
        assert (records["own"].handle, records["tick"].options) == ("carol", {"on_conflict": "queue"})
        changed = [e for e in await engine._store.events(0, 100) if isinstance(e, ScheduleChanged)]
        await engine.schedules.configure({"own": own, "tick": tick})
        assert [e for e in await engine._store.events(0, 100) if isinstance(e, ScheduleChanged)] == changed


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"cron": "0 3 * * *"}, 'schedule "s": job is required'),
        (
            {"job": "quick", "cron": "61 * * * *"},
            'schedule "s": cron .* is not valid: bad minute',
        ),
        ({"job": "quikc", "every": 5}, 'schedule "s": job "quikc" not found; registered jobs: a, quick'),
        ({"job": "quick", "every": 5, "params": 3}, 'schedule "s": parameters of job "quick"'),
        ({"job": "quick", "evry": 5}, 'schedule "s": unexpected argument "evry": did you mean "every"'),
        ({"job": "quick", "every": 5, "delay": 1}, 'schedule "s": unexpected argument "delay"'),
        ({"job": "quick", "every": 5, "lane": "x" * 300}, 'schedule "s": lane'),
        ({"job": "flow", "every": 5}, 'schedule "s": params are required for a flow'),
        ("0 3 * * *", 'schedule "s": must be a table'),
    ],
)
async def test_a_bad_schedule_of_the_configuration_is_refused_with_its_name(
    autojump_clock, wall, table, complaint
):
    jobs = quick()
    jobs.job("a", schedule=Schedule(every=10))(lambda run: None)
    with pytest.raises(Invalid, match=complaint):
        async with opened(wall, jobs, schedules={"s": table}):
            pass
    with pytest.raises(Invalid, match='schedule "a" is declared twice, for job "a" and for job "quick"'):
        async with opened(wall, jobs, schedules={"a": {"job": "quick", "every": 5}}):
            pass
    async with opened(wall, jobs) as engine:
        with pytest.raises(Invalid, match=complaint):
            await engine.schedules.configure({"good": {"job": "quick", "every": 5}, "s": table})
        with pytest.raises(Conflict, match='schedule "a" is declared in the code of job "a": remove one'):
            await engine.schedules.configure(
                {"good": {"job": "quick", "every": 5}, "a": {"job": "quick", "every": 5}}
            )
        assert [it.name for it in await engine.schedules.list()] == ["a"]


FLOW = {"job": "flow", "params": {"flow": "order"}}


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"params": {"text": "x" * 2000}}, "params: too large: 2011 bytes"),
        ({"notify": "https://example.org/"}, "notify requires a secret .* set webhook_secret"),
        ({"notify": "http://10.0.0.1/"}, 'url "http://10.0.0.1/" is not called'),
        ({"notify": "nonsense"}, 'url "nonsense"'),
        (FLOW | {"needs": ["gpu"]}, "needs must be empty for a flow"),
        (FLOW | {"on_conflict": "coalesce"}, 'on_conflict must not be "coalesce" for a flow'),
        (FLOW | {"params": {"flow": "order", "version": "x"}}, 'parameters of job "flow"'),
    ],
)
async def test_every_way_to_a_schedule_checks_its_submission(autojump_clock, wall, table, complaint):
    table = {"job": "quick", "every": 5} | table
    named = rf'^schedule "s": .*({complaint})'
    with pytest.raises(Invalid, match=named):
        async with opened(wall, schedules={"s": table}, max_value_bytes=1000):
            pass
    async with opened(wall, max_value_bytes=1000) as engine:
        with pytest.raises(Invalid, match=named):
            await engine.schedules.configure({"s": table})
        with pytest.raises((Invalid, TooLarge), match=complaint):
            await engine.schedules.put("s", **table)
        assert await engine.schedules.list() == []
    if table["job"] != "flow" and table.get("notify") != "nonsense":
        options = {name: value for name, value in table.items() if name != "job"}
        with pytest.raises(Invalid, match=rf'^schedule "quick": .*({complaint})'):
            async with opened(wall, declaring(quick=options), max_value_bytes=1000):
                pass


async def test_the_lane_of_a_schedule_is_stored_by_its_name(autojump_clock, wall):
    async with opened(wall) as engine:
        put = await engine.schedules.put("s", job="quick", every=60, lane=" slow ")
        assert put.options == {"lane": "slow"}


def test_the_next_leader_keeps_the_schedules_of_the_configuration():
    code, old, new = record("code", source="code"), record("old", source="config"), record("new")
    stored = {it.name: it for it in (code, old, record("put"))}
    declared = continued([(definition("code"), "code"), (new, "config")], stored)
    assert [(it.name, source) for it, source in declared] == [("code", "code"), ("old", "config")]


def test_a_bad_schedule_in_code_is_refused_with_the_job():
    for schedule, complaint in (
        (Schedule(cron="61 * * * *"), "bad minute"),
        ({"every": 5, "params": 3}, "parameters of job"),
        ("0 3 * * *", "schedule must be a Schedule or a dict"),
    ):
        with pytest.raises(Invalid, match=complaint):
            declaring(a=schedule)
    with pytest.raises(TypeError, match="tiemzone"):
        declaring(a={"cron": "0 3 * * *", "tiemzone": "UTC"})


async def test_thousands_of_schedules_fire_in_their_minute(autojump_clock, wall, store):
    async with opened(wall, store=store()) as engine:
        async with trio.open_nursery() as nursery:
            for number in range(2000):
                nursery.start_soon(_put_minutely, engine, f"s{number}")
        runs = len((await engine.snapshot()).runs)
        assert runs == 0
    wall.offset += 10
    async with opened(wall, store=store(), max_concurrent=100) as engine:
        await until(engine, lambda now: sum(r.last_run is not None for r in now.schedules.values()) == 2000)
        assert wall() - BEGAN < 120


async def _put_minutely(engine, name):
    await engine.schedules.put(name, job="quick", cron="* * * * *")


async def test_many_schedules_of_the_configuration_need_few_commits(autojump_clock, wall):
    tables = {f"s{number:03}": {"job": "quick", "every": 3600} for number in range(250)}
    commits = 0

    class Counting(MemoryStore):
        async def commit(self, *arguments: Any, **keywords: Any) -> Any:
            nonlocal commits
            commits += 1
            return await super().commit(*arguments, **keywords)

    async with opened(wall, store=Counting()) as engine:
        before = commits
        await engine.schedules.configure(tables)
        assert [schedule.name for schedule in await engine.schedules.list()] == sorted(tables)
        await engine.schedules.configure({})
        assert not await engine.schedules.list()
        assert commits - before < 20
