"""Errors of databases: their classification, and their messages.

Each driver has its own errors. This module alone classifies them: after a `transient` error an immediate
retry can succeed; a `down` error can pass without intervention, but not within seconds; a `permanent` error
requires an administrator. Callers of the database get `StoreDown` for the first two, `StoreBroken` for the
last.

For a failed COMMIT, the error also contains whether the transaction may have been committed. Unless the
server clearly refused it, the outcome is unknown, and a retry must check first.
"""

from __future__ import annotations

import errno
import sqlite3
import ssl
from collections.abc import Sequence
from typing import Literal

import attrs
import msgspec
from sqlalchemy import exc

from ..protocol.errors import Conflict, GreenroomError, Unavailable
from .addresses import Address, Kind

Sort = Literal["transient", "down", "permanent"]


class StoreDown(Unavailable):
    """The store is unreachable or not writable at the moment; this can pass without intervention."""

    def __init__(self, message: str, *, outcome_known: bool = True, transient: bool = False) -> None:
        super().__init__(message)
        self.outcome_known = outcome_known
        """Whether it is certain that nothing was committed."""
        self.transient = transient
        """Whether an immediate retry can succeed."""


class StoreBroken(GreenroomError):
    """The store cannot be used until an administrator acts; the message contains the remedy."""

    def __init__(self, message: str, *, outcome_known: bool = True, damaged: bool = False) -> None:
        super().__init__(message)
        self.outcome_known = outcome_known
        """Whether it is certain that nothing was committed."""
        self.damaged = damaged
        """Whether the stored data is damaged, or the database's file was removed. The engine must then stop,
        also if a read found it."""


@attrs.frozen
class Refusal:
    """The error of connecting to one address."""

    address: Address
    error: BaseException


class NoAddressAnswers(Exception):
    """Connecting to every address of a server failed."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        super().__init__("; ".join(f"{refusal.address}: {describe(refusal.error)}" for refusal in refusals))
        self.refusals = refusals


def failure(error: BaseException, store: object, *, committing: bool) -> StoreDown | StoreBroken | None:
    """Return the exception to raise for an error of a database; `None` for any other error."""
    sort = "permanent" if type(error) is msgspec.DecodeError else classify(error)
    if sort is None:
        return None
    known = not committing or commit_outcome_known(error)
    # An error of connecting contains the addresses, each with its own reason.
    where = "" if isinstance(error, NoAddressAnswers) else f"{store}: "
    if sort == "permanent":
        return StoreBroken(
            f"cannot use the store: {where}{describe(error)}",
            outcome_known=known,
            damaged=_is_damage(_original(error)),
        )
    message = f"the store is unavailable: {where}{describe(error)}"
    return StoreDown(message, outcome_known=known, transient=sort == "transient")


def timed_out(store: object, seconds: float, *, outcome_known: bool) -> StoreDown:
    """Return the error for a call to a server that timed out. Not transient: a retry would take as long."""
    return StoreDown(
        f"the store is unavailable: {store}: timed out after {seconds:g} s", outcome_known=outcome_known
    )


def missing_driver(kind: Kind, error: ImportError) -> StoreBroken:
    name, extra = ("PostgreSQL", "postgres") if kind == "postgresql" else ("MySQL and MariaDB", "mysql")
    return StoreBroken(
        f'the driver for {name} is not installed ({error}): install it with pip install "greenroom[{extra}]"'
    )


def newer_version(store: object, found: object, known: object) -> StoreBroken:
    return StoreBroken(
        f"the store {store} was created by a newer Greenroom (schema {found}; this one supports {known}): "
        "upgrade Greenroom"
    )


def older_version(store: object, found: object, known: object) -> StoreBroken:
    return StoreBroken(
        f"the store {store} has schema {found}, but this Greenroom requires {known}: run greenroom db upgrade"
    )


def in_use(address: Address, holder: str) -> Conflict:
    return Conflict(
        f"the store {address} is in use by another engine ({holder}): stop that engine, or use another store",
        store=str(address),
        holder=holder,
    )


def folder_failure(error: OSError, address: Address) -> StoreDown | StoreBroken:
    """Return the exception to raise for an error in the folder of a SQLite database."""
    folder = address.path.parent
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return StoreBroken(f"cannot open the store {address}: the folder {folder} does not exist; create it")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreBroken(
            f"cannot open the store {address}: cannot write {error.filename or folder} "
            f"({error.strerror}); the database's folder must be writable"
        )
    return StoreDown(f"the store is unavailable: {address}: {error}")


def classify(error: BaseException) -> Sort | None:
    """Classify an error of a database; `None` for any other exception."""
    error = _original(error)
    if isinstance(error, NoAddressAnswers):
        sorts = {_classify_refusal(refusal.error) for refusal in error.refusals}
        return "permanent" if sorts == {"permanent"} else "down"
    if isinstance(error, sqlite3.Error):
        return _look_up(_SQLITE, _sqlite_code(error))
    if isinstance(error, exc.TimeoutError):  # no free connection
        return "down"
    match type(error).__module__.partition(".")[0]:
        case "psycopg":
            return _classify_postgresql(error)
        case "pymysql" if error.args:
            return _look_up(_MYSQL, error.args[0])
        case "pymysql":
            return "permanent"
    return None


def commit_outcome_known(error: BaseException) -> bool:
    """Whether an error of COMMIT means for certain that nothing was committed."""
    error = _original(error)
    if isinstance(error, sqlite3.Error):
        # After any other error, the log can contain the whole transaction.
        return _sqlite_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    if isinstance(error, NoAddressAnswers):
        return True
    state = getattr(error, "sqlstate", None)
    if state is not None:  # the server refused, unless it reported its own failure or shutdown
        return not (state.startswith(("08", "57", "58", "XX")) or state == "40003")
    return bool(error.args) and error.args[0] in (1205, 1213, 1290, 1792, 1836)


def describe(error: BaseException) -> str:
    """Return the reason in one line; for some errors, a clearer text than the driver's."""
    error = _original(error)
    text = " ".join(str(error.args[1] if _is_coded(error) else error).split()) or type(error).__name__
    if type(error) is msgspec.DecodeError or (isinstance(error, sqlite3.Error) and _NO_TEXT in text):
        return f"its data is damaged: restore it from a backup ({text})"
    if isinstance(error, sqlite3.Error):
        return _SQLITE_WORDS.get(_sqlite_code(error), text)
    if isinstance(error, exc.TimeoutError):
        return "all its connections are in use"
    if any(words in text for words in _WRONG_PASSWORD) or (
        _is_coded(error) and error.args[0] in (1045, 1698)
    ):
        return f"the user name or password is wrong ({text})"
    return text


