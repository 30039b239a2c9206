"""The registry of executors: which are attached, which bodies they have, and which are lost.

An executor whose connection ends keeps its bodies until it attaches again, or until it has been silent for
the ttl; then it is lost, and its bodies with it. After a restart of the engine, the bodies of its last life
wait in the same way for their executors. A lost body's run continues as after a crash.

All methods are called in the engine's event loop and never wait. `link.py` reads and writes the connections.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable
from functools import partial

import trio

from ...persistence.files import Files
from ...persistence.store import DeletionOwed, Stored
from ...protocol import executors as wire
from ...protocol.errors import Conflict, GreenroomError, Invalid, NotFound
from ...protocol.events import ExecutorChanged
from ...protocol.records import ExecutorInfo
from ...protocol.values import shown
from ..actor import Delivery
from ..effects import Spawn
from ..journal.change import Change
from ..messages import BodyGone, Evict, ExecutorReady, ExecutorRemoved
from ..scheduling.stored_bodies import held_elsewhere, is_child
from .announced import AnnouncedJobs
from .awaited import Awaited, Bodies
from .checks import check_attach
from .deletions import Deletions
from .functions import FunctionCalls
from .held_body import HeldBody
from .peer import Peer
from .remote_execution import RemoteExecution

logger = logging.getLogger("greenroom")

MOST_EXECUTORS = 1000
"""The number of executors that can be attached, or disconnected and not lost."""


_STALL = 0.2
"""The delay of a wake-up, in seconds, from which the engine counts as stalled: blocked, stopped, or suspended
with its machine."""
_CATCH_UP = 1.0
"""Seconds in which an engine that was stalled reads the heartbeats that have arrived meanwhile."""


class Registry:
    """See the module's docstring. The ids of sessions begin with `session`. `may_answer`: whether the engine
    has its store, so bodies can execute."""

    def __init__(
        self,
        session: str,
        ttl: float,
        max_value_bytes: int,
        delivery: Delivery,
        spawn: Spawn,
        announced: AnnouncedJobs,
        files: Files | None,
        may_answer: Callable[[], bool],
    ) -> None:
        self.ttl = ttl
        self._files = files
        self.max_value_bytes = max_value_bytes
        self.lost = 0
        """The number of executors that were lost."""
        self.blocked = 0
        """How often a body has blocked the event loop of an executor."""
        self.blocked_seconds = 0.0
        self.on_child_lost: Callable[[str], None] = lambda _: None
        """Called when a child process has been silent for the ttl."""
        self.on_child_changed: Callable[[], None] = lambda: None
        """Called when a child process has attached, or is gone."""
        self.peers: dict[str, Peer] = {}
        self.may_answer = may_answer
        self._session = session
        self._sessions = 0  # how many have begun
        self._delivery = delivery
        self._spawn = spawn
        self._announced = announced
        self._awaited = Awaited(ttl)
        self._news = trio.lowlevel.ParkingLot()
        self.functions = FunctionCalls(lambda: self.peers.values(), self._expects)
        self._deletions = Deletions(self._commit_change, lambda: self.peers.values())
        self._closed = False

    async def is_own_folder(self, folder: str) -> bool:
        """Whether this is the id of the engine's own data folder, whose files the engine deletes itself. The
        engine of a cluster has none, because another node can be the next leader."""
        return self._files is not None and folder != "" and folder == await self._files.folder_id()

    # What the engine starts.

    def restore(self, stored: Stored) -> None:
        """The engine has restarted: no executor is attached."""
        self._awaited.restore(stored.executors)
        for id, known in stored.executors.items():
            status = "gone" if is_child(id) else "disconnected"
            self._commit(
                ExecutorChanged(
                    seq=0,
                    at=0,
                    by="engine",
                    executor=id,
                    status=status,
                    slots=known.slots,
                    labels=known.labels,
                    jobs=known.jobs,
                    ttl=None if status == "gone" else self._awaited.longest_ttl(id),
                    start=known.start,
                )
            )
            if not is_child(id):
                self._expect(id)
        for handle, run in held_elsewhere(stored).items():
            assert run.executor is not None, "its body can still execute there"
            body = HeldBody(run.id, run.fence or 0, partial(self._free, run.id, handle))
            self._expect(run.executor)[run.id] = body
        for deletion in stored.deletions:
            self._deletions.owe(deletion)

    def _free(self, run: str, handle: str) -> None:
        self._delivery.tell("supervisor", "", BodyGone(run, handle))

    def start(self, execution: RemoteExecution) -> None:
        """Start a body at its executor. While its start was committed, the executor can have left, or begun
        to drain: it may then exit before it receives the body."""
        peer = self.peers.get(execution.executor)
        if peer is None or not peer.accepts:  # since the run was granted its slot
            execution.withdraw()
            return
        peer.bodies[execution.id] = execution
        execution.begin(peer)

    def owe(self, deletion: DeletionOwed) -> None:
        """Have an executor delete files of an ended run; see `Deletions`."""
        self._deletions.owe(deletion)

    def expect(self, execution: RemoteExecution) -> None:
        """A body began before the engine did, and may still execute."""
        self._expect(execution.executor)[execution.id] = execution

    def _expect(self, executor: str) -> Bodies:
        self._news.unpark_all()
        return self._awaited.expect(executor, trio.current_time())

    # Connections.

    def attach(self, attach: wire.Attach, *, child: bool, own_folder: bool) -> tuple[Peer, wire.Attached]:
        """An executor has connected. Raises `GreenroomError` if it cannot be attached."""
        check_attach(attach, self.max_value_bytes, child=child)
        if self._closed:
            raise Conflict("engine is shutting down", retry=True)
        if not self.may_answer():  # the answer would permit its bodies to execute
            raise Conflict("engine cannot reach its store: try again", retry=True)
        now = trio.current_time()
        peer = self.peers.get(attach.executor)
        if peer is not None and peer.start != attach.start:
            self._check_replaceable(peer)
            peer = None
        resumed = peer is not None and attach.session == peer.session
        if peer is not None and attach.connection < peer.connection:
            raise Conflict("this process has attached with a later connection", retry=True)
        if peer is None:
            if len(self.peers) >= MOST_EXECUTORS:
                raise Conflict(f"engine already has {MOST_EXECUTORS:,} executors", retry=True)
            ttl = self._awaited.ttl_of(attach.executor)
            peer = self.peers[attach.executor] = Peer(attach, now, ttl, self._spawn, self._receive)
        else:
            if resumed:
                peer.outgoing.reconnect(attach.received)
            if peer.hang_up is not None:
                peer.hang_up()  # the executor has noticed the end of that connection first
                peer.hang_up = peer.wake = None
            peer.update(attach)
            peer.heard_at = now
        peer.own_folder = own_folder
        bodies: tuple[wire.LiveBody, ...] = ()
        had = [run for run, body in peer.bodies.items() if peer.had(body)]
        if resumed:
            self._lose_forgotten(peer, had, attach.bodies)
            if peer.draining:  # it can exit before it receives more
                _withdraw(peer.take_unreceived())
        else:
            self._sessions += 1
            peer.new_session(f"{self._session}.{self._sessions}")
            bodies = self._adopt(peer, had, attach.bodies)
            self.functions.new_session(peer, attach.calls)
            if peer.draining and not attach.draining:  # the message was lost with the last session
                peer.send(wire.Drain())
        self._announced.announce(peer.id, attach.jobs)
        return peer, wire.Attached(
            session=peer.session,
            resumed=resumed,
            ttl=self.ttl,
            max_value_bytes=self.max_value_bytes,
            received=peer.incoming.received,
            bodies=bodies,
        )

    def _check_replaceable(self, peer: Peer) -> None:
        if peer.connected or peer.bodies or self.functions.executing(peer):
            raise Conflict(
                f"another process is attached as executor {shown(peer.id)}, or was and has bodies: start "
                "this one under another name, or wait until the other is lost",
                retry=True,
            )
        self._gone(peer)

    def _lose_forgotten(self, peer: Peer, had: Iterable[str], live: Iterable[wire.LiveBody]) -> None:
        """The session continues: the executor must still have the bodies that it had."""
        has = {(body.run, body.fence) for body in live}
        for run in had:
            if (run, peer.bodies[run].fence) not in has:
                peer.bodies.pop(run).lose(_forgotten(peer.id), forgotten=True)

    def _adopt(
        self, peer: Peer, had: Collection[str], live: Iterable[wire.LiveBody]
    ) -> tuple[wire.LiveBody, ...]:
        """Adopt the bodies that belong to their runs; the others are closed by the executor."""
        awaited = self._awaited.bodies(peer.id)
        known: Bodies = {**peer.bodies, **awaited}
        adopted = []
        for body in live:
            execution = known.get(body.run)
            if execution is None or execution.fence != body.fence:
                continue
            del known[body.run]
            awaited.pop(body.run, None)
            peer.bodies[body.run] = execution
            execution.adopt(peer, body.received)
            adopted.append(body)
        for run, execution in known.items():
            if run not in peer.bodies:
                continue
            if run in had or isinstance(execution, HeldBody) or execution.is_closed:
                del peer.bodies[run]
                execution.lose(_forgotten(peer.id), forgotten=True)
            elif peer.draining:
                del peer.bodies[run]
                execution.withdraw()
            else:
                execution.begin(peer)  # the process has not received it yet
        self._awaited.attached(peer.id)
        return tuple(adopted)

    def connected(self, peer: Peer, wake: Callable[[], None], hang_up: Callable[[], None]) -> None:
        """The connection of an attached executor can be used now."""
        peer.wake, peer.hang_up = wake, hang_up
        peer.was_closed = False
        logger.info("executor %s is attached", peer.id)
        self._changed(peer)
        if not peer.child:
            self._deletions.attached(peer)
        self._news.unpark_all()
        self.functions.look()

    def disconnected(self, peer: Peer, hang_up: Callable[[], None]) -> None:
        """A connection has ended."""
        if peer.hang_up is not hang_up:
            return  # it was replaced by another one
        peer.wake = peer.hang_up = None
        peer.was_closed = True
        if self.peers.get(peer.id) is not peer or self._closed:
            return
        unreceived = peer.take_unreceived()
        self._left(peer)
        _withdraw(unreceived)

    def _left(self, peer: Peer) -> None:
        if peer.exits and not peer.bodies and not self.functions.executing(peer):
            logger.info("executor %s has drained and left", peer.id)
            self._gone(peer)
            return
        if not peer.child:  # a child's process has ended, or is about to be killed: `child_died` follows
            logger.warning(
                "executor %s is disconnected; it has %d bodies, and is lost if it does not attach again "
                "within %g s",
                peer.id,
                len(peer.bodies),
                peer.ttl,
            )
        self._changed(peer)

    def beat(self, beat: wire.Beat) -> wire.Beaten | None:
        """An executor is alive. Not answered while the engine could lose its store."""
        if not self.may_answer():
            return None
        peer = self.peers.get(beat.executor)
        if peer is None or peer.start != beat.start:
            return wire.Beaten(beat.sent, False)
        peer.heard_at = trio.current_time()
        return wire.Beaten(beat.sent, True)

    def receive(self, peer: Peer, frame: wire.ExecutorFrame) -> None:
        """Handle a frame. Raises `GreenroomError` if it breaks the protocol."""
        if peer.ttl != self.ttl:  # the executor has received `attached`: its lease has this engine's ttl
            peer.ttl = self.ttl
            self._changed(peer)
        peer.receive(frame)

    def _receive(self, peer: Peer, message: wire.FromExecutor) -> None:
        match message:
            case wire.Draining():
                peer.exits = True
                self._drains(peer, "engine", now=message.now)
            case wire.FilesDeleted():
                self._deletions.done(peer, message)
            case wire.Told(report=wire.BlockedLoop(seconds=seconds)):
                self.blocked += 1
                self.blocked_seconds += seconds
            case wire.FunctionEnded():
                self.functions.ended(peer, message)
            case _:
                raise Invalid(f"unexpected message {type(message).__name__}")

    # Drain, loss.

    def drain(self, id: str, *, by: str) -> None:
        """Have an executor finish its bodies and exit."""
        peer = self.peers.get(id)
        if peer is None and id in self._awaited:
            raise Conflict(
                f"executor {shown(id)} has not attached since the engine's restart: drain it when it has"
            )
        if peer is None:
            raise NotFound(f"executor {shown(id)} not found", value=id)
        peer.send(wire.Drain())
        self._drains(peer, by, now=False)

    def _drains(self, peer: Peer, by: str, *, now: bool) -> None:
        if not peer.draining:
            peer.draining = True
            self._changed(peer, by)
        if now:
            for run in list(peer.bodies):
                self._delivery.tell("run", run, Evict())

    def child_died(self, id: str, how: str) -> None:
        """The process of a child has ended. `how`, as in "was killed by SIGSEGV", is for the run's error."""
        peer = self.peers.get(id)
        if peer is not None:
            self.lost += not peer.draining
            self._lose(peer, f"its executor {id} {how}", died=not peer.draining)

    def process_ended(self, id: str, how: str) -> None:
        """The process of an executor has ended, also if it has not attached since the engine's restart."""
        peer, awaited = self.peers.get(id), self._awaited.take(id)
        runs = [] if peer is None else list(peer.bodies)
        runs += [] if awaited is None else list(awaited.bodies)
        if runs:
            logger.error("executor %s %s; it executed the bodies of these runs: %s", id, how, ", ".join(runs))
        self.child_died(id, how)
        if awaited is not None:
            for execution in awaited.bodies.values():
                execution.lose(f"its executor {id} {how}", died=True)
            if peer is None:
                self._commit(ExecutorChanged(seq=0, at=0, by="engine", executor=id, status="gone"))
            self.functions.look()

    @trio.lowlevel.enable_ki_protection
    async def watch(self) -> None:
        """Find executors that are silent for too long, until cancelled."""
        while True:
            deadline = self._next_loss()
            with trio.CancelScope(deadline=deadline):
                await self._news.park()
            if trio.current_time() > deadline + _STALL:
                await trio.sleep(_CATCH_UP)
            now = trio.current_time()
            for peer in [peer for peer in self.peers.values() if peer.lost_at <= now]:
                self.lost += 1
                why = f"its executor {peer.id} was silent for {peer.ttl:g} s"
                logger.error("executor %s is lost: it was silent for %g s", peer.id, peer.ttl)
                self._lose(peer, why, died=peer.was_closed and not peer.connected)
                if peer.child:
                    self.on_child_lost(peer.id)
            for id, late in self._awaited.take_late(now):
                why = f"its executor {id} did not attach after the engine's restart"
                if late.attached:
                    why = f"its executor {id} attached without it after the engine's restart"
                elif late.bodies:
                    logger.error(
                        "executor %s is lost: it did not attach within %g s after the engine's restart; "
                        "it had %d bodies",
                        id,
                        late.ttl,
                        len(late.bodies),
                    )
                    self.lost += 1
                for execution in late.bodies.values():
                    execution.lose(why, forgotten=late.attached)
                if id not in self.peers:
                    self._commit(ExecutorChanged(seq=0, at=0, by="engine", executor=id, status="gone"))
                self.functions.look()

    def _expects(self) -> bool:
        return self._awaited.expects_others(self.peers)

    def _next_loss(self) -> float:
        silent = min((peer.lost_at for peer in self.peers.values()), default=math.inf)
        return min(silent, self._awaited.deadline)

    def _lose(self, peer: Peer, why: str, *, died: bool) -> None:
        unreceived = peer.take_unreceived()
        bodies, peer.bodies = peer.bodies, {}
        self._gone(peer, why)
        _withdraw(unreceived)
        for execution in bodies.values():
            execution.lose(why, died=died)

    def _gone(self, peer: Peer, why: str = "its executor has left") -> None:
        del self.peers[peer.id]
        self.functions.gone(peer, why)
        if peer.hang_up is not None:
            hang_up, peer.hang_up, peer.wake = peer.hang_up, None, None
            hang_up()
        self._announced.withdraw(peer.id)
        self._deletions.gone(peer)
        self._delivery.tell("supervisor", "", ExecutorRemoved(peer.id))
        self._commit(self._event(peer, "gone"))
        if peer.child:
            self.on_child_changed()

    def _changed(self, peer: Peer, by: str = "engine") -> None:
        ready = ExecutorReady(
            peer.id, peer.slots, frozenset(peer.jobs), frozenset(peer.labels), not peer.accepts
        )
        self._delivery.tell("supervisor", "", ready)
        self._commit(self._event(peer, peer.status, by))
        if peer.child:
            self.on_child_changed()

    def _event(self, peer: Peer, status: str, by: str = "engine") -> ExecutorChanged:
        return ExecutorChanged(
            seq=0,
            at=0,
            by=by,
            executor=peer.id,
            status=status,
            slots=peer.slots,
            labels=peer.labels,
            jobs=tuple(peer.jobs),
            ttl=None if status == "gone" else peer.ttl,
            start=peer.start,
        )

    def _commit(self, event: ExecutorChanged) -> None:
        self._commit_change(Change((event,)))

    def _commit_change(self, change: Change) -> None:
        self._delivery.tell("journal", "", change)

    # The engine's end.

    def leave(self) -> None:
        """The engine stops: hang up, except for its children. Attached executors keep their bodies for the
        next engine."""
        self._closed = True
        self.functions.leave()
        for peer in list(self.peers.values()):
            if not peer.child and peer.hang_up is not None:
                peer.hang_up()

    # For callers.

    def list(self) -> list[ExecutorInfo]:
        """The executors, and how many bodies they have."""
        return [
            ExecutorInfo(
                peer.id, peer.status, peer.slots, len(peer.bodies), peer.labels, tuple(peer.jobs), peer.start
            )
            for peer in self.peers.values()
        ] + self._awaited.infos(self.peers)


def _withdraw(executions: Iterable[RemoteExecution]) -> None:
    for execution in executions:
        execution.withdraw()


def _forgotten(executor: str) -> str:
    return f"its executor {executor} attached without it"


def refusal(error: GreenroomError) -> wire.Refused:
    """The message that refuses an executor."""
    return wire.Refused(error.code, error.message, bool(error.details.get("retry")))
