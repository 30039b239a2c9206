"""The registered workers, and which of them are online."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from greenroom import Engine, Jobs
from greenroom.actors.workers.states import WorkFailed
from greenroom.persistence.memory import MemoryStore
from greenroom.persistence.sqlstore import SqlStore
from greenroom.protocol.errors import Invalid, NotFound, QueueFull, Unavailable
from greenroom.protocol.events import NodeWorkerChanged
from tests.support import open_engine
from tests.workers.support import Answers, SlowStore, dispatch_of, work

URL = "http://10.0.0.1:8080"


class Changes:
    """The events about workers, from now on."""

    def __init__(self, engine: Engine) -> None:
        self._events = engine.events()

    async def next(self) -> tuple[str, str]:
        """Wait for the next event."""
        while True:
            event = await anext(self._events)
            if isinstance(event, NodeWorkerChanged):
                return event.worker, event.status

    async def none_for(self, seconds: float) -> bool:
        with trio.move_on_after(seconds):
            await self.next()
            return False
        return True


async def status(engine: Engine, id: str) -> str:
    [found] = [worker.status for worker in await engine.workers.list() if worker.id == id]
    return found


async def ids(engine: Engine, **filters: Any) -> list[str]:
    return [worker.id for worker in await engine.workers.list(**filters)]


async def test_a_worker_that_registers_is_online_and_that_is_an_event(autojump_clock):
    async with open_engine(Jobs()) as engine:
        events = engine.events()
        state = await engine.workers.register("w", URL, ["sum", "route"], load=2, by="ops")
        assert (state.id, state.url, state.services, state.kind) == ("w", URL, ("sum", "route"), "http")
        assert (state.load, state.status) == (2.0, "online")
        assert list(await engine.workers.list()) == [state]
        event = await anext(events)
        assert isinstance(event, NodeWorkerChanged)
        assert (event.worker, event.url, event.services) == ("w", URL, ("sum", "route"))
        assert (event.kind, event.status, event.by) == ("http", "online", "ops")


async def test_a_worker_that_registers_again_replaces_itself_and_is_called_where_it_is_now(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await engine.workers.register("w", URL, ["sum", "old"])
        await engine.workers.register("other", "http://other", ["x"])
        await engine.workers.register("w", "http://10.0.0.1:9999", ["sum"], load=1)
        assert await ids(engine) == ["w", "other"]
        push = Answers()
        await dispatch_of(engine, push).push(work("sum"))
        assert push.urls == ["http://10.0.0.1:9999/exec/sum"]
        assert await engine.workers.allocate("old") is None


async def test_a_worker_that_was_offline_and_registers_again_is_called(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await engine.workers.register("w", URL, ["sum"])
        await trio.sleep(20)
        await engine.workers.register("w", "http://new", ["sum"])
        found = await engine.workers.allocate("sum")
        assert found is not None
        assert found.url == "http://new"


async def test_a_worker_without_contact_for_15_seconds_is_offline_and_is_not_called(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await engine.workers.register("w", URL, ["sum"])
        changes = Changes(engine)
        began = trio.current_time()
        await trio.sleep(14.9)
        assert await engine.workers.allocate("sum") is not None
        assert await changes.next() == ("w", "offline")
        assert trio.current_time() == pytest.approx(began + 15)
        assert await status(engine, "w") == "offline"
        assert await engine.workers.allocate("sum") is None
        with pytest.raises(
            WorkFailed, match='no online worker serves "sum"; offline workers that serve it: 1'
        ):
            await dispatch_of(engine, Answers()).push(work("sum"))


async def test_without_a_worker_to_call_the_error_names_pull_workers_that_serve_it(autojump_clock):
    async def reason(engine: Engine) -> str:
        with pytest.raises(WorkFailed) as failed:
            await dispatch_of(engine, Answers()).push(work("sum"))
        return failed.value.message

    async with open_engine(Jobs()) as engine:
        await engine.workers.register("other", "", ["x"], kind="queue")
        assert await reason(engine) == 'no online worker serves "sum": start one that registers here'
        await engine.workers.register("p", "", ["sum"], kind="queue")
        assert await reason(engine) == (
            'no online worker serves "sum"; 1 pull worker serves it: set exec_type: queue'
        )
        await engine.workers.register("w", URL, ["sum"])
        await trio.sleep(20)
        assert await reason(engine) == 'no online worker serves "sum"; offline workers that serve it: 1'
        for id in "pq":
            await engine.workers.register(id, "", ["sum"], kind="queue")
        assert await reason(engine) == (
            'no online worker serves "sum"; offline workers that serve it: 1; '
            "2 pull workers serve it: set exec_type: queue"
        )


async def test_heartbeats_keep_a_worker_online_without_an_event_and_report_its_load(autojump_clock):
    async with open_engine(Jobs()) as engine:
        registered = await engine.workers.register("w", URL, ["sum"])
        changes = Changes(engine)
        for load in range(10):
            await trio.sleep(10)
            await engine.workers.heartbeat("w", load)
        [worker] = await engine.workers.list()
        assert (worker.status, worker.load) == ("online", 9)
        assert worker.last_heartbeat == pytest.approx(registered.last_heartbeat + 100)
        await engine.workers.heartbeat("w")
        assert (await engine.workers.list())[0].load == 9
        assert await changes.none_for(10)


async def test_a_heartbeat_brings_a_worker_back(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await engine.workers.register("w", URL, ["sum"])
        changes = Changes(engine)
        assert await changes.next() == ("w", "offline")
        await engine.workers.heartbeat("w", 1)
        assert await changes.next() == ("w", "online")
        assert await status(engine, "w") == "online"
        assert await engine.workers.allocate("sum") is not None
        assert await changes.next() == ("w", "offline")


async def test_each_worker_goes_offline_in_its_own_time(autojump_clock):
    async with open_engine(Jobs()) as engine:
        for id in "abc":
            await engine.workers.register(id, URL, ["sum"])
        changes = Changes(engine)
        await trio.sleep(10)
        await engine.workers.heartbeat("a")
        await trio.sleep(3)
        await engine.workers.heartbeat("c")
        began = trio.current_time()
        assert await changes.next() == ("b", "offline")
        assert trio.current_time() == pytest.approx(began + 2)
        assert await changes.next() == ("a", "offline")
        assert trio.current_time() == pytest.approx(began + 12)
        assert await changes.next() == ("c", "offline")
        assert trio.current_time() == pytest.approx(began + 15)


async def test_a_heartbeat_of_an_unregistered_worker_is_not_found(autojump_clock):
    async with open_engine(Jobs()) as engine:
        with pytest.raises(NotFound, match=r'worker "w" is not registered: register it first'):
            await engine.workers.heartbeat("w")


async def test_workers_are_listed_by_service_and_by_their_last_contact(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await engine.workers.register("a", URL, ["sum", "route"])
        await engine.workers.register("b", URL, ["sum"], kind="queue")
        await engine.workers.register("c", URL, ["route"])
        await trio.sleep(20)
        await engine.workers.heartbeat("b")
        assert await ids(engine) == ["a", "b", "c"]
        assert await ids(engine, service="route") == ["a", "c"]
        assert await ids(engine, ttl=15) == ["b"]
        assert await ids(engine, service="route", ttl=15) == []
        assert await ids(engine, ttl=30) == ["a", "b", "c"]


async def test_the_online_worker_with_the_least_load_is_allocated(autojump_clock):
    async with open_engine(Jobs()) as engine:
        await engine.workers.register("ended", URL, ["sum"], load=0)
        await trio.sleep(20)
        await engine.workers.register("busy", URL, ["sum"], load=5)
        await engine.workers.register("idle", URL, ["sum"], load=1)
        await engine.workers.register("polls", "", ["sum"], kind="queue", load=0)
        for _ in range(2):
            found = await engine.workers.allocate("sum")
            assert found is not None
            assert found.id == "idle"
        await engine.workers.heartbeat("idle", 9)
        found = await engine.workers.allocate("sum")
        assert found is not None
        assert found.id == "busy"
        assert await engine.workers.allocate("unknown") is None


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"id": ""}, r'id must not be empty \(got ""\)'),
        ({"id": 7}, r"id must be a string \(got 7\)"),
        ({"id": "x" * 257}, r"has 257 characters"),
        ({"url": "ftp://host"}, r""""ftp://host" does not begin with http:// or https://"""),
        ({"url": ""}, r"""url "" does not begin with http"""),
        ({"url": "http://"}, r"has no valid host: write it like http://10.0.0.7:8080"),
        ({"url": "http://a..b"}, r"has no valid host"),
        ({"url": f"http://{'a' * 64}.org"}, r"has no valid host"),
        ({"url": "http://host:0"}, r"port 0"),
        ({"url": "http://host:99999"}, r"Port out of range"),
        ({"url": "http://[::1"}, r"is not a URL \(Invalid IPv6 URL\)"),
        ({"url": "http://user:secret@host"}, r"contains a user name or a password"),
        ({"url": "http://host/?a=1"}, r"has a query or a fragment"),
        ({"url": "http://host/a b"}, r"contains characters that are not allowed in a URL"),
        ({"url": "http://h\u00f6st"}, r"contains characters that are not allowed in a URL"),
        ({"url": "http://host\r\nX: y"}, r"contains characters that are not allowed in a URL"),
        ({"url": "http://host/" + "x" * 3000}, r"has 3,012 characters, more than the 2,048 allowed"),
        ({"url": None}, r"url must be a string \(got null\)"),
        ({"services": "sum"}, r'services must be a list of names \(got "sum"\): write \["transform"\]'),
        ({"services": []}, r"between 1 and 1,000 names \(got 0\)"),
        ({"services": ["x"] * 1001}, r"between 1 and 1,000 names \(got 1,001\)"),
        ({"services": ["a", ""]}, r'services\[1\] must not be empty \(got ""\)'),
        ({"services": ["a", None]}, r"services\[1\] must be a string \(got null\)"),
        ({"services": {"a": 1}}, r"services must be a list of names"),
        ({"kind": "carrier"}, r'kind must be "http" or "queue" \(got "carrier"\)'),
        ({"load": "much"}, r'load must be a number \(got "much"\)'),
        ({"load": -1}, r"load must be between 0 and 1e\+15 \(got -1\)"),
        ({"load": float("nan")}, r"load must be between 0"),
        ({"load": float("inf")}, r"load must be between 0"),
        ({"load": True}, r"load must be a number"),
    ],
)
async def test_an_invalid_value_is_refused_with_the_value_and_the_remedy(autojump_clock, wrong, named):
    async with open_engine(Jobs()) as engine:
        given = {"id": "w", "url": URL, "services": ["sum"]} | wrong
        with pytest.raises(Invalid, match=named):
            await engine.workers.register(**given)
        assert await ids(engine) == []


