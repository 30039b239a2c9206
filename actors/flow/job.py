"""The job `flow`, which every engine registers: its runs walk flows."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from ...persistence.flows import FlowState, StoredFlow
from ...persistence.store import Memo, Store
from ...protocol.errors import Invalid
from ...protocol.events import Event, NodeRan
from ...protocol.flow.records import NodeRun, NodeStatus
from ...protocol.names import FLOW
from ...protocol.states import Status
from ...protocol.values import shown
from ..channel import Reply
from ..jobs import Ask, Job, Prepared
from ..messages import Submission
from ..retry_options import exponential
from ..run.api import Run, body_of
from ..run.local_host import local_host
from ..run.pause import Pause
from .catalog import Resolve
from .services import FlowServices
from .state import Waits, WalkState, begin, from_text, to_text
from .view import current_node
from .walk import Walk

_RUN_TIMEOUT = 1800.0
_GRACE = 10.0


class FlowParams(msgspec.Struct, forbid_unknown_fields=True):
    """The parameters of a run of the job `flow`: the flow, its version (0 for the latest published one), and
    the parameters of its nodes."""

    flow: str
    version: int = 0
    params: dict[str, Any] = {}


class FlowJob:
    """See the module's docstring."""

    def __init__(self, store: Store, clock: Callable[[], float], max_value_bytes: int) -> None:
        self._store = store
        self._max_value_bytes = max_value_bytes
        self._clock = clock

    def begin(self, services: FlowServices) -> None:
        """Set what walks need; it is created after the job."""
        self._services = services

    def job(self) -> Job:
        """The job, as it is registered."""
        return Job(
            name=FLOW,
            function=self._body,
            params_type=FlowParams,
            in_thread=False,
            loop="trio",
            lane="main",
            max_attempts=1,
            backoff=exponential,
            resumable=True,
            run_timeout=_RUN_TIMEOUT,
            queue_timeout=math.inf,
            deadline=math.inf,
            grace=_GRACE,
            cancel="immediate",
            accepts="interactive",
            special=self,
        )

    async def prepare(self, run: str, params: Any, ask: Ask) -> Prepared:
        """Find the version to walk. The run keeps this version, even if another one is published later."""
        if params is None:
            raise Invalid(f"a run of the job {shown(FLOW)} requires parameters: flow, version, params")
        resolve = Resolve(params["flow"], params.get("version", 0), Reply())
        flow, row = await ask(resolve, self._services.catalog)
        graph = await self._services.graphs.get(row.id)
        state = to_text(begin(graph.start), self._max_value_bytes)
        kept = {"flow": flow.name, "version": row.version, "params": params.get("params", {})}
        return Prepared(kept, (FlowState(run, row.id, state, 0),))

    async def ends_waiting(
        self, submission: Submission, status: Status
    ) -> tuple[tuple[Event, ...], tuple[Memo, ...]]:
        """Record the end of a run without a body at the node where it waits, or at its next node."""
        await self._services.journal.look(
            lambda committed: committed.seq
        )  # after the commits of its last body
        stored = await self._stored(submission.id)
        walked = from_text(stored.state.state)
        waits = walked.waits or await self._in_flight(walked, stored.state.version)
        if waits is None:
            return (), ()
        attempts = [row for row in stored.later if (row.node, row.visit) == (waits.node, waits.visit)]
        attempt = 1 + sum(row.branch is None for row in attempts)
        how: NodeStatus = "timeout" if status is Status.TIMED_OUT else "cancelled"
        row = NodeRun(
            run=submission.id,
            number=(stored.later[-1].number if stored.later else stored.state.numbered) + 1,
            node=waits.node,
            visit=waits.visit,
            attempt=attempt,
            status=how,
            started_at=waits.since,
            finished_at=self._clock(),
        )
        event = NodeRan(
            by="engine",
            node=row.node,
            kind=waits.kind,
            visit=row.visit,
            attempt=attempt,
            status=how,
            started_at=row.started_at,
            **submission.about(),
        )
        return (event,), (row,)

    async def _in_flight(self, walked: WalkState, version: str) -> Waits | None:
        """The node that was in flight when the process of the run's last body ended."""
        graph = await self._services.graph(version)
        found = await current_node(walked.frame, graph, self._services.graph)
        if found is None:
            return None
        path, node, _ = found
        return Waits(path, node.kind, walked.visits.get(path, 0) + 1, self._clock())

    async def _stored(self, run: str) -> StoredFlow:
        stored = await self._services.journal.read(partial(self._store.flow, run))
        assert stored is not None, "the state of a flow is created with its run"
        return stored

    async def _body(self, run: Run, params: FlowParams) -> dict[str, Any] | Pause:
        later: list[NodeRun] = []
        body = body_of(run)
        state = local_host(body.host).take_first_state()
        if state is None:
            stored = await self._stored(run.id)
            state, later = stored.state, stored.later
        graph = await self._services.graph(state.version)
        walk = Walk(body, from_text(state.state), state, later, self._services)
        return await walk.go(graph, params.params)
