"""One module per kind of node. Its function executes a visit and returns the outcome or a pause."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ....protocol.flow import model
from ...run.pause import Pause
from ..node_context import Done, NodeContext
from .approval import approval
from .choice import choice
from .executor import executor
from .flow_ref import flow_ref
from .foreach import foreach
from .local import local
from .parallel import parallel
from .subflow import subflow
from .timer import timer
from .wait_event import wait_event

KINDS: dict[type[model.Node], Callable[[NodeContext[Any]], Awaitable[Done | Pause]]] = {
    model.Executor: executor,
    model.Local: local,
    model.Choice: choice,
    model.Parallel: parallel,
    model.Foreach: foreach,
    model.Subflow: subflow,
    model.FlowRef: flow_ref,
    model.Timer: timer,
    model.WaitEvent: wait_event,
    model.Approval: approval,
}
