"""`engine.flows`: the calls for flows, their versions and their runs. The gateway uses the same API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import msgspec
import trio

from ...persistence.flows import FlowRunQuery, FlowState, StoredFlow
from ...persistence.store import Store
from ...protocol.errors import Invalid, NotFound
from ...protocol.flow.records import FlowRow, FlowTask, NodeRun, VersionRow, VersionStatus
from ...protocol.names import check_name
from ...protocol.patterns import Within
from ...protocol.records import RunRecord
from ...protocol.submission import FlowKeywords, flow_options
from ...protocol.validation import (
    check_limit,
    check_page,
    check_statuses,
    check_text,
    check_version,
    check_version_status,
)
from ...protocol.values import shown
from .. import tracing
from ..channel import Reply
from ..engine.entry_point import EntryPoint
from ..engine.ticket import Ticket
from .catalog import AddVersion, CreateFlow, DigestNeeded, FindVersions, ListFlows, ListVersions, digest_of
from .services import FlowServices
from .view import current_state

if TYPE_CHECKING:
    from ...protocol.flow.check import Checked
    from ..engine.api import Engine


class Flows:
    """The flows of an engine. `by` names who caused a change, in its event."""

    def __init__(self, entry: EntryPoint, services: FlowServices, store: Store, engine: Engine) -> None:
        self._entry = entry
        self._services = services
        self._catalog = services.catalog
        self._store = store
        self._engine = engine

    # Flows and versions.

    async def check(self, definition: Mapping[str, Any] | str) -> Checked:
        """Check a definition (an object, or a string of JSON or YAML); returns all errors and warnings."""
        # Imported on demand: many engines never check a definition.
        from ...protocol.flow.check import check

        await trio.lowlevel.checkpoint()
        return check(definition, allow_scripts=self._services.allow_scripts)

    async def create(self, name: str, description: str = "", *, by: str = "app") -> FlowRow:
        """Create a flow without versions. Raises `Conflict` if the name is taken."""
        check_text("description", description)
        make = CreateFlow(check_name("name", name), description, check_name("by", by), Reply())
        flow: FlowRow = await self._entry.ask(make, self._catalog)
        return flow

    async def publish(
        self,
        name: str,
        definition: Mapping[str, Any] | str,
        *,
        version: int | None = None,
        status: VersionStatus = "published",
        by: str = "app",
    ) -> VersionRow:
        """Add a version to the flow of this name, and create the flow if necessary. Raises `Invalid`, with
        all errors in `details.errors`, if the definition has any."""
        check_name("name", name)
        return await self._add(name, definition, version, status, by, make=True)

    async def add_version(
        self,
        flow: str,
        definition: Mapping[str, Any] | str,
        *,
        version: int | None = None,
        status: VersionStatus = "published",
        by: str = "app",
    ) -> VersionRow:
        """Add a version to a flow, given by id or name. Without a number it gets the next one. A draft can be
        replaced, a published version cannot."""
        check_text("flow", flow)
        return await self._add(flow, definition, version, status, by, make=False)

    async def put_version(
        self,
        flow: str,
        definition: Mapping[str, Any] | str,
        *,
        version: int | None = None,
        status: VersionStatus = "published",
        by: str = "app",
    ) -> VersionRow:
        """Add a version on behalf of a client that does not know the existing versions and ignores errors.

        A published version of this number is not changed. If its definition or the latest version's is the
        same, that version is returned, without its definition; otherwise this definition becomes the next
        version. A definition without `unhandled_errors` is stored with `continue`."""
        check_text("flow", flow)
        plain = await self._checked(definition, version, status)
        text = _json({**plain, "unhandled_errors": plain.get("unhandled_errors") or "continue"})
        known: dict[str, bytes] = {}
        digest = digest_of(text)
        while True:
            reply: Reply[VersionRow | DigestNeeded] = Reply()
            add = AddVersion(flow, version, status, text, False, check_name("by", by), reply, known, digest)
            found: VersionRow | DigestNeeded = await self._entry.ask(add, self._catalog)
            if isinstance(found, VersionRow):
                return found
            known[found.version] = digest_of((await self.version(found.version)).definition)

    async def _add(
        self,
        flow: str,
        definition: Mapping[str, Any] | str,
        version: int | None,
        status: VersionStatus,
        by: str,
        *,
        make: bool,
    ) -> VersionRow:
        text = _json(await self._checked(definition, version, status))
        add = AddVersion(flow, version, status, text, make, check_name("by", by), Reply())
        row: VersionRow = await self._entry.ask(add, self._catalog)
        return row

    async def _checked(
        self, definition: Mapping[str, Any] | str, version: int | None, status: VersionStatus
    ) -> dict[str, Any]:
        """The definition as a plain object; raises `Invalid` if it has errors."""
        check_version(version)
        check_version_status(status)
        checked = await self.check(definition)
        if checked.errors:
            raise Invalid("the definition is not valid: " + "; ".join(checked.errors), errors=checked.errors)
        from ...protocol.flow.documents import parse

        plain: dict[str, Any] = parse(definition)[0]
        return plain

    async def list(self, limit: int = 20, offset: int = 0) -> tuple[Sequence[FlowRow], int]:
        """A page of the flows, in the order of their creation, and the total number of flows."""
        check_page(limit, offset)
        page: tuple[Sequence[FlowRow], int] = await self._entry.ask(
            ListFlows(limit, offset, Reply()), self._catalog
        )
        return page

    async def versions(self, flow: str, *, limit: int = 1000, offset: int = 0) -> Sequence[VersionRow]:
        """A page of a flow's versions, without definitions, in the order of their numbers: the latest ones,
        after skipping the `offset` very latest."""
        check_text("flow", flow)
        check_page(limit, offset)
        versions: Sequence[VersionRow] = await self._entry.ask(
            ListVersions(flow, limit, offset, Reply()), self._catalog
        )
        return versions

    async def definitions(self, flow: str, *, limit: int = 100, offset: int = 0) -> Sequence[VersionRow]:
        """A page of versions with their definitions, the latest first; at most 16 MiB in total."""
        rows = await self.versions(flow, limit=limit, offset=offset)
        return await self._store.versions([row.id for row in reversed(rows)]) if rows else []

    async def version(self, id: str) -> VersionRow:
        """A version, with its definition."""
        check_text("id", id)
        self._entry.check_open()
        row = await self._store.version(id)
        if row is None:
            raise NotFound(f"flow version {shown(id)} not found", value=id)
        return row

    # Runs of flows.

    async def start(
        self,
        flow: str,
        *,
        version: int = 0,
        params: Mapping[str, Any] | None = None,
        handle: str | None = None,
        by: str = "app",
        **options: Unpack[FlowKeywords],
    ) -> Ticket[Any]:
        """Submit a run of a flow, given by name or id. Without a handle, the run gets its own: `task:` and
        its id."""
        return await self._engine.submit_options(
            flow_options(flow, version, params, handle, **tracing.carry(options)), by=by
        )

    async def task(self, run_id: str) -> FlowTask:
        """A run of a flow, or the active run of a handle, with the current shared data of its nodes."""
        check_text("run_id", run_id)
        self._entry.check_open()
        record, stored = await self._store.run(run_id), await self._store.flow(run_id)
        if record is None and (active := await self._entry.active_run(run_id)) is not None:
            return await self.task(active)
        if record is None or stored is None:
            raise NotFound(f"flow run {shown(run_id)} not found", value=run_id)
        requests = await self._store.request_ids([run_id])
        return await self._task(record, stored, await self._versions_of([stored.state]), requests)

    async def tasks(
        self,
        *,
        status: str | Iterable[str] | None = None,
        version: str | None = None,
        limit: int = 20,
        offset: int = 0,
        within: Within | None = None,
    ) -> tuple[Sequence[FlowTask], int]:
        """A page of the runs of flows, newest first, and their total number; `within` as in
        `Engine.list_runs`. A page has at most `limit` runs and at most 16 MiB."""
        check_page(limit, offset)
        if version is not None:
            check_text("version", version)
        statuses = None if status is None else check_statuses(status)
        self._entry.check_open()
        page = await self._store.flow_runs(FlowRunQuery(statuses, version, limit, offset, within))
        by_version = await self._versions_of([state for _, state in page.runs])
        requests = await self._store.request_ids([run.id for run, _ in page.runs])
        tasks = [
            await self._task(run, StoredFlow(state, [], []), by_version, requests) for run, state in page.runs
        ]
        return tasks, page.total

    async def node_runs(self, run_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[NodeRun]:
        """The node runs of a run, or of a handle's active run, in order: those with a number greater than
        `after`. A page has at most `limit` rows and at most 16 MiB; for the next page, `after` is the number
        of the last row."""
        check_text("run_id", run_id)
        check_page(limit)
        check_limit("after", after)
        self._entry.check_open()
        rows = await self._store.node_runs(run_id, after, limit)
        if not rows and await self._store.flow(run_id) is None:
            if (active := await self._entry.active_run(run_id)) is not None and active != run_id:
                return await self.node_runs(active, after=after, limit=limit)
            raise NotFound(f"flow run {shown(run_id)} not found", value=run_id)
        return rows

    async def _versions_of(self, states: Iterable[FlowState]) -> dict[str, tuple[FlowRow, VersionRow]]:
        find = FindVersions(sorted({state.version for state in states}), Reply())
        found: dict[str, tuple[FlowRow, VersionRow]] = await self._entry.ask(find, self._catalog)
        return found

    async def _task(
        self,
        run: RunRecord,
        stored: StoredFlow,
        by_version: dict[str, tuple[FlowRow, VersionRow]],
        requests: Mapping[str, str],
    ) -> FlowTask:
        state: FlowState = stored.state
        flow, version = by_version[state.version]
        walked = await current_state(stored, self._services.graphs, self._entry.max_value_bytes)
        return FlowTask(
            run=run,
            flow=flow,
            version=version,
            shared=walked.frame.shared,
            node=walked.frame.curr,
            last_action=walked.frame.last,
            steps=walked.steps,
            request_id=requests.get(run.id),
        )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
