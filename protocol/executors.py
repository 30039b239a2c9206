"""The messages between an engine and an executor, a process that executes bodies for the engine.

Both sides send frames. A frame is one JSON object: `attach` and `beat` and their answers, or `frame`, which
carries numbered messages. Numbered messages arrive exactly once and in order, also over several connections
(`protocol/numbering.py`). A body is identified by its run and its fence.

Bodies in the engine's own process use the same requests and reports, without encoding them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec


class _Wire(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="type"):
    """A message; its tag is its type on the wire."""


Number = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
"""An integer that every JSON library can represent."""

SignedNumber = Annotated[int, msgspec.Meta(ge=1 - 2**53, le=2**53 - 1)]
"""The same, also below zero."""

Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


# What a body requests (answered) and reports (not answered).


class WriteLog(_Wire, frozen=True, tag="log"):
    """Add a line to the run's log. Answered when it is committed."""

    text: str
    level: str


class SaveCheckpoint(_Wire, frozen=True, tag="checkpoint"):
    """Save a checkpoint, with the counts of the interrupts and calls. Answered when it is committed."""

    value: Any
    interrupts: Number
    calls: Number


class ReleaseSlot(_Wire, frozen=True, tag="release_slot"):
    """The body waits and releases its slot; a wait for a time lasts `within` seconds (null: until
    cancelled). Answered when the run is suspended."""

    waiting_for: Literal["time", "child", "message"]
    within: float | None = None


class TakeSlot(_Wire, frozen=True, tag="take_slot"):
    """The body's wait has ended. Answered when the run has a slot again, or is being ended."""


class OpenInterrupt(_Wire, frozen=True, tag="interrupt"):
    """Open an interrupt; `timeout` is null for none.

    Answered twice: when the interrupt is open, with whether the run has released its slot; and when it is
    closed, with the answer.
    """

    data: Any
    timeout: float | None
    key: str
    release_slot: bool = False


class SetPhase(_Wire, frozen=True, tag="phase"):
    """The body begins or ends a phase. Answered when that is committed."""

    name: Literal["interactive", "streaming", "compacting"]
    value: bool


class CallChild(_Wire, frozen=True, tag="call_child"):
    """Submit the child run for the body's call at this position, or find the one that an earlier body has
    submitted there. Answered with the child's id; `AwaitChild` then waits for its end. `on_wait`: the body
    requests to be notified if the child waits for long."""

    position: Number
    job: str
    handle: str | None
    params: Any = None
    options: dict[str, Any] = {}
    on_wait: bool = False


class AwaitChild(_Wire, frozen=True, tag="await_child"):
    """Answered with the child's record at its end, or with null if it is no longer stored. Before that, a
    child that was called with `on_wait` and waits for long is answered once with a `LongWait`."""

    run: str


class LongWait(_Wire, frozen=True, tag=False):
    """A child run has waited for this number of seconds; `ahead` runs are before it, and `blockers` block
    it."""

    waited: float
    ahead: int
    blockers: list[str]


class FinishFile(_Wire, frozen=True, tag="finish_file"):
    """The body is about to give a file its final name. Answered when that is committed."""

    path: str


class GiveUpFiles(_Wire, frozen=True, tag="give_up_files"):
    """Files that were recorded as finished did not get their final names. Answered when that is committed."""

    paths: tuple[str, ...]


Request = (
    WriteLog
    | SaveCheckpoint
    | ReleaseSlot
    | TakeSlot
    | OpenInterrupt
    | SetPhase
    | CallChild
    | AwaitChild
    | FinishFile
    | GiveUpFiles
)


class Progress(_Wire, frozen=True, tag="progress"):
    """The body's progress; only the latest is kept."""

    done: float | None
    total: float | None
    stats: dict[str, Any] = {}


class TookMessages(_Wire, frozen=True, tag="took"):
    """The body has taken its messages up to the one with this seq."""

    seq: Number


class WithdrawInterrupt(_Wire, frozen=True, tag="withdraw"):
    """The body no longer waits for the answer to this interrupt."""

    key: str


class DropChild(_Wire, frozen=True, tag="drop_child"):
    """The body no longer waits for a child run, which must be cancelled."""

    run: str


class BlockedLoop(_Wire, frozen=True, tag="blocked"):
    """The body has blocked the event loop of its process."""

    seconds: float
    where: str


Report = Progress | TookMessages | WithdrawInterrupt | DropChild | BlockedLoop


# From an executor to its engine.


