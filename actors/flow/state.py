"""How far a walk has come: what is kept of it between two bodies, as one JSON text.

`shared` is what the nodes of a flow give each other. Within it, under keys that begin with `_rt.`, stands
what a node keeps while it runs; a subflow keeps its whole frame there, so the text holds every level.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...protocol.errors import TooLarge

RUNTIME = "_rt."
"""What the keys in shared begin with that belong to the walk, not to the flow."""


def runtime_key(mark: str, node: str) -> str:
    """Where a node keeps what it needs while it runs."""
    return f"{RUNTIME}{mark}:{node}"


class Frame(msgspec.Struct):
    """One level of a walk: the flow itself, or a subflow in it. `curr` is the node that it has come to, and
    `last` the action that led there; `error` is what it failed with, once it has ended so."""

    curr: str | None
    shared: dict[str, Any]
    last: str | None = None
    error: str | None = None
    version: str | None = None  # of the flow that a `flow_ref` walks
    since: float | None = None  # when the walk has come into a subflow


def nested(shared: dict[str, Any], key: str) -> Frame | None:
    """The frame of the subflow at a node, if the walk is within it. It is kept there as what it is, and so
    what is changed in it is committed with the rest."""
    name = runtime_key("sf", key)
    kept = shared.get(name)
    if isinstance(kept, dict):
        kept = shared[name] = msgspec.convert(kept, Frame)
    return kept


class Waits(msgspec.Struct, frozen=True):
    """The node that a run without a body waits at. `key` is the path in shared that it waits for."""

    node: str
    kind: str
    visit: int
    since: float
    until: float | None = None
    key: str | None = None


class WalkState(msgspec.Struct):
    """All of it. `steps` counts the nodes that are done, `visits` how often each was."""

    frame: Frame
    steps: int = 0
    visits: dict[str, int] = {}
    waits: Waits | None = None


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(WalkState)


def begin(start: str) -> WalkState:
    """The state of a walk that has not begun."""
    return WalkState(Frame(start, {}))


def to_text(state: WalkState, max_bytes: int) -> str:
    """The state as it is stored."""
    encoded = _encode(state)
    if len(encoded) > max_bytes:
        raise TooLarge(
            f"what the flow shares has {len(encoded):,} bytes as JSON, more than the {max_bytes:,} that "
            "max_value_bytes allows: keep less in it",
            size=len(encoded),
            max_bytes=max_bytes,
        )
    return encoded.decode()


def from_text(text: str) -> WalkState:
    """The state that was stored."""
    return _decoder.decode(text)


def result_of(shared: dict[str, Any]) -> dict[str, Any]:
    """What a flow gives to those who ran it: shared without what belongs to the walk."""
    return {key: value for key, value in shared.items() if not key.startswith(RUNTIME)}