async def test_a_polling_worker_needs_no_url_and_duplicate_services_count_once(autojump_clock):
    async with open_engine(Jobs()) as engine:
        state = await engine.workers.register("w", "", ["b", "a", "b"], kind="queue")
        assert (state.url, state.services) == ("", ("b", "a"))
        assert (await engine.workers.register("v", "http://h/base/", ["a"])).url == "http://h/base"


@pytest.fixture(params=["memory", "sqlite"])
def reopened(request: pytest.FixtureRequest, tmp_path):
    """A store that keeps its content when it is opened again."""
    memory = MemoryStore()
    url = f"sqlite:///{tmp_path}/w.db"
    return (lambda: memory) if request.param == "memory" else (lambda: SqlStore(url, in_threads=False))


async def test_after_a_restart_workers_are_offline_until_their_first_contact(autojump_clock, reopened):
    async with open_engine(Jobs(), reopened()) as engine:
        before = await engine.workers.register("a", URL, ["sum", "route"], load=3)
        await engine.workers.register("b", "", ["sum"], kind="queue")
        seq = (await engine.snapshot()).seq
    async with open_engine(Jobs(), reopened()) as engine:
        a, b = await engine.workers.list()
        assert (a.id, a.url, a.services, a.kind) == ("a", URL, ("sum", "route"), "http")
        assert (a.status, a.last_heartbeat) == ("offline", before.last_heartbeat)
        assert (b.id, b.kind, b.status) == ("b", "queue", "offline")
        assert await engine.workers.allocate("sum") is None
        assert (await engine.snapshot()).seq == seq + 2  # the events that they are offline
        changes = Changes(engine)
        await engine.workers.heartbeat("a", 0)
        assert await changes.next() == ("a", "online")
        assert await engine.workers.allocate("sum") is not None


