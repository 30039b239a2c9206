"""What a client and the gateway say to each other over a WebSocket: commands, and what the server sends.

Each message is tagged by its `type`, and none takes a field that it doesn't know. A command bears an `id`
that the client chooses; its reply (`ok` or `error`) brings it back. The arguments are those of the engine's
methods, under the same names, and where one is left out, the engine's default holds. Here stands only the
form; whether a handle's name is good or a run exists is decided where the embedded engine decides it too.

JSON has no infinity: a time-out is a number of seconds, null for the default, or "none" for no limit.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from .commandbase import CommandBase, Id, Timeout
from .errors import Invalid
from .events import Event, Filter
from .flow.commands import (
    AddFlowVersion,
    AllocateWorker,
    CheckFlow,
    CompleteWork,
    CreateFlow,
    ExtendWork,
    GetFlowVersion,
    GetTask,
    HeartbeatWorker,
    ListFlows,
    ListFlowVersions,
    ListTasks,
    ListWorkers,
    NodeRuns,
    PollWork,
    PublishFlow,
    RegisterWorker,
    Signal,
    StartFlow,
)
from .flow.records import FlowRow, FlowTask, NodeRun, QueueItem, VersionRow, WorkerState
from .records import RunRecord, Snapshot
from .submission import SubmitCommand

# Runs.


class Submit(SubmitCommand, frozen=True, kw_only=True, tag="submit"):
    """Start a run of `job`. Without `params`, the handle's draft is taken."""

    job: str
    handle: str


class Cancel(CommandBase, frozen=True, kw_only=True, tag="cancel"):
    """End a run, or the active run of a handle; `files` says whether those that it has finished stay: `keep`
    or `delete`."""

    run_id: str
    files: str = "keep"


class Inject(CommandBase, frozen=True, kw_only=True, tag="inject"):
    """Give a message to a run, or to the active run of a handle."""

    run_or_handle: str
    message: Any


class Answer(CommandBase, frozen=True, kw_only=True, tag="answer"):
    """Answer the interrupt of a body.

    With the `key` of an open interrupt, `interrupt_id` names the run or the handle that asks.
    """

    interrupt_id: str
    data: Any
    key: str | None = None


class Wait(CommandBase, frozen=True, kw_only=True, tag="wait"):
    """Wait until a run, or the active run of a handle, has ended, for 15 seconds unless told otherwise."""

    run_id: str
    timeout: Timeout = None


class GetRun(CommandBase, frozen=True, kw_only=True, tag="get_run"):
    """One run, pending or ended, or the active run of a handle."""

    run_id: str


class ListRuns(CommandBase, frozen=True, kw_only=True, tag="list_runs"):
    """Runs that fit all that is given, the newest first; `before` is the id of the last one already seen."""

    handle: str | None = None
    lane: str | None = None
    status: str | list[str] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    before: str | None = None


