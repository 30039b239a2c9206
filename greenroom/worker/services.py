"""The registry of services: functions that a worker executes for a server."""

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
    """A service as it was registered."""

    name: str
    function: Callable[..., Any]
    takes: int
    """How many arguments: the input, the parameters, the idempotency key."""
    in_thread: bool


class Services:
    """All services of a worker.

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
        """Register the function below as a service.

        It is called with the input and, if it takes a second argument, with the parameters, a dict; what it
        returns must be JSON. What it raises is told to the server, whose node has failed then. A third
        argument is the idempotency key: a text that is the same when the server has the same work done again,
        because an answer was lost, say.

        An `async def` is cancelled when the server waits no longer, because the flow was cancelled, say. A
        plain `def` runs in a thread, which nothing can end: one that takes long should call
        `trio.from_thread.check_cancelled()` from time to time.
        """

        def register(function: F) -> F:
            check_name("service", name)
            if name in self._services:
                raise Invalid(f"service {name!r} is registered already: give one of the two another name")
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
        """Of all services, in the order in which they were registered."""
        return tuple(self._services)


def unknown_service(name: str, services: Services) -> str:
    """What is said to whoever asks for a service that isn't there."""
    return f"no service is named {name[:100]!r}; this worker serves {', '.join(services.names)}"


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
        f"service {name!r}: its function takes the input, and the parameters and the key if it wants them"
    )
