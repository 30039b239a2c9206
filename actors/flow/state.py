"""The state of a walk: what is kept between two bodies, as one JSON text.

`shared` contains the data that the nodes of a flow exchange. Under keys that begin with `_rt.` it also
contains what a node stores while it runs. A subflow stores its whole frame there, so the text contains every
level.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...protocol.errors import TooLarge

RUNTIME = "_rt."
"""The prefix of keys in shared that belong to the walk, not to the flow."""


def runtime_key(mark: str, node: str) -> str:
    """The key in shared under which a node stores data while it runs."""
    return f"{RUNTIME}{mark}:{node}"


class Frame(msgspec.Struct):
    """One level of a walk: the flow itself, or a subflow in it. `curr` is the current node, `last` the action
    that led to it, and `error` the failure with which the level ended, if it failed."""

    curr: str | None
    shared: dict[str, Any]
    last: str | None = None
    error: str | None = None
    version: str | None = None  # of the flow that a `flow_ref` walks
    since: float | None = None  # when the walk entered the subflow


def nested(shared: dict[str, Any], key: str) -> Frame | None:
    """The frame of the subflow at a node, if the walk is in it. The frame object itself stays in `shared`, so
    that changes to it are committed with the rest."""
    name = runtime_key("sf", key)
    kept = shared.get(name)
    if isinstance(kept, dict):
        kept = shared[name] = msgspec.convert(kept, Frame)
    return kept


class Waits(msgspec.Struct, frozen=True):
    """The node at which a run without a body waits. `key` is the path in shared that it waits for."""

    node: str
    kind: str
    visit: int
    since: float
    until: float | None = None
    key: str | None = None


class WalkState(msgspec.Struct):
    """The whole state. `steps` counts the nodes that are done, `visits` the visits of each."""

    frame: Frame
    steps: int = 0
    visits: dict[str, int] = {}
    waits: Waits | None = None


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(WalkState)


def begin(start: str) -> WalkState:
    """The state at the start of a walk."""
    return WalkState(Frame(start, {}))


def to_text(state: WalkState, max_bytes: int) -> str:
    """Encode the state for the store."""
    encoded = _encode(state)
    if len(encoded) > max_bytes:
        raise TooLarge(
            f"the flow's shared data has {len(encoded):,} bytes as JSON, more than the {max_bytes:,} allowed "
            "by max_value_bytes: store less in it",
            size=len(encoded),
            max_bytes=max_bytes,
        )
    return encoded.decode()


def from_text(text: str) -> WalkState:
    """Decode a stored state."""
    return _decoder.decode(text)


def result_of(shared: dict[str, Any]) -> dict[str, Any]:
    """The result of a flow: shared without the keys of the walk."""
    return {key: value for key, value in shared.items() if not key.startswith(RUNTIME)}
