"""The events: each is one numbered change of the engine's state.

The journal sets `seq` and `at` when it commits a change; an actor that proposes a change leaves them at 0.
`by` is the cause of the change: a caller's name, `body` for the run's own code, or `engine`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .lanes import DEFAULT_RULES, LaneRules
from .records import ExecutorState, RunRecord
from .schedules import ScheduleRecord
from .states import Status


class EventBase(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="type", tag="event"
):
    """The fields of every event."""

    seq: int
    at: float
    by: str

    @property
    def type(self) -> str:
        """The event's type on the wire."""
        return str(self.__struct_config__.tag)


class RunEvent(EventBase, frozen=True, gc=False, kw_only=True):
    """The fields of every event of a run."""

    run: str
    handle: str
    lane: str


class RunStateChanged(
    RunEvent, frozen=True, gc=False, kw_only=True, tag="run_state_changed", rename={"from_": "from"}
):
    """A run's status changed. `from` is null for a new run; only then `job`, `kind`, `params`, `needs`,
    `tags`, `priority`, `key`, `not_before` and `parent` are set.

    `place` is the run's current place; null while the run waits in its handle, before the others if `front`.
    A new run with `waiting_for` `time` waits for its `not_before` outside its lane and, without a place,
    outside its handle.
    `interactive` is set when a body starts or ends. `executor` is set when a body starts in another process
    than the engine's. `retry_after` is set if the attempt failed with this `error` and is retried: the
    seconds until the next attempt enters its lane. `holds_handle`: the run has ended, but its abandoned body
    still executes and keeps the handle.
    """

    from_: Status | None
    to: Status
    attempt: int
    reason: str | None
    place: int | None
    job: str | None = None
    kind: str | None = None
    params: Any = None
    needs: tuple[str, ...] = ()
    tags: dict[str, str] = {}
    priority: int = 0
    key: str | None = None
    not_before: float | None = None
    parent: str | None = None
    front: bool = False
    waiting_for: str | None = None
    interactive: bool | None = None
    executor: str | None = None
    result: Any = None
    error: str | None = None
    retry_after: float | None = None
    holds_handle: bool = False


class RunChanged(RunEvent, frozen=True, gc=False, kw_only=True, tag="run_changed"):
    """A run changed without a transition; absent fields are unchanged.

    A `place` makes a queued run the handle's admitted run. `params` are those of a later submission, which
    the run takes only as long as it has not begun. Of a queued run, `waiting_for` is `executor` while it has
    room in its lane, but no executor can take it; `time` while it holds its handle, and waits for its
    `not_before` outside its lane; `handle` if the handle is taken at its `not_before`, so that it waits in
    the handle, before the others if `front`.
    """

    place: int | None = None
    priority: int | None = None
    params: Any = msgspec.UNSET
    waiting_for: str | None = None
    front: bool = False
    detached: bool | None = None
    interactive: bool | None = None
    streaming: bool | None = None
    compacting: bool | None = None


class RunProgress(RunEvent, frozen=True, gc=False, kw_only=True, tag="run_progress"):
    """The progress of a body; it replaces the previous progress."""

    attempt: int
    done: int | float | None
    total: int | float | None
    stats: dict[str, Any] = {}

    @property
    def progress(self) -> dict[str, Any]:
        """The progress as in the run's record."""
        return {"done": self.done, "total": self.total, **self.stats}


class RunLog(RunEvent, frozen=True, gc=False, kw_only=True, tag="run_log"):
    """A log line of a body."""

    attempt: int
    text: str
    level: str


class RunWaiting(RunEvent, frozen=True, gc=False, kw_only=True, tag="run_waiting"):
    """A queued run has waited long: the seconds, the number of runs ahead, and the runs that block it.
    `reason`: why no executor has room for it, if it waits for an executor."""

    waited: float
    ahead: int
    blockers: list[str]
    reason: str | None = None


class RunMessage(RunEvent, frozen=True, gc=False, kw_only=True, tag="run_message"):
    """A message was accepted for a run; it is stored until the body takes it."""

    message: Any


class RunSignal(RunEvent, frozen=True, gc=False, kw_only=True, tag="run_signal"):
    """A signal set `key` in the shared data of a flow's run; a node that waits for it continues."""

    key: str
    value: Any


class NodeStarted(RunEvent, frozen=True, gc=False, kw_only=True, tag="node_started"):
    """A flow's run has reached a node that takes time; `visit` counts the visits of the node."""

    node: str
    kind: str
    visit: int


class NodeRan(RunEvent, frozen=True, gc=False, kw_only=True, tag="node_ran"):
    """One attempt of a node, or of a `branch` of it, has ended: `ok`, `error`, `cancelled` or `timeout`.

    `action` selects the edge that the run takes next; null if the node has not ended with this attempt.
    """

    node: str
    kind: str
    visit: int
    attempt: int
    status: str
    branch: str | None = None
    action: str | None = None
    error: str | None = None
    worker: str | None = None
    started_at: float


class InterruptOpened(RunEvent, frozen=True, gc=False, kw_only=True, tag="interrupt_opened"):
    """A body opened an interrupt."""

    interrupt: str
    key: str
    data: Any
    deadline: float | None


class InterruptClosed(RunEvent, frozen=True, gc=False, kw_only=True, tag="interrupt_closed"):
    """An interrupt was closed; `outcome` is `answered`, `timed_out`, `cancelled`, `shutdown`, `withdrawn`
    (the body no longer waits) or `ended` (the body has ended)."""

    interrupt: str
    outcome: str
    answer: Any = None


