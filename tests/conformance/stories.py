"""What happens in each vector. Every story runs on an engine in mock time, from a snapshot on; only those
about executors, nodes and webhooks consist of events that are written here."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import trio
from trio.testing import MockClock

from greenroom import Engine, Jobs, Run
from greenroom.errors import GreenroomError
from greenroom.protocol.events import (
    Event,
    ExecutorChanged,
    LeaderChanged,
    NodeChanged,
    RunChanged,
    RunStateChanged,
    RunWaiting,
    WebhookChanged,
)
from greenroom.protocol.fold import Projection
from greenroom.protocol.records import KEPT_ENDED_RUNS, RunRecord, Snapshot
from greenroom.protocol.states import Status
from tests.support import open_engine

PAYMENT = """
start: payment
nodes:
  payment: {kind: wait_event, params: {signal_key: paid}, post: {output_key: paid}}
  done: {kind: choice, prep: {input_map: {paid: paid}}, post: {output_key: outcome}}
edges: [{from: payment, to: done}]
"""
Play = Callable[[Engine], Awaitable[None]]


@dataclass(frozen=True)
class Story:
    """What a vector shows. `before` happens before its snapshot, `play` after it."""

    about: str
    play: Play
    before: Play | None = None

    def tell(self) -> tuple[Snapshot, list[Event], Snapshot]:
        """The snapshot, the events after it, and the engine's own snapshot after those."""
        return trio.run(self._tell, clock=MockClock(autojump_threshold=0))

    async def _tell(self) -> tuple[Snapshot, list[Event], Snapshot]:
        began = trio.current_time()
        async with open_engine(
            make_jobs(),
            random=random.Random(self.about),
            clock=lambda: 1795000000.0 + trio.current_time() - began,
            max_concurrent=3,
        ) as engine:
            if self.before is not None:
                await self.before(engine)
            start = await engine.snapshot()
            await self.play(engine)
            end = await engine.snapshot()
            events: list[Event] = []
            async for event in engine.events(after=start.seq):
                assert not isinstance(event, Snapshot), "the story is longer than the ring"
                events.append(event)
                if event.seq == end.seq:
                    break
            return start, events, end


class Written:
    """A vector of events that are written here. `before` writes those before its snapshot."""

    def __init__(
        self, about: str, play: Callable[[Written], None], before: Callable[[Written], None] | None = None
    ) -> None:
        self.about = about
        self._write = play
        self._write_before = before

    def tell(self) -> tuple[Snapshot, list[Event], Snapshot]:
        """The snapshot, the events after it, and the snapshot after those."""
        self._projection = Projection("0f9f7e5a3c1d2b48", max_concurrent=4)
        self._events: list[Event] = []
        if self._write_before is not None:
            self._write_before(self)
        start = self._projection.snapshot()
        self._events.clear()
        self._write(self)
        return start, self._events, self._projection.snapshot()

    def add(self, kind: type[Any], /, **fields: Any) -> None:
        """An event."""
        seq = self._projection.seq + 1
        event = kind(seq=seq, at=1795000000.0 + seq, by="engine", **fields)
        self._projection.apply(event)
        self._events.append(event)

    def executor(self, executor: str, status: str, **fields: Any) -> None:
        """An executor changes."""
        self.add(ExecutorChanged, executor=executor, status=status, **fields)

    def node(self, node: str, status: str, **fields: Any) -> None:
        """A node joins or leaves."""
        self.add(NodeChanged, node=node, status=status, address=f"http://{node}.example:8735", **fields)

    def leader(self, node: str, term: int) -> None:
        """A node leads."""
        self.add(LeaderChanged, node=node, address=f"http://{node}.example:8735", term=term)

    def webhook(self, webhook: str, run: str, to: str, **fields: Any) -> None:
        """A webhook is dead, or someone has decided about it."""
        self.add(WebhookChanged, webhook=webhook, of_run=run, to=to, **fields)

    def submit(self, run: str, place: int, **fields: Any) -> None:
        """A new run."""
        about = {"run": run, "handle": f"handle {run}", "lane": "main", "job": "train", "kind": "start"}
        status = {"from_": None, "to": Status.QUEUED, "attempt": 0, "reason": None, "place": place}
        self.add(RunStateChanged, **about, **status, **fields)

    def move(self, run: str, to: Status, **fields: Any) -> None:
        """A transition."""
        record = self._run(run)
        status = {"attempt": record.attempt, "reason": None, "place": record.place} | fields
        self.add(RunStateChanged, **_about(record), from_=record.status, to=to, **status)

    def change(self, run: str, **fields: Any) -> None:
        """A change without a transition."""
        self.add(RunChanged, **_about(self._run(run)), **fields)

    def wait(self, run: str, reason: str) -> None:
        """A run has waited long."""
        about = _about(self._run(run))
        self.add(RunWaiting, **about, waited=2.0, ahead=0, blockers=[], reason=reason)

    def _run(self, run: str) -> RunRecord:
        return self._projection.runs[run]


