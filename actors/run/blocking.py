"""`BlockingRun`: what a plain `def` job receives in its thread; the calls of `Run`, but blocking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import trio

from ...protocol.jobs import JobFunction
from ...protocol.submission import CallKeywords
from .api import body_of

if TYPE_CHECKING:
    from .api import Run, RunFile

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class BlockingFile:
    """An open file that a thread writes."""

    def __init__(self, part: RunFile) -> None:
        self._part = part

    def write(self, data: bytes) -> int:
        """Append bytes."""
        return trio.from_thread.run(self._part.write, data)


class BlockingRun:
    """The run of a job that is a plain function.

    Each call raises `trio.Cancelled` once the run is cancelled; do not catch it. A function without calls
    must check `cancel_requested` regularly.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.id = run.id
        self.handle = run.handle
        self.lane = run.lane
        self.kind = run.kind
        self.attempt = run.attempt
        self.fence = run.fence
        self.params = run.params

    @property
    def checkpoint(self) -> Any:
        """See `Run.checkpoint`."""
        return self._run.checkpoint

    @property
    def cancel_requested(self) -> bool:
        """Whether the function should end itself."""
        return self._run.cancel_requested

    def progress(self, done: float | None = None, total: float | None = None, **stats: Any) -> None:
        """See `Run.progress`."""
        self._call(partial(self._run.progress, done, total, **stats))

    def log(self, text: str, level: str = "info") -> None:
        """See `Run.log`."""
        self._call(partial(self._run.log, text, level))

    def save_checkpoint(self, value: Any) -> None:
        """See `Run.save_checkpoint`."""
        self._call(partial(self._run.save_checkpoint, value))

    def messages(self) -> list[Any]:
        """See `Run.messages`."""
        taken: list[Any] = self._call(self._run.messages)
        return taken

    def next_message(self, release_slot: bool = False) -> Any:
        """See `Run.next_message`."""
        return self._call(partial(self._run.next_message, release_slot))

    def interrupt(self, data: Any, **options: Any) -> Any:
        """See `Run.interrupt`."""
        return self._call(partial(self._run.interrupt, data, **options))

    def confirm(self, data: Any, **options: Any) -> bool:
        """See `Run.confirm`."""
        confirmed: bool = self._call(partial(self._run.confirm, data, **options))
        return confirmed

    def sleep(self, seconds: float, release_slot: bool = True) -> None:
        """See `Run.sleep`."""
        self._call(partial(self._run.sleep, seconds, release_slot))

    @overload
    def call(self, job: str, *, handle: str, params: Any = None, **options: Unpack[CallKeywords]) -> Any: ...

    @overload
    def call(
        self,
        job: JobFunction[P, R, ..., Any],
        *,
        handle: str,
        params: P | None = None,
        **options: Unpack[CallKeywords],
    ) -> R: ...

    def call(self, job: Any, **options: Any) -> Any:
        """See `Run.call`."""
        return self._call(partial(self._run.call, job, **options))

    def end_interactive(self) -> None:
        """See `Run.end_interactive`."""
        self._call(self._run.end_interactive)

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """See `Run.streaming`."""
        with _blocking(self._run.streaming()):
            yield

    @contextmanager
    def compacting(self) -> Iterator[None]:
        """See `Run.compacting`; without a timeout, because a thread cannot be interrupted."""
        with _blocking(body_of(self._run).phase("compacting")):
            yield

    @contextmanager
    def open_file(self, path: str, *, overwrite: bool = False) -> Iterator[BlockingFile]:
        """See `Run.open_file`; `f.write(data)` blocks."""
        with _blocking(self._run.open_file(path, overwrite=overwrite)) as part:
            yield BlockingFile(part)

    @staticmethod
    def _call(function: Callable[[], Any]) -> Any:
        return trio.from_thread.run(function)


@contextmanager
def _blocking(manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
    value = trio.from_thread.run(manager.__aenter__)
    try:
        yield value
    except BaseException as error:
        if not trio.from_thread.run(manager.__aexit__, type(error), error, error.__traceback__):
            raise
    else:
        trio.from_thread.run(manager.__aexit__, None, None, None)
