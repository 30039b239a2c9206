"""Encoding of replies: one message, or several for a long reply.

Messages are encoded one by one when they are sent, so a reply to a client that does not read needs no memory
for encoded bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from ...protocol.codec import Codec
from ...protocol.commandbase import Id
from ...protocol.commands import Error, Ok
from ...protocol.errors import GreenroomError
from ...protocol.parts import Part, parts
from ...protocol.records import Snapshot

_MOST_BYTES = 1 << 17


class _OkPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="ok"):
    """`protocol.commands.Ok` with an encoded part of a snapshot."""

    id: Id
    seq: int
    snapshot: msgspec.Raw
    more: bool = False


class _ResyncPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="resync"):
    """`protocol.commands.Resync` with an encoded part of a snapshot."""

    snapshot: Part
    more: bool = False


class _OkList(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="ok"):
    """`protocol.commands.Ok` with a part of a list, the total count, and the start of the next page."""

    id: Id
    seq: int
    total: int | None = None
    next: int | None = None
    submitted: list[msgspec.Raw] | None = None
    runs: list[msgspec.Raw] | None = None
    files: list[msgspec.Raw] | None = None
    events: list[msgspec.Raw] | None = None
    flows: list[msgspec.Raw] | None = None
    versions: list[msgspec.Raw] | None = None
    tasks: list[msgspec.Raw] | None = None
    node_runs: list[msgspec.Raw] | None = None
    workers: list[msgspec.Raw] | None = None
    jobs: list[msgspec.Raw] | None = None
    executors: list[msgspec.Raw] | None = None
    schedules: list[msgspec.Raw] | None = None
    webhooks: list[msgspec.Raw] | None = None
    more: bool = False


def resyncs(snapshot: Snapshot, codec: Codec) -> Iterator[bytes]:
    """The `resync` messages with this snapshot."""
    for part, more in parts(snapshot, codec.encode, _MOST_BYTES):
        yield codec.encode(_ResyncPart(part, more))


def encoded_parts(snapshot: Snapshot, codec: Codec) -> Iterator[tuple[msgspec.Raw, bool]]:
    """The encoded parts of a snapshot, each with whether another part follows."""
    for part, more in parts(snapshot, codec.encode, _MOST_BYTES):
        yield msgspec.Raw(codec.encode(part)), more


def snapshot_replies(
    id: Id, seq: int, parts: Iterable[tuple[msgspec.Raw, bool]], codec: Codec
) -> Iterator[bytes]:
    """The messages of a reply with a snapshot."""
    for part, more in parts:
        yield codec.encode(_OkPart(id, seq, part, more))


LISTS = frozenset(
    {
        *("submitted", "runs", "events", "flows", "versions", "tasks", "node_runs", "workers", "executors"),
        *("schedules", "webhooks", "files", "jobs"),
    }
)
"""The fields of replies that can be long lists."""


def list_replies(id: Id, seq: int, fields: dict[str, Any], codec: Codec) -> Iterator[bytes]:
    """The messages of a reply with a list."""
    [(name, items)] = [(name, value) for name, value in fields.items() if name in LISTS]
    make: Callable[..., _OkList] = partial(_OkList, id, seq, fields.get("total"), fields.get("next"))
    portion: list[msgspec.Raw] = []
    size = 0
    for item in items:
        encoded = codec.encode(item)
        if portion and size + len(encoded) > _MOST_BYTES:
            yield codec.encode(make(**{name: portion}, more=True))
            portion, size = [], 0
        portion.append(msgspec.Raw(encoded))
        size += len(encoded)
    yield codec.encode(make(**{name: portion}))


def replies(id: Id, seq: int, fields: dict[str, Any], codec: Codec) -> Iterator[bytes]:
    """The message of a reply with these fields."""
    yield codec.encode(Ok(id=id, seq=seq, **fields))


def refusals(id: Id | None, error: GreenroomError, codec: Codec) -> Iterator[bytes]:
    """The message of an error reply."""
    yield codec.encode(Error(id=id, code=error.code, message=error.message, details=dict(error.details)))