def two_executors(story: Written) -> None:
    story.executor("gpu-1", "attached", slots=2, labels=("gpu", "big"), jobs=("train", "pages"))
    story.executor("__proto__", "attached")


def executors(story: Written) -> None:
    for place, run in enumerate(("a", "b", "c"), start=1):
        story.submit(run, place)
    start = {"attempt": 1, "interactive": True}
    story.move("a", Status.RUNNING, **start, executor="gpu-1")
    story.move("b", Status.RUNNING, **start)
    story.change("c", waiting_for="executor")
    story.wait("c", "no executor has the job train")
    story.move("a", Status.SUSPENDED, reason="time", waiting_for="time")
    story.executor("local-1", "attached", slots=1, jobs=("train",), start="c0ffee01")
    story.move("c", Status.RUNNING, **start, executor="local-1")
    story.move("a", Status.RUNNING, reason="time")
    story.change("a", interactive=False)
    gpu = {"slots": 2, "labels": ("gpu", "big"), "jobs": ("train", "pages")}
    story.executor("gpu-1", "disconnected", **gpu, ttl=30.0, start="feed02")
    story.executor("gpu-1", "gone")
    story.move("a", Status.SUSPENDED, reason="recovered", waiting_for="slot", interactive=False)
    story.move("a", Status.RUNNING, attempt=2, interactive=True)
    story.move("b", Status.SUCCEEDED, result={"pages": 3})
    story.executor("local-1", "draining", slots=1, jobs=("train",), ttl=2.5)
    uncommon = {"tags": {"customer": "42"}, "priority": 5, "key": "acme"}
    uncommon |= {"not_before": 1795000000.5, "parent": "a"}
    story.submit("d", 4, needs=("big", "gpu"), **uncommon)
    story.change("d", waiting_for="executor")
    story.executor("unknown", "gone")


def a_leader(story: Written) -> None:
    story.leader("n1", 3)
    story.submit("a", 1)


def nodes(story: Written) -> None:
    story.node("n2", "joined", version="1.2.0")
    story.move("a", Status.RUNNING, attempt=1, interactive=True)
    story.node("__proto__", "joined")
    story.leader("n2", 4)
    story.node("n1", "left")
    story.move("a", Status.SUCCEEDED)


def webhooks(story: Written) -> None:
    webhook, run = "5c0f3f0e7e3d4a1f9b1f6f2f8f9d7a10", "a"
    story.submit(run, 1)
    error = "the receiver responded with status 503"
    story.webhook(webhook, run, "dead", attempts=12, error=error)
    story.webhook(webhook, run, "redelivered")
    story.webhook(webhook, "unknown", "dropped")


def _about(run: RunRecord) -> dict[str, str]:
    return {"run": run.id, "handle": run.handle, "lane": run.lane}


def make_jobs() -> Jobs:
    """Jobs whose bodies do one thing each."""
    jobs = Jobs()

    @jobs.job("pages")
    async def pages(run: Run, params: dict[str, Any]) -> Any:
        for page in range(params["pages"]):
            await trio.sleep(1)
            await run.progress(page + 1, params["pages"], rate=0.5, **{"last page": f"page {page + 1}"})
        await run.log("all pages are here")
        return params

    @jobs.job("wait")
    async def wait(run: Run, params: dict[str, Any]) -> None:
        await trio.sleep_forever()

    @jobs.job("stubborn", grace=5)
    async def stubborn(run: Run, params: dict[str, Any]) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(params["seconds"])

    @jobs.job("fragile", max_attempts=2, backoff=2.0)
    async def fragile(run: Run, params: dict[str, Any]) -> int:
        if run.attempt <= params["failures"]:
            raise ValueError(f"attempt {run.attempt} fails")
        return run.attempt

    @jobs.job("ask")
    async def ask(run: Run, params: dict[str, Any]) -> Any:
        return await run.interrupt({"prompt": "continue?"}, key="go", **params)

    @jobs.job("parent")
    async def parent(run: Run, params: dict[str, Any]) -> Any:
        return await run.call("pages", handle="child", params={"pages": 1})

    @jobs.job("session")
    async def session(run: Run, params: dict[str, Any]) -> Any:
        async with run.streaming():
            await trio.sleep(1)
        async with run.compacting(timeout=60):
            await trio.sleep(1)
        await run.sleep(1)
        message = await run.next_message(release_slot=True)
        await run.end_interactive()
        await trio.sleep(1)
        return message

    return jobs


