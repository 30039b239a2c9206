"""Sets of names that are given by patterns: a name stands for itself, and one that ends with `*` for every
name that begins like it. Nothing else has a meaning: `alice/*` is every handle below `alice/`, and not
`alice`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .errors import Invalid
from .names import check_name
from .values import shown


class Patterns(msgspec.Struct, frozen=True):
    """Names and prefixes; `name in patterns` tells whether one of them fits."""

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self.names or name.startswith(self.prefixes))

    def __str__(self) -> str:
        return ", ".join([*sorted(self.names), *(f"{prefix}*" for prefix in self.prefixes)])

    def texts(self) -> list[str]:
        """The patterns as they were written."""
        return [*sorted(self.names), *(f"{prefix}*" for prefix in self.prefixes)]


def patterns(what: str, texts: Iterable[str]) -> Patterns:
    """The names that these patterns stand for; `what` names them in errors. Raises `Invalid`."""
    names: set[str] = set()
    prefixes: set[str] = set()
    for text in texts:
        prefix, star, rest = check_name(what, text).partition("*")
        if rest:
            raise Invalid(f"{what} {shown(text)}: a * may only stand at the end, as in 'alice/*'", value=text)
        if star:
            prefixes.add(prefix)
        else:
            names.add(prefix)
    return Patterns(frozenset(names), tuple(sorted(prefixes)))


class Within(msgspec.Struct, frozen=True):
    """Which runs someone may see: those that fit every pattern which is given."""

    handles: Patterns | None = None
    lanes: Patterns | None = None
    jobs: Patterns | None = None

    def holds(self, handle: str, lane: str, job: str) -> bool:
        """Whether a run with these is one of them."""
        return self.of_place(handle, lane) and (self.jobs is None or job in self.jobs)

    def of_place(self, handle: str, lane: str) -> bool:
        """The same without regard to the job."""
        return (self.handles is None or handle in self.handles) and (self.lanes is None or lane in self.lanes)
