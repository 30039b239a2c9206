"""What the embedded engine and the client have in common, for programs that work with either.

The engine's methods also take `by`, who asks; a gateway knows that from the token.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ...actors.messages import FilesFate, OnConflict, OnWait
from ...protocol.events import Event, Filter
from ...protocol.records import RunRecord, Snapshot

if TYPE_CHECKING:
    from ...actors.engine import Engine
    from .client import Client


class RunTicket(Protocol):
    """See `Ticket`."""

    @property
    def id(self) -> str: ...

    @property
    def joined(self) -> bool: ...

    async def result(self) -> Any: ...

    async def wait(self, timeout: float | None = 15) -> bool: ...

    async def cancel(self, files: FilesFate = "keep") -> RunRecord: ...


class RunEngine(Protocol):
    """See `Engine`."""

    async def submit(
        self,
        job: str,
        *,
        handle: str,
        params: Any = None,
        kind: str = "start",
        lane: str | None = None,
        on_conflict: OnConflict = "reject",
        request_id: str | None = None,
        queue_timeout: float | None = None,
        run_timeout: float | None = None,
        deadline: float | None = None,
        warn_after: float | None = 2,
        on_wait: OnWait | None = None,
    ) -> RunTicket: ...

    async def rerun(self, run_id: str) -> RunTicket: ...

    async def cancel(self, run_id: str, files: FilesFate = "keep") -> RunRecord: ...

    async def inject(self, run_or_handle: str, message: Any) -> str: ...

    async def answer(self, interrupt_id: str, data: Any) -> str: ...

    async def set_params(self, handle: str, params: Any) -> None: ...

    async def set_concurrency(self, lane: str, limit: int | None) -> None: ...

    async def set_max_concurrent(self, limit: int) -> None: ...

    async def clear_lane(self, lane: str) -> int: ...

    async def clear_handle(self, handle: str) -> int: ...

    async def release_handle(self, handle: str) -> bool: ...

    async def reset_lanes(self) -> None: ...

    async def wait_for_active(self, timeout: float | None = 15) -> bool: ...

    async def drain(self) -> None: ...

    async def resume(self) -> None: ...

    async def snapshot(self) -> Snapshot: ...

    async def get_run(self, run_id: str) -> RunRecord: ...

    async def list_runs(
        self,
        *,
        handle: str | None = None,
        lane: str | None = None,
        status: str | Iterable[str] | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[RunRecord]: ...

    async def history(self, run_id: str) -> list[Event]: ...

    def events(
        self, after: int | None = None, filter: Filter | Mapping[str, Any] | None = None
    ) -> AsyncIterator[Event | Snapshot]: ...


if TYPE_CHECKING:  # the type checker proves that they are the same

    def _both(engine: Engine, client: Client) -> tuple[RunEngine, RunEngine]:
        return engine, client
