"""The catalog: the actor that knows which flows there are and which versions they have.

It decides what a new flow may be called and which number a new version gets. What it knows is committed; what
it has sent to the journal is remembered as `coming`, so that no name and no number is given away twice. The
graphs themselves stay in the store.
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


class MakeFlow(msgspec.Struct):
    """From a caller: make a flow. Answered with it when it is committed."""

    name: str
    description: str
    by: str
    reply: Reply[FlowRow]


class AddVersion(msgspec.Struct):
    """From a caller: add a version to a flow, given by name or id, or replace a draft. `make` a flow of that
    name where there is none. Without a `version`, it gets the next number.

    With `known`, and the `digest` of this definition, a published version of this number is left as it is:
    the answer is that version if its definition is the same, else the latest one if it is, else this becomes
    the next version. `known` has digests of definitions by the ids of their versions; the answer may be that
    another one is `Needed`.
    """

    flow: str
    version: int | None
    status: VersionStatus
    definition: str
    make: bool
    by: str
    reply: Reply[VersionRow | Needed]
    known: dict[str, bytes] | None = None
    digest: bytes = b""


class Needed(msgspec.Struct, frozen=True):
    """The catalog has to know the digest of this version's definition, which is in the store."""

    version: str


class Resolve(msgspec.Struct):
    """From the entry point: which flow and version are meant; version 0 is the latest that is published."""

    flow: str
    version: int
    reply: Reply[tuple[FlowRow, VersionRow]]


class ListFlows(msgspec.Struct):
    """From a caller: a page of the flows, in the order in which they were made, and how many there are."""

    limit: int
    offset: int
    reply: Reply[tuple[list[FlowRow], int]]


class ListVersions(msgspec.Struct):
    """From a caller: the latest versions of a flow, given by name or id, in the order of their numbers; but
    for the very latest, `offset` of them."""

    flow: str
    limit: int
    offset: int
    reply: Reply[list[VersionRow]]


class FindVersions(msgspec.Struct):
    """From a caller: some versions, by their ids, with their flows."""

    ids: Sequence[str]
    reply: Reply[dict[str, tuple[FlowRow, VersionRow]]]


class Stands(msgspec.Struct):
    """From the journal: this is committed."""

    row: FlowRow | VersionRow