async def test_a_worker_that_is_offline_for_a_day_is_forgotten(autojump_clock, reopened):
    async with open_engine(Jobs(), reopened()) as engine:
        await engine.workers.register("w", URL, ["sum"])
        changes = Changes(engine)
        assert await changes.next() == ("w", "offline")
        began = trio.current_time()
        assert await changes.next() == ("w", "forgotten")
        assert trio.current_time() - began == pytest.approx(24 * 3600)
        assert await ids(engine) == []
        with pytest.raises(NotFound):
            await engine.workers.heartbeat("w")
    async with open_engine(Jobs(), reopened()) as engine:
        assert await ids(engine) == []


async def test_a_worker_without_contact_after_a_restart_is_forgotten_too(autojump_clock, reopened):
    async with open_engine(Jobs(), reopened()) as engine:
        await engine.workers.register("w", URL, ["sum"])
    async with open_engine(Jobs(), reopened()) as engine:
        assert await Changes(engine).next() == ("w", "forgotten")
        assert await ids(engine) == []


async def test_beyond_ten_thousand_workers_the_longest_offline_is_forgotten(autojump_clock):
    store = MemoryStore()
    async with open_engine(Jobs(), store) as engine:
        async with trio.open_nursery() as nursery:
            for number in range(10_000):
                nursery.start_soon(engine.workers.register, f"w{number}", URL, ["sum"])
        with pytest.raises(
            QueueFull, match=r""""more" cannot be registered: the limit of 10,000 workers is reached"""
        ):
            await engine.workers.register("more", URL, ["sum"])
        await engine.workers.register("w7", "http://again", ["sum"])
        await trio.sleep(10)
        for number in range(10_000):
            if number != 4711:
                await engine.workers.heartbeat(f"w{number}")
        changes = Changes(engine)
        assert await changes.next() == ("w4711", "offline")
        await engine.workers.register("more", URL, ["sum"])
        assert await changes.next() == ("w4711", "forgotten")
        assert await changes.next() == ("more", "online")
        listed = await ids(engine)
        assert len(listed) == 10_000
        assert "w4711" not in listed
        with pytest.raises(QueueFull):
            await engine.workers.register("w4711", URL, ["sum"])
    async with open_engine(Jobs(), store) as engine:
        assert len(await ids(engine)) == 10_000


