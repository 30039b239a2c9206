"""What a node can call: a service of a worker, a function, a script.

Each call is one attempt. It records its outcome in a `Done` and raises only what ends the walk.
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
from ...protocol.tracecontext import TraceContext, trace_context
from ...protocol.values import json_value
from .. import tracing
from ..executors.functions import FunctionFailed
from ..functions import call_function
from ..run.failures import error_text
from ..workers.states import Work, WorkFailed
from .node_context import Done, NodeContext
from .scripts import run_script

_TIMEOUT = 60.0
"""Time limit in seconds for a push worker or a script, unless the node sets one."""


class TriedWorkers(msgspec.Struct):
    """The workers that have made an attempt; `again` is the worker that makes the next attempt."""

    workers: list[str] = []
    again: str | None = None


class ServiceCall(msgspec.Struct, frozen=True):
    """A service of a worker that is called (`http`) or polls (`queue`)."""

    service: str
    kind: Literal["http", "queue"]
    input: Any
    params: dict[str, Any]


class FunctionCall(msgspec.Struct, frozen=True):
    """A function that is registered with the jobs, in this process or in an executor."""

    name: str
    input: Any
    params: dict[str, Any]


class ScriptCall(msgspec.Struct, frozen=True):
    """A program and its arguments."""

    script: Script
    input: Any
    params: dict[str, Any]


Call = ServiceCall | FunctionCall | ScriptCall


def service_or_function(exec_type: str, name: str, input: Any, params: dict[str, Any]) -> Call:
    """The call of a branch."""
    if exec_type == "local":
        return FunctionCall(name, input, params)
    return ServiceCall(name, "queue" if exec_type == "queue" else "http", input, params)


async def execute_once(
    context: NodeContext[Any], call: Call, branch: str | None, done: Done, tried: TriedWorkers
) -> None:
    """Make one attempt. Fills in `done` during the attempt, so that a cancelled one can be recorded."""
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
    context: NodeContext[Any], call: ServiceCall, branch: str | None, done: Done, tried: TriedWorkers
) -> None:
    timeout_ms = context.node.timeout_ms
    default = math.inf if call.kind == "queue" else _TIMEOUT  # a queue item is limited by its lease
    run = context.walk.body.id
    work = Work(
        service=call.service,
        run=run,
        node=context.path,
        key=f"{run}:{context.path}:{context.number}:{branch or ''}",
        input=call.input,
        params=call.params,
        timeout=default if timeout_ms is None else timeout_ms / 1000,
        trace=_trace_of(context),
    )
    dispatch = context.walk.services.dispatch
    try:
        if call.kind == "queue":
            worked = await dispatch.offer(work, on_assigned=done.assigned_to)
        else:
            worked = await dispatch.push(
                work,
                on_assigned=done.assigned_to,
                worker=tried.again,
                avoid=tried.workers,
                weighted_by_load=context.node.weighted_by_load,
            )
    except WorkFailed as failed:
        if failed.worker is not None:
            done.assigned_to(failed.worker, failed.worker_url or "")
        done.fail(failed.code, failed.message)
        done.workers_fault, done.outcome = failed.workers_fault, failed
    else:
        if worked.worker is not None:
            done.assigned_to(worked.worker, worked.worker_url or "")
        done.output, done.outcome = worked.result, worked


def _trace_of(context: NodeContext[Any]) -> TraceContext | None:
    order = context.walk.body.order
    return trace_context(order.traceparent, order.tracestate)


async def _in_time(
    context: NodeContext[Any],
    default: float | None,
    done: Done,
    call: Callable[[], Awaitable[Any]],
    *,
    shortest: bool = False,
) -> None:
    """Execute a call of a function or a script within the node's timeout, and with `shortest` also within the
    default. An exception is recorded as the call's failure."""
    timeout_ms = context.node.timeout_ms
    seconds = default if timeout_ms is None else timeout_ms / 1000
    if shortest and seconds is not None and default is not None:
        seconds = min(seconds, default)
    with trio.move_on_after(math.inf if seconds is None else seconds) as scope:
        try:
            output = await call()
        except FunctionFailed as failed:
            done.fail(failed.code, failed.text)
        except Exception as error:  # the function or the script failed
            done.fail("service_error", error_text(error))
        else:
            _set_output(done, output, context.walk.host.max_value_bytes)
    if scope.cancelled_caught:
        done.fail("timeout", f"not finished within {seconds:g} s")


def _set_output(done: Done, output: Any, max_bytes: int) -> None:
    try:
        done.output = json_value(output, "result", max_bytes)
    except GreenroomError as error:
        done.fail("bad_answer", error.message)


async def _call_function(context: NodeContext[Any], call: FunctionCall) -> Any:
    walk = context.walk
    functions = walk.services.functions
    if functions is None:
        return await call_function(walk.services.jobs, call.name, call.input, call.params)
    return await functions.call(
        call.name,
        call.input,
        call.params,
        run=walk.body.id,
        recovered=walk.host.recovered,
        waits=partial(walk.log_wait, context),
        trace=tracing.current() or _trace_of(context),
    )


async def _call_script(context: NodeContext[Any], call: ScriptCall) -> Any:
    if not context.walk.services.allow_scripts:
        raise PermissionError("scripts are not allowed: the operator must set allow_scripts")
    given = {"input": call.input, "params": call.params}
    return await run_script(call.script, given, context.walk.host.max_value_bytes)
