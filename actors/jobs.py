"""The registry of jobs: the functions that runs execute, with the options that their author declared."""

from __future__ import annotations

import functools
import inspect
import math
import types
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeVar, Unpack, overload

import attrs
import msgspec

from ..persistence.store import Memo, Terms
from ..protocol.errors import Invalid
from ..protocol.events import Event
from ..protocol.executors import JobTerms
from ..protocol.jobs import AnyJob, JobFunction, function_name, job_name
from ..protocol.lane_settings import check_priority
from ..protocol.names import FLOW, check_name, lane_name
from ..protocol.parameters import check_params, convertible, params_schema, plain_params
from ..protocol.records import JobInfo
from ..protocol.schedules import ScheduleDefinition
from ..protocol.states import Status
from ..protocol.submission import WARN_AFTER
from ..protocol.validation import check_needs, check_seconds
from ..protocol.values import json_value, shown
from .retry_options import Backoff, Errors, check_backoff, check_errors, exponential
from .schedules.declaration import Schedule, as_schedule

if TYPE_CHECKING:
    from .aio.run import AsyncioRun
    from .executors.announced import AnnouncedJobs
    from .messages import Submission
    from .run.api import Run
    from .run.blocking import BlockingRun

F = TypeVar("F", bound=Callable[..., Any])
P = TypeVar("P")
R = TypeVar("R")


_NO_PARAMS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_ANY_PARAMS: tuple[dict[str, Any], ...] = ({}, {"type": "object"})
"""The schemas of parameters of which the job's type tells nothing."""


class Prepared(msgspec.Struct):
    """A submission as a special job has prepared it: the parameters to store, and the memos to commit with
    the creation of the run."""

    params: Any
    memos: tuple[Memo, ...]


Ask = Callable[[Any, Any], Awaitable[Any]]
"""Sends an actor a message and waits for its reply. Raises `Unavailable` once the engine has stopped."""


class Special(Protocol):
    """The additional functions of the engine's own job, which executes flows.

    Its runs accept signals, and can be submitted without a handle: each then gets a new handle.
    """

    async def prepare(self, run: str, params: Any, ask: Ask) -> Prepared:
        """Check and prepare a submission, or raise. `ask` sends requests to actors."""

    async def ends_waiting(
        self, submission: Submission, status: Status
    ) -> tuple[tuple[Event, ...], tuple[Memo, ...]]:
        """The events and memos to commit with the end of a run that waits without a body."""


@attrs.frozen(eq=False)
class Job:
    """A registered job. Durations are in seconds; `math.inf` means no limit."""

    name: str
    function: Callable[..., Any]
    params_type: Any  # `None` if the function takes no parameters
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
    needs: tuple[str, ...] = ()
    priority: int | None = None
    retry_on: Errors | None = None  # `None` means every `Exception`
    never_on: Errors = ()
    backoff_takes_error: bool = False
    registered: bool = True  # false if only a stored run refers to it
    special: Special | None = None  # for the engine's own job
    declared: AnyJob | None = None  # what the decorator returned
    terms: JobTerms | None = None  # as announced, if only executors have the job
    schedule: ScheduleDefinition | None = None  # declared with it

    @functools.cached_property
    def usual_terms(self) -> Terms:
        """The terms of a run whose submission has no request id and no times of its own. Most runs of a job
        share them, so they are made once."""
        return Terms(
            queue_timeout=_if_limited(self.queue_timeout),
            run_timeout=_if_limited(self.run_timeout),
            deadline=_if_limited(self.deadline),
            warn_after=WARN_AFTER,
            announced=self.terms,
        )

    @functools.cached_property
    def info(self) -> JobInfo:
        """What clients see of it."""
        if self.params_type in (None, types.NoneType):
            schema = _NO_PARAMS
        elif self.terms is not None and self.terms.params is not None:
            schema = self.terms.params
        else:
            schema = params_schema(self.params_type)
        return JobInfo(self.name, self.lane, None if schema in _ANY_PARAMS else schema)

    def check(self, params: Any) -> None:
        """Raise `Invalid` with all errors if the parameters do not fit the job."""
        mistakes = check_params(params, self.params_type)
        if mistakes:
            raise Invalid(f"parameters of job {shown(self.name)}: " + "; ".join(mistakes), errors=mistakes)