class Catalog(Actor):
    """See the module's text."""

    def __init__(self, journal: Journal, ids: Callable[[], str], clock: Callable[[], float]) -> None:
        super().__init__("catalog", "")
        self._journal = journal
        self._ids = ids
        self._clock = clock
        self._flows: dict[str, FlowRow] = {}  # by id, and those that are coming, too
        self._by_name: dict[str, str] = {}
        self._versions: dict[str, dict[int, VersionRow]] = {}  # by flow and number
        self._by_id: dict[str, VersionRow] = {}
        self._coming: dict[str, FlowRow | VersionRow] = {}  # by id: not committed yet
        self._digests: dict[str, bytes] = {}  # of definitions by version: those that were asked for

    def restore(self, stored: Stored) -> None:
        """Know what the store holds."""
        for flow in stored.flows:
            self._add_flow(flow)
        for version in stored.versions:
            self._versions[version.flow][version.version] = self._by_id[version.id] = version

    def report(self) -> dict[str, Any]:
        return super().report() | {"flows": len(self._flows), "coming": len(self._coming)}

    async def on_batch(self, messages: Sequence[Any]) -> None:
        for message in messages:
            try:
                _HANDLERS[type(message)](self, message)
            except (Conflict, NotFound) as error:
                message.reply.fail(error)

    def _make_flow(self, message: MakeFlow) -> None:
        known = self._by_name.get(message.name)
        if known is not None:
            raise Conflict(
                f"a flow named {shown(message.name)} is there already: its id is {known}", flow=known
            )
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
            self._digests = message.known | self._digests  # a draft may have been replaced since it was read
            for there in (before, versions[max(versions)]):
                digest = self._digests.get(there.id)
                if digest is None:
                    message.reply.set(Needed(there.id))
                    return
                if digest == message.digest and there.status == "published":
                    self._journal.tell(Change((), reply=message.reply, answer=there))  # once it is committed
                    return
            number = max(versions) + (versions[max(versions)].status == "published")
            before = versions.get(number)
        if before is not None and before.status == "published":
            raise Conflict(
                f"version {number} of flow {shown(flow.name)} is published, which can't be changed: "
                "leave the number out, and this becomes the next version",
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
        self._coming[row.id] = known
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
        change.notify += (("catalog", "", Stands(known)),)
        change.reply, change.answer = message.reply, row
        self._journal.tell(change)

    def _new_flow(self, name: str, description: str, by: str) -> tuple[FlowRow, Change]:
        flow = FlowRow(self._ids(), name, description, self._clock())
        self._add_flow(flow)
        self._coming[flow.id] = flow
        made = FlowChanged(seq=0, at=0, by=by, flow=flow.id, name=name)
        return flow, Change((made,), memos=(flow,), notify=(("catalog", "", Stands(flow)),))

    def _add_flow(self, flow: FlowRow) -> None:
        self._flows[flow.id] = flow
        self._by_name[flow.name] = flow.id
        self._versions[flow.id] = {}

    def _stands(self, message: Stands) -> None:
        if self._coming.get(message.row.id) is message.row:  # a draft may have been replaced since
            del self._coming[message.row.id]

    def _resolve(self, message: Resolve) -> None:
        id = message.flow if message.flow in self._flows else self._by_name.get(message.flow)
        if id is None or id in self._coming:
            raise _unknown(message.flow)
        flow, versions = self._flows[id], self._versions[id]
        published = [v for v in versions.values() if v.status == "published" and v.id not in self._coming]
        if message.version == 0 and not published:
            raise Conflict(f"flow {shown(flow.name)} has no published version: publish one", flow=flow.id)
        if message.version == 0:
            message.reply.set((flow, max(published, key=lambda version: version.version)))
            return
        version = versions.get(message.version)
        if version is None or version.id in self._coming:
            known = ", ".join(str(number) for number in sorted(versions)) or "none"
            raise NotFound(f"flow {shown(flow.name)} has no version {message.version}; it has: {known}")
        if version.status != "published":
            raise Conflict(
                f"version {version.version} of flow {shown(flow.name)} is a draft: publish it first",
                version=version.id,
            )
        message.reply.set((flow, version))

    def _list(self, message: ListFlows) -> None:
        flows = [flow for id, flow in self._flows.items() if id not in self._coming]
        message.reply.set((flows[message.offset : message.offset + message.limit], len(flows)))

    def _list_versions(self, message: ListVersions) -> None:
        id = message.flow if message.flow in self._flows else self._by_name.get(message.flow)
        if id is None or id in self._coming:
            raise NotFound(f"no flow has the name or id {shown(message.flow)}", value=message.flow)
        versions = [v for _, v in sorted(self._versions[id].items()) if v.id not in self._coming]
        end = max(0, len(versions) - message.offset)
        message.reply.set(versions[max(0, end - message.limit) : end])

    def _find_versions(self, message: FindVersions) -> None:
        found = [self._by_id[id] for id in message.ids if id in self._by_id]
        message.reply.set({version.id: (self._flows[version.flow], version) for version in found})


def digest_of(definition: str) -> bytes:
    """The same for definitions that say the same, however they are written."""
    plain = msgspec.json.encode(msgspec.json.decode(definition), order="sorted")
    return hashlib.blake2b(plain, digest_size=16).digest()


def _unknown(flow: str) -> NotFound:
    return NotFound(f"no flow has the name or id {shown(flow)}: publish it first", value=flow)


_HANDLERS: dict[type, Callable[[Catalog, Any], None]] = {
    MakeFlow: Catalog._make_flow,
    AddVersion: Catalog._add_version,
    Stands: Catalog._stands,
    Resolve: Catalog._resolve,
    ListFlows: Catalog._list,
    ListVersions: Catalog._list_versions,
    FindVersions: Catalog._find_versions,
}
