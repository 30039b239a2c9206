"""A job as its function: what `@jobs.job()` leaves where the function stood.

Whatever takes a job's name takes one of these too, and knows by it the types of parameters and result. It
holds nothing of an engine, so a program that only talks to a server may import the jobs and name them so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from .errors import Invalid
from .values import shown

Params_contra = TypeVar("Params_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)
Call = ParamSpec("Call")
Returned_co = TypeVar("Returned_co", covariant=True)


class JobFunction(Generic[Params_contra, Result_co, Call, Returned_co]):
    """A job's function; calling it calls the function, outside of any engine, and it has its attributes.

    `name` is the job's, `result_type` the function's return annotation: `None` if there is none that a
    result can be converted to.
    """

    def __init__(self, name: str, function: Callable[Call, Returned_co], result_type: Any) -> None:
        functools.update_wrapper(self, function)
        self.name = name
        self.function = function
        self.result_type = result_type

    def __call__(self, *args: Call.args, **kwargs: Call.kwargs) -> Returned_co:
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "function":  # it is being copied, and has nothing yet
            raise AttributeError(name)
        return getattr(self.function, name)

    def __repr__(self) -> str:
        return f"<job {shown(self.name)}: {function_name(self.function)}>"


AnyJob = JobFunction[Any, Any, ..., Any]


def function_name(function: object) -> str:
    """How a function is called in messages."""
    return getattr(function, "__qualname__", None) or shown(function)


def typed_job(job: object) -> AnyJob | None:
    """The function that stands for a job; `None` for anything else, a name for one."""
    return job if isinstance(job, JobFunction) else None


def job_name(job: str | AnyJob) -> str:
    """The name of a job that is given by its name or its function. Refuses other functions; what is neither
    stays as it is, for whoever looks for the name."""
    if isinstance(job, JobFunction):
        return job.name
    if callable(job):
        name = function_name(job)
        raise Invalid(
            f"function {name} is not registered as a job: decorate it with @jobs.job(), and give what the "
            "decorator returns, or the name of a job",
            value=name,
        )
    return job
