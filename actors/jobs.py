"""The registry of jobs: functions that runs execute, with what their author declared about them."""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeVar, Unpack, overload

import attrs
import msgspec

from ..persistence.store import Memo
from ..protocol.errors import Invalid
from ..protocol.events import Event
from ..protocol.jobs import AnyJob, JobFunction, function_name, job_name
from ..protocol.names import FLOW, check_name, lane_name
from ..protocol.parameters import check_params, convertible
from ..protocol.states import Status
from ..protocol.validation import check_seconds
from ..protocol.values import shown

if TYPE_CHECKING:
    from .aio.run import AsyncioRun
    from .messages import Submission
    from .run.api import Run
    from .run.blocking import BlockingRun

F = TypeVar("F", bound=Callable[..., Any])
P = TypeVar("P")
R = TypeVar("R")
Backoff = float | Callable[[int], float]


def exponential(attempt: int) -> float:
    """Seconds to wait after a failed attempt: 1, 2, 4, … up to a minute."""
    return min(60.0, 2.0 ** min(attempt - 1, 6))


class Prepared(msgspec.Struct):
    """A submission that a special job has looked at: its parameters as they are kept, and what is committed
    with its creation."""

    params: Any
    memos: tuple[Memo, ...]


Ask = Callable[[Any, Any], Awaitable[Any]]
"""Tells an actor a message, and waits for its reply. Raises `Unavailable` once the engine has stopped."""


class Special(Protocol):
    """What a job of the engine's own, a flow's, does beyond executing. Its runs take signals, and may be
    submitted without a handle: each then gets one of its own."""

    async def prepare(self, run: str, params: Any, ask: Ask) -> Prepared:
        """Look at a submission, or refuse it. Actors are asked by `ask`, which ends with the engine."""

    async def ends_waiting(
        self, submission: Submission, status: Status
    ) -> tuple[tuple[Event, ...], tuple[Memo, ...]]:
        """What is to be committed with the end of a run that waits without a body."""


@attrs.frozen(eq=False)
class Job:
    """A job as it was registered. Durations are in seconds; `math.inf` means no limit."""

    name: str
    function: Callable[..., Any]
    params_type: Any  # `None` when the function takes no parameters
    in_thread: bool
    loop: Literal["trio", "asyncio"]
    lane: str
    max_attempts: int
    backoff: Backoff
    resumable: bool
    run_timeout: float
    queue_timeout: float
    deadline: float
    grace: float
    cancel: Literal["immediate", "cooperative"]
    accepts: Literal["interactive", "streaming"]
    registered: bool = True  # false for one that only a stored run remembers
    special: Special | None = None  # for a job of the engine's own
    declared: AnyJob | None = None  # what the decorator has returned

    def check(self, params: Any) -> None:
        """Raise `Invalid`, with all mistakes at once, if the parameters don't fit."""
        mistakes = check_params(params, self.params_type)
        if mistakes:
            raise Invalid(f"parameters of job {shown(self.name)}: " + "; ".join(mistakes), errors=mistakes)

    def delay(self, attempt: int) -> float:
        """How long to wait after this attempt has failed. What a function gives is checked like a number."""
        seconds = self.backoff(attempt) if callable(self.backoff) else self.backoff
        return check_seconds("backoff", seconds, 0)


class Register(Protocol):
    """Registers a function as a job; what it returns stands for the job, and has its types."""

    @overload
    def __call__(
        self, function: Callable[[Run, P], Awaitable[R]], /
    ) -> JobFunction[P, R, [Run, P], Awaitable[R]]: ...

    @overload
    def __call__(
        self, function: Callable[[Run], Awaitable[R]], /
    ) -> JobFunction[None, R, [Run], Awaitable[R]]: ...

    @overload
    def __call__(
        self, function: Callable[[BlockingRun, P], R], /
    ) -> JobFunction[P, R, [BlockingRun, P], R]: ...

    @overload
    def __call__(self, function: Callable[[BlockingRun], R], /) -> JobFunction[None, R, [BlockingRun], R]: ...


class RegisterForAsyncio(Protocol):
    """The same for functions that are awaited in an asyncio loop."""

    @overload
    def __call__(
        self, function: Callable[[AsyncioRun, P], Awaitable[R]], /
    ) -> JobFunction[P, R, [AsyncioRun, P], Awaitable[R]]: ...

    @overload
    def __call__(
        self, function: Callable[[AsyncioRun], Awaitable[R]], /
    ) -> JobFunction[None, R, [AsyncioRun], Awaitable[R]]: ...


class JobKeywords(TypedDict, total=False):
    """What `Jobs.job` takes beside the name and the loop, for type checkers.

    A function that passes options on takes these, too: from options of any type, a type checker can't tell
    which loop is meant.
    """

    lane: str
    max_attempts: int
    backoff: Backoff
    resumable: bool
    run_timeout: float | None
    queue_timeout: float | None
    deadline: float | None
    grace: float
    cancel: Literal["immediate", "cooperative"]
    accepts: Literal["interactive", "streaming"]


