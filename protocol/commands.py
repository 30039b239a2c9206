"""The messages between client and gateway over a WebSocket: commands, replies and streams.

Each message has a `type`, and unknown fields are refused. A command has an `id` that the client chooses; its
reply (`ok` or `error`) has the same `id`, and is sent after the changes are committed. The arguments of a
command have the names and defaults of the engine's methods. Only the form of a message is checked here; the
engine checks the rest, for example whether a run exists.

JSON has no infinity: a timeout is a number of seconds, null for the default, or "none" for no limit.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from .batches import Submitted
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
from .lanes import LaneRules
from .records import BulkResult, ClusterInfo, ExecutorInfo, JobInfo, RunFile, RunRecord, Snapshot
from .schedule_commands import (
    DeleteSchedule,
    GetSchedule,
    ListSchedules,
    PauseSchedule,
    PreviewSchedule,
    PutSchedule,
    ResumeSchedule,
    TriggerSchedule,
)
from .schedules import ScheduleRecord
from .submission import NewRun, SubmitCommand
from .webhook_commands import DeadWebhooks, DropWebhook, FailingWebhooks, RedeliverWebhook
from .webhooks import Webhook

# Runs.


class Submit(SubmitCommand, frozen=True, kw_only=True, tag="submit"):
    """Start a run of `job`. Without `params`, the run gets the handle's draft."""

    job: str
    handle: str


class SubmitMany(CommandBase, frozen=True, kw_only=True, tag="submit_many"):
    """Submit up to 10,000 runs together, which one commit creates.

    The reply contains the outcome of each, in order. A refused run refuses the whole batch: the reply is its
    error, whose `details` contain its `index`. With `all_or_nothing` false, only that run is refused, and its
    outcome is the error.
    """

    runs: list[NewRun]
    all_or_nothing: bool = True


class Rerun(CommandBase, frozen=True, kw_only=True, tag="rerun"):
    """Submit a run again, with the same job, handle, lane, kind, parameters, needs, tags, priority, key."""

    run_id: str
    request_id: str | None = None


class Retry(CommandBase, frozen=True, kw_only=True, tag="retry"):
    """Submit a run again that ended as `failed`, `timed_out` or `rejected`."""

    run_id: str
    request_id: str | None = None


class Cancel(CommandBase, frozen=True, kw_only=True, tag="cancel"):
    """Cancel a run, or the active run of a handle; `files`: whether to `keep` or `delete` its finished files.

    The reply contains the run, which is `cancelling` until its body has ended.
    """

    run_id: str
    files: str = "keep"


class Inject(CommandBase, frozen=True, kw_only=True, tag="inject"):
    """Send a message to the body of a run, or of the active run of a handle."""

    run_or_handle: str
    message: Any


class Answer(CommandBase, frozen=True, kw_only=True, tag="answer"):
    """Answer an open interrupt, given by its id.

    With the `key` of an open interrupt, `interrupt_id` is instead the id of its run, or its handle.
    """

    interrupt_id: str
    data: Any
    key: str | None = None


class Wait(CommandBase, frozen=True, kw_only=True, tag="wait"):
    """Wait until a run, or the active run of a handle, has ended, for at most `timeout` seconds (15)."""

    run_id: str
    timeout: Timeout = None


class GetRun(CommandBase, frozen=True, kw_only=True, tag="get_run"):
    """Get a run, pending or ended, or the active run of a handle."""

    run_id: str


class FilterCommand(CommandBase, frozen=True, kw_only=True):
    """The fields of every command that selects runs by a filter."""

    handle: str | None = None
    lane: str | None = None
    job: str | None = None
    flow: str | None = None
    status: str | list[str] | None = None
    tags: dict[str, str] | None = None
    since: float | None = None
    until: float | None = None
    error: str | None = None
    parent: str | None = None


class ListFiles(CommandBase, frozen=True, kw_only=True, tag="list_files"):
    """List the files that a run, or the active run of a handle, has finished."""

    run_id: str