class History(CommandBase, frozen=True, kw_only=True, tag="history"):
    """The events of a run, or of the active run of a handle, in pages: those after the number `after`, and
    no more than `limit` (1000).

    Where there are more, the answer has `next`, which is the `after` of the next page.
    """

    run_id: str
    after: Annotated[int, msgspec.Meta(ge=0)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None


# The stream.


class GetSnapshot(CommandBase, frozen=True, kw_only=True, tag="snapshot"):
    """Everything as it is now."""


class Subscribe(CommandBase, frozen=True, kw_only=True, tag="subscribe"):
    """Follow the events: from now, or those after the number `after` of the numbering `epoch`."""

    after: Annotated[int, msgspec.Meta(ge=0)] | None = None
    epoch: str | None = None
    filter: Filter | None = None


class Unsubscribe(CommandBase, frozen=True, kw_only=True, tag="unsubscribe"):
    """Follow them no longer."""


# Handles, lanes and the engine.


class SetParams(CommandBase, frozen=True, kw_only=True, tag="set_params"):
    """Set the draft of a handle; null removes it."""

    handle: str
    params: Any


Limit = Annotated[int, msgspec.Meta(ge=0)]

OLD_NAMES = {"n": "limit"}
"""What fields of `LIMITING` were called before: still taken, unless the field comes under its name, too."""

_NOT_GIVEN = -1  # which no command that is read can say


class SetConcurrency(CommandBase, frozen=True, kw_only=True, tag="set_concurrency"):
    """Limit a lane: 0 pauses it, null leaves it to the global limit."""

    lane: str
    limit: Limit | None = _NOT_GIVEN
    n: Limit | None = _NOT_GIVEN


class SetMaxConcurrent(CommandBase, frozen=True, kw_only=True, tag="set_max_concurrent"):
    """Set the global limit."""

    limit: Limit = _NOT_GIVEN
    n: Limit = _NOT_GIVEN


LIMITING = (SetConcurrency, SetMaxConcurrent)


def limit_in(command: SetConcurrency | SetMaxConcurrent) -> tuple[str, int | None]:
    """The limit that a command sets, after the name under which it came. Raises `Invalid` without one."""
    for name, limit in (("limit", command.limit), ("n", command.n)):
        if limit != _NOT_GIVEN:
            return name, limit
    raise Invalid("message: object missing required field limit", path="")


class ClearLane(CommandBase, frozen=True, kw_only=True, tag="clear_lane"):
    """Cancel what is queued in a lane, and what waits in handles for it."""

    lane: str


class ClearHandle(CommandBase, frozen=True, kw_only=True, tag="clear_handle"):
    """Cancel what waits in a handle."""

    handle: str


class ReleaseHandle(CommandBase, frozen=True, kw_only=True, tag="release_handle"):
    """Free a handle from the body that was abandoned on it."""

    handle: str


class ResetLanes(CommandBase, frozen=True, kw_only=True, tag="reset_lanes"):
    """Free the slots of bodies that are stuck."""


class Drain(CommandBase, frozen=True, kw_only=True, tag="drain"):
    """Take no new runs."""


class Resume(CommandBase, frozen=True, kw_only=True, tag="resume"):
    """Take new runs again."""


class Auth(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="type",
    tag="auth",
):
    """The first message where a token is needed and no header brought it; `welcome` is the answer to it.

    It needs no `id`, as there is nothing yet that it could be confused with.
    """

    token: str
    id: Id | None = None


Command = (
    Submit
    | Cancel
    | Inject
    | Answer
    | Wait
    | GetRun
    | ListRuns
    | History
    | GetSnapshot
    | Subscribe
    | Unsubscribe
    | SetParams
    | SetConcurrency
    | SetMaxConcurrent
    | ClearLane
    | ClearHandle
    | ReleaseHandle
    | ResetLanes
    | Drain
    | Resume
    | Signal
    | CreateFlow
    | PublishFlow
    | AddFlowVersion
    | CheckFlow
    | ListFlows
    | ListFlowVersions
    | GetFlowVersion
    | StartFlow
    | GetTask
    | ListTasks
    | NodeRuns
    | ListWorkers
    | AllocateWorker
    | RegisterWorker
    | HeartbeatWorker
    | PollWork
    | CompleteWork
    | ExtendWork
    | Auth
)


# What the server sends.


class ServerBase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """What every message of the server has: its type."""


class Welcome(ServerBase, frozen=True, kw_only=True, tag="welcome"):
    """The first message: which numbering this is, where it stands, and what the client may do."""

    epoch: str
    seq: int
    server: str
    limits: dict[str, int | float]
    role: str


class Ok(ServerBase, frozen=True, kw_only=True, omit_defaults=True, tag="ok"):
    """A command was carried out; everything up to `seq` is known to the client once it has read this.

    `run_id` and `joined` answer submit and start_flow; `run` cancel, wait and get_run; `ended` wait; `runs`
    list_runs; `events` and `next` history; `snapshot` snapshot; `outcome` inject (`accepted`) and answer
    (`resolved`, `not_found`, `already_resolved`); `count` clear_lane and clear_handle; `released`
    release_handle.

    Of flows: `flow` create_flow; `version` publish_flow, add_flow_version and get_flow_version; `errors` and
    `warnings` check_flow; `flows` and `total` list_flows; `versions` list_flow_versions; `task` get_task;
    `tasks` and `total` list_tasks; `node_runs` node_runs. Of workers: `workers` list_workers; `worker`
    register_worker and allocate_worker; `item` poll_work, if there was one.

    A large snapshot goes out in parts (see `parts`), and so does a long list, each in an `ok` of its own with
    the same `id`; `more` says that another one follows.
    """

    id: Id
    seq: int
    run_id: str | None = None
    joined: bool | None = None
    run: RunRecord | None = None
    ended: bool | None = None
    runs: list[RunRecord] | None = None
    events: list[Event] | None = None
    next: int | None = None
    snapshot: Snapshot | None = None
    outcome: str | None = None
    count: int | None = None
    released: bool | None = None
    flow: FlowRow | None = None
    version: VersionRow | None = None
    errors: list[str] | None = None
    warnings: list[str] | None = None
    flows: list[FlowRow] | None = None
    total: int | None = None
    versions: list[VersionRow] | None = None
    task: FlowTask | None = None
    tasks: list[FlowTask] | None = None
    node_runs: list[NodeRun] | None = None
    workers: list[WorkerState] | None = None
    worker: WorkerState | None = None
    item: QueueItem | None = None
    more: bool = False


class Error(ServerBase, frozen=True, kw_only=True, tag="error"):
    """A command was refused, with a code of `errors`; `id` is null where the message had none to read."""

    id: Id | None
    code: str
    message: str
    details: dict[str, Any]


class Events(ServerBase, frozen=True, kw_only=True, rename={"from_": "from"}, tag="events"):
    """The wanted events after `from`, up to `to`; `from` is the `to` of the batch before."""

    from_: int
    to: int
    events: list[Event]


class Resync(ServerBase, frozen=True, kw_only=True, omit_defaults=True, tag="resync"):
    """What the client followed has moved on without it; it begins again from this snapshot.

    A large one goes out in parts (see `parts`): `more` says that another one follows.
    """

    snapshot: Snapshot
    more: bool = False


ServerMessage = Welcome | Ok | Error | Events | Resync
