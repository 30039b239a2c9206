"""The client's `flows`: the methods of `engine.flows`, each as one command over the connection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from ...actors import tracing
from ...protocol.errors import Invalid
from ...protocol.flow import commands as wire
from ...protocol.flow.records import FlowRow, FlowTask, NodeRun, VersionRow, VersionStatus
from ...protocol.names import check_name
from ...protocol.submission import FlowKeywords, flow_options
from ...protocol.validation import check_page, check_statuses, check_text, check_version, check_version_status
from ...protocol.values import json_value
from .calls import expected
from .link import Link
from .ticket import ClientTicket

if TYPE_CHECKING:
    from ...protocol.flow.check import Checked
    from .client import Client


class ClientFlows:
    """See `Flows`."""

    def __init__(self, link: Link, client: Client) -> None:
        self._link = link
        self._client = client

    # Flows and versions.

    async def check(self, definition: Mapping[str, Any] | str) -> Checked:
        """See `Flows.check`. The gateway checks with the settings of its engine."""
        from ...protocol.flow.check import Checked, check  # a large import that few programs need
        from ...protocol.flow.reading import read_graph

        plain = _sendable(definition)
        if plain is None:
            return check(definition)
        command = wire.CheckFlow(id=self._link.number(), definition=plain)
        ok = await self._link.ask(command, repeatable=True)
        errors = ok.errors or []
        return Checked(None if errors else read_graph(plain), errors, ok.warnings or [])

    async def create(self, name: str, description: str = "") -> FlowRow:
        """See `Flows.create`."""
        check_text("description", description)
        name = check_name("name", name)
        command = wire.CreateFlow(id=self._link.number(), name=name, description=description)
        return expected((await self._link.ask(command)).flow)

    async def publish(
        self,
        name: str,
        definition: Mapping[str, Any] | str,
        *,
        version: int | None = None,
        status: VersionStatus = "published",
    ) -> VersionRow:
        """See `Flows.publish`."""
        make = partial(wire.PublishFlow, name=check_name("name", name))
        return await self._add(make, definition, version, status)

    async def add_version(
        self,
        flow: str,
        definition: Mapping[str, Any] | str,
        *,
        version: int | None = None,
        status: VersionStatus = "published",
    ) -> VersionRow:
        """See `Flows.add_version`."""
        check_text("flow", flow)
        make = partial(wire.AddFlowVersion, flow=flow)
        return await self._add(make, definition, version, status)

    async def _add(
        self,
        make: Callable[..., wire.PublishFlow | wire.AddFlowVersion],
        definition: Mapping[str, Any] | str,
        version: int | None,
        status: VersionStatus,
    ) -> VersionRow:
        check_version(version)
        check_version_status(status)
        plain = _definition(definition)
        command = make(id=self._link.number(), definition=plain, version=version, status=status)
        return expected((await self._link.ask(command)).version)

    async def list(self, limit: int = 20, offset: int = 0) -> tuple[Sequence[FlowRow], int]:
        """See `Flows.list`."""
        check_page(limit, offset)
        parts = await self._link.ask_for_parts(
            wire.ListFlows(id=self._link.number(), limit=limit, offset=offset)
        )
        return [flow for part in parts for flow in part.flows or ()], parts[-1].total or 0

    async def versions(self, flow: str, *, limit: int = 1000, offset: int = 0) -> Sequence[VersionRow]:
        """See `Flows.versions`."""
        check_text("flow", flow)
        check_page(limit, offset)
        parts = await self._link.ask_for_parts(
            wire.ListFlowVersions(id=self._link.number(), flow=flow, limit=limit, offset=offset)
        )
        return [version for part in parts for version in part.versions or ()]

    async def version(self, id: str) -> VersionRow:
        """See `Flows.version`."""
        check_text("id", id)
        command = wire.GetFlowVersion(id=self._link.number(), version_id=id)
        return expected((await self._link.ask(command, repeatable=True)).version)

    # Runs of flows.

    async def start(
        self,
        flow: str,
        *,
        version: int = 0,
        params: Mapping[str, Any] | None = None,
        handle: str | None = None,
        **options: Unpack[FlowKeywords],
    ) -> ClientTicket[Any]:
        """See `Flows.start`. The start is sent again if the connection is lost, and creates one run: without
        a `request_id`, the client generates one."""
        check_text("flow", flow)
        if handle is not None:
            check_name("handle", handle)
        options = tracing.carry(options)
        given = flow_options(flow, version, json_value(params, "params", None), handle, **options)
        command = partial(wire.StartFlow, **given.params)
        return await self._client.send_submission(given, command)

    async def task(self, run_id: str) -> FlowTask:
        """See `Flows.task`."""
        check_text("run_id", run_id)
        ok = await self._link.ask(wire.GetTask(id=self._link.number(), run_id=run_id), repeatable=True)
        return expected(ok.task)

    async def tasks(
        self,
        *,
        status: str | Iterable[str] | None = None,
        version: str | None = None,
        limit: int = 20,
        offset: int = 0,
    ) -> tuple[Sequence[FlowTask], int]:
        """See `Flows.tasks`."""
        check_page(limit, offset)
        if version is not None:
            check_text("version", version)
        command = wire.ListTasks(
            id=self._link.number(),
            status=None if status is None else sorted(check_statuses(status)),
            version=version,
            limit=limit,
            offset=offset,
        )
        parts = await self._link.ask_for_parts(command)
        return [task for part in parts for task in part.tasks or ()], parts[-1].total or 0

    async def node_runs(self, run_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[NodeRun]:
        """See `Flows.node_runs`."""
        check_text("run_id", run_id)
        check_page(limit)
        parts = await self._link.ask_for_parts(
            wire.NodeRuns(id=self._link.number(), run_id=run_id, after=after, limit=limit)
        )
        return [row for part in parts for row in part.node_runs or ()]


def _sendable(definition: Mapping[str, Any] | str) -> str | dict[str, Any] | None:
    """A definition as a JSON value; `None` if it is not one."""
    try:
        plain = json_value(definition, "definition", None)
    except Invalid:
        return None
    return plain if isinstance(plain, str | dict) else None


def _definition(definition: Mapping[str, Any] | str) -> str | dict[str, Any]:
    plain = _sendable(definition)
    if plain is None:
        from ...protocol.flow.check import check

        errors = check(definition).errors
        raise Invalid("the definition is not valid: " + "; ".join(errors), errors=errors)
    return plain
