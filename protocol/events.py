"""The events: each is one numbered change, and together they are the one ordered story.

`seq` and `at` are set by the journal when it numbers a change; whoever proposes a change leaves them at 0.
`by` says who caused it: a caller's name, `body` for the run's own code, or `engine`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .records import RunRecord
from .states import Status


class EventBase(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="type", tag="event"
):
    """What every event has."""

    seq: int
    at: float
    by: str

    @property
    def type(self) -> str:
        """The event's name on the wire."""
        return str(self.__struct_config__.tag)


class RunEvent(EventBase, frozen=True, gc=False, kw_only=True):
    """What every event of a run has."""

    run: str
    handle: str
    lane: str


class RunStateChanged(
    RunEvent, frozen=True, gc=False, kw_only=True, tag="run_state_changed", rename={"from_": "from"}
):
    """A transition. `from` is null for a new run, which also brings `job`, `kind` and `params`.

    `place` is the run's place as of now; null while it waits in its handle, where `front` puts it before
    the others. `interactive` is given when a body begins or is gone. `holds_handle`: the run ended, but its
    abandoned body still executes, so the handle stays taken.
    """

    from_: Status | None
    to: Status
    attempt: int
    reason: str | None
    place: int | None
    job: str | None = None
    kind: str | None = None
    params: Any = None
    front: bool = False
    waiting_for: str | None = None
    interactive: bool | None = None
    result: Any = None
    error: str | None = None
    holds_handle: bool = False


class RunChanged(RunEvent, frozen=True, gc=False, kw_only=True, tag="run_changed"):
    """Something of a run changed that is no transition; fields that are absent stay as they were.

    A `place` for a run that waited in its handle also makes it the handle's admitted run.
    """

    place: int | None = None
    detached: bool | None = None
    interactive: bool | None = None
    streaming: bool | None = None
    compacting: bool | None = None


class RunProgress(RunEvent, frozen=True, gc=False, kw_only=True, tag="run_progress"):
    """How far a body has come; replaces what it said before."""

    attempt: int
    done: int | float | None
    total: int | float | None
    stats: dict[str, Any] = {}

    @property
    def progress(self) -> dict[str, Any]:
        """As it stands in the run's record."""
        return {"done": self.done, "total": self.total, **self.stats}


class RunLog(RunEvent, frozen=True, gc=False, kw_only=True, tag="run_log"):
    """A line that a body wants people to read."""

    attempt: int
    text: str
    level: str


class RunWaiting(RunEvent, frozen=True, gc=False, kw_only=True, tag="run_waiting"):
    """A queued run has waited long: how many seconds, how many are ahead, which runs hold it up."""

    waited: float
    ahead: int
    blockers: list[str]


class RunMessage(RunEvent, frozen=True, gc=False, kw_only=True, tag="run_message"):
    """A message was accepted for a run; it is kept until the body takes it."""

    message: Any


class RunSignal(RunEvent, frozen=True, gc=False, kw_only=True, tag="run_signal"):
    """A value was put into what a flow's run shares, under `key`; whoever waits for it goes on."""

    key: str
    value: Any


class NodeStarted(RunEvent, frozen=True, gc=False, kw_only=True, tag="node_started"):
    """A flow's run has come to a node that takes time: `visit` counts how often."""

    node: str
    kind: str
    visit: int


class NodeRan(RunEvent, frozen=True, gc=False, kw_only=True, tag="node_ran"):
    """One try of a node (or of a `branch` of it) has ended: `ok`, `error`, `cancelled` or `timeout`.

    `action` is where the run goes from there; null where the node is not done with this try.
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
    """A body asks an interrupt."""

    interrupt: str
    key: str
    data: Any
    deadline: float | None


class InterruptClosed(RunEvent, frozen=True, gc=False, kw_only=True, tag="interrupt_closed"):
    """An interrupt is closed; `outcome` is `answered`, `timed_out`, `cancelled`, `shutdown`,
    `withdrawn` (the body waits no longer) or `ended` (the body is gone)."""

    interrupt: str
    outcome: str
    answer: Any = None


class LaneChanged(EventBase, frozen=True, gc=False, kw_only=True, tag="lane_changed"):
    """A lane's limit or generation, as they are now."""

    lane: str
    limit: int | None
    generation: int


class HandleChanged(EventBase, frozen=True, gc=False, kw_only=True, tag="handle_changed"):
    """A handle's new draft (absent where it stays), or the ended run whose body it has been freed from."""

    handle: str
    params: Any = msgspec.UNSET
    freed: str | None = None


class EngineChanged(EventBase, frozen=True, gc=False, kw_only=True, tag="engine_changed"):
    """The global limit and whether new runs are refused, as they are now."""

    max_concurrent: int
    draining: bool


class FlowChanged(EventBase, frozen=True, gc=False, kw_only=True, tag="flow_changed"):
    """A flow was made, or a version of it: `draft` or `published`."""

    flow: str
    name: str
    version: int | None = None
    status: str | None = None


class NodeWorkerChanged(EventBase, frozen=True, gc=False, kw_only=True, tag="node_worker_changed"):
    """A worker has registered, is `online` again, is `offline`, or was `forgotten`."""

    worker: str
    url: str
    services: tuple[str, ...]
    kind: str
    status: str


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
)


class Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which events a subscriber wants: those that fit every field which is given.

    With only `handles`, `lanes` and `runs`, events without such a field (of the engine, say) pass too, and
    a fold over a snapshot under the same filter stays possible; under `types` it is not.
    """

    handles: frozenset[str] | None = None
    lanes: frozenset[str] | None = None
    runs: frozenset[str] | None = None
    types: frozenset[str] | None = None

    def passes(self, event: Event) -> bool:
        """Whether the subscriber wants this event."""
        if self.types is not None and event.type not in self.types:
            return False
        for name, wanted in (("handle", self.handles), ("lane", self.lanes), ("run", self.runs)):
            value = getattr(event, name, None)
            if wanted is not None and value is not None and value not in wanted:
                return False
        return True

    def sees(self, run: RunRecord) -> bool:
        """Whether a run stands in a snapshot under this filter."""
        return (
            (self.handles is None or run.handle in self.handles)
            and (self.lanes is None or run.lane in self.lanes)
            and (self.runs is None or run.id in self.runs)
        )
