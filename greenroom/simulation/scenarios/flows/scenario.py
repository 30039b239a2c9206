"""The scenario `flows`: random small graphs, workers with faults, clients, and a server that crashes.

In every third world the trouble of calls can last longer than the nodes' retries. In the other worlds it
cannot, and each service has a worker that always recovers, so the result of a flow follows from its graph. At
the end all awaited signals are sent, and all walks are compared with the plain interpretation of their
graphs.
"""

from __future__ import annotations

from random import Random
from typing import Any

import trio

from ....protocol.errors import GreenroomError
from ....protocol.flow.records import WorkerKind
from ...world.world import World
from ..callers import Caller
from ..commands import FAULTS, LONG_JUMP, Play, pause
from .calls import Call, Trouble
from .compare import compare
from .graphs import KEYS, draw_graph
from .plan import FUNCTIONS, SERVICES, Failed, Plan, ServiceFailed
from .workers import Worker

NAMES = ("first", "second", "third")
"""The flows; each can refer to those before it."""

_MOST_HELP = 300
"""The maximum number of rounds at the end in which waiting runs receive a signal, or are cancelled."""

_VALUES: tuple[Any, ...] = (True, False, "x", "approved", 7, {"x": 1, "go": "y"}, [3, 1], {"list": [5]})
_DEEDS = (*["start_flow"] * 4, *["signal"] * 4, "answer_one", "cancel_flow", "publish", *["look"] * 2)


async def flows(world: World) -> None:
    """The scenario of random flows."""
    play = FlowPlay(world)
    await play.go_through(play.step, 40)