class ListRuns(FilterCommand, frozen=True, kw_only=True, tag="list_runs"):
    """List the runs that match all given fields, newest first; `before` is the last id of the page before.

    A run must have all `tags`. `since` (inclusive) and `until` (exclusive) are Unix seconds, for the time of
    its creation. `error` is a part of the text of its error; case matters. `flow` is the name of a flow.
    `parent` is the id of the run whose body called it.
    """

    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    before: str | None = None


class BulkCommand(FilterCommand, frozen=True, kw_only=True):
    """The fields of every command for all runs that match a filter."""

    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    dry_run: bool = False


class CancelMany(BulkCommand, frozen=True, kw_only=True, tag="cancel_many"):
    """Cancel the queued, running and suspended runs that match a filter, the fields of `list_runs`.

    At least one filter is required. If more than `limit` (1000) runs match, none is cancelled. With `dry_run`
    the runs are only counted.
    """

    files: str = "keep"


class RerunMany(BulkCommand, frozen=True, kw_only=True, tag="rerun_many"):
    """Submit the ended runs that match a filter again, oldest first.

    `limit` and `dry_run` are as in `cancel_many`. The new runs wait in their handles. With a `request_id`, a
    repeated command submits none of them twice.
    """

    request_id: str | None = None


class RetryMany(BulkCommand, frozen=True, kw_only=True, tag="retry_many"):
    """Like `rerun_many`, for runs that ended as `failed`, `timed_out` or `rejected`."""

    request_id: str | None = None