async def test_uncommitted_registrations_are_not_shown(autojump_clock):
    store = SlowStore()
    async with open_engine(Jobs(), store) as engine, trio.open_nursery() as nursery:
        store.gate = trio.Event()
        nursery.start_soon(engine.workers.register, "w", URL, ["sum"])
        await trio.testing.wait_all_tasks_blocked()
        assert await ids(engine) == []
        assert await engine.workers.allocate("sum") is None
        with pytest.raises(NotFound):
            await engine.workers.heartbeat("w")
        store.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert await ids(engine) == ["w"]


async def test_a_worker_that_returns_is_not_called_before_that_is_committed(autojump_clock):
    store = SlowStore()
    async with open_engine(Jobs(), store) as engine, trio.open_nursery() as nursery:
        await engine.workers.register("w", URL, ["sum"])
        await trio.sleep(20)
        store.gate = trio.Event()
        nursery.start_soon(engine.workers.heartbeat, "w")
        await trio.testing.wait_all_tasks_blocked()
        assert await status(engine, "w") == "offline"
        assert await engine.workers.allocate("sum") is None
        store.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert await engine.workers.allocate("sum") is not None


async def test_registrations_that_wait_for_a_store_are_bounded(autojump_clock):
    store = SlowStore()
    async with open_engine(Jobs(), store) as engine, trio.open_nursery() as nursery:
        store.gate = trio.Event()
        for _ in range(10_000):
            nursery.start_soon(engine.workers.register, "w", URL, ["sum"])
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Unavailable, match="too many registrations wait for the store"):
            await engine.workers.register("w", URL, ["sum"])
        store.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        await engine.workers.register("w", URL, ["sum"])


