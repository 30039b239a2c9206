"""The catalog: the actor that knows the flows and their versions.

It decides whether a flow's name is free and which number a new version gets. Changes that were sent to the
journal are kept as `_uncommitted`, so that no name or number is assigned twice; queries do not show them. The
definitions stay in the store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...persistence.store import Stored
from ...protocol.errors import Conflict, NotFound
from ...protocol.events import FlowChanged
from ...protocol.flow.records import FlowRow, VersionRow, VersionStatus
from ...protocol.values import shown
from ..actor import Actor
from ..channel import Reply
from ..journal.change import Change
from ..journal.journal import Journal


class CreateFlow(msgspec.Struct):
    """From a caller: create a flow. The reply is the flow, once committed."""

    name: str
    description: str
    by: str
    reply: Reply[FlowRow]


class AddVersion(msgspec.Struct):
    """From a caller: add a version to a flow, given by name or id, or replace a draft. With `make`, the flow
    is created if it does not exist. Without a `version`, it gets the next number. The reply is the version,
    once committed.

    With `known`, and the `digest` of this definition, a published version of this number is not changed. The
    reply is that version if its definition is the same; else the latest version, if its definition is the
    same; else this definition becomes the next version. `known` maps ids of versions to digests of their
    definitions. If the digest of another version is required, the reply is `DigestNeeded`.
    """

    flow: str
    version: int | None
    status: VersionStatus
    definition: str
    make: bool
    by: str
    reply: Reply[VersionRow | DigestNeeded]
    known: dict[str, bytes] | None = None
    digest: bytes = b""


class DigestNeeded(msgspec.Struct, frozen=True):
    """The catalog requires the digest of this version's definition, which is in the store."""

    version: str


class Resolve(msgspec.Struct):
    """From the entry point. The reply: the flow and the version that are meant; version 0 is the latest
    published one."""

    flow: str
    version: int
    reply: Reply[tuple[FlowRow, VersionRow]]


class ListFlows(msgspec.Struct):
    """From a caller. The reply: a page of the flows in the order of creation, and the total number."""

    limit: int
    offset: int
    reply: Reply[tuple[list[FlowRow], int]]


class ListVersions(msgspec.Struct):
    """From a caller. The reply: a page of a flow's latest versions, in the order of their numbers, without
    the `offset` very latest. The flow is given by name or id."""

    flow: str
    limit: int
    offset: int
    reply: Reply[list[VersionRow]]


class FindVersions(msgspec.Struct):
    """From a caller. The reply: versions by their ids, with their flows."""

    ids: Sequence[str]
    reply: Reply[dict[str, tuple[FlowRow, VersionRow]]]


class Committed(msgspec.Struct):
    """From the journal: this row is committed."""

    row: FlowRow | VersionRow


