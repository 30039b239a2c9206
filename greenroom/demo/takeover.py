"""The demo of a cluster: kill the leader of three nodes under load, and check that nothing is lost.

Clients submit runs at all nodes, with request ids. One node that is not killed observes: the demo follows its
events, and checks that they have no gap, and that each acknowledged run succeeds exactly once.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import attrs
import trio
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..commands.watch import live
from ..gateway.client import Client
from ..persistence.addresses import parse_addresses
from ..protocol.errors import Unavailable
from ..protocol.events import LeaderChanged, RunStateChanged
from ..protocol.records import ClusterInfo, ExecutorInfo, LeaderInfo, Snapshot
from ..protocol.states import Status
from .display import Display, keyboard
from .node_jobs import steps
from .nodes import Node, run_nodes
from .scenario import command, end_at_signal

_NODES = 3
_EVERY = 0.15
"""Seconds between two submissions."""
_LOAD = 2.5
"""Seconds of load before the leader is killed, and after another node leads."""
_BETWEEN_ROUNDS = 5.0
_HANDLES = 20


@attrs.define
class Tally:
    """What the observer has seen in a round."""

    seq: int
    first: int = 0
    gaps: int = 0
    created: dict[str, int] = attrs.field(factory=dict)
    succeeded: dict[str, int] = attrs.field(factory=dict)
    leaders: list[LeaderChanged] = attrs.field(factory=list)
    changed: trio.Event = attrs.field(factory=trio.Event)

    async def follow(self, client: Client) -> None:
        """Count the events of this client after `seq`."""
        self.first = self.seq + 1
        async for item in client.events(after=self.seq):
            if isinstance(item, Snapshot):
                self.gaps += 1
                self.seq = item.seq
                continue
            self.gaps += item.seq != self.seq + 1
            self.seq = item.seq
            if isinstance(item, LeaderChanged):
                self.leaders.append(item)
            elif isinstance(item, RunStateChanged) and item.from_ is None:
                self.created[item.run] = self.created.get(item.run, 0) + 1
            elif isinstance(item, RunStateChanged) and item.to is Status.SUCCEEDED:
                self.succeeded[item.run] = self.succeeded.get(item.run, 0) + 1
            self.changed.set()
            self.changed = trio.Event()


@attrs.define
class Shown:
    """What the table shows."""

    cluster: ClusterInfo
    executors: list[ExecutorInfo]


async def play(store: str, folder: Path, *, once: bool) -> bool:
    """Run the demo until it ends, or a signal ends it. Returns whether nothing was lost."""
    kept = True
    with keyboard() as pressed, trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        display = Display("keys:  q  quit" if pressed else "")
        async with trio.open_nursery() as playing:
            playing.start_soon(end_at_signal, signals, playing.cancel_scope)
            if pressed is not None:
                playing.start_soon(_quit_at_key, pressed(), playing.cancel_scope)
            display.announce(f"store  {parse_addresses(store)[0]}", f"logs   {folder}")
            async with run_nodes(_NODES, store, folder) as nodes:
                scenario = Scenario(nodes, display)
                display.announce(
                    f"nodes  {'  '.join(f'{node.name} {node.url}' for node in nodes)}",
                    f"in another terminal:  {command(nodes[0].url, 'cluster', 'status')}",
                )
                if display.live:
                    playing.start_soon(scenario.draw)
                kept = await scenario.round()
                while not once:
                    display.show(f"The next round starts in {_BETWEEN_ROUNDS:g} seconds.")
                    await trio.sleep(_BETWEEN_ROUNDS)
                    kept = await scenario.round() and kept
                playing.cancel_scope.cancel()
    return kept


async def _quit_at_key(keys: AsyncIterator[str], playing: trio.CancelScope) -> None:
    async for key in keys:
        if key == "q":
            playing.cancel()


class Scenario:
    """The rounds of the demo."""

    def __init__(self, nodes: list[Node], display: Display) -> None:
        self._nodes = nodes
        self._display = display
        self._acknowledged: list[str] = []
        self._repeated = 0
        self._tally = Tally(0)
        self._observer = nodes[0]

    async def round(self) -> bool:
        """Kill the leader under load. Returns whether nothing was lost."""
        before = await self._leader()
        leader = next(node for node in self._nodes if node.name == before.id)
        self._observer = next(node for node in self._nodes if node is not leader)
        self._acknowledged, self._repeated = [], 0
        self._tally = tally = Tally(self._observer.client.state.seq)
        self._display.show(
            f"{leader.name} leads in term {before.term}. Runs are submitted at all nodes; "
            f"the events are followed at {self._observer.name}."
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tally.follow, self._observer.client)
            enough = trio.Event()
            async with trio.open_nursery() as load:
                load.start_soon(self._submit_all, enough)
                await trio.sleep(_LOAD)
                killed_at = trio.current_time()
                await leader.kill()
                self._display.show(f"{leader.name} is killed (SIGKILL).")
                while not tally.leaders:
                    await tally.changed.wait()
                took = trio.current_time() - killed_at
                after = tally.leaders[-1]
                self._display.show(
                    f"{after.node} leads in term {after.term}, {took:.2f} s later. "
                    f"Bodies of {leader.name} are lost, and continue elsewhere from their checkpoints."
                )
                await trio.sleep(_LOAD)
                enough.set()
            while set(self._acknowledged) - set(tally.succeeded):
                await tally.changed.wait()
            nursery.cancel_scope.cancel()
        kept = self._sum_up(tally)
        await leader.start()
        await leader.listens()
        self._display.show(f"{leader.name} is started again, and follows.")
        return kept

    async def draw(self) -> None:
        """Show the table until cancelled."""
        shown: Shown | None = None

        def table(height: int) -> RenderableType:
            return _table(self._display, shown, self._acknowledged, self._tally)

        async with live(table) as redraw:
            while True:
                client = self._observer.client
                try:
                    shown = Shown(await client.cluster.status(), list(await client.executors.list()))
                except Unavailable:
                    shown = None
                redraw()
                await trio.sleep(0.2)

    async def _leader(self) -> LeaderInfo:
        while True:
            for node in self._nodes:
                if node.client.connected:
                    leader = (await node.client.cluster.status()).leader
                    if leader is not None:
                        return leader
            await trio.sleep(0.1)

    async def _submit_all(self, until: trio.Event) -> None:
        """Submit runs until the event is set, each on the next handle and at the next node. Returns when all
        are acknowledged."""
        async with trio.open_nursery() as nursery:
            for number in count():
                if until.is_set():
                    return
                nursery.start_soon(self._submit, number)
                await trio.sleep(_EVERY)

    async def _submit(self, number: int) -> None:
        """Submit a run; as long as its fate is unknown, again at the next node, with the same request id."""
        request_id = uuid.uuid4().hex
        for attempt in count():
            client = self._nodes[(number + attempt) % len(self._nodes)].client
            try:
                if client.connected:
                    ticket = await client.submit(
                        steps, handle=f"h{number % _HANDLES}", on_conflict="queue", request_id=request_id
                    )
                    self._acknowledged.append(ticket.id)
                    return
            except Unavailable:
                self._repeated += 1
            await trio.sleep(0.05)

    def _sum_up(self, tally: Tally) -> bool:
        ran = len(self._acknowledged)
        lost = len(set(self._acknowledged) - set(tally.succeeded))
        twice = sum(often > 1 for often in (*tally.created.values(), *tally.succeeded.values()))
        twice += len(self._acknowledged) - len(set(self._acknowledged))
        self._display.show(
            f"{ran} runs were acknowledged: {len(tally.succeeded)} succeeded, {lost} were lost, {twice} "
            f"happened twice. {self._repeated} submissions were repeated. Events {tally.first:,} to "
            f"{tally.seq:,} arrived with {tally.gaps} gaps."
        )
        return ran > 0 and not (lost or twice or tally.gaps)


def _table(display: Display, shown: Shown | None, acknowledged: list[str], tally: Tally) -> RenderableType:
    nodes = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("node", "role", "term", "seq", "lag", "bodies"):
        nodes.add_column(column)
    for node in () if shown is None else shown.cluster.nodes:
        leader = shown.cluster.leader if shown is not None else None
        leads = leader is not None and leader.id == node.id
        executors = shown.executors if shown is not None else []
        bodies = sum(each.bodies for each in executors if each.id.startswith(f"{node.id}-"))
        nodes.add_row(
            node.id,
            Text(node.role, "bold green" if leads else ""),
            str(leader.term) if leads and leader is not None else "",
            f"{node.seq:,}",
            "" if leads else f"{node.lag:.1f} s",
            str(bodies),
        )
    counts = Text(
        f"acknowledged {len(acknowledged)}   succeeded {len(tally.succeeded)}   gaps {tally.gaps}   "
        f"seq {tally.seq:,}"
    )
    return display.around(nodes if shown is not None else Text("no leader is known", "yellow"), counts)