async def test_a_worker_that_loses_contact_while_the_store_hangs_is_not_called_although_it_is_shown_online(
    autojump_clock,
):
    store = SlowStore()
    async with open_engine(Jobs(), store) as engine:
        await engine.workers.register("w", URL, ["sum"])
        changes = Changes(engine)
        store.gate = trio.Event()
        await trio.sleep(16)
        assert await status(engine, "w") == "online"
        assert await engine.workers.allocate("sum") is None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(engine.workers.heartbeat, "w")  # returns when the worker is online again
            await trio.testing.wait_all_tasks_blocked()
            assert await engine.workers.allocate("sum") is not None
            store.gate.set()
        assert await changes.next() == ("w", "offline")
        assert await changes.next() == ("w", "online")
        assert await status(engine, "w") == "online"


async def test_a_worker_that_registers_again_and_loses_contact_while_the_store_hangs_returns_with_a_heartbeat(
    autojump_clock,
):
    store = SlowStore()
    async with open_engine(Jobs(), store) as engine, trio.open_nursery() as nursery:
        await engine.workers.register("w", URL, ["sum"])
        changes = Changes(engine)
        store.gate = trio.Event()
        nursery.start_soon(engine.workers.register, "w", "http://new", ["sum"])
        await trio.sleep(20)
        store.gate.set()
        assert [await changes.next(), await changes.next()] == [("w", "online"), ("w", "offline")]
        assert await status(engine, "w") == "offline"
        await engine.workers.heartbeat("w")
        assert await changes.next() == ("w", "online")
        [worker] = await engine.workers.list()
        assert (worker.url, worker.status) == ("http://new", "online")


async def test_a_worker_that_registers_while_it_is_being_forgotten_stays(autojump_clock):
    store = SlowStore()
    async with open_engine(Jobs(), store) as engine, trio.open_nursery() as nursery:
        await engine.workers.register("w", URL, ["sum"])
        await trio.sleep(3600)
        changes = Changes(engine)
        store.gate = trio.Event()
        await trio.sleep(24 * 3600)
        nursery.start_soon(engine.workers.register, "w", "http://new", ["sum"])
        await trio.testing.wait_all_tasks_blocked()
        store.gate.set()
        assert [await changes.next(), await changes.next()] == [("w", "forgotten"), ("w", "online")]
        assert [worker.url for worker in await engine.workers.list()] == ["http://new"]
        await engine.workers.heartbeat("w")
    async with open_engine(Jobs(), store) as engine:
        assert [worker.url for worker in await engine.workers.list()] == ["http://new"]


async def test_a_forgotten_worker_that_registers_may_wait_long_for_the_store(autojump_clock):
    store = SlowStore()
    async with open_engine(Jobs(), store) as engine, trio.open_nursery() as nursery:
        await engine.workers.register("w", URL, ["sum"])
        await trio.sleep(3600)
        store.gate = forgetting = trio.Event()
        await trio.sleep(24 * 3600)
        nursery.start_soon(engine.workers.register, "w", "http://new", ["sum"])
        await trio.testing.wait_all_tasks_blocked()
        store.gate = registering = trio.Event()
        forgetting.set()
        await trio.sleep(60)
        registering.set()
        await trio.testing.wait_all_tasks_blocked()
        await engine.workers.heartbeat("w")
        [worker] = await engine.workers.list()
        assert (worker.url, worker.status) == ("http://new", "online")
