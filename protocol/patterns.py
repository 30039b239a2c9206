"""Patterns of names: a plain name matches itself, and a prefix with `*` at its end every name that begins so.

No other character has a special meaning. `alice/*` matches every handle below `alice/`, but not `alice`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .errors import Invalid
from .names import check_name
from .values import shown


class Patterns(msgspec.Struct, frozen=True):
    """Names and prefixes; `name in patterns` is whether one of them matches."""

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self.names or name.startswith(self.prefixes))

    def __str__(self) -> str:
        return ", ".join([*sorted(self.names), *(f"{prefix}*" for prefix in self.prefixes)])

    def texts(self) -> list[str]:
        """Return the patterns as text, names first."""
        return [*sorted(self.names), *(f"{prefix}*" for prefix in self.prefixes)]


def patterns(what: str, texts: Iterable[str]) -> Patterns:
    """Parse patterns; errors refer to them as `what`. Raises `Invalid`."""
    names: set[str] = set()
    prefixes: set[str] = set()
    for text in texts:
        prefix, star, rest = check_name(what, text).partition("*")
        if rest:
            raise Invalid(f"{what} {shown(text)}: * is allowed only at the end, as in 'alice/*'", value=text)
        if star:
            prefixes.add(prefix)
        else:
            names.add(prefix)
    return Patterns(frozenset(names), tuple(sorted(prefixes)))


class Within(msgspec.Struct, frozen=True):
    """The runs that a client is allowed to see: those that match every given set of patterns."""

    handles: Patterns | None = None
    lanes: Patterns | None = None
    jobs: Patterns | None = None

    def holds(self, handle: str, lane: str, job: str) -> bool:
        """Whether a run with this handle, lane and job matches."""
        return self.of_place(handle, lane) and (self.jobs is None or job in self.jobs)

    def of_place(self, handle: str, lane: str) -> bool:
        """Whether a run with this handle and lane matches, for any job."""
        return (self.handles is None or handle in self.handles) and (self.lanes is None or lane in self.lanes)
