"""The tasks of an executor besides bodies: it calls functions of flows, and deletes files.

A task belongs to the session in which the engine has requested it. In a new session, the engine requests
again what it still needs: functions of the previous session are cancelled, and only that they have ended is
reported. Until then, the engine calls no other function for their runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

import msgspec
import trio

from ..actors import tracing
from ..actors.functions import call_function
from ..actors.jobs import Jobs
from ..actors.run.execution import LiveBodies
from ..actors.run.failures import error_text
from ..persistence.files import Files
from ..protocol.errors import GreenroomError
from ..protocol.executors import (
    CallFunction,
    CancelFunction,
    DeleteFiles,
    FilesDeleted,
    FromExecutor,
    FunctionEnded,
    LiveFunction,
)
from ..protocol.tracecontext import trace_context
from ..protocol.values import json_value
from .failures import ProcessEnding


class _Function(msgspec.Struct):
    """A function that has not ended. `id` is that of its call, if the call was made in this session."""

    id: int | None
    run: str
    scope: trio.CancelScope = msgspec.field(default_factory=trio.CancelScope)
    lapsed: str | None = None


class Tasks:
    """See the module's docstring. `send` sends a message to the engine, and `interrupt` is called with errors
    that must end the process."""

    def __init__(
        self,
        jobs: Jobs,
        files: Files,
        live: LiveBodies,
        nursery: trio.Nursery,
        send: Callable[[FromExecutor], None],
        interrupt: Callable[[BaseException], None],
    ) -> None:
        self.max_value_bytes = 1 << 20
        self._jobs = jobs
        self._files = files
        self._nursery = nursery
        self._send = send
        self._live = live
        self._interrupt = interrupt
        self._functions: dict[int, _Function] = {}  # by number
        self._announced: Sequence[LiveFunction] = ()
        self._numbers = itertools.count(1)
        self._session = object()

    def __len__(self) -> int:
        return len(self._functions)

    @property
    def functions(self) -> Sequence[LiveFunction]:
        """The functions that have not ended. Can be called from any thread."""
        return [LiveFunction(number, found.run) for number, found in list(self._functions.items())]

    def announce(self) -> tuple[LiveFunction, ...]:
        """The functions for `attach`."""
        self._announced = self.functions
        return tuple(self._announced)

    def repeats(self) -> Iterator[FromExecutor]:
        """What a new session begins with: the ends of functions that were announced to it."""
        for function in self._announced:
            if function.number not in self._functions:
                yield FunctionEnded(-function.number)

    def new_session(self) -> None:
        """Cancel all functions: a new session has begun."""
        self._session = object()
        for function in self._functions.values():
            function.id = None
            function.scope.cancel()

    def lapse(self, why: str) -> None:
        """Cancel all functions: the executor cannot reach its engine."""
        for function in self._functions.values():
            function.lapsed = why
            function.scope.cancel()

    def call(self, message: CallFunction) -> None:
        """Call a function."""
        number = next(self._numbers)
        function = self._functions[number] = _Function(message.id, message.run)
        self._nursery.start_soon(self._call, message, number, function)

    def cancel(self, message: CancelFunction) -> None:
        """Cancel a function."""
        for function in self._functions.values():
            if function.id == message.id:
                function.scope.cancel()

    def delete(self, message: DeleteFiles) -> None:
        """Delete files."""
        self._nursery.start_soon(self._delete, message, self._session)

    async def _call(self, message: CallFunction, number: int, function: _Function) -> None:
        ended = FunctionEnded(message.id, error="cancelled", code="cancelled")
        with function.scope:
            if self._live.may_begin is not None:
                await self._live.may_begin()
            ended = await self._ended(message)
        if function.lapsed is not None:
            ended = FunctionEnded(message.id, error=function.lapsed, code="crashed")
        del self._functions[number]
        self._send(ended if function.id is not None else FunctionEnded(-number))

    async def _ended(self, message: CallFunction) -> FunctionEnded:
        try:
            trace = trace_context(message.traceparent, message.tracestate)
            span = tracing.start_around_code(f"function {message.name}", "consumer", trace, run=message.run)
            with span or nullcontext():
                value = await call_function(self._jobs, message.name, message.input, message.params)
        except Exception as error:  # the function failed
            return FunctionEnded(message.id, error=error_text(error))
        except (KeyboardInterrupt, SystemExit) as error:
            self._interrupt(ProcessEnding(f"function {message.name!r} of run {message.run}", error))
            return FunctionEnded(message.id, error=error_text(error))
        try:
            return FunctionEnded(message.id, json_value(value, "result", self.max_value_bytes))
        except GreenroomError as error:
            return FunctionEnded(message.id, error=error.message, code="bad_answer")

    async def _delete(self, message: DeleteFiles, session: object) -> None:
        error = None
        try:
            await self._files.delete(message.handle, message.paths)
            await self._files.remove_parts(message.handle, message.run)
        except OSError as failure:
            error = str(failure)
        if session is self._session:
            self._send(FilesDeleted(message.id, error))