async def one_run(engine: Engine) -> None:
    ticket = await engine.submit("pages", handle="alice", params={"pages": 2}, tags={"customer": "42"})
    await ticket.result()


async def coalescing(engine: Engine) -> None:
    given: dict[str, Any] = {"handle": "alice", "on_conflict": "coalesce"}
    await engine.submit("wait", params={"n": 1}, **given)
    await engine.submit("wait", params={"n": 2}, by="bob", **given)
    await trio.sleep(1)
    for number in range(3, 6):
        await engine.submit("wait", params={"n": number}, **given)
    await engine.submit("pages", params={"pages": 1}, **given)
    await engine.submit("pages", params=None, **given)


async def limits(engine: Engine) -> None:
    for number in range(6):
        lane = "images" if number % 2 else "main"
        await engine.submit("pages", handle=f"h{number}", lane=lane, params={"pages": 1})
    await engine.set_concurrency("images", 0)
    await trio.sleep(3)
    await engine.set_concurrency("images", 2)
    await engine.set_max_concurrent(1)
    await engine.submit("wait", handle="last", params={})
    await trio.sleep(10)
    await engine.set_concurrency("images", 1)


async def waiting_in_a_handle(engine: Engine) -> None:
    first = await engine.submit("wait", handle="alice", params={"n": 1})
    for number in range(2, 5):
        await engine.submit("wait", handle="alice", params={"n": number}, on_conflict="queue")
    await engine.submit("wait", handle="alice", params={"n": 5}, on_conflict="replace")
    await trio.sleep(1)
    assert (await engine.get_run(first.id)).status == "cancelled"
    await engine.clear_handle("alice")
    await trio.sleep(1)


async def a_delayed_run(engine: Engine) -> None:
    await engine.submit("wait", handle="a", params={}, delay=3600)


async def delays(engine: Engine) -> None:
    holder = await engine.submit("wait", handle="a", params={})
    await engine.submit("wait", handle="a", params={}, on_conflict="queue")
    await engine.submit("wait", handle="a", params={}, delay=5)
    await engine.submit("wait", handle="b", params={}, delay=5, reserve=True)
    await engine.submit("wait", handle="b", params={}, delay=20, reserve=True, on_conflict="queue")
    cancelled = await engine.submit("wait", handle="c", params={}, delay=5)
    await cancelled.cancel()
    await engine.submit("wait", handle="d", params={}, delay=5)
    await trio.sleep(10)
    await engine.submit("wait", handle="a", params={}, delay=2, on_conflict="replace")
    await trio.sleep(5)
    await engine.cancel("b")
    await trio.sleep(1)
    assert (await engine.get_run(holder.id)).status == "cancelled"


async def interrupts(engine: Engine) -> None:
    for handle, params in {
        "answered": {},
        "late": {"timeout": 5},
        "without slot": {"release_slot": True},
        "cancelled": {"timeout": 600},
    }.items():
        await engine.submit("ask", handle=handle, params=params)
    await trio.sleep(1)
    await engine.answer("answered", {"approved": True}, key="go")
    await engine.answer("without slot", False, key="go")
    await trio.sleep(10)
    await engine.cancel("cancelled")
    await trio.sleep(1)
    await engine.submit("ask", handle="open", params={"timeout": 600})
    await trio.sleep(1)


async def phases(engine: Engine) -> None:
    ticket = await engine.submit("session", handle="chat", params={})
    await trio.sleep(10)
    await engine.inject("chat", {"text": "héllo ✓"})
    await ticket.result()


async def failures(engine: Engine) -> None:
    await engine.submit("fragile", handle="once", params={"failures": 1})
    await engine.submit("fragile", handle="twice", params={"failures": 2})
    await engine.submit("wait", handle="late", params={}, run_timeout=3)
    await engine.set_concurrency("closed", 0)
    await engine.submit("wait", handle="too late", params={}, lane="closed", queue_timeout=2)
    await trio.sleep(60)


