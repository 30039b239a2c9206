"""Who may do what: tokens, of which only hashes are kept, and the roles that they give.

The file has a line per token: a role, a name (it stands as `by` in the events that its holder causes), and
the SHA-256 of the token in hexadecimal digits; `#` begins a comment. The tokens have 256 random bits, so a
plain hash is enough: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import attrs

from ..protocol.errors import Invalid, NotFound
from ..protocol.names import check_name


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
        """Read a file; `Invalid` names the line that can't be read."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"token file {os.fspath(path)!r} can't be read: {error}") from None
        callers = []
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                callers.append(_parse(line, f"{os.fspath(path)}:{number}"))
        return cls(tuple(callers))

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


def add_token(path: str | os.PathLike[str], name: str, role: Role) -> str:
    """Make a token and add it to the file, which is made if need be, for its owner's eyes only. Returns the
    token, which is nowhere else."""
    if len(check_name("name", name).split()) > 1:
        raise Invalid(f"the name {name!r} of a token must not contain spaces", value=name)
    file = Path(path)
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    if before and any(caller.name == name for caller in Tokens.load(path)):
        raise Invalid(
            f"token file {os.fspath(path)!r} has a token of {name!r} already: remove its line first"
        )
    if before and not before.endswith("\n"):
        before += "\n"
    token = "gr_" + secrets.token_urlsafe(32)
    _replace(file, f"{before}{role} {name} {_digest(token)}\n")
    return token


def remove_token(path: str | os.PathLike[str], name: str) -> None:
    """Take the token of this name out of the file, and leave everything else in it as it is. Raises
    `NotFound`, and `Invalid` where the file can't be read."""
    if all(caller.name != name for caller in Tokens.load(path)):
        raise NotFound(f"token file {os.fspath(path)!r} has no token of {name!r}", value=name)
    file = Path(path)
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    _replace(file, "".join(line for line in lines if line.startswith("#") or line.split()[1:2] != [name]))


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
    if len(words) != 3:
        raise Invalid(f"{where}: a line is a role, a name and a SHA-256, not {len(words)} words")
    role, name, digest = words
    if role not in set(Role):
        raise Invalid(f"{where}: {role!r} is no role; one is {', '.join(Role)}")
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise Invalid(f"{where}: the last word must be a SHA-256 in 64 hexadecimal digits")
    return Caller(check_name("name", name), Role(role), digest)