class Register(Protocol):
    """Registers a function as a job; the returned object represents the job and has its types."""

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
    """The same for functions that an asyncio loop executes."""

    @overload
    def __call__(
        self, function: Callable[[AsyncioRun, P], Awaitable[R]], /
    ) -> JobFunction[P, R, [AsyncioRun, P], Awaitable[R]]: ...

    @overload
    def __call__(
        self, function: Callable[[AsyncioRun], Awaitable[R]], /
    ) -> JobFunction[None, R, [AsyncioRun], Awaitable[R]]: ...


class JobKeywords(TypedDict, total=False):
    """The options of `Jobs.job` except the name and the loop, for type checkers.

    Use it to annotate a function that forwards options: otherwise a type checker cannot select the overload.
    """

    lane: str
    max_attempts: int
    backoff: Backoff
    retry_on: type[Exception] | Errors | None
    never_on: type[Exception] | Errors
    resumable: bool
    run_timeout: float | None
    queue_timeout: float | None
    deadline: float | None
    grace: float
    cancel: Literal["immediate", "cooperative"]
    accepts: Literal["interactive", "streaming"]
    needs: list[str] | tuple[str, ...]
    priority: int | None
    schedule: Schedule | Mapping[str, Any] | None


class Function(msgspec.Struct, frozen=True):
    """A function that nodes of flows call, with the node's input and optionally the node's parameters."""

    name: str
    function: Callable[..., Any]
    takes_params: bool
    in_thread: bool