class Function(msgspec.Struct, frozen=True):
    """A function that nodes of flows call: with the node's input and, if it takes two, its parameters."""

    name: str
    function: Callable[..., Any]
    takes_params: bool
    in_thread: bool


class Jobs:
    """All jobs that an engine can run, and the functions that nodes of flows may call."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._functions: dict[str, Function] = {}

    @overload
    def job(self, name: Callable[[Run, P], Awaitable[R]], /) -> JobFunction[P, R, [Run, P], Awaitable[R]]: ...

    @overload
    def job(self, name: Callable[[Run], Awaitable[R]], /) -> JobFunction[None, R, [Run], Awaitable[R]]: ...

    @overload
    def job(self, name: Callable[[BlockingRun, P], R], /) -> JobFunction[P, R, [BlockingRun, P], R]: ...

    @overload
    def job(self, name: Callable[[BlockingRun], R], /) -> JobFunction[None, R, [BlockingRun], R]: ...

    @overload
    def job(
        self,
        name: str | None = None,
        *,
        loop: Literal["trio"] = "trio",
        **options: Unpack[JobKeywords],
    ) -> Register: ...

    @overload
    def job(
        self,
        name: str | None = None,
        *,
        loop: Literal["asyncio"],
        **options: Unpack[JobKeywords],
    ) -> RegisterForAsyncio: ...

    def job(
        self,
        name: Any = None,
        *,
        lane: str = "main",
        max_attempts: int = 1,
        backoff: Backoff = exponential,
        resumable: bool = False,
        run_timeout: float | None = 1800,
        queue_timeout: float | None = None,
        deadline: float | None = None,
        grace: float = 10,
        cancel: Literal["immediate", "cooperative"] = "immediate",
        accepts: Literal["interactive", "streaming"] = "interactive",
        loop: Literal["trio", "asyncio"] = "trio",
    ) -> Any:
        """Register the function below as a job, under its own name unless another is given.

        It is called with a `Run` and, if it has a second parameter, with the run's parameters as an instance
        of that parameter's annotation. A plain `def` runs in a thread and gets a `BlockingRun`. With
        `loop="asyncio"` the function is awaited in an asyncio loop and gets a `greenroom.aio.Run`. What
        stands for the function from here on can be called like it, and be submitted in place of the job's
        name.
        """
        if callable(name):  # `@jobs.job` without parentheses; the caller's types are found below
            bare, name = name, None
        else:
            bare = None
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        names = dict(caller.f_locals) if caller is not None else {}  # types that are local to the caller

        def register(function: Callable[..., Any]) -> AnyJob:
            if isinstance(function, JobFunction):
                function = function.function  # it is registered under another name, too
            name = check_name("job", _own_name(function) if given is None else given)
            if name == FLOW:
                raise Invalid(f"job {name!r} is the engine's own, which walks flows: give yours another name")
            if name in self._jobs:
                raise Invalid(f"job {name!r} is registered already: give one of the two another name")
            if max_attempts < 1:
                raise Invalid(f"job {name!r}: max_attempts must be at least 1, not {max_attempts!r}")
            if cancel not in ("immediate", "cooperative"):
                raise Invalid(f"job {name!r}: cancel must be 'immediate' or 'cooperative', not {cancel!r}")
            if accepts not in ("interactive", "streaming"):
                raise Invalid(f"job {name!r}: accepts must be 'interactive' or 'streaming', not {accepts!r}")
            if loop not in ("trio", "asyncio"):
                raise Invalid(f"job {name!r}: loop must be 'trio' or 'asyncio', not {loop!r}")
            if loop == "asyncio" and not _is_async(function):
                raise Invalid(
                    f"job {name!r}: loop='asyncio' needs an async def; without it, a def runs in a thread"
                )
            if not callable(backoff):
                check_seconds("backoff", backoff, 0)
            declared: AnyJob = JobFunction(name, function, _result_type(function, names))
            self._jobs[name] = Job(
                name=name,
                function=function,
                params_type=_params_type(name, function, names),
                in_thread=not _is_async(function),
                loop=loop,
                lane=check_name("lane", lane_name(lane)),
                max_attempts=max_attempts,
                backoff=backoff,
                resumable=resumable,
                run_timeout=check_seconds("run_timeout", run_timeout, 1800),
                queue_timeout=check_seconds("queue_timeout", queue_timeout, math.inf),
                deadline=check_seconds("deadline", deadline, math.inf),
                grace=check_seconds("grace", grace, 10),
                cancel=cancel,
                accepts=accepts,
                declared=declared,
            )
            return declared

        given = name
        return register if bare is None else register(bare)

    def function(self, name: str) -> Callable[[F], F]:
        """Register the function below for nodes of flows (`kind: local`, `func: name`).

        It is called with the node's input and, if it has a second parameter, with the node's parameters. A
        plain `def` runs in a thread.
        """

        def register(function: F) -> F:
            called = function.function if isinstance(function, JobFunction) else function
            check_name("function", name)
            if name in self._functions:
                raise Invalid(f"function {name!r} is registered already: give one of the two another name")
            count = len(inspect.signature(called).parameters)
            if count not in (1, 2):
                raise Invalid(f"function {name!r} must take the input, and the parameters if it wants them")
            self._functions[name] = Function(name, called, count == 2, not _is_async(called))
            return function

        return register

    def find_function(self, name: str) -> Function | None:
        """The function of this name."""
        return self._functions.get(name)

    def takes_in(self, job: Job) -> Job:
        """A job of the engine's own is to stand beside these; returns it as it is to be executed."""
        return job

    def get(self, name: object) -> Job:
        """The job of this name; `Invalid` if there is none."""
        job = self._jobs.get(name) if isinstance(name, str) else None
        if job is None:
            known = ", ".join(sorted(self._jobs)) or "none"
            raise Invalid(f"no job is named {shown(name)}; registered are: {known}", value=shown(name))
        return job

    def name_of(self, job: str | AnyJob) -> str:
        """The name of a job of these that is given by its name or its function; `Invalid` for a function that
        is registered elsewhere, or nowhere."""
        name = job_name(job)
        if isinstance(job, JobFunction) and not self._declares(job):
            function = function_name(job.function)
            raise Invalid(
                f"function {function} is registered as job {shown(name)} of other Jobs than this engine's: "
                "register it with this engine's, or open the engine with those",
                value=function,
            )
        return name

    def _declares(self, job: AnyJob) -> bool:
        found = self._jobs.get(job.name)
        return found is not None and found.declared is job

    def recall(self, name: str) -> Job:
        """The job of a stored run; a stand-in, which can't be executed, if nobody registers it any more."""
        job = self._jobs.get(name)
        return job if job is not None else _stand_in(name)

    def __contains__(self, name: object) -> bool:
        return name in self._jobs