class JobTerms(_Wire, frozen=True, kw_only=True, tag=False):
    """A job that an executor can execute: its name, the JSON Schema of its parameters (null if it has none),
    and the options with which it was registered. Times are in seconds; null means no limit. `backoff` is the
    time before a retry; null for the engine's default, and if the executor computes it for each error."""

    name: str
    params: dict[str, Any] | None = None
    lane: str = "main"
    max_attempts: Count = 1
    backoff: float | None = None
    resumable: bool = False
    run_timeout: float | None = 1800
    queue_timeout: float | None = None
    deadline: float | None = None
    grace: float | None = 10
    cancel: Literal["immediate", "cooperative"] = "immediate"
    accepts: Literal["interactive", "streaming"] = "interactive"
    needs: tuple[str, ...] = ()
    priority: int | None = None


class LiveBody(_Wire, frozen=True, tag=False):
    """A body that an executor has: it executes, or it has ended and its end is not stored yet. `received` is
    the seq of the last message that it received."""

    run: str
    attempt: Number
    fence: Number
    received: Number = 0


class LiveFunction(_Wire, frozen=True, tag=False):
    """A function that an executor executes for a run. `number` is unique in its process, and at least 1."""

    number: Count
    run: str


class Attach(_Wire, frozen=True, kw_only=True, tag="attach"):
    """The first message of a connection. `start` identifies the process, which counts its connections: an
    `attach` that arrives later than the one of a later `connection` is refused. `session` is the session that
    the executor wants to continue, in which it has `received` this many numbered messages."""

    executor: str
    start: str
    jobs: tuple[JobTerms, ...]
    functions: tuple[str, ...] = ()
    slots: Count | None = None
    labels: tuple[str, ...] = ()
    folder: str = ""
    version: str = ""
    draining: bool = False
    connection: int = 0
    session: str | None = None
    received: Number = 0
    bodies: tuple[LiveBody, ...] = ()
    calls: tuple[LiveFunction, ...] = ()


class Beat(_Wire, frozen=True, tag="beat"):
    """The executor is alive. It can be sent on the executor's connection, or on another one without `attach`.
    `sent` is returned."""

    executor: str
    start: str
    sent: float


class Call(_Wire, frozen=True, tag="call"):
    """A request of a body, with a number that is unique for the body."""

    run: str
    fence: Number
    call: Number
    request: Request


class CancelCall(_Wire, frozen=True, tag="cancel_call"):
    """The body no longer waits for this call; a child that it submits must be cancelled."""

    run: str
    fence: Number
    call: Number


class Told(_Wire, frozen=True, tag="report"):
    """A report of a body."""

    run: str
    fence: Number
    report: Report


class Ended(_Wire, frozen=True, kw_only=True, tag="ended"):
    """A body has ended. The executor keeps this message until the engine has sent `settled`.

    `returned` has a `value`; `raised` an `error` (a text of one line), its `traceback`, and whether the run
    can be retried, after `retry_after` seconds if the job computes the delay; `stopped` ended because it was
    cancelled; `lapsed` because the executor could not reach the engine; `refused` never began, because the
    executor cannot execute it (`error` says why). `obeyed`: the body has read `cancel_requested`.
    """

    run: str
    fence: Number
    outcome: Literal["returned", "raised", "stopped", "lapsed", "refused"]
    value: Any = None
    error: str | None = None
    traceback: str | None = None
    retries: bool = True
    retry_after: float | None = None
    child_cancelled: bool = False
    obeyed: bool = False


class Draining(_Wire, frozen=True, tag="draining"):
    """The executor accepts no new bodies, and exits when it has none. With `now`, its time limit has
    passed: the engine ends or suspends the remaining bodies."""

    now: bool = False


class FilesDeleted(_Wire, frozen=True, tag="files_deleted"):
    """The files of a `delete_files` message are deleted; `error` is set if some could not be deleted."""

    id: Number
    error: str | None = None


class FunctionEnded(_Wire, frozen=True, tag="function_ended"):
    """A function has returned a value, or failed with an `error`. `code` is the error code of its node:
    `bad_answer` for a value that is not valid, `cancelled` after `cancel_function`, `crashed` if the executor
    could not reach the engine. For a function of an earlier session, `id` is its `number` in `attach`,
    negated."""

    id: SignedNumber
    value: Any = None
    error: str | None = None
    code: Literal["service_error", "bad_answer", "cancelled", "crashed"] = "service_error"


FromExecutor = Call | CancelCall | Told | Ended | Draining | FilesDeleted | FunctionEnded


# From the engine to an executor.


