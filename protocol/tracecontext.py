"""W3C Trace Context: the trace of a submission, as in the headers `traceparent` and `tracestate`.

A text that breaks the standard is ignored, as the standard says: tracing must never make a submission fail.
"""

from __future__ import annotations

import re

import msgspec

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_KEY = r"[a-z0-9][a-z0-9_\-*/]{0,255}(?:@[a-z][a-z0-9_\-*/]{0,13})?"
_VALUE = r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
_MEMBER = re.compile(rf"[ \t]*(?:{_KEY}={_VALUE})?[ \t]*", re.ASCII)
_MOST_MEMBERS = 32
_LONGEST_STATE = 512
_KNOWN_FLAGS = 0b11  # sampled, and random trace id


class TraceContext(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A span that other spans can have as their parent. `parent` is a valid `traceparent` of version 00."""

    parent: str
    state: str | None = None

    @property
    def trace_id(self) -> str:
        """The id of the trace, in hex."""
        return self.parent[3:35]

    @property
    def span_id(self) -> str:
        """The id of the span, in hex."""
        return self.parent[36:52]

    @property
    def flags(self) -> int:
        """The trace flags."""
        return int(self.parent[53:55], 16)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request that carries this context."""
        return {"traceparent": self.parent, **({"tracestate": self.state} if self.state else {})}


def trace_context(traceparent: str | None, tracestate: str | None = None) -> TraceContext | None:
    """Return the context that these headers carry; `None` if the traceparent is not valid. A tracestate that
    is not valid is dropped."""
    if traceparent is None:
        return None
    match = _PARENT.fullmatch(traceparent)
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    if not trace.strip("0") or not span.strip("0"):
        return None
    known = int(flags, 16) & _KNOWN_FLAGS
    return TraceContext(f"00-{trace}-{span}-{known:02x}", _valid_state(tracestate))


def _valid_state(tracestate: str | None) -> str | None:
    if tracestate is None or len(tracestate) > _LONGEST_STATE:
        return None
    members = tracestate.split(",")
    if len(members) > _MOST_MEMBERS or not all(map(_MEMBER.fullmatch, members)):
        return None
    return tracestate.strip(" \t") or None  # HTTP libraries refuse to send a header with white space around