async def cancels(engine: Engine) -> None:
    await engine.set_concurrency("closed", 0)
    running = await engine.submit("wait", handle="running", params={})
    queued = await engine.submit("wait", handle="queued", params={}, lane="closed")
    ignores = await engine.submit("stubborn", handle="stubborn", params={"seconds": 60})
    await trio.sleep(1)
    for ticket in (running, queued, ignores):
        await engine.cancel(ticket.id)
    await trio.sleep(10)
    assert (await engine.snapshot()).handles["stubborn"].active_run is not None, "its body still executes"
    await trio.sleep(60)


async def resets(engine: Engine) -> None:
    await engine.submit("stubborn", handle="busy", params={"seconds": 5}, lane="images")
    await engine.submit("stubborn", handle="next", params={"seconds": 5}, lane="images")
    await trio.sleep(1)
    await engine.reset_lanes()
    await trio.sleep(20)


async def drafts(engine: Engine) -> None:
    await engine.set_params("alice", {"url": "https://example.org", "deep": {"list": [1, None, 2.5]}})
    await engine.set_params("bob", {"gone": True})
    await engine.set_params("bob", None)
    ticket = await engine.submit("pages", handle="carol", params={"pages": 0})
    await ticket.result()
    await engine.set_params("carol", {"again": True})


async def children(engine: Engine) -> None:
    ticket = await engine.submit("parent", handle="parent", params={})
    await ticket.result()


async def draining(engine: Engine) -> None:
    await engine.submit("pages", handle="a", params={"pages": 3})
    await engine.submit("pages", handle="b", params={"pages": 1}, lane="images")
    await engine.submit("pages", handle="c", params={"pages": 1}, lane="images")
    await engine.drain()
    await trio.sleep(10)
    await engine.resume()
    await trio.sleep(10)


async def awkward_names(engine: Engine) -> None:
    for name in ("42", "7", "__proto__", "constructor", "ключ ✓", "toString"):
        await engine.submit("pages", handle=name, lane=name, params={"pages": 1, "__proto__": {"a": 1}})
        await engine.set_params(f"{name} draft", {"__proto__": None})
    await trio.sleep(10)


async def many_ended(engine: Engine) -> None:
    for handle, lane in (
        ("alone", "rare"),
        ("drafted", "set"),
        ("later", "main"),
        ("h1", "main"),
        ("h2", "main"),
    ):
        await engine.submit("pages", handle=handle, lane=lane, params={"pages": 1})
    await engine.set_concurrency("set", 5)
    await trio.sleep(2)
    await engine.set_params("drafted", {"stays": True})
    await engine.submit("pages", handle="later", params={"pages": 0}, delay=1e6)
    for number in range(KEPT_ENDED_RUNS - 5):
        await (await engine.submit("pages", handle=f"h{number % 3}", params={"pages": 0})).result()


async def past_the_limit(engine: Engine) -> None:
    for number in range(8):
        await (await engine.submit("pages", handle=f"new {number}", params={"pages": 0})).result()


async def a_flow(engine: Engine) -> None:
    await engine.workers.register("w1", "http://127.0.0.1:9001", ["sum"])
    await engine.flows.publish("payment", PAYMENT)
    ticket = await engine.flows.start("payment", handle="alice", params={"price": 30})
    await trio.sleep(1)
    await engine.signal(ticket.id, "paid", {"amount": 30})
    await ticket.result()
    await trio.sleep(600)


async def a_schedule(engine: Engine) -> None:
    await engine.schedules.put("old", job="pages", every=60, params={"pages": 0})


async def schedules(engine: Engine) -> None:
    put = engine.schedules.put
    await put("__proto__", job="pages", handle="a", every=20, params={"pages": 3}, missed="all")
    await put("joins", job="wait", handle="b", every=15, params={}, on_conflict="join")
    await trio.sleep(50)  # the handle is free
    await engine.submit("wait", handle="a", params={})
    await trio.sleep(20)  # the handle is busy
    await engine.drain()
    await trio.sleep(300)
    await engine.resume()
    await trio.sleep(10)
    await engine.schedules.trigger("old")
    await engine.schedules.put("old", job="pages", cron="0 3 * * *", timezone="Europe/Berlin", paused=True)
    await engine.schedules.delete("__proto__")
    await engine.schedules.pause("joins")
    for handle in ("a", "b"):
        await engine.cancel(handle)
    await trio.sleep(10)