class Attached(_Wire, frozen=True, kw_only=True, tag="attached"):
    """The executor is attached. `resumed`: the session continues, and the engine has `received` this many
    numbered messages in it. Otherwise `session` is new, numbers start at 1 on both sides, and each body in
    `bodies` is adopted: the executor repeats the calls that were not answered, and the ends that are not
    settled. The other bodies no longer belong to their runs and are closed, and functions are cancelled."""

    session: str
    resumed: bool
    ttl: float
    max_value_bytes: int
    received: int = 0
    bodies: tuple[LiveBody, ...] = ()


class Beaten(_Wire, frozen=True, tag="beaten"):
    """The answer to `beat`. If `attached` is true, the executor's bodies can execute until `ttl` seconds
    after it sent the beat. Otherwise the engine does not know this process, which attaches again."""

    sent: float
    attached: bool


class Refused(_Wire, frozen=True, tag="refused"):
    """The engine refuses the executor, and closes the connection. `retry`: try again later."""

    code: str
    message: str
    retry: bool = False


class Message(_Wire, frozen=True, tag="message"):
    """A message for a body; `seq` is that of its event."""

    run: str
    fence: int
    seq: int
    value: Any


class Execute(_Wire, frozen=True, kw_only=True, tag="execute"):
    """Execute a body. `checkpoint` is the value from which it resumes; `interrupts` and `calls` are the
    counts that were saved with it. `again`: the run can have had another body, whose unfinished files in the
    data folder must be deleted first. Messages that wait for the body follow as `message`. `traceparent` and
    `tracestate` are the trace of the run, as the headers of W3C Trace Context have it."""

    run: str
    fence: int
    attempt: int
    job: str
    handle: str
    lane: str
    kind: str
    params: Any = None
    checkpoint: Any = None
    interrupts: int = 0
    calls: int = 0
    again: bool = False
    traceparent: str | None = None
    tracestate: str | None = None


class Answered(_Wire, frozen=True, kw_only=True, tag="answered"):
    """The answer to a call: a value, or an error (`abandoned`, if the body no longer belongs to its run).
    `more`: another answer follows, see `interrupt` and `await_child`."""

    run: str
    fence: int
    call: int
    value: Any = None
    code: str | None = None
    message: str | None = None
    details: dict[str, Any] = {}
    more: bool = False


class CancelBody(_Wire, frozen=True, tag="cancel"):
    """The body should end; with `stop`, its scope is cancelled. `resumes_later`: the run continues with
    another body, so its interrupts and child runs stay."""

    run: str
    fence: int
    stop: bool = False
    resumes_later: bool = False


class CloseBody(_Wire, frozen=True, tag="close"):
    """The body no longer belongs to its run: all its calls fail, and it is cancelled."""

    run: str
    fence: int
    why: str


class Settled(_Wire, frozen=True, tag="settled"):
    """The end of the body is stored: the executor forgets it."""

    run: str
    fence: int


class DeleteFiles(_Wire, frozen=True, tag="delete_files"):
    """Delete files of a handle: finished ones by their paths, and the unfinished ones of a run."""

    id: int
    handle: str
    run: str
    paths: tuple[str, ...]


class CallFunction(_Wire, frozen=True, tag="call_function"):
    """Call a function that is registered for nodes of flows. `traceparent` and `tracestate` are as in
    `execute`."""

    id: int
    run: str
    name: str
    input: Any
    params: dict[str, Any] = {}
    traceparent: str | None = None
    tracestate: str | None = None


class CancelFunction(_Wire, frozen=True, tag="cancel_function"):
    """Cancel a function. It is answered with `function_ended` in any case."""

    id: int


class Drain(_Wire, frozen=True, tag="drain"):
    """The executor must finish its bodies, accept no others, and exit with code 0."""


ToExecutor = (
    Execute
    | Message
    | Answered
    | CancelBody
    | CloseBody
    | Settled
    | DeleteFiles
    | CallFunction
    | CancelFunction
    | Drain
)


# Frames.


class ExecutorFrame(_Wire, frozen=True, tag="frame"):
    """Numbered messages of an executor. `first` is the number of the first one, and `ack` the number of the
    last message that the sender has received in this session."""

    first: Number
    ack: Number
    messages: tuple[FromExecutor, ...] = ()


class EngineFrame(_Wire, frozen=True, tag="frame"):
    """Numbered messages of an engine; see `ExecutorFrame`."""

    first: int
    ack: int
    messages: tuple[ToExecutor, ...] = ()


ExecutorSends = Attach | Beat | ExecutorFrame
EngineSends = Attached | Beaten | Refused | EngineFrame


PATH = "/executor"
"""The path of executors' WebSockets at a gateway."""

SUBPROTOCOL = "greenroom.executor.v1"
"""Their WebSocket subprotocol."""
