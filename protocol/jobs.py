"""A job as a function: the object that the decorator `@jobs.job()` returns.

Every method that takes a job's name takes this object too, and so type checkers know the types of parameters
and result. It does not refer to an engine, so a program that is only a client can import it.
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
    """A job's function. Calling it calls the function without an engine; it has the function's attributes.

    `name` is the job's name. `result_type` is the function's return annotation, or `None` if there is none to
    which a result can be converted.
    """

    def __init__(self, name: str, function: Callable[Call, Returned_co], result_type: Any) -> None:
        functools.update_wrapper(self, function)
        self.name = name
        self.function = function
        self.result_type = result_type

    def __call__(self, *args: Call.args, **kwargs: Call.kwargs) -> Returned_co:
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "function":  # a copy in the making, without attributes
            raise AttributeError(name)
        return getattr(self.function, name)

    def __repr__(self) -> str:
        return f"<job {shown(self.name)}: {function_name(self.function)}>"


AnyJob = JobFunction[Any, Any, ..., Any]


def function_name(function: object) -> str:
    """Return the name of a function for messages."""
    return getattr(function, "__qualname__", None) or shown(function)


def typed_job(job: object) -> AnyJob | None:
    """Return `job` if it is a job's function, and `None` for anything else, such as a name."""
    return job if isinstance(job, JobFunction) else None


def job_name(job: str | AnyJob) -> str:
    """Return the name of a job that is given by its name or by its function.

    Raises `Invalid` for any other function. A value of another type is returned as it is: the later check of
    the name refuses it.
    """
    if isinstance(job, JobFunction):
        return job.name
    if callable(job):
        name = function_name(job)
        raise Invalid(
            f"function {name} is not registered as a job: decorate it with @jobs.job() and pass the result, "
            "or pass the job's name",
            value=name,
        )
    return job