class History(CommandBase, frozen=True, kw_only=True, tag="history"):
    """Get a page of the events of a run, or of the active run of a handle.

    The page contains at most `limit` (1000) events after the seq `after`. If there are more, the reply
    contains `next`, the `after` of the next page. With `before`, the page contains the last events before
    that seq, and `next` is the `before` of the page that precedes it.
    """

    run_id: str
    after: Annotated[int, msgspec.Meta(ge=0)] | None = None
    before: Annotated[int, msgspec.Meta(ge=0)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None


# The stream.


class GetSnapshot(CommandBase, frozen=True, kw_only=True, tag="snapshot"):
    """Get a snapshot: the current state of everything that the client is allowed to see."""


class Subscribe(CommandBase, frozen=True, kw_only=True, tag="subscribe"):
    """Subscribe to events: from now on, or those after the seq `after` of the epoch `epoch`."""

    after: Annotated[int, msgspec.Meta(ge=0)] | None = None
    epoch: str | None = None
    filter: Filter | None = None


class Unsubscribe(CommandBase, frozen=True, kw_only=True, tag="unsubscribe"):
    """End the subscription."""


class Ping(CommandBase, frozen=True, kw_only=True, tag="ping"):
    """Answered at once by the node itself, for pages, which cannot send the pings of WebSocket."""


# Handles, lanes and the engine.


class SetParams(CommandBase, frozen=True, kw_only=True, tag="set_params"):
    """Set the draft parameters of a handle; null removes them."""

    handle: str
    params: Any


Limit = Annotated[int, msgspec.Meta(ge=0)]

OLD_NAMES = {"n": "limit"}
"""Old names of fields of `LIMITING`, still accepted unless the new name is present, too."""

_NOT_GIVEN = -1  # which decoding refuses


class SetConcurrency(CommandBase, frozen=True, kw_only=True, tag="set_concurrency"):
    """Set the limit of a lane: 0 pauses it, null means that only the global limit applies."""

    lane: str
    limit: Limit | None = _NOT_GIVEN
    n: Limit | None = _NOT_GIVEN


class PauseLane(CommandBase, frozen=True, kw_only=True, tag="pause_lane"):
    """Grant no more slots in a lane until it is resumed. Its limit stays as it is."""

    lane: str


class ResumeLane(CommandBase, frozen=True, kw_only=True, tag="resume_lane"):
    """End the pause of a lane."""

    lane: str


class SetLane(CommandBase, frozen=True, kw_only=True, tag="set_lane"):
    """Change rules of a lane: those in `rules`, null for none. The reply contains all its rules."""

    lane: str
    rules: dict[str, Any]


class SetPriority(CommandBase, frozen=True, kw_only=True, tag="set_priority"):
    """Change the priority of a run that has not started. The reply contains the run."""

    run_id: str
    priority: int


class SetMaxConcurrent(CommandBase, frozen=True, kw_only=True, tag="set_max_concurrent"):
    """Set the global limit."""

    limit: Limit = _NOT_GIVEN
    n: Limit = _NOT_GIVEN


LIMITING = (SetConcurrency, SetMaxConcurrent)


def limit_in(command: SetConcurrency | SetMaxConcurrent) -> tuple[str, int | None]:
    """Return the name of the field that sets the limit, and the limit. Raises `Invalid` without one."""
    for name, limit in (("limit", command.limit), ("n", command.n)):
        if limit != _NOT_GIVEN:
            return name, limit
    raise Invalid("message: object missing required field limit", path="")


class ClearLane(CommandBase, frozen=True, kw_only=True, tag="clear_lane"):
    """Cancel the runs that are queued in a lane or wait in handles for it."""

    lane: str


class ClearHandle(CommandBase, frozen=True, kw_only=True, tag="clear_handle"):
    """Cancel the runs that wait in a handle."""

    handle: str


class ReleaseHandle(CommandBase, frozen=True, kw_only=True, tag="release_handle"):
    """Release a handle that an abandoned body still holds."""

    handle: str


class ResetLanes(CommandBase, frozen=True, kw_only=True, tag="reset_lanes"):
    """Release the slots of all executing runs, for when bodies are stuck."""


class Drain(CommandBase, frozen=True, kw_only=True, tag="drain"):
    """Stop accepting new runs."""


class Resume(CommandBase, frozen=True, kw_only=True, tag="resume"):
    """Accept new runs again."""


class ListJobs(CommandBase, frozen=True, kw_only=True, tag="list_jobs"):
    """List the jobs that can be submitted, in the order of their names; flows are not among them."""


class ListExecutors(CommandBase, frozen=True, kw_only=True, tag="list_executors"):
    """List the executors."""


class DrainExecutor(CommandBase, frozen=True, kw_only=True, tag="drain_executor"):
    """Let an executor finish its bodies and exit; it receives no new ones."""

    executor_id: str


class GetCluster(CommandBase, frozen=True, kw_only=True, tag="get_cluster"):
    """Get the nodes of the cluster, and which of them leads."""


class StepDown(CommandBase, frozen=True, kw_only=True, tag="step_down"):
    """Let the leader of the cluster hand the leadership to the follower that has the most events."""


class Auth(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="type",
    tag="auth",
):
    """Authenticate: the client's first message if the server requires a token and no header contained it.

    The reply is `welcome`. The `id` is optional, because no other command can be in flight.
    """

    token: str
    id: Id | None = None


Command = (
    Submit
    | SubmitMany
    | Rerun
    | Retry
    | Cancel
    | CancelMany
    | RerunMany
    | RetryMany
    | Inject
    | Answer
    | Wait
    | GetRun
    | ListRuns
    | ListFiles
    | History
    | GetSnapshot
    | Subscribe
    | Unsubscribe
    | Ping
    | SetParams
    | SetConcurrency
    | PauseLane
    | ResumeLane
    | SetLane
    | SetPriority
    | SetMaxConcurrent
    | ClearLane
    | ClearHandle
    | ReleaseHandle
    | ResetLanes
    | Drain
    | Resume
    | ListJobs
    | ListExecutors
    | DrainExecutor
    | GetCluster
    | StepDown
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
    | PutSchedule
    | PreviewSchedule
    | ListSchedules
    | GetSchedule
    | PauseSchedule
    | ResumeSchedule
    | TriggerSchedule
    | DeleteSchedule
    | DeadWebhooks
    | FailingWebhooks
    | RedeliverWebhook
    | DropWebhook
    | Auth
)


# Messages of the server.


class ServerBase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """The base of every message of the server: its type."""


class Welcome(ServerBase, frozen=True, kw_only=True, omit_defaults=True, tag="welcome"):
    """The first message of the server: its epoch and seq, its limits, and the client's role. `name` is that
    of the client's token; absent if the server requires none. `within` has the patterns of handles, lanes and
    jobs to which the token is limited; absent if it has no limits."""

    epoch: str
    seq: int
    server: str
    limits: dict[str, int | float]
    role: str
    name: str | None = None
    within: dict[str, list[str]] | None = None


class Ok(ServerBase, frozen=True, kw_only=True, omit_defaults=True, tag="ok"):
    """The command succeeded. A subscribed client has received everything up to `seq` before this reply.

    The fields for commands of runs: `run_id` and `joined` (submit, start_flow, rerun, retry); `submitted`
    (submit_many); `run` (cancel, wait, get_run, set_priority); `ended` (wait); `runs` (list_runs); `files`
    (list_files); `bulk` (cancel_many, rerun_many, retry_many); `events` and `next` (history); `snapshot`
    (snapshot); `outcome` (inject: `accepted`; answer: `resolved`, `not_found`, `already_resolved`); `count`
    (clear_lane, clear_handle); `released` (release_handle); `rules` (set_lane); `jobs` (list_jobs);
    `executors` (list_executors); `cluster` (get_cluster).

    Flows: `flow` (create_flow); `version` (publish_flow, add_flow_version, get_flow_version); `errors` and
    `warnings` (check_flow); `flows` and `total` (list_flows); `versions` (list_flow_versions); `task`
    (get_task); `tasks` and `total` (list_tasks); `node_runs` (node_runs). Workers: `workers` (list_workers);
    `worker` (register_worker, allocate_worker); `item` (poll_work, if there was work). Schedules: `schedule`
    (put_schedule, get_schedule, pause_schedule, resume_schedule); `schedules` (list_schedules); `times`
    (preview_schedule); `run_id` and `joined` (trigger_schedule). Webhooks: `webhooks` (dead_webhooks);
    `webhook` (redeliver_webhook, drop_webhook).

    A large snapshot or a long list is sent in parts (see `parts`): several `ok` messages with the same `id`,
    of which all but the last have `more`.
    """

    id: Id
    seq: int
    run_id: str | None = None
    joined: bool | None = None
    submitted: list[Submitted] | None = None
    run: RunRecord | None = None
    ended: bool | None = None
    runs: list[RunRecord] | None = None
    files: list[RunFile] | None = None
    bulk: BulkResult | None = None
    events: list[Event] | None = None
    next: int | None = None
    snapshot: Snapshot | None = None
    outcome: str | None = None
    count: int | None = None
    released: bool | None = None
    rules: LaneRules | None = None
    jobs: list[JobInfo] | None = None
    executors: list[ExecutorInfo] | None = None
    cluster: ClusterInfo | None = None
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
    schedule: ScheduleRecord | None = None
    schedules: list[ScheduleRecord] | None = None
    times: list[float] | None = None
    webhook: Webhook | None = None
    webhooks: list[Webhook] | None = None
    more: bool = False


class Error(ServerBase, frozen=True, kw_only=True, tag="error"):
    """The command failed, with a code of `errors`; `id` is null if the message had no readable one."""

    id: Id | None
    code: str
    message: str
    details: dict[str, Any]


class Events(ServerBase, frozen=True, kw_only=True, rename={"from_": "from"}, tag="events"):
    """The events of the subscription after `from`, up to `to`; `from` is the `to` of the previous batch."""

    from_: int
    to: int
    events: list[Event]


class Resync(ServerBase, frozen=True, kw_only=True, omit_defaults=True, tag="resync"):
    """The stream cannot continue from the client's seq; the client replaces its state by this snapshot.

    A large snapshot is sent in parts (see `parts`), of which all but the last have `more`.
    """

    snapshot: Snapshot
    more: bool = False


ServerMessage = Welcome | Ok | Error | Events | Resync