class EngineJobs(Jobs):
    """The jobs that an engine was given, those that are registered later too, and one of its own."""

    def __init__(self, given: Jobs, own: Job) -> None:
        super().__init__()
        self._given = given
        self._own = given.takes_in(own)

    def get(self, name: object) -> Job:
        return self._own if name == self._own.name else self._given.get(name)

    def recall(self, name: str) -> Job:
        return self._own if name == self._own.name else self._given.recall(name)

    def _declares(self, job: AnyJob) -> bool:
        return self._given._declares(job)

    def find_function(self, name: str) -> Function | None:
        return self._given.find_function(name)

    def __contains__(self, name: object) -> bool:
        return name == self._own.name or name in self._given


def unknown_job(name: str) -> str:
    """Why a stored run can't go on."""
    return f"no job is named {shown(name)} any more"


def _stand_in(name: str) -> Job:
    return Job(
        name=name,
        function=lambda run: None,
        params_type=None,
        in_thread=False,
        loop="trio",
        lane="main",
        max_attempts=1,
        backoff=exponential,
        resumable=False,
        run_timeout=math.inf,
        queue_timeout=math.inf,
        deadline=math.inf,
        grace=0,
        cancel="immediate",
        accepts="interactive",
        registered=False,
    )


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # an object whose call is `async def` is a job, too
    )


def _params_type(name: str, function: Callable[..., Any], names: dict[str, Any]) -> Any:
    """The annotation of the second parameter: `None` without one, `dict` if it isn't annotated."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or len(parameters) > 2:
        raise Invalid(f"job {name!r}: its function takes the run and at most one object of parameters")
    if len(parameters) == 1:
        return None
    hints = typing.get_type_hints(function, localns=names, include_extras=True)
    return hints.get(parameters[1].name, dict)


def _own_name(function: Callable[..., Any]) -> str:
    """The name that a function was defined with."""
    name = getattr(function, "__name__", "<lambda>")
    if name == "<lambda>":
        raise Invalid(f'{function_name(function)} has no name of its own: name the job, @jobs.job("…")')
    return str(name)


def _result_type(function: Callable[..., Any], names: dict[str, Any]) -> Any:
    """What results can be converted to: the return annotation; `None` without one, or one that can't be
    read."""
    try:
        kind = typing.get_type_hints(function, localns=names, include_extras=True).get("return")
    except Exception:  # it names what is imported for type checkers only, say
        return None
    if kind in (None, type(None), Any) or not convertible(kind):
        return None
    return kind
