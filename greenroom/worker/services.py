"""The services of a worker: functions that it executes for a server."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from ..protocol.errors import Invalid
from ..protocol.names import check_name

F = TypeVar("F", bound=Callable[..., Any])


@attrs.frozen(eq=False)
class Service:
    """A registered service."""

    name: str
    function: Callable[..., Any]
    takes: int
    """The number of arguments: input, parameters, idempotency key."""
    in_thread: bool


class Services:
    """The services of a worker.

    ```python
    services = Services()


    @services.service("transform")
    async def transform(text: str, params: dict) -> str:
        return text.upper() if params.get("op") == "upper" else text
    ```
    """

    def __init__(self) -> None:
        self._services: dict[str, Service] = {}

    def service(self, name: str) -> Callable[[F], F]:
        """Register the decorated function as a service.

        The function receives the input and, if it takes a second argument, the parameters as a dict. Its
        result must be a JSON value. An exception is reported to the server and fails the node. A third
        argument receives the idempotency key: a string that is equal when the server repeats the same work,
        for example after a lost response.

        An `async def` is cancelled when the server no longer waits, for example because the flow was
        cancelled. A plain `def` runs in a thread, which cannot be ended from outside: a long one should call
        `trio.from_thread.check_cancelled()` from time to time.
        """

        def register(function: F) -> F:
            check_name("service", name)
            if name in self._services:
                raise Invalid(f"service {name!r} already exists: rename one of the two")
            self._services[name] = Service(
                name, function, _takes(name, function), in_thread=not _is_async(function)
            )
            return function

        return register

    def get(self, name: str) -> Service | None:
        """The service of this name, if there is one."""
        return self._services.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all services, in the order of their registration."""
        return tuple(self._services)


def unknown_service(name: str, services: Services) -> str:
    """The error message for a service that this worker does not have."""
    return f"service {name[:100]!r} not found; this worker serves {', '.join(services.names)}"


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _takes(name: str, function: Callable[..., Any]) -> int:
    signature = inspect.signature(function)
    for count in (3, 2, 1):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count
    raise Invalid(
        f"service {name!r}: its function must take the input, and optionally the parameters and the key"
    )