async def a_lane_with_rules(engine: Engine) -> None:
    await engine.set_lane("ruled", fair_by="tenant", weights={"a": 2})


async def lane_rules(engine: Engine) -> None:
    await engine.pause_lane("ruled")
    tickets = []
    for number, tenant in enumerate("aab"):
        params = {"pages": 1, "tenant": tenant}
        tickets.append(await engine.submit("pages", handle=f"h{number}", lane="ruled", params=params))
    tickets.append(await engine.submit("pages", handle="h0", lane="ruled", on_conflict="queue", key="own"))
    await engine.set_priority(tickets[1].id, 5)
    await engine.set_priority(tickets[2].id, 0)
    await engine.resume_lane("ruled")
    await engine.set_lane("__proto__", rate="1/min", burst=2, rate_per="key", age=None, priority=-3)
    await engine.pause_lane("__proto__")
    for ticket in tickets:
        await ticket.wait(math.inf)
    await engine.set_lane("ruled", fair_by=None, weights={})
    await engine.submit("pages", handle="last", lane="__proto__", params={"pages": 1})
    await engine.resume_lane("__proto__")
    await trio.sleep(10)


async def by_chance(engine: Engine) -> None:
    lots = random.Random(12)
    for _ in range(60):
        handle, lane = lots.choice(["a", "b", "c"]), lots.choice(["main", "images"])
        try:
            match lots.randrange(12):
                case 0:
                    await engine.cancel(handle)
                case 1:
                    await engine.inject(handle, {"n": lots.random()})
                case 2:
                    await engine.answer(handle, lots.choice([True, None, 1.5]), key="go")
                case 3:
                    await engine.clear_lane(lane)
                case 4:
                    await engine.set_concurrency(lane, lots.choice([None, 0, 1, 2]))
                case 5:
                    await engine.reset_lanes()
                case _:
                    await engine.submit(
                        lots.choice(["ask", "session", "wait", "parent"]),
                        handle=handle,
                        lane=lane,
                        params={},
                        on_conflict=lots.choice(["queue", "replace"]),
                        warn_after=1,
                    )
        except GreenroomError:
            continue
        await trio.sleep(lots.choice([0, 0.5, 3]))


STORIES: dict[str, Story | Written] = {
    "executors": Written(
        "Executors attach, change and go; runs execute on them, wait for them, and are retried elsewhere.",
        executors,
        two_executors,
    ),
    "nodes": Written(
        "Nodes of a cluster join and leave, and another one leads: no state changes.", nodes, a_leader
    ),
    "webhooks": Written("A webhook is dead, and delivered again: no state changes.", webhooks),
    "one-run": Story("A run makes progress and succeeds.", one_run),
    "limits": Story("Runs wait for lanes and for the global limit; limits change.", limits),
    "handle-queue": Story("Runs wait in a handle; one replaces the active run.", waiting_in_a_handle),
    "coalescing": Story("Later submissions change the parameters of runs that wait.", coalescing),
    "lane-rules": Story(
        "Lanes have rules and pauses, and runs have keys and priorities that change.",
        lane_rules,
        a_lane_with_rules,
    ),
    "delays": Story(
        "Delayed runs, with and without their handles; some wait in their handles afterwards.",
        delays,
        a_delayed_run,
    ),
    "interrupts": Story("Interrupts are answered, time out and are withdrawn; one stays open.", interrupts),
    "phases": Story("A session streams, compacts, sleeps, and waits for a message.", phases),
    "failures": Story("Attempts, deadlines in the queue and while executing.", failures),
    "cancels": Story("Cancels of queued, running and stubborn runs; an abandoned body.", cancels),
    "reset": Story("A reset of all lanes detaches bodies.", resets),
    "drafts": Story("Draft parameters of handles, with and without runs.", drafts),
    "children": Story("A run calls a child run.", children),
    "flow": Story("A worker registers; a flow waits for a signal; the worker goes offline.", a_flow),
    "schedules": Story(
        "Schedules fire, are refused, miss due times, are triggered, changed and deleted.",
        schedules,
        a_schedule,
    ),
    "draining": Story("The engine drains and resumes.", draining),
    "names": Story("Names that are keys of objects in some languages, and numbers.", awkward_names),
    "eviction": Story("More than 1,000 ended runs: old ones leave the snapshot.", past_the_limit, many_ended),
    "by-chance": Story("Commands by chance, from a snapshot in the middle.", by_chance, by_chance),
}
