"""What a simulated client says to flows: the methods of `engine.flows`, each call traced like the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....protocol.flow.records import FlowRow, FlowTask, NodeRun, VersionRow, VersionStatus

if TYPE_CHECKING:
    from ...world.client import Client, SimulatedTicket


class FlowsClient:
    """See the module's text."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, name: str, description: str = "") -> FlowRow:
        row: FlowRow = await self._client.command("flows.create", name, description)
        return row

    async def publish(
        self,
        name: str,
        definition: Mapping[str, Any] | str,
        *,
        version: int | None = None,
        status: VersionStatus = "published",
    ) -> VersionRow:
        row: VersionRow = await self._client.command(
            "flows.publish", name, definition, version=version, status=status
        )
        return row

    async def add_version(
        self,
        flow: str,
        definition: Mapping[str, Any] | str,
        *,
        version: int | None = None,
        status: VersionStatus = "published",
    ) -> VersionRow:
        row: VersionRow = await self._client.command(
            "flows.add_version", flow, definition, version=version, status=status
        )
        return row

    async def start(self, flow: str, **options: Any) -> SimulatedTicket:
        """The options are those of `engine.flows.start`."""
        return self._client.ticket(await self._client.command("flows.start", flow, **options))

    async def task(self, run_id: str) -> FlowTask:
        task: FlowTask = await self._client.ask("flows.task", run_id)
        return task

    async def node_runs(self, run_id: str) -> Sequence[NodeRun]:
        server = self._client.server
        since = server.rules.flows.shown_until(run_id)
        rows: Sequence[NodeRun] = await self._client.ask("flows.node_runs", run_id)
        server.judge(server.rules.flows.shown, run_id, rows, since)
        return rows

    async def tasks(self, **options: Any) -> tuple[Sequence[FlowTask], int]:
        """The options are those of `engine.flows.tasks`."""
        page: tuple[Sequence[FlowTask], int] = await self._client.ask("flows.tasks", **options)
        return page

    async def versions(self, flow: str) -> Sequence[VersionRow]:
        versions: Sequence[VersionRow] = await self._client.ask("flows.versions", flow)
        return versions