class LaneChanged(EventBase, frozen=True, gc=False, kw_only=True, tag="lane_changed"):
    """A lane's limit, generation, pause or rules changed; all are the new values."""

    lane: str
    limit: int | None
    generation: int
    paused: bool = False
    rules: LaneRules = DEFAULT_RULES


class HandleChanged(EventBase, frozen=True, gc=False, kw_only=True, tag="handle_changed"):
    """A handle has a new draft (`params`, if present), or was released from the ended run `freed`."""

    handle: str
    params: Any = msgspec.UNSET
    freed: str | None = None


class EngineChanged(EventBase, frozen=True, gc=False, kw_only=True, tag="engine_changed"):
    """The global limit or draining changed; both are the new values."""

    max_concurrent: int
    draining: bool


class FlowChanged(EventBase, frozen=True, gc=False, kw_only=True, tag="flow_changed"):
    """A flow was created, or a version of it, whose status is `draft` or `published`."""

    flow: str
    name: str
    version: int | None = None
    status: str | None = None


class NodeWorkerChanged(EventBase, frozen=True, gc=False, kw_only=True, tag="node_worker_changed"):
    """A worker registered, is `online` again, is `offline`, or was `forgotten`."""

    worker: str
    url: str
    services: tuple[str, ...]
    kind: str
    status: str


class ExecutorChanged(EventBase, frozen=True, gc=False, kw_only=True, tag="executor_changed"):
    """An executor is `attached`, `disconnected` (its bodies continue, and it can attach again), `draining`,
    or `gone`. `slots` is null if it has no limit of its own. Its bodies can execute for up to `ttl` seconds
    after its last acknowledged beat. `start` is the start id of its process, which is another one after each
    start of a process under the same id."""

    executor: str
    status: str
    slots: int | None = None
    labels: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    ttl: float | None = None
    start: str = ""

    @property
    def state(self) -> ExecutorState | None:
        """The executor as in a snapshot; `None` if it is gone."""
        if self.status == "gone":
            return None
        return ExecutorState(self.status, self.slots, self.labels, self.jobs, self.ttl, self.start)


class NodeChanged(EventBase, frozen=True, gc=False, kw_only=True, tag="node_changed"):
    """A node of the cluster has `joined` its leader, or `left`."""

    node: str
    status: str
    address: str
    version: str = ""


class LeaderChanged(EventBase, frozen=True, gc=False, kw_only=True, tag="leader_changed"):
    """A node leads the cluster from here on. Its `term` is higher than any before."""

    node: str
    address: str
    term: int


class ScheduleChanged(EventBase, frozen=True, gc=False, kw_only=True, tag="schedule_changed"):
    """A schedule was put, paused or resumed: `state` is its new record; null if it was deleted."""

    schedule: str
    state: ScheduleRecord | None


class ScheduleFired(EventBase, frozen=True, gc=False, kw_only=True, tag="schedule_fired"):
    """A schedule has submitted a run for its due time `at_planned`, or was `triggered` by a caller.

    `run` is the run; with `joined`, one that existed before. If the submission was refused, `refused` is the
    error code and `error` the message. `next` are the next due times.
    """

    schedule: str
    at_planned: float
    run: str | None = None
    joined: bool = False
    refused: str | None = None
    error: str | None = None
    triggered: bool = False
    next: tuple[float, ...] = ()


class ScheduleMissed(EventBase, frozen=True, gc=False, kw_only=True, tag="schedule_missed"):
    """A schedule has missed due times, and leaves out `count` of them: all up to `until`. `next` are the next
    due times, the first of which can have passed: they fire next."""

    schedule: str
    count: int
    until: float
    next: tuple[float, ...] = ()


class WebhookChanged(EventBase, frozen=True, gc=False, kw_only=True, tag="webhook_changed"):
    """A webhook of a run is `dead` after `attempts` failed ones, the last with this `error`; or a caller
    `redelivered` or `dropped` it. It is not an event of its run: the run may be long over."""

    webhook: str
    of_run: str
    to: Literal["dead", "redelivered", "dropped"]
    attempts: int = 0
    error: str | None = None


Event = (
    RunStateChanged
    | RunChanged
    | RunProgress
    | RunLog
    | RunWaiting
    | RunMessage
    | RunSignal
    | NodeStarted
    | NodeRan
    | InterruptOpened
    | InterruptClosed
    | LaneChanged
    | HandleChanged
    | EngineChanged
    | FlowChanged
    | NodeWorkerChanged
    | ExecutorChanged
    | NodeChanged
    | LeaderChanged
    | ScheduleChanged
    | ScheduleFired
    | ScheduleMissed
    | WebhookChanged
)


class Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The filter of a subscription: an event passes if it matches every given field.

    Under `handles`, `lanes` and `runs`, events without such a field (of the engine, for example) and those of
    schedules pass too, so the client can fold the events over a snapshot with the same filter. Under `types`,
    it cannot.
    """

    handles: frozenset[str] | None = None
    lanes: frozenset[str] | None = None
    runs: frozenset[str] | None = None
    types: frozenset[str] | None = None

    def passes(self, event: Event) -> bool:
        """Whether the subscriber gets this event."""
        if self.types is not None and event.type not in self.types:
            return False
        if type(event) is ScheduleFired:  # it changes its schedule, whatever its run
            return True
        for name, wanted in (("handle", self.handles), ("lane", self.lanes), ("run", self.runs)):
            value = getattr(event, name, None)
            if wanted is not None and value is not None and value not in wanted:
                return False
        return True

    def sees(self, run: RunRecord) -> bool:
        """Whether a snapshot with this filter contains this run."""
        return (
            (self.handles is None or run.handle in self.handles)
            and (self.lanes is None or run.lane in self.lanes)
            and (self.runs is None or run.id in self.runs)
        )