class Catalog(Actor):
    """See the module's docstring."""

    def __init__(self, journal: Journal, ids: Callable[[], str], clock: Callable[[], float]) -> None:
        super().__init__("catalog", "")
        self._journal = journal
        self._ids = ids
        self._clock = clock
        self._flows: dict[str, FlowRow] = {}  # by id, including uncommitted ones
        self._by_name: dict[str, str] = {}
        self._versions: dict[str, dict[int, VersionRow]] = {}  # by flow and number
        self._by_id: dict[str, VersionRow] = {}
        self._uncommitted: dict[str, FlowRow | VersionRow] = {}  # by id
        self._digests: dict[str, bytes] = {}  # of definitions, by version; only those that were needed

    def restore(self, stored: Stored) -> None:
        """Restore the flows and versions of the store."""
        for flow in stored.flows:
            self._add_flow(flow)
        for version in stored.versions:
            self._versions[version.flow][version.version] = self._by_id[version.id] = version

    def report(self) -> dict[str, Any]:
        return super().report() | {"flows": len(self._flows), "uncommitted": len(self._uncommitted)}

    async def on_batch(self, messages: Sequence[Any]) -> None:
        for message in messages:
            try:
                _HANDLERS[type(message)](self, message)
            except (Conflict, NotFound) as error:
                message.reply.fail(error)

    def _create_flow(self, message: CreateFlow) -> None:
        known = self._by_name.get(message.name)
        if known is not None:
            raise Conflict(f"flow {shown(message.name)} already exists: its id is {known}", flow=known)
        flow, change = self._new_flow(message.name, message.description, message.by)
        change.reply, change.answer = message.reply, flow
        self._journal.tell(change)

    def _add_version(self, message: AddVersion) -> None:
        id = message.flow if message.flow in self._flows else self._by_name.get(message.flow)
        change = Change(())
        if id is None:
            if not message.make:
                raise _unknown(message.flow)
            flow, change = self._new_flow(message.flow, "", message.by)
        else:
            flow = self._flows[id]
        versions = self._versions[flow.id]
        number = message.version or max(versions, default=0) + 1
        before = versions.get(number)
        if message.known is not None and before is not None and before.status == "published":
            self._digests = message.known | self._digests  # a draft may have been replaced since the read
            for there in (before, versions[max(versions)]):
                digest = self._digests.get(there.id)
                if digest is None:
                    message.reply.set(DigestNeeded(there.id))
                    return
                if digest == message.digest and there.status == "published":
                    self._journal.tell(
                        Change((), reply=message.reply, answer=there)
                    )  # replies after its commit
                    return
            number = max(versions) + (versions[max(versions)].status == "published")
            before = versions.get(number)
        if before is not None and before.status == "published":
            raise Conflict(
                f"version {number} of flow {shown(flow.name)} is published and cannot be changed: "
                "omit the number to create the next version",
                version=before.id,
            )
        row = VersionRow(
            id=before.id if before is not None else self._ids(),
            flow=flow.id,
            version=number,
            status=message.status,
            created_at=before.created_at if before is not None else self._clock(),
            definition=message.definition,
        )
        known = msgspec.structs.replace(row, definition="")
        versions[number] = self._by_id[row.id] = known
        self._uncommitted[row.id] = known
        self._digests.pop(row.id, None)
        if message.digest:
            self._digests[row.id] = message.digest
        changed = FlowChanged(
            seq=0,
            at=0,
            by=message.by,
            flow=flow.id,
            name=flow.name,
            version=number,
            status=message.status,
        )
        change.events += (changed,)
        change.memos += (row,)
        change.notify += (("catalog", "", Committed(known)),)
        change.reply, change.answer = message.reply, row
        self._journal.tell(change)

    def _new_flow(self, name: str, description: str, by: str) -> tuple[FlowRow, Change]:
        flow = FlowRow(self._ids(), name, description, self._clock())
        self._add_flow(flow)
        self._uncommitted[flow.id] = flow
        made = FlowChanged(seq=0, at=0, by=by, flow=flow.id, name=name)
        return flow, Change((made,), memos=(flow,), notify=(("catalog", "", Committed(flow)),))

    def _add_flow(self, flow: FlowRow) -> None:
        self._flows[flow.id] = flow
        self._by_name[flow.name] = flow.id
        self._versions[flow.id] = {}

    def _committed(self, message: Committed) -> None:
        if self._uncommitted.get(message.row.id) is message.row:  # else a draft was replaced since
            del self._uncommitted[message.row.id]

    def _resolve(self, message: Resolve) -> None:
        id = message.flow if message.flow in self._flows else self._by_name.get(message.flow)
        if id is None or id in self._uncommitted:
            raise _unknown(message.flow)
        flow, versions = self._flows[id], self._versions[id]
        published = [
            v for v in versions.values() if v.status == "published" and v.id not in self._uncommitted
        ]
        if message.version == 0 and not published:
            raise Conflict(f"flow {shown(flow.name)} has no published version: publish one", flow=flow.id)
        if message.version == 0:
            message.reply.set((flow, max(published, key=lambda version: version.version)))
            return
        version = versions.get(message.version)
        if version is None or version.id in self._uncommitted:
            known = ", ".join(str(number) for number in sorted(versions)) or "none"
            raise NotFound(f"flow {shown(flow.name)} has no version {message.version}; versions: {known}")
        if version.status != "published":
            raise Conflict(
                f"version {version.version} of flow {shown(flow.name)} is a draft: publish it first",
                version=version.id,
            )
        message.reply.set((flow, version))

    def _list(self, message: ListFlows) -> None:
        flows = [flow for id, flow in self._flows.items() if id not in self._uncommitted]
        message.reply.set((flows[message.offset : message.offset + message.limit], len(flows)))

    def _list_versions(self, message: ListVersions) -> None:
        id = message.flow if message.flow in self._flows else self._by_name.get(message.flow)
        if id is None or id in self._uncommitted:
            raise NotFound(f"flow {shown(message.flow)} not found", value=message.flow)
        versions = [v for _, v in sorted(self._versions[id].items()) if v.id not in self._uncommitted]
        end = max(0, len(versions) - message.offset)
        message.reply.set(versions[max(0, end - message.limit) : end])

    def _find_versions(self, message: FindVersions) -> None:
        found = [self._by_id[id] for id in message.ids if id in self._by_id]
        message.reply.set({version.id: (self._flows[version.flow], version) for version in found})


def digest_of(definition: str) -> bytes:
    """A digest that is equal for definitions with equal content, independent of their formatting."""
    plain = msgspec.json.encode(msgspec.json.decode(definition), order="sorted")
    return hashlib.blake2b(plain, digest_size=16).digest()


def _unknown(flow: str) -> NotFound:
    return NotFound(f"flow {shown(flow)} not found: publish it first", value=flow)


_HANDLERS: dict[type, Callable[[Catalog, Any], None]] = {
    CreateFlow: Catalog._create_flow,
    AddVersion: Catalog._add_version,
    Committed: Catalog._committed,
    Resolve: Catalog._resolve,
    ListFlows: Catalog._list,
    ListVersions: Catalog._list_versions,
    FindVersions: Catalog._find_versions,
}