def _is_damage(error: BaseException) -> bool:
    """Whether the error means that stored data is damaged."""
    if isinstance(error, sqlite3.Error):
        code = _sqlite_code(error)
        return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or _NO_TEXT in str(error)
    if type(error) is msgspec.DecodeError or getattr(error, "sqlstate", None) in ("XX001", "XX002"):
        return True
    return _is_coded(error) and error.args[0] in (126, 127, 1034, 1035, 1194, 1195, 1712)


def _original(error: BaseException) -> BaseException:
    if isinstance(error, exc.DBAPIError) and error.orig is not None:
        return error.orig
    return error


def _is_coded(error: BaseException) -> bool:
    return len(error.args) > 1 and isinstance(error.args[0], int)


def _sqlite_code(error: sqlite3.Error) -> int:
    """Return the primary error code: the low byte of a possibly extended one."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _look_up(table: dict[Sort, frozenset[int]], code: object) -> Sort:
    return next((sort for sort, codes in table.items() if code in codes), "permanent")


_SQLITE: dict[Sort, frozenset[int]] = {
    "transient": frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}),
    "down": frozenset(
        {
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_READONLY,
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_NOMEM,
            sqlite3.SQLITE_PROTOCOL,
            sqlite3.SQLITE_INTERRUPT,
        }
    ),
}

_NO_TEXT = "Could not decode to UTF-8"
"""Python's message, which has no code, for invalid text in a text column."""

_SQLITE_WORDS = {
    sqlite3.SQLITE_BUSY: "the database is locked by another process",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only",
    sqlite3.SQLITE_CANTOPEN: "cannot open the file: its folder must exist and be writable",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore it from a backup",
    sqlite3.SQLITE_NOTADB: "the file is damaged, or not a SQLite database: restore it from a backup",
}

_MYSQL: dict[Sort, frozenset[int]] = {
    "transient": frozenset(
        {
            0,  # the driver's code for a closed connection
            *(1205, 1213),  # lock wait timeout, deadlock
            *(1053, 1152, 1158, 1159, 1160, 1161, 1927, 4031),  # connection killed, or network error
            *(2006, 2013, 2014, 2045, 2055),  # connection lost
        }
    ),
    "down": frozenset(
        {
            *(3, 1021, 1026, 1037, 1038, 1041, 1114),  # disk or memory full
            *(1290, 1792, 1836),  # read-only
            *(1040, 1129, 1203, 1226),  # too many connections, host blocked
            *(1317, 1969, 3024),  # a statement was interrupted or timed out
            *(1030, 1180, 1181),  # the storage engine or the disk failed
            *(2002, 2003, 2005),  # cannot connect
        }
    ),
}

_TRANSIENT_STATES = ("08", "40", "55P03", "57P01", "57P02", "57P05", "25P03")
_DOWN_STATES = ("53", "58", "57P03", "57014", "25006")

_WRONG_PASSWORD = ("password authentication failed", "no password supplied")
_PERMANENT_REFUSALS = (
    *_WRONG_PASSWORD,
    "no pg_hba.conf entry",
    "authentication failed for user",
    "does not exist",
    "certificate verify failed",
    "server certificate for",
    "does not support SSL",
    "permission denied for database",
)


def _classify_postgresql(error: BaseException) -> Sort:
    state = getattr(error, "sqlstate", None)
    if state is None:
        # Not from the server: the connection was lost, or the driver refused a value.
        lost = type(error).__name__ in ("OperationalError", "InterfaceError", "ConnectionTimeout")
        return "transient" if lost else "permanent"
    if state.startswith(_TRANSIENT_STATES):
        return "transient"
    return "down" if state.startswith(_DOWN_STATES) else "permanent"


def _classify_refusal(error: BaseException) -> Sort:
    """Classify an error of connecting. PostgreSQL's driver has no error codes for these, only texts."""
    if isinstance(getattr(error, "original_exception", error), ssl.SSLCertVerificationError):
        return "permanent"
    if isinstance(error, OSError):
        return "down"
    if any(words in str(error) for words in _PERMANENT_REFUSALS):
        return "permanent"
    return "permanent" if classify(error) in (None, "permanent") else "down"
