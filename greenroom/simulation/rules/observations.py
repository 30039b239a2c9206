"""Rules 1, 5, 6, 9 and 10, as bodies, files and clients show them: what no event tells.

Bodies are counted from their first step to their last. What a client is shown must have been committed, and
be what a fold of the events gives; that is the one place where `protocol.fold` is used, because it is judged.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol

from ...protocol.events import Event, Filter
from ...protocol.fold import Projection, fold
from ...protocol.records import KEPT_ENDED_RUNS, Snapshot, default_limit
from ...protocol.states import Status
from ..model.state import EXECUTES, ModelLane, ModelRun, ModelState

WaitsFor = Literal["time", "answer", "child", "message"]


class Body(Protocol):
    """What a body can say of its run."""

    id: str
    handle: str
    attempt: int
    kind: str
    params: Any

    @property
    def checkpoint(self) -> Any: ...


class ObservationRules:
    """See the module's text."""

    def __init__(self, model: ModelState, fault: Callable[[str], None]) -> None:
        self.seen = 0
        """The last seq that anyone was shown."""
        self._model = model
        self._fault = fault
        self._bodies: defaultdict[str, set[str]] = defaultdict(set)  # by handle
        self._executing: set[str] = set()
        self._just_ended: set[str] = set()  # runs whose bodies have ended in this instant
        self._released: set[str] = set()  # runs whose handles were freed from their bodies
        self._inboxes: dict[str, deque[Any]] = {}  # messages that each body is still to get
        self._waited: dict[str, int] = {}  # how many of them waited already when it got its slot
        self._waits: dict[str, tuple[WaitsFor, float]] = {}  # of bodies that need no slot meanwhile
        self._files: dict[tuple[str, str], str] = {}
        self._first: Snapshot | None = None
        self._projection: Projection | None = None

    def new_life(self) -> None:
        """Whatever executed is gone."""
        self._bodies.clear()
        self._executing.clear()
        self._just_ended.clear()
        self._waits.clear()

    def takes_over(self) -> None:
        """An engine has opened the store, perhaps one that could not know whether the last one lives."""
        if self._executing:
            self._fault(f"the store has another engine, and the bodies of {self._executing} execute still")

    def stopped(self) -> None:
        """The engine has ended in order."""
        if self._executing:
            self._fault(f"the engine has ended, but the bodies of {self._executing} have not")

    # Bodies.

    def executes(self, run: str) -> bool:
        """Whether a run has a body."""
        return run in self._executing

    def has_no_body(self, run: str) -> bool:
        """Whether it is known to have none: of one that has ended just now, its run may not know yet."""
        return run not in self._executing and run not in self._just_ended

    def released(self, run: str) -> None:
        """A handle was freed from the body of a run."""
        self._released.add(run)

    def begins(self, body: Body) -> None:
        """A body takes its first step."""
        model, run = self._model, self._model.runs[body.id]
        others = self._bodies[body.handle] - self._released
        if others:
            self._fault(f"a body of {run} begins beside those of {others}")
        if model.handle(body.handle).holder != body.id:
            self._fault(f"a body of {run} begins, which does not hold its handle")
        if run.status not in EXECUTES or body.attempt != run.attempt:
            self._fault(f"a body begins attempt {body.attempt} of {run}")
        if isinstance(body.params, dict) and body.params != run.params:
            self._fault(f"a body of {run} begins with {body.params}, not {run.params}")
        saver, saved = model.checkpoints.get((run.handle, run.job), (None, None))
        if body.kind == "start" and saver != run.id:
            saved = None
        if body.checkpoint != saved:
            self._fault(f"a body of {run} goes on from {body.checkpoint}, not {saved}")
        self._bodies[body.handle].add(body.id)
        self._executing.add(body.id)
        self._inboxes[body.id] = deque(run.messages.values())
        slots = [seq for seq, status in run.statuses if status is Status.RUNNING]
        self._waited[body.id] = sum(seq < slots[-1] for seq in run.messages) if slots else 0

    def ends(self, run: str) -> None:
        """A body has taken its last step."""
        self._executing.discard(run)
        self._just_ended.add(run)
        self._bodies[self._model.runs[run].handle].discard(run)

    def message(self, run: str, message: Any) -> None:
        """A message was accepted for a body."""
        if run in self._executing:
            self._inboxes[run].append(message)

    def took(self, run: str, messages: Sequence[Any], *, all_: bool) -> None:
        """A body took these messages, and with `all_` there were no others for it."""
        inbox = self._inboxes[run]
        expected = [inbox.popleft() for _ in messages if inbox]
        if expected != list(messages):
            self._fault(f"a body of {self._model.runs[run]} took {messages}, but {expected} came first")
        self._waited[run] = max(0, self._waited[run] - len(messages))
        if all_ and self._waited[run]:
            self._fault(f"a body of {self._model.runs[run]} took {messages}, but {inbox} waited, too")

    def goes_on(self, run: str, attempt: int) -> None:
        """A body goes on only while its run has a slot, or is being ended, or goes on without it."""
        known = self._model.runs[run]
        if known.status is Status.SUSPENDED or (known.attempt != attempt and not known.ended):
            self._fault(f"a body of attempt {attempt} goes on in {known}")

    @contextmanager
    def waiting(self, run: str, waits_for: WaitsFor, until: float = math.inf) -> Iterator[None]:
        """A body waits, and needs no slot meanwhile."""
        self._waits[run] = (waits_for, until)
        waits = self._waits
        try:
            yield
        finally:
            waits.pop(run, None)

    def awake(self, now: float) -> set[str]:
        """The suspended runs whose waits are over, so that they only wait for a slot."""
        return {run.id for run in self._model.pending.values() if self._is_awake(run, now)}

    def _is_awake(self, run: ModelRun, now: float) -> bool:
        if run.status is not Status.SUSPENDED or run.waits_for_slot:
            return False
        waits_for, until = self._waits.get(run.id, (run.reason if run.restored else None, math.inf))
        if waits_for != run.reason:
            return False
        if waits_for == "answer":
            return not run.interrupts
        if waits_for == "child":
            return (run.called or run.restored) and not self._model.children(run.id)
        if waits_for == "message" and run.messages:
            return True
        return waits_for in ("time", "message") and until <= now

    # At the end of an instant.

    def end_instant(self, cooperative: Callable[[ModelRun], bool]) -> None:
        """A body that waits without needing its slot has given it back, and one that has ended its handle.
        A `cooperative` one may be on its way out, and wait with its slot."""
        for id, (waits_for, _) in self._waits.items():
            run = self._model.runs[id]
            if waits_for == "child" and not self._model.children(id):
                continue  # it has joined another's
            if run.status is Status.RUNNING and not cooperative(run):
                self._fault(f"{run} waits for {waits_for} and keeps its slot")
        for id in self._executing:
            run = self._model.runs[id]
            if not run.ended and not run.walks and list(run.messages.values()) != list(self._inboxes[id]):
                self._fault(f"{run} has {run.messages} to take, but its body {self._inboxes[id]}")
        for name, handle in self._model.handles.items():
            holder = handle.holder
            if holder is not None and self._model.runs[holder].ended and holder not in self._executing:
                self._fault(
                    f"handle {name} is held by the body of {self._model.runs[holder]}, which has ended"
                )
        self._just_ended.clear()

    def files(
        self,
        parts: Iterable[tuple[str, str, str]],
        files: Mapping[tuple[str, str], str],
        *,
        at_rest: bool,
        undeleted: Container[tuple[str, ...]] = (),
    ) -> None:
        """What lies on the disk, just before an instant ends or, `at_rest`, after the engine has ended:
        unfinished files as handle, path and run; finished ones with their run; and which of these may be left
        because the disk has failed."""
        for handle, path, id in parts:
            if id in self._model.deleting:
                continue
            if at_rest or id not in self._executing or self._model.runs[id].ended:
                self._fault(f"{path} of handle {handle} is left unfinished by {self._model.runs[id]}")
        for (handle, path), id in files.items():
            if self._is_deleted(id) and (handle, path) not in undeleted:
                self._fault(f"{path} of handle {handle} is left, but {self._model.runs[id]} was to delete it")
            if (id, path) not in self._model.recorded:
                self._fault(f"{path} of handle {handle} has its name, which {id} has not recorded")
        unjudged: dict[tuple[str, str], str] = {}
        for (handle, path), id in self._files.items():
            run = self._model.runs[id]
            if (handle, path) in files or self._is_deleted(id) or self._is_replaced(run, path):
                continue
            if run.doomed and not run.ended:  # its files go first, and a crash may come before its end
                unjudged[handle, path] = id
            else:
                self._fault(f"{path} of handle {handle} is gone, which {run} had finished")
        self._files = unjudged | dict(files)

    def _is_deleted(self, id: str) -> bool:
        run = self._model.runs[id]
        return run.doomed and run.ended and run.status is not Status.SUCCEEDED

    def _is_replaced(self, run: ModelRun, path: str) -> bool:
        """Whether a later run of the handle has put its own file there and deleted that, perhaps just now."""
        later = (self._model.runs[id] for id, name in self._model.recorded if name == path)
        return any(
            other.handle == run.handle and (other.place or 0) > (run.place or 0) and other.doomed
            for other in later
        )

    # Clients.

    def shown(self, event: Event) -> None:
        """A client was shown an event."""
        self.seen = max(self.seen, event.seq)
        if self._model.events[event.seq - 1 : event.seq] != [event]:
            self._fault(f"{event} was shown, and is not what was committed")

    def shown_next(self, event: Event, after: int, *filters: Filter | None) -> None:
        """A client that follows what passes some filters was shown an event, the next one after another."""
        self.shown(event)
        between = self._model.events[after : event.seq - 1]
        missed = [one for one in between if all(wants is None or wants.passes(one) for wants in filters)]
        if missed or event.seq <= after:
            self._fault(f"{event} was shown after {after}, without {missed}")

    def shown_snapshot(self, snapshot: Snapshot, filter: Filter | None = None) -> None:
        """A client was shown a snapshot, or what of it passes a filter by handles, lanes or runs."""
        model = self._model
        if snapshot.seq > model.seq or snapshot.epoch != model.epoch:
            self._fault(f"a snapshot of {snapshot.epoch} at {snapshot.seq} was shown, after {model.seq}")
            return
        if filter is None and (folded := self._folded(snapshot)) != snapshot:
            self._fault(f"the fold up to {snapshot.seq} gives {folded}, but {snapshot} was shown")
        ends = [model.runs[id].ended_in or 0 for id, run in snapshot.runs.items() if run.ended]
        if ends != sorted(ends):
            self._fault(
                f"the ended runs of a snapshot were shown in the order {ends}, not in that of their ends"
            )
        if snapshot.seq == model.seq:
            self._compare(snapshot, filter or Filter())

    def _folded(self, snapshot: Snapshot) -> Snapshot:
        if self._first is None or self._projection is None:
            self._first, self._projection = snapshot, Projection.from_snapshot(snapshot)
        first, projection, events = self._first, self._projection, self._model.events
        if snapshot.seq < projection.seq:
            return fold(first, events[first.seq : snapshot.seq]) if snapshot.seq >= first.seq else snapshot
        for event in events[projection.seq : snapshot.seq]:
            projection.apply(event)
        return projection.snapshot()

    def _compare(self, snapshot: Snapshot, filter: Filter) -> None:
        model = self._model
        wanted = {id: run for id, run in model.runs.items() if _is_wanted(run, filter)}
        queues = model.queues()
        pending = {id for id in model.pending if id in wanted}
        interrupts = {interrupt for id in pending for interrupt in wanted[id].interrupts}
        pairs: list[tuple[str, Any, Any]] = [
            ("pending runs", {id for id, run in snapshot.runs.items() if not run.ended}, pending),
            ("unwanted runs", snapshot.runs.keys() - wanted.keys(), set()),
            ("executing", snapshot.engine.executing, sum(run.id in wanted for run in model.holders())),
            ("limit", snapshot.engine.max_concurrent, model.max_concurrent),
            ("draining", snapshot.engine.draining, model.draining[-1][1]),
            ("interrupts", set(snapshot.interrupts), interrupts),
        ]
        if len(wanted) <= KEPT_ENDED_RUNS:
            pairs.append(("runs", snapshot.runs.keys(), wanted.keys()))
        for id, record in snapshot.runs.items():
            run = model.runs[id]
            shown = (record.status, record.reason, record.attempt, record.place, record.params)
            pairs.append((f"run {id}", shown, (run.status, run.reason, run.attempt, run.place, run.params)))
        for name, lane in snapshot.lanes.items():
            known = model.lane(name)
            queue = [run.id for run in queues.get(name, []) if run.status is Status.QUEUED]
            queued = [id for id in queue if id in wanted]
            holders = {run.id for run in model.holders(name) if run.id in wanted}
            shown_lane = (lane.limit, lane.generation, set(lane.executing), lane.queued)
            if filter.lanes is not None and name not in filter.lanes:
                known = ModelLane(default_limit(name))
            pairs.append((f"lane {name}", shown_lane, (known.limit, known.generation, holders, queued)))
        for name, handle in snapshot.handles.items():
            held = model.handle(name)
            holder = held.holder if held.holder in wanted else None
            waiting = [id for id in held.waiting if id in wanted]
            shown_handle = (handle.active_run, handle.locked, handle.waiting, handle.params)
            pairs.append((f"handle {name}", shown_handle, (holder, holder is not None, waiting, held.draft)))
        for what, shown_as, expected in pairs:
            if shown_as != expected:
                self._fault(f"{what} was shown as {shown_as}, but at {model.seq} it is {expected}")


def _is_wanted(run: ModelRun, filter: Filter) -> bool:
    pairs = ((run.handle, filter.handles), (run.lane, filter.lanes), (run.id, filter.runs))
    return all(names is None or name in names for name, names in pairs)
