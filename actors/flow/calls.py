"""What a node may have executed: a service of a worker, a function of this process, a script.

Each is one try: it returns a `Done`, and never raises but for what ends the walk.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal

import msgspec
import trio

from ...protocol.errors import GreenroomError
from ...protocol.flow.model import Script
from ...protocol.values import copied, json_value
from ..run.failures import error_text
from ..workers.states import Work, WorkFailed
from .node_context import Done, NodeContext
from .scripts import run_script

_TIMEOUT = 60.0
"""Seconds that a push worker or a script has, unless the node says otherwise."""

_UNLIMITED = trio.CapacityLimiter(math.inf)
"""Slots limit how much is walked at once; a limit on threads beside that could only deadlock."""


class Tried(msgspec.Struct):
    """The workers that have tried before; `again` is the one that is to try once more."""

    workers: list[str] = []
    again: str | None = None


class ServiceCall(msgspec.Struct, frozen=True):
    """A service of a worker that is pushed to (`http`) or pulls (`queue`)."""

    service: str
    kind: Literal["http", "queue"]
    input: Any
    params: dict[str, Any]


class FunctionCall(msgspec.Struct, frozen=True):
    """A function that is registered in the process."""

    name: str
    input: Any
    params: dict[str, Any]


class ScriptCall(msgspec.Struct, frozen=True):
    """A program with its arguments."""

    script: Script
    input: Any
    params: dict[str, Any]


Call = ServiceCall | FunctionCall | ScriptCall


def service_or_function(exec_type: str, name: str, input: Any, params: dict[str, Any]) -> Call:
    """A branch's call."""
    if exec_type == "local":
        return FunctionCall(name, input, params)
    return ServiceCall(name, "queue" if exec_type == "queue" else "http", input, params)


async def make(context: NodeContext[Any], call: Call, branch: str | None, done: Done, tried: Tried) -> None:
    """One try. `done` is filled in on the way, so that one which is cancelled can tell how far it came."""
    match call:
        case ServiceCall():
            done.input = {"input": call.input, "params": call.params}
            await _call_service(context, call, branch, done, tried)
        case FunctionCall():
            done.input = {"input": call.input}
            await _in_time(context, None, done, partial(_call_function, context, call))
        case ScriptCall():
            script, own = call.script, call.script.timeout_ms
            done.input = {"arguments": [script.cmd, *script.args], "input": call.input}
            limit = _TIMEOUT if own is None else own / 1000
            await _in_time(
                context, limit, done, partial(_call_script, context, call), shortest=own is not None
            )


async def _call_service(
    context: NodeContext[Any], call: ServiceCall, branch: str | None, done: Done, tried: Tried
) -> None:
    timeout_ms = context.node.timeout_ms
    default = math.inf if call.kind == "queue" else _TIMEOUT  # there, the lease is what limits it
    run = context.walk.body.id
    work = Work(
        service=call.service,
        run=run,
        node=context.path,
        key=f"{run}:{context.path}:{context.number}:{branch or ''}",
        input=call.input,
        params=call.params,
        timeout=default if timeout_ms is None else timeout_ms / 1000,
    )
    dispatch = context.walk.services.dispatch
    try:
        if call.kind == "queue":
            worked = await dispatch.offer(work, given=done.given_to)
        else:
            worked = await dispatch.push(
                work,
                given=done.given_to,
                worker=tried.again,
                avoid=tried.workers,
                weighted_by_load=context.node.weighted_by_load,
            )
    except WorkFailed as failed:
        if failed.worker is not None:
            done.given_to(failed.worker, failed.worker_url or "")
        done.fail(failed.code, failed.message)
        done.workers_fault, done.outcome = failed.workers_fault, failed
    else:
        if worked.worker is not None:
            done.given_to(worked.worker, worked.worker_url or "")
        done.output, done.outcome = worked.result, worked


async def _in_time(
    context: NodeContext[Any],
    default: float | None,
    done: Done,
    call: Callable[[], Awaitable[Any]],
    *,
    shortest: bool = False,
) -> None:
    """Call what runs here, for as long as the node allows, and with `shortest` not longer than the default.
    Whatever it raises is its failure."""
    timeout_ms = context.node.timeout_ms
    seconds = default if timeout_ms is None else timeout_ms / 1000
    if shortest and seconds is not None and default is not None:
        seconds = min(seconds, default)
    with trio.move_on_after(math.inf if seconds is None else seconds) as scope:
        try:
            output = await call()
        except Exception as error:  # the function's own failure, whatever it is
            done.fail("service_error", error_text(error))
        else:
            _take(done, output, context.walk.body.max_value_bytes)
    if scope.cancelled_caught:
        done.fail("timeout", f"not done within {seconds:g} s")


def _take(done: Done, output: Any, max_bytes: int) -> None:
    try:
        done.output = json_value(output, "result", max_bytes)
    except GreenroomError as error:
        done.fail("bad_answer", error.message)


async def _call_function(context: NodeContext[Any], call: FunctionCall) -> Any:
    found = context.walk.services.jobs.find_function(call.name)
    if found is None:
        raise LookupError(f"no function is registered as {call.name!r}")
    arguments = [copied(call.input)]
    if found.takes_params:
        arguments.append(copied(call.params))
    if found.in_thread:
        return await trio.to_thread.run_sync(found.function, *arguments, limiter=_UNLIMITED)
    return await found.function(*arguments)


async def _call_script(context: NodeContext[Any], call: ScriptCall) -> Any:
    if not context.walk.services.allow_scripts:
        raise PermissionError("scripts are not allowed here: the operator has to say allow_scripts")
    given = {"input": call.input, "params": call.params}
    return await run_script(call.script, given, context.walk.body.max_value_bytes)