class Jobs:
    """The jobs that an engine can execute, and the functions that nodes of flows can call."""

    import_path: str | None = None
    """The `module:name` from which these jobs were imported, if it was given as text."""

    def __init__(self) -> None:
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        self.created_in: str | None = None if caller is None else caller.f_globals.get("__name__")
        """The module in which they were created; children of an engine search it first."""
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
        retry_on: type[Exception] | Errors | None = None,
        never_on: type[Exception] | Errors = (),
        resumable: bool = False,
        run_timeout: float | None = 1800,
        queue_timeout: float | None = None,
        deadline: float | None = None,
        grace: float = 10,
        cancel: Literal["immediate", "cooperative"] = "immediate",
        accepts: Literal["interactive", "streaming"] = "interactive",
        needs: list[str] | tuple[str, ...] = (),
        priority: int | None = None,
        schedule: Schedule | Mapping[str, Any] | None = None,
        loop: Literal["trio", "asyncio"] = "trio",
    ) -> Any:
        """Register the decorated function as a job, by default under the function's name.

        The function is called with a `Run` and, if it has a second parameter, with the run's parameters,
        converted to that parameter's annotation. A plain `def` runs in a thread and gets a `BlockingRun`.
        With `loop="asyncio"` the function is awaited in an asyncio loop and gets a `greenroom.aio.Run`. The
        decorated function can still be called, and can be submitted in place of the job's name.

        The engine submits the job by its `schedule`: a `Schedule`, or a dict of its arguments.
        """
        if callable(name):  # `@jobs.job` without parentheses
            bare, name = name, None
        else:
            bare = None
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        names = dict(caller.f_locals) if caller is not None else {}  # types that are local to the caller

        def register(function: Callable[..., Any]) -> AnyJob:
            if isinstance(function, JobFunction):
                function = function.function  # already a job: register it under a second name
            name = check_name("job", _defined_name(function) if given is None else given)
            if name == FLOW:
                raise Invalid(f"job name {name!r} is reserved for flows: choose another name")
            if name in self._jobs:
                raise Invalid(f"job {name!r} already exists: choose another name")
            if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or max_attempts < 1:
                raise Invalid(
                    f"job {name!r}: max_attempts must be an integer, at least 1 (got {shown(max_attempts)})"
                )
            if cancel not in ("immediate", "cooperative"):
                raise Invalid(f"job {name!r}: cancel must be 'immediate' or 'cooperative' (got {cancel!r})")
            if accepts not in ("interactive", "streaming"):
                raise Invalid(f"job {name!r}: accepts must be 'interactive' or 'streaming' (got {accepts!r})")
            if loop not in ("trio", "asyncio"):
                raise Invalid(f"job {name!r}: loop must be 'trio' or 'asyncio' (got {loop!r})")
            if loop == "asyncio" and not _is_async(function):
                raise Invalid(
                    f"job {name!r}: loop='asyncio' requires an async def; for a plain def, omit loop"
                )
            delay, takes_error = check_backoff(name, backoff)
            declared: AnyJob = JobFunction(name, function, _result_type(function, names))
            job = Job(
                name=name,
                function=function,
                params_type=_params_type(name, function, names),
                in_thread=not _is_async(function),
                loop=loop,
                lane=check_name("lane", lane_name(lane)),
                max_attempts=max_attempts,
                backoff=delay,
                resumable=resumable,
                run_timeout=check_seconds("run_timeout", run_timeout, 1800),
                queue_timeout=check_seconds("queue_timeout", queue_timeout, math.inf),
                deadline=check_seconds("deadline", deadline, math.inf),
                grace=check_seconds("grace", grace, 10),
                cancel=cancel,
                accepts=accepts,
                needs=check_needs(needs),
                priority=None if priority is None else check_priority("priority", priority),
                retry_on=None if retry_on is None else check_errors(name, "retry_on", retry_on),
                never_on=check_errors(name, "never_on", never_on),
                backoff_takes_error=takes_error,
                declared=declared,
            )
            if schedule is not None:
                job = attrs.evolve(job, schedule=scheduled(job, as_schedule(job.name, schedule)))
            self._jobs[name] = job
            return declared

        given = name
        return register if bare is None else register(bare)

    def function(self, name: str) -> Callable[[F], F]:
        """Register the decorated function for nodes of flows (`kind: local`, `func: name`).

        The function is called with the node's input and, if it has a second parameter, with the node's
        parameters. A plain `def` runs in a thread.
        """

        def register(function: F) -> F:
            called = function.function if isinstance(function, JobFunction) else function
            check_name("function", name)
            if name in self._functions:
                raise Invalid(f"function {name!r} already exists: choose another name")
            count = len(inspect.signature(called).parameters)
            if count not in (1, 2):
                raise Invalid(f"function {name!r} must take 1 or 2 parameters (got {count})")
            self._functions[name] = Function(name, called, count == 2, not _is_async(called))
            return function

        return register

    def find_function(self, name: str) -> Function | None:
        """The function with this name, if any."""
        return self._functions.get(name)

    @property
    def all(self) -> Sequence[Job]:
        """The jobs, for an executor that announces them."""
        return list(self._jobs.values())

    @property
    def function_names(self) -> Sequence[str]:
        """The names of the functions."""
        return list(self._functions)

    def takes_in(self, job: Job) -> Job:
        """Called with the engine's own job when an engine opens; returns the job to execute."""
        return job

    def find(self, name: str) -> Job | None:
        """The job with this name, if any."""
        return self._jobs.get(name)

    def get(self, name: object) -> Job:
        """The job with this name; raises `Invalid` if there is none."""
        job = self._jobs.get(name) if isinstance(name, str) else None
        if job is None:
            known = ", ".join(sorted(self._jobs)) or "none"
            raise Invalid(f"job {shown(name)} not found; registered jobs: {known}", value=shown(name))
        return job

    def name_of(self, job: str | AnyJob) -> str:
        """The name of a job, which is given by its name or its function.

        Raises `Invalid` for a function that is not registered here.
        """
        name = job_name(job)
        if isinstance(job, JobFunction) and not self._declares(job):
            function = function_name(job.function)
            raise Invalid(
                f"function {function} is job {shown(name)} of another Jobs object, not of this engine's: "
                "register it with this engine's Jobs, or open the engine with the other object",
                value=function,
            )
        return name

    def _declares(self, job: AnyJob) -> bool:
        found = self._jobs.get(job.name)
        return found is not None and found.declared is job

    def recall(self, name: str, announced: JobTerms | None = None) -> Job:
        """The job of a stored run, as an executor has announced it if the engine does not have it; otherwise
        a placeholder, which cannot be executed."""
        job = self._jobs.get(name)
        if job is None and announced is not None:
            return announced_job(announced)
        return job if job is not None else _placeholder(name)

    def __contains__(self, name: object) -> bool:
        return name in self._jobs