class FlowPlay(Play):
    """A server that walks flows, with its workers and clients."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.plan = Plan(str(world.seed), wild=world.seed % 3 == 0)
        self.workers: list[Worker] = []
        self.unsteady: list[Worker] = []
        self._published = 0

    async def begin(self) -> None:
        for name in FUNCTIONS:
            self._register_function(name)
        await super().begin()
        kinds: tuple[WorkerKind, ...] = ("http", "queue")
        for kind in kinds:
            for number, steady in enumerate((True, False)):
                worker = self.world.worker(f"{kind}-{number}", SERVICES, kind=kind, work=self.plan.serve)
                self._trouble(worker, steady)
                self.workers.append(worker)
        await trio.sleep(0.1)
        for number, name in enumerate(NAMES):
            graph = self.draw(self.world.derived("flow", name), number)
            await self.world.client("author").flows.publish(name, graph)

    def draw(self, random: Random, number: int) -> dict[str, Any]:
        """A random graph for one of the flows."""
        return draw_graph(random, NAMES[:number])

    def _register_function(self, name: str) -> None:
        @self.bodies.jobs.function(name)
        async def function(input: Any, params: dict[str, Any]) -> Any:
            answer = self.plan.outcome(name, "", input, params, "local")
            await trio.sleep(len(str(answer)) % 3 / 10)
            if isinstance(answer, Failed):
                raise ServiceFailed("as planned")
            return answer.value

    def _trouble(self, worker: Worker, steady: bool) -> None:
        def trouble(call: Call) -> Trouble | None:
            return self.plan.trouble(call, worker.kind, may_die=not steady and self._may_die(worker))

        worker.trouble = trouble
        if not steady:
            self.unsteady.append(worker)

    def _may_die(self, worker: Worker) -> bool:
        """Whether a worker may die now. If trouble is limited, a queue worker with other items must not: the
        engine would notice their loss only when their leases expire."""
        return self.plan.wild or worker.kind == "http" or worker.busy <= 1

    async def step(self, random: Random) -> None:
        if random.random() < 0.8:
            await self.start()
        if random.random() < 0.2:
            await self.do(random.choice(FAULTS), random, wait=random.random() < 0.5)
        elif random.random() < 0.15:
            self._trouble_a_worker(random)
        else:
            deed = getattr(self, random.choice(_DEEDS))
            await self._have_done(deed, random, wait=random.random() < 0.3)
        if random.random() < 0.1:
            await trio.sleep(random.choice((5.0, 20.0, 70.0)))
        await pause(random)

    def _trouble_a_worker(self, random: Random) -> None:
        worker = random.choice(self.unsteady)
        if not worker.living:
            worker.start(elsewhere=random.random() < 0.5)
        elif random.random() < 0.5:
            if self.plan.wild or worker.kind == "http" or not worker.busy:
                worker.die()
        else:
            worker.silent = not worker.silent

    async def _have_done(self, deed: Any, random: Random, *, wait: bool) -> None:
        caller = Caller(self.world.client(self.new_name()), self.world, self.desk)

        async def do() -> None:
            try:
                await caller.call(deed, random)
            except GreenroomError as error:
                self.world.note(f"{caller.client.name}: {error}")

        if wait:
            with trio.move_on_after(20):
                await do()
        else:
            self._nursery.start_soon(do)

    # Actions of clients.

    async def start_flow(self, caller: Caller, random: Random) -> None:
        params = {
            "items": [random.randint(0, 9) for _ in range(random.randint(0, 4))],
            "p": random.choice(_VALUES),
        }
        options: dict[str, Any] = {"params": params}
        if random.random() < 0.1:
            options["run_timeout"] = random.choice((0.5, 5.0))
        if random.random() < 0.1:
            options["handle"], options["on_conflict"] = random.choice("pq"), "queue"
        await caller.client.flows.start(random.choice(NAMES), **options)

    async def signal(self, caller: Caller, random: Random) -> None:
        runs = list(caller.model.pending)
        if not runs:
            return
        run = random.choice(runs)
        waits = self.server.rules.flows.walks[run].waits
        key = random.choice((*KEYS, "flag", "go"))
        if waits is not None and waits["key"] is not None and random.random() < 0.6:
            key = waits["key"]
        await caller.client.signal(run, key, random.choice(_VALUES))

    async def answer_one(self, caller: Caller, random: Random) -> None:
        interrupts = [id for run in caller.model.pending.values() for id in run.interrupts]
        if interrupts:
            await caller.client.answer(random.choice(interrupts), random.choice(_VALUES))

    async def cancel_flow(self, caller: Caller, random: Random) -> None:
        if caller.model.pending:
            await caller.client.cancel(random.choice(list(caller.model.pending)))

    async def publish(self, caller: Caller, random: Random) -> None:
        number = random.randrange(len(NAMES))
        self._published += 1
        graph = self.draw(self.world.derived("flow", self._published), number)
        await caller.client.flows.publish(NAMES[number], graph)

    async def look(self, caller: Caller, random: Random) -> None:
        run = caller.some_run(random)
        if random.random() < 0.5:
            await caller.client.flows.task(run)
        else:
            await caller.client.flows.node_runs(run)

    async def jump(self, random: Random) -> None:
        self.server.rules.flows.jumped = True
        await super().jump(random)

    # The end.

    async def let_everything_end(self) -> None:
        self.server.disk.repair()
        for worker in self.workers:
            worker.silent = False
            if not worker.living:
                worker.start()
        if self.server.rules.flows.jumped:  # a restart after the clock was set back must not prolong any wait
            self.world.clock.jump(-LONG_JUMP * 100)
            await self.server.stop()
        for patience in range(_MOST_HELP):
            await self._help_everybody(give_up=patience > _MOST_HELP // 10)
            await trio.sleep(20)
            if not self.server.rules.model.pending:
                break
        await super().let_everything_end()
        for run in self.server.rules.model.runs.values():
            if run.walks:
                wrong = compare(self.server.rules, self.plan, run)
                self.world.check(wrong is None, wrong or "")

    async def _help_everybody(self, *, give_up: bool) -> None:
        """Send each waiting run the signal that it waits for; or cancel it (`give_up`), because the signal
        cannot be stored at its key."""
        client, rules = self.world.client("helper"), self.server.rules
        if not self.server.running:
            await self.start()
        for id in list(rules.model.pending):
            waits = rules.flows.walks[id].waits
            if waits is None or waits["key"] is None:
                continue
            try:
                if give_up:
                    await client.cancel(id)
                else:
                    await client.signal(id, waits["key"], "x")
            except GreenroomError as error:
                self.world.note(f"the helper: {error}")
