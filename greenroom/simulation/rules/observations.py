"""Rules 1, 5, 6, 9 and 10, checked against bodies, files and clients: facts that no event contains.

A body counts from its first step to its last. Each item that a client receives must have been committed, and
a snapshot must be equal to the fold of the events. Only this check uses `protocol.fold`, because it tests it.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ...protocol.events import Event, Filter
from ...protocol.fold import Projection, fold
from ...protocol.records import KEPT_ENDED_RUNS, Snapshot, default_limit
from ...protocol.states import Status
from ..model.state import EXECUTES, ModelLane, ModelRun, ModelState

WaitsFor = Literal["time", "answer", "child", "message"]


if TYPE_CHECKING:
    from .executors import ExecutorRules


class Body(Protocol):
    """The attributes of its run that a body can read."""

    id: str
    handle: str
    attempt: int
    kind: str
    params: Any

    @property
    def checkpoint(self) -> Any: ...


class ObservationRules:
    """See the module's docstring."""

    def __init__(self, model: ModelState, fault: Callable[[str], None]) -> None:
        self.seen = 0
        """The highest seq that any client has received."""
        self.executors: ExecutorRules
        self._model = model
        self._fault = fault
        self._bodies: defaultdict[str, set[str]] = defaultdict(set)  # by handle
        self._executing: set[str] = set()
        self._just_ended: set[str] = set()  # runs whose bodies have ended in this instant
        self._released: set[str] = set()  # runs whose handles were released from their bodies
        self._inboxes: dict[str, deque[Any]] = {}  # the messages that each body has not taken yet
        self._waited: dict[str, int] = {}  # how many of them were there when the body's slot was granted
        self._waits: dict[str, tuple[WaitsFor, float]] = {}  # the waits of bodies without a slot
        self._files: dict[tuple[str, str], str] = {}
        self._first: Snapshot | None = None
        self._projection: Projection | None = None

    def new_life(self) -> None:
        """Forget all bodies: their process has ended."""
        self._bodies.clear()
        self._executing.clear()
        self._just_ended.clear()
        self._waits.clear()

    def takes_over(self) -> None:
        """Check that no body of an earlier engine executes when an engine opens the store."""
        if self._executing:
            self._fault(
                f"another engine has opened the store while bodies of {self._executing} still execute"
            )

    def stopped(self) -> None:
        """Check that no body executes after the engine has shut down."""
        if self._executing:
            self._fault(f"the engine has shut down, but bodies of {self._executing} still execute")

    # Bodies.

    def executes(self, run: str) -> bool:
        """Whether a run has a body."""
        return run in self._executing or self.executors.executes(run)

    def bodies_on(self, handle: str) -> set[str]:
        """The runs that have bodies on a handle in the engine's own process."""
        return self._bodies[handle] - self._released

    def has_no_body(self, run: str) -> bool:
        """Whether it has had no body since the start of this instant. If a body ended in this instant, its
        run may not have processed that yet."""
        return not self.executes(run) and run not in self._just_ended

    def released(self, run: str) -> None:
        """Record that a handle was released from the body of a run."""
        self._released.add(run)
        self.executors.released(run)

    def begins(self, body: Body) -> None:
        """Check a body that starts."""
        model, run = self._model, self._model.runs[body.id]
        others = self.bodies_on(body.handle)
        if others:
            self._fault(f"a body of {run} starts while bodies of {others} execute on the same handle")
        if model.handle(body.handle).holder != body.id:
            self._fault(f"a body of {run} starts, but the run does not hold its handle")
        if run.status not in EXECUTES or body.attempt != run.attempt:
            self._fault(f"a body starts attempt {body.attempt} of {run}")
        if isinstance(body.params, dict) and body.params != run.params:
            self._fault(f"a body of {run} starts with parameters {body.params}, expected {run.params}")
        saver, saved = model.checkpoints.get((run.handle, run.job), (None, None))
        if body.kind == "start" and saver != run.id:
            saved = None
        if body.checkpoint != saved:
            self._fault(f"a body of {run} resumes from checkpoint {body.checkpoint}, expected {saved}")
        self._bodies[body.handle].add(body.id)
        self._executing.add(body.id)
        self._inboxes[body.id] = deque(run.messages.values())
        slots = [seq for seq, status in run.statuses if status is Status.RUNNING]
        self._waited[body.id] = sum(seq < slots[-1] for seq in run.messages) if slots else 0

    def ends(self, run: str) -> None:
        """Record that a body has ended."""
        self._executing.discard(run)
        self._just_ended.add(run)
        self._bodies[self._model.runs[run].handle].discard(run)

    def message(self, run: str, message: Any) -> None:
        """Record that a message was accepted for a body."""
        if run in self._executing:
            self._inboxes[run].append(message)

    def took(self, run: str, messages: Sequence[Any], *, all_: bool) -> None:
        """Check the messages that a body took; with `all_`, it requested all waiting messages."""
        inbox = self._inboxes[run]
        expected = [inbox.popleft() for _ in messages if inbox]
        if expected != list(messages):
            self._fault(f"a body of {self._model.runs[run]} took messages {messages}, expected {expected}")
        self._waited[run] = max(0, self._waited[run] - len(messages))
        if all_ and self._waited[run]:
            self._fault(f"a body of {self._model.runs[run]} took messages {messages}, but not {inbox}")

    def goes_on(self, run: str, attempt: int) -> None:
        """Check that a body may continue: its run has a slot, is being ended, or has ended."""
        known = self._model.runs[run]
        if known.status is Status.SUSPENDED or (known.attempt != attempt and not known.ended):
            self._fault(f"a body of attempt {attempt} continues, but its run is {known}")

    @contextmanager
    def waiting(self, run: str, waits_for: WaitsFor, until: float = math.inf) -> Iterator[None]:
        """Record that a body waits without a slot while the block lasts."""
        self._waits[run] = (waits_for, until)
        waits = self._waits
        try:
            yield
        finally:
            waits.pop(run, None)

    def awake(self, now: float) -> set[str]:
        """The suspended runs whose waits have ended, so that they only wait for a slot."""
        return {run.id for run in self._model.pending.values() if self._is_awake(run, now)}

    def _is_awake(self, run: ModelRun, now: float) -> bool:
        if run.status is not Status.SUSPENDED or run.waits_for_slot or run.is_elsewhere:
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
        """Check that a body that waits without a slot has released it, that a run and its body have the same
        messages, and that an ended body has released its handle.

        A job that is cancelled cooperatively (`cooperative`) can wait with its slot while it ends.
        """
        for id, (waits_for, _) in self._waits.items():
            run = self._model.runs[id]
            if waits_for == "child" and not self._model.children(id):
                continue  # it has joined a run that it did not create
            if run.status is Status.RUNNING and not cooperative(run):
                self._fault(f"{run} waits for {waits_for}, but keeps its slot")
        for id in self._executing:
            run = self._model.runs[id]
            if not run.ended and not run.walks and list(run.messages.values()) != list(self._inboxes[id]):
                self._fault(
                    f"{run} has the messages {run.messages}, but its body expects {self._inboxes[id]}"
                )
        for name, handle in self._model.handles.items():
            holder = handle.holder
            if holder is None or self._model.runs[holder].executor is not None:
                continue  # the end of its body may not have been received yet
            if self._model.runs[holder].ended and holder not in self._executing:
                self._fault(f"handle {name} is held by a body of {self._model.runs[holder]} that has ended")
        self._just_ended.clear()

    def files(
        self,
        parts: Iterable[tuple[str, str, str]],
        files: Mapping[tuple[str, str], str],
        *,
        at_rest: bool,
        undeleted: Container[tuple[str, ...]] = (),
    ) -> None:
        """Check the files on the disk, just before the end of an instant or, `at_rest`, after the engine's.

        `parts` are unfinished files as handle, path and run; `files` are finished ones with their run;
        `undeleted` are those that may remain because the disk failed to delete them.
        """
        for handle, path, id in parts:
            if id in self._model.deleting:
                continue
            if at_rest or id not in self._executing or self._model.runs[id].ended:
                self._fault(f"unfinished file {path} of handle {handle} remains after {self._model.runs[id]}")
        for (handle, path), id in files.items():
            if self._is_deleted(id) and (handle, path) not in undeleted:
                run = self._model.runs[id]
                self._fault(f"file {path} of handle {handle} remains, but was to be deleted for {run}")
            if (id, path) not in self._model.recorded:
                self._fault(f"file {path} of handle {handle} was renamed before run {id} recorded its name")
        unjudged: dict[tuple[str, str], str] = {}
        for (handle, path), id in self._files.items():
            run = self._model.runs[id]
            if (handle, path) in files or self._is_deleted(id) or self._is_replaced(run, path):
                continue
            if run.doomed and not run.ended:  # its files are deleted first; a crash can follow before its end
                unjudged[handle, path] = id
            else:
                self._fault(f"file {path} of handle {handle} is missing, but was finished by {run}")
        self._files = unjudged | dict(files)

    def _is_deleted(self, id: str) -> bool:
        run = self._model.runs[id]
        return run.doomed and run.ended and run.status is not Status.SUCCEEDED

    def _is_replaced(self, run: ModelRun, path: str) -> bool:
        """Whether a later run of the handle has replaced the file by its own, and deleted that."""
        later = (self._model.runs[id] for id, name in self._model.recorded if name == path)
        return any(
            other.handle == run.handle and (other.place or 0) > (run.place or 0) and other.doomed
            for other in later
        )

    # Clients.

    def shown(self, event: Event) -> None:
        """Check that an event that a client received was committed."""
        self.seen = max(self.seen, event.seq)
        if self._model.events[event.seq - 1 : event.seq] != [event]:
            self._fault(f"a client received {event}, which differs from the committed event")

    def shown_next(self, event: Event, after: int, *filters: Filter | None) -> None:
        """Check that an event is the next one `after` a seq that passes the filters of the client."""
        self.shown(event)
        between = self._model.events[after : event.seq - 1]
        missed = [one for one in between if all(wants is None or wants.passes(one) for wants in filters)]
        if missed or event.seq <= after:
            self._fault(f"a client received {event} after seq {after}, but missed {missed}")

    def shown_snapshot(self, snapshot: Snapshot, filter: Filter | None = None) -> None:
        """Check a snapshot that a client received, possibly under a filter by handles, lanes or runs."""
        model = self._model
        if snapshot.seq > model.seq or snapshot.epoch != model.epoch:
            self._fault(
                f"a client received a snapshot of epoch {snapshot.epoch} at {snapshot.seq}, but the store is "
                f"at {model.seq} of epoch {model.epoch}"
            )
            return
        if filter is None and (folded := self._folded(snapshot)) != snapshot:
            self._fault(f"a client received {snapshot}, but the fold up to {snapshot.seq} gives {folded}")
        ends = [model.runs[id].ended_in or 0 for id, run in snapshot.runs.items() if run.ended]
        if ends != sorted(ends):
            self._fault(f"a snapshot lists ended runs in the order of these seqs, not sorted by end: {ends}")
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
        executors = {id: (known.status, known.slots) for id, known in model.executors.items()}
        shown_executors = {id: (shown.status, shown.slots) for id, shown in snapshot.executors.items()}
        pairs: list[tuple[str, Any, Any]] = [
            ("executors", shown_executors, executors),
            ("pending runs", {id for id, run in snapshot.runs.items() if not run.ended}, pending),
            ("runs outside of the filter", snapshot.runs.keys() - wanted.keys(), set()),
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
                self._fault(f"{what}: a client received {shown_as}, but at seq {model.seq} it is {expected}")


def _is_wanted(run: ModelRun, filter: Filter) -> bool:
    pairs = ((run.handle, filter.handles), (run.lane, filter.lanes), (run.id, filter.runs))
    return all(names is None or name in names for name, names in pairs)
