"""The calls that simulated workers receive: their content, their execution, and their kinds of trouble."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple

from ....protocol.errors import Invalid
from ....worker.services import Services, unknown_service

Trouble = Literal[
    "unreachable",
    "reset",
    "lost",
    "status",
    "garbage",
    "shape",
    "late",
    "never",
    "dies",
    "slow",
    "twice",
]
"""The kinds of trouble for a call:

- `unreachable`: no connection; `reset`: the connection is lost before the service executes; `lost`: it is
  lost after the service has executed
- `status`: a response with status 500; `garbage`: a response that is not JSON; `shape`: JSON of another shape
- `late`: the response arrives after the timeout; `never`: no response; `slow`: a slow response, but in time
- `dies`: the worker's process dies during the call; `twice`: a queue worker completes its item twice

A queue worker forgets the item instead of losing the connection, reports a failure instead of an invalid
response, and extends its lease on the item if it is slow."""


class Call(NamedTuple):
    """A call of a service. `key` is the idempotency key."""

    service: str
    key: str
    input: Any
    params: dict[str, Any]


Work = Callable[[Call], Awaitable[Any]]


def serving(services: Services | Sequence[str]) -> Work:
    """A function that executes calls with these services, which are written as for real workers."""
    assert isinstance(services, Services), "names of services without functions require `work`"

    async def work(call: Call) -> Any:
        service = services.get(call.service)
        if service is None:
            raise LookupError(unknown_service(call.service, services))
        if service.in_thread:
            raise Invalid(
                f"service {service.name!r} is a plain def and needs a thread, but a simulation has no "
                "threads: use async def"
            )
        arguments = (call.input, call.params, call.key)[: service.takes]
        return await service.function(*arguments)

    return work
