"""`Run`: the object that a job's function receives, with the calls for its author.

Each call checks its arguments, and sends reports and requests through the `Body` behind it. Nothing else of
a body is public.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar, Unpack, overload

import trio

from ...persistence.files import PartFile
from ...protocol.answers import approves, with_truth
from ...protocol.errors import Invalid
from ...protocol.executors import (
    DropChild,
    FinishFile,
    OpenInterrupt,
    Progress,
    SaveCheckpoint,
    SetPhase,
    TookMessages,
    WithdrawInterrupt,
    WriteLog,
)
from ...protocol.jobs import AnyJob, JobFunction, typed_job
from ...protocol.names import check_name
from ...protocol.records import RunRecord
from ...protocol.results import raise_unless_succeeded
from ...protocol.submission import CallKeywords, SubmitOptions, check_keywords
from ...protocol.validation import check_seconds
from ...protocol.values import copied
from .. import tracing
from .context import Body

P = TypeVar("P")
R = TypeVar("R")


class RunFile:
    """An open file that a body writes."""

    def __init__(self, body: Body, part: PartFile) -> None:
        self._body = body
        self._part = part

    @property
    def path(self) -> str:
        """The path under the handle's folder."""
        return self._part.path

    async def write(self, data: bytes) -> int:
        """Append bytes."""
        await self._body.check_open()
        return await self._part.write(data)


