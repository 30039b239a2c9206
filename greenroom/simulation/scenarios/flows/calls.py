"""The calls of simulated workers: what they are asked, who does it, and what can go wrong with it."""

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
"""What a call can meet with: no connection; one that breaks before the service is called, or (`lost`) when
its work is done; an answer with status 500, one that is no JSON, or JSON of another form; one that comes too
`late`, or `never`; the worker `dies` over it; it is `slow`, but in time.

A worker that pulls forgets what it took where one that is called would break the connection; it says that it
failed where that would answer nonsense; if it is slow, it says that it is still at work; and it may complete
its work `twice`."""


class Call(NamedTuple):
    """What a worker is asked to do. `key` is the idempotency key."""

    service: str
    key: str
    input: Any
    params: dict[str, Any]


Work = Callable[[Call], Awaitable[Any]]


def serving(services: Services | Sequence[str]) -> Work:
    """What these services do; for those who write services as real workers have them."""
    assert isinstance(services, Services), "who names services without functions says how they are done"

    async def work(call: Call) -> Any:
        service = services.get(call.service)
        if service is None:
            raise LookupError(unknown_service(call.service, services))
        if service.in_thread:
            raise Invalid(
                f"service {service.name!r} is a plain def and needs a thread, which a simulation lacks"
            )
        arguments = (call.input, call.params, call.key)[: service.takes]
        return await service.function(*arguments)

    return work