class EngineJobs(Jobs):
    """The jobs that were passed to an engine, including those registered later, and the engine's own job."""

    def __init__(self, given: Jobs, own: Job, announced: AnnouncedJobs) -> None:
        super().__init__()
        self._given = given
        self._own = given.takes_in(own)
        self._announced = announced

    def get(self, name: object) -> Job:
        if name == self._own.name:
            return self._own
        if isinstance(name, str):
            given = self._given.find(name)
            if given is not None:
                return given
            terms = self._announced.find(name)
            if terms is not None:
                return announced_job(terms)
        return self._given.get(name)

    @property
    def all(self) -> Sequence[Job]:
        """The jobs that can be submitted by name: those that were passed, and those that attached executors
        have announced."""
        given = list(self._given.all)
        others = self._announced.names() - {job.name for job in given} - {self._own.name}
        return [*given, *(self.get(name) for name in others)]

    def recall(self, name: str, announced: JobTerms | None = None) -> Job:
        return self._own if name == self._own.name else self._given.recall(name, announced)

    def _declares(self, job: AnyJob) -> bool:
        return self._given._declares(job)

    def find_function(self, name: str) -> Function | None:
        return self._given.find_function(name)

    def __contains__(self, name: object) -> bool:
        return name == self._own.name or name in self._given


def scheduled(job: Job, declared: Schedule) -> ScheduleDefinition:
    """The definition of a schedule that is declared for a job. Raises `Invalid`."""
    submitted = declared.submission(job.name)
    check_name("lane", lane_name(submitted.lane))
    params = submitted.params
    if params is not None:
        params = json_value(plain_params(params, job.params_type), "params", None)
        job.check(params)
    return declared.definition(job.name, params)


def unknown_job(name: str) -> str:
    """The error of a stored run whose job is no longer registered."""
    return f"job {shown(name)} is no longer registered"


def _placeholder(name: str) -> Job:
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


def announced_job(terms: JobTerms) -> Job:
    """The job with the terms that an executor has announced. Its bodies execute only in executors, which
    validate the parameters."""
    return Job(
        name=terms.name,
        function=lambda run: None,
        params_type=None if terms.params is None else Any,
        in_thread=False,
        loop="trio",
        lane=terms.lane,
        max_attempts=terms.max_attempts,
        backoff=exponential if terms.backoff is None else terms.backoff,
        resumable=terms.resumable,
        run_timeout=_or_unlimited(terms.run_timeout),
        queue_timeout=_or_unlimited(terms.queue_timeout),
        deadline=_or_unlimited(terms.deadline),
        grace=_or_unlimited(terms.grace),
        cancel=terms.cancel,
        accepts=terms.accepts,
        needs=tuple(sorted(terms.needs)),
        priority=terms.priority,
        terms=terms,
    )


def _or_unlimited(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


def _if_limited(seconds: float) -> float | None:
    return None if seconds == math.inf else seconds


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # for objects with an async `__call__`
    )


def _params_type(name: str, function: Callable[..., Any], names: dict[str, Any]) -> Any:
    """The annotation of the second parameter; `None` without a second parameter, `dict` if not annotated."""
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise Invalid(
                f"job {name!r}: its function is called without keywords: remove the * before {parameter.name}"
            )
    parameters = [parameter for parameter in parameters if parameter.kind in _BY_POSITION]
    if not parameters or len(parameters) > 2:
        raise Invalid(
            f"job {name!r}: its function must take run and at most one more parameter (got {len(parameters)})"
        )
    if len(parameters) == 1:
        return None
    return _annotation(function, parameters[1].name, names, dict)


_BY_POSITION = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)


def _annotation(function: Any, name: str, names: dict[str, Any], default: Any) -> Any:
    """The type of one parameter, or of the result (`return`). The other annotations are not evaluated: they
    can contain names that are imported only for type checkers."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function) and not isinstance(function, type):
        function = inspect.unwrap(function.__call__)
    annotations = getattr(function, "__annotations__", {})
    if name not in annotations:
        return default
    alone = types.SimpleNamespace(
        __annotations__={name: annotations[name]}, __type_params__=getattr(function, "__type_params__", ())
    )
    defined_in = getattr(function, "__globals__", {})
    return typing.get_type_hints(alone, defined_in, names, include_extras=True)[name]


def _defined_name(function: Callable[..., Any]) -> str:
    """The name in a function's definition."""
    name = getattr(function, "__name__", "<lambda>")
    if name == "<lambda>":
        raise Invalid(f'{function_name(function)} has no name: pass a job name, as in @jobs.job("…")')
    return str(name)


def _result_type(function: Callable[..., Any], names: dict[str, Any]) -> Any:
    """The type for results: the return annotation; `None` without a usable one."""
    try:
        kind = _annotation(function, "return", names, None)
    except Exception:  # for example, a name imported only for type checkers
        return None
    if kind in (None, type(None), Any) or not convertible(kind):
        return None
    return kind