class Run:
    """A run, as its body sees it."""

    def __init__(self, body: Body) -> None:
        order = body.order
        self.id = order.run
        self.handle = order.handle
        self.lane = order.lane
        self.kind = order.kind
        self.attempt = order.attempt
        self.params: Any = order.params
        self._body = body

    @property
    def fence(self) -> int:
        """A number that only grows for a handle, over attempts, executors and restarts.

        A system outside can check it: it refuses a body whose fence is lower than one that it has seen.
        """
        return self._body.order.fence

    @property
    def checkpoint(self) -> Any:
        """The last checkpoint: of this run or, for kind `continue`, of the last run that saved one."""
        return self._body.checkpoint

    @property
    def cancel_requested(self) -> bool:
        """Whether the body should end itself."""
        self._body.saw_cancel_request = self._body.cancel_requested
        return self._body.cancel_requested

    async def progress(self, /, done: float | None = None, total: float | None = None, **stats: Any) -> None:
        """Report progress. Does not wait for the commit; only the latest report is kept."""
        await self._body.check_open()
        for name, number in (("done", done), ("total", total)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int | float)):
                raise Invalid(
                    f"progress.{name} must be a number or None (got {number!r})", value=repr(number)
                )
        value = self._body.value({"done": done, "total": total, **stats}, "progress")
        self._body.host.tell(Progress(value.pop("done"), value.pop("total"), value))

    async def log(self, text: str, level: str = "info") -> None:
        """Add a line to the run's log. Returns when it is committed."""
        await self._body.check_open()
        line = self._body.value(str(text), "log")
        await self._body.ask(WriteLog(line, check_name("level", level)))

    async def save_checkpoint(self, value: Any) -> None:
        """Save a value from which a later body can resume. Returns when it is committed.

        A body that resumes from it repeats none of the interrupts and calls that were completed before it.
        """
        await self._body.check_open()
        kept = self._body.value(value, "checkpoint")
        counts = (self._body.interrupts.save(), self._body.calls.save())
        self._body.last_taken = None
        await self._body.ask(SaveCheckpoint(kept, *counts))
        self._body.checkpoint = copied(kept)

    async def messages(self) -> list[Any]:
        """Take all waiting messages, oldest first; returns an empty list if there are none."""
        await self._body.check_open()
        taken, self._body.inbox = list(self._body.inbox), ()
        if taken:
            self._body.last_taken = taken[-1].seq
            self._body.host.tell(TookMessages(taken[-1].seq))
        return [message.value for message in taken]

    async def next_message(self, release_slot: bool = False) -> Any:
        """Take the oldest message; waits for one if there is none.

        With `release_slot`, the run has no slot while it waits.
        """
        await self._body.check_open()
        while not self._body.inbox:
            if release_slot:
                async with self._body.released("message"):
                    await self._body.wait_for_message()
                await self._body.check_cancelled()
            else:
                await self._body.wait_for_message()
        message, *self._body.inbox = self._body.inbox
        self._body.last_taken = message.seq
        self._body.host.tell(TookMessages(message.seq))
        return message.value

    @asynccontextmanager
    async def streaming(self) -> AsyncIterator[None]:
        """A phase in which a job with `accepts="streaming"` accepts messages."""
        async with self._body.phase("streaming"):
            yield

    @asynccontextmanager
    async def compacting(self, timeout: float = 120) -> AsyncIterator[None]:
        """A phase in which no messages are accepted. Raises `trio.TooSlowError` after `timeout` seconds."""
        with trio.fail_after(check_seconds("timeout", timeout, 120)):
            async with self._body.phase("compacting"):
                yield

    async def end_interactive(self) -> None:
        """Begin post-processing: from now on the run accepts no messages and cannot be cancelled."""
        await self._body.check_open()
        await self._body.ask_shielded(SetPhase("interactive", False))

    async def interrupt(
        self,
        data: Any,
        timeout: float | None = 300,
        key: str | None = None,
        release_slot: bool = False,
    ) -> Any:
        """Open an interrupt and wait for the answer; returns `None` if it timed out.

        Every denial is false: `None`, and an answer whose `approved` is not `True`, such as the answer after
        a cancel or a shutdown.
        If the same interrupt with the same key was answered since the last checkpoint, that answer is
        returned immediately. The default key is the position of the interrupt.
        """
        await self._body.check_open()
        position = self._body.interrupts.begin()
        completed = True
        try:
            key = self._body.default_key(position) if key is None else check_name("key", key)
            seconds = check_seconds("timeout", timeout, 300)
            limit = None if seconds == math.inf else seconds
            request = OpenInterrupt(self._body.value(data, "interrupt"), limit, key, release_slot)
            return await self._answer_to(request)
        except trio.Cancelled:
            completed = not self._body.resumes_later  # else the next body opens it again
            raise
        finally:
            if completed:
                self._body.interrupts.end(position)

    async def confirm(
        self,
        data: Any,
        timeout: float | None = 300,
        key: str | None = None,
        release_slot: bool = False,
    ) -> bool:
        """Open an interrupt for approval; returns whether the answer is `True` or has `"approved": True`.

        Every other answer, a timeout, a cancel and a shutdown return false.
        """
        return approves(await self.interrupt(data, timeout, key, release_slot))

    async def _answer_to(self, request: OpenInterrupt) -> Any:
        opened, answer = self._body.host.open_interrupt(request)
        with trio.CancelScope(shield=True):
            released = await self._body.wait(opened)
        try:
            return with_truth(copied(await self._body.wait(answer)))
        except trio.Cancelled:
            self._body.host.tell(WithdrawInterrupt(request.key))
            raise
        finally:
            if released:
                await self._body.resume()

    async def sleep(self, seconds: float, release_slot: bool = True) -> None:
        """Sleep. The run has no slot while it sleeps, unless `release_slot` is false."""
        await self._body.check_open()
        if seconds is None:
            raise Invalid(
                "seconds must be a number (got None): pass math.inf to sleep until cancelled", value="None"
            )
        seconds = check_seconds("seconds", seconds, 0)
        wakes_at = trio.current_time() + seconds
        if not release_slot:
            await self._body.nap(wakes_at)
            return
        async with self._body.released("time", None if seconds == math.inf else seconds):
            await self._body.nap(wakes_at)
        await self._body.check_cancelled()

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
        self,
        job: str | AnyJob,
        *,
        handle: str,
        params: Any = None,
        **options: Unpack[CallKeywords],
    ) -> Any:
        """Execute a child run and return its result; converts and raises like `Ticket.result`.

        The child is cancelled with this run. By default it waits for its handle. A handle of this run, or of
        a run that waits for this run, is a conflict.
        """
        await self._body.check_open()
        check_keywords("call", options)
        options.setdefault("on_conflict", "queue")
        name = self._body.host.name_of(job)
        child = SubmitOptions(job=name, handle=handle, params=params, **tracing.carry(options))
        position = self._body.calls.begin()
        completed = True
        try:
            return raise_unless_succeeded(await self._end_of_child(position, child), typed_job(job))
        except trio.Cancelled:
            completed = not self._body.resumes_later  # else the next body calls it again
            raise
        finally:
            if completed:
                self._body.calls.end(position)

    async def _end_of_child(self, position: int, options: SubmitOptions) -> RunRecord | None:
        body = self._body
        child = await body.host.call_child(position, options, body.shielded)
        try:
            async with body.released("child"):
                await body.wait(child.ended)
                record = await child.record()
        except BaseException:
            if child.own and not body.resumes_later:
                body.host.tell(DropChild(child.run))
            raise
        await body.check_cancelled()
        return record

    @asynccontextmanager
    async def open_file(self, path: str, *, overwrite: bool = False) -> AsyncIterator[RunFile]:
        """Write a file of the handle with `await f.write(data)`.

        The complete file appears under its name when the block ends without an exception.
        """
        await self._body.check_open()
        with trio.CancelScope(shield=True):  # otherwise a file could be created and never tracked
            files = self._body.surroundings.files
            part = await files.create(self.handle, path, self.id, overwrite=overwrite)
        self._body.parts[part] = False
        try:
            yield RunFile(self._body, part)
            await self._body.check_open()
            self._body.parts[part] = part.path not in self._body.finished_files
            await self._body.ask(FinishFile(part.path))
            with trio.CancelScope(shield=True):
                await part.finish()
            self._body.finished_files = (*self._body.finished_files, part.path)
        except BaseException:
            if self._body.parts[part]:
                await self._body.give_up([part])
            await self._body.discard(part)
            raise
        finally:
            del self._body.parts[part]


def body_of(run: Run) -> Body:
    """The body behind a `Run`, for the engine's own jobs."""
    return run._body
