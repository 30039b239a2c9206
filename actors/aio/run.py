"""The `run` object that an asyncio body receives: `Run`, with calls that are awaited in asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar, Unpack, overload

from ...protocol.jobs import AnyJob, JobFunction
from ...protocol.submission import CallKeywords
from ...protocol.validation import check_seconds
from ..run.api import Run, RunFile, body_of
from .methods import Facade, method
from .portal import Portal

P = TypeVar("P")
R = TypeVar("R")


class AsyncioFile(Facade[RunFile]):
    """See `RunFile`."""

    @property
    def path(self) -> str:
        """See `RunFile.path`."""
        return self._original.path

    write = method(RunFile.write)


class AsyncioRun(Facade[Run]):
    """The run that an asyncio body executes for. Each call does the same as that of `Run`. A cancel of the
    run raises `asyncio.CancelledError` in the body."""

    def __init__(self, run: Run, portal: Portal) -> None:
        super().__init__(run, portal)
        self.id = run.id
        self.handle = run.handle
        self.lane = run.lane
        self.kind = run.kind
        self.attempt = run.attempt
        self.params = run.params

    @property
    def fence(self) -> int:
        """See `Run.fence`."""
        return self._original.fence

    @property
    def checkpoint(self) -> Any:
        """See `Run.checkpoint`."""
        return self._original.checkpoint

    @property
    def cancel_requested(self) -> bool:
        """See `Run.cancel_requested`."""
        return self._original.cancel_requested

    progress = method(Run.progress)
    log = method(Run.log)
    save_checkpoint = method(Run.save_checkpoint)
    messages = method(Run.messages)
    next_message = method(Run.next_message)
    interrupt = method(Run.interrupt)
    confirm = method(Run.confirm)
    sleep = method(Run.sleep)
    end_interactive = method(Run.end_interactive)

    @overload
    async def call(
        self, job: str, *, handle: str, params: Any = None, **options: Unpack[CallKeywords]
    ) -> Any: ...

    @overload
    async def call(
        self,
        job: JobFunction[P, R, ..., Any],
        *,
        handle: str,
        params: P | None = None,
        **options: Unpack[CallKeywords],
    ) -> R: ...

    async def call(
        self, job: str | AnyJob, *, handle: str, params: Any = None, **options: Unpack[CallKeywords]
    ) -> Any:
        """See `Run.call`."""
        return await _call(self, job, handle=handle, params=params, **options)

    @asynccontextmanager
    async def streaming(self) -> AsyncIterator[None]:
        """See `Run.streaming`."""
        async with self._portal.entered(self._original.streaming()):
            yield

    @asynccontextmanager
    async def compacting(self, timeout: float = 120) -> AsyncIterator[None]:
        """See `Run.compacting`; raises `TimeoutError` after the timeout."""
        async with (
            asyncio.timeout(check_seconds("timeout", timeout, 120)),
            self._portal.entered(body_of(self._original).phase("compacting")),
        ):
            yield

    @asynccontextmanager
    async def open_file(self, path: str, *, overwrite: bool = False) -> AsyncIterator[AsyncioFile]:
        """See `Run.open_file`."""
        async with self._portal.entered(self._original.open_file(path, overwrite=overwrite)) as file:
            yield AsyncioFile(file, self._portal)


_call: Callable[..., Coroutine[Any, Any, Any]] = method(Run.call)
