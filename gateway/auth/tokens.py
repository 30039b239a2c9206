"""Tokens, stored as hashes, and their roles.

The token file has one line per token: a role, a name (the `by` of the events that its caller causes), the
SHA-256 of the token in hexadecimal digits, and the token's limits, as in `handle=alice/*` or `job=mirror`
(a space or a `%` in a name is written as `%20` or `%25`). `#` starts a comment. A token has 256 random bits,
so a plain hash is enough.
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
    """The role of a token. A viewer reads; an operator also starts, cancels, answers and clears runs; an
    admin also changes limits, resets and drains. A worker can only take and complete work. An executor can
    only attach as an executor, which no other role permits."""

    EXECUTOR = "executor"
    WORKER = "worker"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def permits(self, needed: Role) -> bool:
        """Whether this role includes the role `needed`."""
        return needed in _PERMITS[self]


_PERMITS: dict[Role, frozenset[Role]] = {
    Role.EXECUTOR: frozenset({Role.EXECUTOR}),
    Role.WORKER: frozenset({Role.WORKER}),
    Role.VIEWER: frozenset({Role.VIEWER}),
    Role.OPERATOR: frozenset({Role.VIEWER, Role.OPERATOR}),
    Role.ADMIN: frozenset(Role) - {Role.EXECUTOR},
}


@attrs.frozen
class Caller:
    """The client of a request; `digest` is the hash of its token, if it has one."""

    name: str
    role: Role
    digest: str = ""
    scope: Scope | None = None
    """The limits of the token, if it has limits."""

    @property
    def sees_receivers(self) -> bool:
        """Whether it sees the URLs of the receivers of webhooks, which can contain secrets."""
        return self.scope is None and self.role.permits(Role.OPERATOR)


EVERYONE = Caller("local", Role.ADMIN)
"""The caller if tokens are not required."""

NODE = Caller("cluster", Role.EXECUTOR)
"""A node of the cluster, or its executor. It authenticates with the secret of the cluster."""

LOCAL_WORKER = Caller("local", Role.WORKER)
"""A worker on this machine without a token, if `workers_without_token` permits it."""


class Tokens:
    """The tokens of a file."""

    def __init__(self, callers: tuple[Caller, ...]) -> None:
        self._callers = callers

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokens:
        """Read a token file. Raises `Invalid` for a malformed line, which it names, and for a file that users
        other than its owner can access."""
        callers, mode = _read(path)
        _check_mode(path, mode)
        return cls(callers)

    def find(self, token: str) -> Caller | None:
        """The caller to whom this token belongs. The time it takes does not depend on the token."""
        digest = _digest(token)
        found = None
        for caller in self._callers:
            if hmac.compare_digest(caller.digest, digest):
                found = caller
        return found

    def holds(self, caller: Caller) -> bool:
        """Whether a caller's token is still valid, with the same role and limits."""
        return caller in self._callers

    def __iter__(self) -> Iterator[Caller]:
        """The callers, in the order of the file."""
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
    """Create a token and add it to the file. Returns the token; it is stored nowhere else.

    A file that does not exist is created with mode 0600. Patterns of `handles`, `lanes` and `jobs` limit the
    token to matching names. Raises `Invalid` if the file contains the name already.
    """
    scope = _scope(role, {"handle": [*handles], "lane": [*lanes], "job": [*jobs]})
    if len(check_name("name", name).split()) > 1:
        raise Invalid(f"token name must not contain spaces (got {name!r})", value=name)
    file = Path(path)
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    if before and any(caller.name == name for caller in _read(path)[0]):
        raise Invalid(
            f"token {name!r} already exists in {os.fspath(path)!r}: remove it first, or choose another name"
        )
    if before and not before.endswith("\n"):
        before += "\n"
    token = "gr_" + secrets.token_urlsafe(32)
    words = " ".join([str(role), name, _digest(token), *_limits(scope)])
    _replace(file, f"{before}{words}\n")
    return token


def remove_token(path: str | os.PathLike[str], name: str) -> None:
    """Remove the token of this name from the file; all other lines stay as they are. Raises `NotFound`, and
    `Invalid` if the file cannot be read."""
    if all(caller.name != name for caller in _read(path)[0]):
        raise NotFound(f"token {name!r} not found in {os.fspath(path)!r}", value=name)
    file = Path(path)
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    _replace(file, "".join(line for line in lines if line.startswith("#") or line.split()[1:2] != [name]))


def _read(path: str | os.PathLike[str]) -> tuple[tuple[Caller, ...], int]:
    """The callers in the file, and the file's mode."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"cannot read token file {os.fspath(path)!r}: {error}") from None
    callers = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            callers.append(_parse(line, f"{os.fspath(path)}:{number}"))
    return tuple(callers), mode


def _replace(file: Path, text: str) -> None:
    """Replace the file atomically, with mode 0600: a reader finds the old content or the new content."""
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
        raise Invalid(f"{where}: a line must contain a role, a name and a SHA-256 (got {len(words)} words)")
    role, name, digest, *limits = words
    if role not in set(Role):
        raise Invalid(f"{where}: role must be one of {', '.join(Role)} (got {role!r})")
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise Invalid(f"{where}: the third word must be a SHA-256 of 64 hexadecimal digits")
    given: dict[str, list[str]] = {what: [] for what in _LIMITED}
    for limit in limits:
        what, equals, pattern = limit.partition("=")
        if what not in given or not equals:
            raise Invalid(f"{where}: limit must be handle=…, lane=… or job=… (got {limit!r})")
        given[what].append(unquote(pattern))
    try:
        scope = _scope(Role(role), given)
    except Invalid as error:
        raise Invalid(f"{where}: {error.message}") from None
    return Caller(check_name("name", name), Role(role), digest, scope)


_LIMITED = ("handle", "lane", "job")


def _scope(role: Role, given: Mapping[str, Sequence[str]]) -> Scope | None:
    """The limits of these patterns; `None` if there are no patterns."""
    if not any(given.values()):
        return None
    if role in (Role.WORKER, Role.EXECUTOR):
        raise Invalid(f"a token of role {role} cannot be limited: the {role} receives work of all runs")
    return Scope(*(patterns(what, given[what]) if given[what] else None for what in _LIMITED))


def _limits(scope: Scope | None) -> Iterator[str]:
    """The limits as words of a line in the token file."""
    if scope is not None:
        for what, allowed in zip(_LIMITED, (scope.handles, scope.lanes, scope.jobs), strict=True):
            for text in allowed.texts() if allowed is not None else ():
                yield f"{what}={_SPACE.sub(lambda found: quote(found[0]), text)}"


_SPACE = re.compile(r"[\s%]")


def _check_mode(path: str | os.PathLike[str], mode: int) -> None:
    """Refuse a file that other users can read or write. Raises `Invalid`."""
    if os.name == "posix" and mode & 0o066:
        raise Invalid(
            f"token file {os.fspath(path)!r} is accessible to other users (mode {mode & 0o777:04o}): "
            f"run `chmod 600 {os.fspath(path)}`",
            value=os.fspath(path),
        )
