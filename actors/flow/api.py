"""`engine.flows`: what an application says to flows, and asks about them. The gateway calls the same."""

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
from ...protocol.submission import SubmitKeywords, flow_options
from ...protocol.validation import (
    check_limit,
    check_page,
    check_statuses,
    check_text,
    check_version,
    check_version_status,
)
from ...protocol.values import shown
from ..channel import Reply
from ..engine.entry_point import EntryPoint
from ..engine.ticket import Ticket
from .catalog import AddVersion, FindVersions, ListFlows, ListVersions, MakeFlow, Needed, digest_of
from .services import FlowServices
from .view import as_of_now

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

    # What there is to run.

    async def check(self, definition: Mapping[str, Any] | str) -> Checked:
        """All mistakes of a definition (an object, or a text of JSON or YAML), and what is doubtful."""
        from ...protocol.flow.check import (
            check,
        )  # with all that reads definitions: an engine may never need it

        await trio.lowlevel.checkpoint()
        return check(definition, allow_scripts=self._services.allow_scripts)

    async def create(self, name: str, description: str = "", *, by: str = "app") -> FlowRow:
        """Make a flow, which has no versions yet. Its name must be free."""
        check_text("description", description)
        make = MakeFlow(check_name("name", name), description, check_name("by", by), Reply())
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
        """Add a version to the flow of that name, which is made where there is none. `Invalid`, with all
        mistakes in `details.errors`, if the definition has any."""
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
        """Add a version to a flow, given by its id or name. Without a number it gets the next one. A draft
        may be replaced, a published version never."""
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
        """The same for programs that don't know which versions there are, and pass over errors. A published
        version of this number stays as it is: if its definition, or that of the latest, is the same, then it
        is the answer (without the definition), else this becomes the next one. Where the definition doesn't
        say what becomes of unhandled errors, `continue` is written into it."""
        check_text("flow", flow)
        plain = await self._checked(definition, version, status)
        text = _json({**plain, "unhandled_errors": plain.get("unhandled_errors") or "continue"})
        known: dict[str, bytes] = {}
        digest = digest_of(text)
        while True:
            reply: Reply[VersionRow | Needed] = Reply()
            add = AddVersion(flow, version, status, text, False, check_name("by", by), reply, known, digest)
            found: VersionRow | Needed = await self._entry.ask(add, self._catalog)
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
        """The definition as a plain object, if all of it is in order."""
        check_version(version)
        check_version_status(status)
        checked = await self.check(definition)
        if checked.errors:
            raise Invalid("the definition has mistakes: " + "; ".join(checked.errors), errors=checked.errors)
        from ...protocol.flow.documents import parse

        plain: dict[str, Any] = parse(definition)[0]
        return plain

    async def list(self, limit: int = 20, offset: int = 0) -> tuple[Sequence[FlowRow], int]:
        """A page of the flows, in the order in which they were made, and how many there are."""
        check_page(limit, offset)
        page: tuple[Sequence[FlowRow], int] = await self._entry.ask(
            ListFlows(limit, offset, Reply()), self._catalog
        )
        return page

    async def versions(self, flow: str, *, limit: int = 1000, offset: int = 0) -> Sequence[VersionRow]:
        """A page of the versions of a flow, without their definitions: the latest ones, but for `offset`
        later ones, in the order of their numbers."""
        check_text("flow", flow)
        check_page(limit, offset)
        versions: Sequence[VersionRow] = await self._entry.ask(
            ListVersions(flow, limit, offset, Reply()), self._catalog
        )
        return versions

    async def definitions(self, flow: str, *, limit: int = 100, offset: int = 0) -> Sequence[VersionRow]:
        """The same with their definitions, the latest first, and not more than have 16 MiB together."""
        rows = await self.versions(flow, limit=limit, offset=offset)
        return await self._store.versions([row.id for row in reversed(rows)]) if rows else []

    async def version(self, id: str) -> VersionRow:
        """One version, with its definition."""
        check_text("id", id)
        self._entry.check_open()
        row = await self._store.version(id)
        if row is None:
            raise NotFound(f"no version of a flow has the id {shown(id)}", value=id)
        return row

    # Runs of them.

    async def start(
        self,
        flow: str,
        *,
        version: int = 0,
        params: Mapping[str, Any] | None = None,
        handle: str | None = None,
        by: str = "app",
        **options: Unpack[SubmitKeywords],
    ) -> Ticket[Any]:
        """Submit a run of a flow, given by its name or id. Without a handle it gets one of its own, which is
        `task:` and its id."""
        return await self._engine.submit_options(
            flow_options(flow, version, params, handle, **options), by=by
        )

    async def task(self, run_id: str) -> FlowTask:
        """One run of a flow, or the active run of a handle, with what its nodes share as of now."""
        check_text("run_id", run_id)
        self._entry.check_open()
        record, stored = await self._store.run(run_id), await self._store.flow(run_id)
        if record is None and (active := await self._entry.active_run(run_id)) is not None:
            return await self.task(active)
        if record is None or stored is None:
            raise NotFound(f"no run of a flow has the id {shown(run_id)}", value=run_id)
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
        """A page of the runs of flows, newest first, and how many there are; `within` as in
        `Engine.list_runs`. Not more than `limit`, or than together have 16 MiB."""
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
        """The tries of the nodes of a run, or of a handle's active run, in order: those with a higher number
        than `after`. Not more than `limit`, or than together have 16 MiB; for the next ones, `after` is the
        number of the last."""
        check_text("run_id", run_id)
        check_page(limit)
        check_limit("after", after)
        self._entry.check_open()
        rows = await self._store.node_runs(run_id, after, limit)
        if not rows and await self._store.flow(run_id) is None:
            if (active := await self._entry.active_run(run_id)) is not None and active != run_id:
                return await self.node_runs(active, after=after, limit=limit)
            raise NotFound(f"no run of a flow has the id {shown(run_id)}", value=run_id)
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
        walked = await as_of_now(stored, self._services.graphs, self._entry.max_value_bytes)
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
