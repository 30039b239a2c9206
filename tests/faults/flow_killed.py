"""The program that is killed while it walks a flow: an engine on a file, in its first or its second life.

In the first life it stops at a given place, prints a line, and waits to be killed. In the second life it
continues to the end. Each execution is first recorded in a file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import attrs
import msgspec
import trio

from greenroom import Engine, Jobs, open_engine
from greenroom.persistence.sqlstore import SqlStore
from greenroom.persistence.store import Batch
from greenroom.protocol.events import NodeRan
from greenroom.protocol.records import Snapshot

PATIENCE = 30.0
Definition = dict[str, Any]


@attrs.frozen
class Plan:
    """The flow, and where it stops: at executions of `hold` when this number of `node_runs` is committed; or
    when the node run of `stop_after` (a node and a branch) is committed; or when the user `before` has
    ended; or else as soon as the run waits. `after` is the user of the second life."""

    definition: Definition
    params: Definition = attrs.field(factory=dict)
    hold: tuple[int, ...] = ()
    node_runs: int = 0
    stop_after: tuple[str, str | None] | None = None
    before: str | None = None
    after: str | None = None
    others: dict[str, Definition] = attrs.field(factory=dict)
    worker: str | None = (
        None  # the URL of a worker that serves `step`, and that holds in place of the function
    )


class Program:
    """One life."""

    def __init__(self, folder: Path, plan: Plan, life: int, parent: Connection) -> None:
        self.plan = plan
        self.life = life
        self._parent = parent
        self._store = f"sqlite:///{folder}/store.db"
        self._notes = os.open(folder / "executed", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._stopped = trio.Event()
        self._begun: set[int] = set()
        self._holding = trio.Event()
        self.jobs = Jobs()
        self.jobs.function("step")(self.step)
        for number in range(1, 9):
            self.jobs.function(f"step{number}")(self._fixed(number))

    async def step(self, number: Any) -> Any:
        """Returns ten times an even number, and fails for an odd one after a delay."""
        os.write(self._notes, f"{self.life} {number}\n".encode())
        if self.life == 1 and number in self.plan.hold:
            self._begun.add(number)
            if self._begun == set(self.plan.hold):
                self._holding.set()
            await trio.sleep_forever()
        if number % 2:
            await trio.sleep(0.1)
            raise ValueError(f"{number} is odd")
        return 10 * number

    def _fixed(self, number: int) -> Callable[[Any], Awaitable[Any]]:
        async def step(input: Any) -> Any:
            return await self.step(number)

        return step

    async def run(self) -> None:
        store: Any = SqlStore(self._store)
        if self.plan.stop_after is not None and self.life == 1:
            store = Stopping(store, self.plan.stop_after, self._stopped)
        with trio.fail_after(PATIENCE):
            async with open_engine(self.jobs, store, shutdown_timeout=0) as engine:
                if self.plan.worker is not None:
                    await engine.workers.register("w", self.plan.worker, ["step"])
                await (self._first(engine) if self.life == 1 else self._second(engine))

    async def _first(self, engine: Engine) -> None:
        plan = self.plan
        for name, definition in {**plan.others, "flow": plan.definition}.items():
            await engine.flows.publish(name, definition)
        events = engine.events()
        ticket = await engine.flows.start("flow", params=plan.params, handle="h")
        if plan.stop_after is not None:
            await self._stopped.wait()
        elif plan.hold:
            if plan.worker is None:
                await self._holding.wait()
            await _node_runs(events, plan.node_runs)
        elif plan.before is not None:
            await USERS[plan.before](engine, ticket.id)
        else:
            await until(engine, lambda now: now.runs[ticket.id].status == "suspended")
        self._parent.send(ticket.id)
        await trio.sleep_forever()

    async def _second(self, engine: Engine) -> None:
        [run] = [run for run in await engine.list_runs() if run.job == "flow"]
        async with trio.open_nursery() as users:
            if self.plan.after is not None:
                users.start_soon(USERS[self.plan.after], engine, run.id)
            await until(engine, lambda now: now.runs[run.id].ended)
            users.cancel_scope.cancel()
        history = [event for event in await engine.history(run.id) if isinstance(event, NodeRan)]
        task = await engine.flows.task(run.id)
        told = {
            "run": await engine.get_run(run.id),
            "rows": await engine.flows.node_runs(run.id),
            "events": [[event.node, event.branch, event.attempt, event.status] for event in history],
            "shared": task.shared,
            "handle": (await engine.snapshot()).handles["h"].status,
        }
        self._parent.send(msgspec.to_builtins(told))


class Stopping:
    """A store that makes the commit with a certain node run, and then hangs."""

    def __init__(self, store: SqlStore, after: tuple[str, str | None], stopped: trio.Event) -> None:
        self._store = store
        self._after = after
        self._stopped = stopped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, batch: Batch) -> None:
        await self._store.commit(batch)
        if any(isinstance(one, NodeRan) and (one.node, one.branch) == self._after for one in batch.events):
            self._stopped.set()
            await trio.sleep_forever()


async def _node_runs(events: Any, count: int) -> None:
    while count:
        count -= isinstance(await anext(events), NodeRan)


async def until(engine: Engine, predicate: Callable[[Snapshot], object]) -> Snapshot:
    events = engine.events()
    while not predicate(snapshot := await engine.snapshot()):
        await anext(events)
    return snapshot


# Users.


async def signals(engine: Engine, run: str) -> None:
    """Signal as soon as the run waits for it."""
    await until(engine, lambda now: now.runs[run].waiting_for == "signal")
    await engine.signal(run, "go", {"x": 1})


async def answers(engine: Engine, run: str) -> None:
    """Answer as soon as there is an interrupt."""
    snapshot = await until(engine, lambda now: now.interrupts)
    for id in snapshot.interrupts:
        await engine.answer(id, True)


async def signals_in_vain(engine: Engine, run: str) -> None:
    """Signal while the run gets no slot to take the signal."""
    await engine.set_concurrency("main", 0)
    await signals(engine, run)


async def answers_in_vain(engine: Engine, run: str) -> None:
    """Answer while the run gets no slot to take the answer."""
    await engine.set_concurrency("main", 0)
    await answers(engine, run)


async def opens_the_lane(engine: Engine, run: str) -> None:
    """Let the run get a slot."""
    await engine.set_concurrency("main", None)


async def takes_work(engine: Engine, run: str) -> None:
    """Take work from the queue, and do not complete it."""
    assert await engine.workers.poll("puller", ["step"]) is not None


async def works(engine: Engine, run: str) -> None:
    """Take work from the queue, and complete it."""
    while True:
        item = await engine.workers.poll("puller", ["step"])
        if item is not None:
            await engine.workers.complete(item.id, 10 * item.input, worker_id="puller")


USERS: dict[str, Callable[[Engine, str], Awaitable[None]]] = {
    user.__name__: user
    for user in (signals, answers, signals_in_vain, answers_in_vain, opens_the_lane, takes_work, works)
}


def main(folder: Path, plan: Plan, life: int, parent: Connection) -> None:
    """The program, in a separate process."""
    logging.getLogger("greenroom").setLevel(logging.CRITICAL)  # failures of nodes are expected
    trio.run(Program(folder, plan, life, parent).run)
