"""Who may do what: tokens, of which only hashes are kept, and the roles that they give.

The file has a line per token: a role, a name (it stands as `by` in the events that its holder causes), the
SHA-256 of the token in hexadecimal digits, and what the token is limited to, as in `handle=alice/*` or
`job=mirror` (a space or a `%` in a name is written as `%20` or `%25`); `#` begins a comment. The tokens have
256 random bits, so a plain hash is enough: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote, unquote

import attrs

from ...protocol.errors import Invalid, NotFound
from ...protocol.names import check_name
from ...protocol.patterns import patterns
from .scopes import Scope


class Role(StrEnum):
    """What a token permits. A viewer reads; an operator also starts, cancels, answers and clears runs; an
    admin also changes limits, resets and drains. A worker only does work."""

    WORKER = "worker"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def permits(self, needed: Role) -> bool:
        """Whether this role may do what needs that one."""
        return needed in _PERMITS[self]


_PERMITS: dict[Role, frozenset[Role]] = {
    Role.WORKER: frozenset({Role.WORKER}),
    Role.VIEWER: frozenset({Role.VIEWER}),
    Role.OPERATOR: frozenset({Role.VIEWER, Role.OPERATOR}),
    Role.ADMIN: frozenset(Role),
}


@attrs.frozen
class Caller:
    """Whoever is on the other side; `digest` is of the token, where there are tokens."""

    name: str
    role: Role
    digest: str = ""
    scope: Scope | None = None
    """What the token is limited to, if it is."""


EVERYONE = Caller("local", Role.ADMIN)
"""Who someone is where no token is needed."""

LOCAL_WORKER = Caller("local", Role.WORKER)
"""Who a worker on this machine is that needs no token."""


class Tokens:
    """The tokens of a file."""

    def __init__(self, callers: tuple[Caller, ...]) -> None:
        self._callers = callers

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokens:
        """Read a file; `Invalid` names the line that can't be read. A file that others than its owner may
        read is `Invalid`, too."""
        callers, mode = _read(path)
        _check_mode(path, mode)
        return cls(callers)

    def find(self, token: str) -> Caller | None:
        """Whose token this is. Takes the same time whichever it is, and however much of it is right."""
        digest = _digest(token)
        found = None
        for caller in self._callers:
            if hmac.compare_digest(caller.digest, digest):
                found = caller
        return found

    def holds(self, caller: Caller) -> bool:
        """Whether a caller's token is still in force, with the same role."""
        return caller in self._callers

    def __iter__(self) -> Iterator[Caller]:
        """Whose tokens there are, in the order of the file."""
        return iter(self._callers)


def add_token(
    path: str | os.PathLike[str],
    name: str,
    role: Role,
    *,
    handles: Iterable[str] = (),
    lanes: Iterable[str] = (),
    jobs: Iterable[str] = (),
) -> str:
    """Make a token and add it to the file, which is made if need be, for its owner's eyes only. Returns the
    token, which is nowhere else. It is limited to the handles, lanes and jobs that fit a pattern, where some
    are given."""
    scope = _scope(role, {"handle": [*handles], "lane": [*lanes], "job": [*jobs]})
    if len(check_name("name", name).split()) > 1:
        raise Invalid(f"the name {name!r} of a token must not contain spaces", value=name)
    file = Path(path)
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    if before and any(caller.name == name for caller in _read(path)[0]):
        raise Invalid(
            f"token file {os.fspath(path)!r} has a token of {name!r} already: remove its line first"
        )
    if before and not before.endswith("\n"):
        before += "\n"
    token = "gr_" + secrets.token_urlsafe(32)
    words = " ".join([str(role), name, _digest(token), *_limits(scope)])
    _replace(file, f"{before}{words}\n")
    return token


def remove_token(path: str | os.PathLike[str], name: str) -> None:
    """Take the token of this name out of the file, and leave everything else in it as it is. Raises
    `NotFound`, and `Invalid` where the file can't be read."""
    if all(caller.name != name for caller in _read(path)[0]):
        raise NotFound(f"token file {os.fspath(path)!r} has no token of {name!r}", value=name)
    file = Path(path)
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    _replace(file, "".join(line for line in lines if line.startswith("#") or line.split()[1:2] != [name]))


def _read(path: str | os.PathLike[str]) -> tuple[tuple[Caller, ...], int]:
    """Whose tokens there are, and the mode of the file."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"token file {os.fspath(path)!r} can't be read: {error}") from None
    callers = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            callers.append(_parse(line, f"{os.fspath(path)}:{number}"))
    return tuple(callers), mode


def _replace(file: Path, text: str) -> None:
    """Write the file anew, for its owner's eyes only: whoever reads it finds the old one or the new one."""
    fresh = file.with_name(file.name + ".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    os.replace(fresh, file)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def _parse(line: str, where: str) -> Caller:
    words = line.split()
    if len(words) < 3:
        raise Invalid(f"{where}: a line is a role, a name and a SHA-256, not {len(words)} words")
    role, name, digest, *limits = words
    if role not in set(Role):
        raise Invalid(f"{where}: {role!r} is no role; one is {', '.join(Role)}")
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise Invalid(f"{where}: the third word must be a SHA-256 in 64 hexadecimal digits")
    given: dict[str, list[str]] = {what: [] for what in _LIMITED}
    for limit in limits:
        what, equals, pattern = limit.partition("=")
        if what not in given or not equals:
            raise Invalid(f"{where}: {limit!r} is no limit; one is handle=…, lane=… or job=…")
        given[what].append(unquote(pattern))
    try:
        scope = _scope(Role(role), given)
    except Invalid as error:
        raise Invalid(f"{where}: {error.message}") from None
    return Caller(check_name("name", name), Role(role), digest, scope)


_LIMITED = ("handle", "lane", "job")


def _scope(role: Role, given: Mapping[str, Sequence[str]]) -> Scope | None:
    """The limits that these patterns make, if there are some."""
    if not any(given.values()):
        return None
    if role is Role.WORKER:
        raise Invalid("a worker's token can't be limited: a worker gets the work of all runs")
    return Scope(*(patterns(what, given[what]) if given[what] else None for what in _LIMITED))


def _limits(scope: Scope | None) -> Iterator[str]:
    """The limits as words of a line."""
    if scope is not None:
        for what, allowed in zip(_LIMITED, (scope.handles, scope.lanes, scope.jobs), strict=True):
            for text in allowed.texts() if allowed is not None else ():
                yield f"{what}={_SPACE.sub(lambda found: quote(found[0]), text)}"


_SPACE = re.compile(r"[\s%]")


def _check_mode(path: str | os.PathLike[str], mode: int) -> None:
    """Refuse a file that others may read or write. Raises `Invalid`."""
    if os.name == "posix" and mode & 0o066:
        raise Invalid(
            f"token file {os.fspath(path)!r} can be read or changed by others (mode {mode & 0o777:04o}): "
            f"run `chmod 600 {os.fspath(path)}`",
            value=os.fspath(path),
        )
