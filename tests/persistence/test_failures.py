"""The classification of the drivers' errors, and of failed COMMITs."""

import sqlite3

import psycopg
import pymysql
import pytest
from sqlalchemy import exc

from greenroom.persistence.failures import classify, commit_outcome_known, failure
from greenroom.protocol.errors import Unavailable


def sqlite(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("as SQLite says it")
    error.sqlite_errorcode = code
    return error


def mysql(code: int) -> pymysql.err.Error:
    return pymysql.err.OperationalError(code, "as the server says it")


def postgresql(state: str) -> psycopg.Error:
    return psycopg.errors.lookup(state)("as the server says it")


@pytest.mark.parametrize(
    "error",
    [
        sqlite(sqlite3.SQLITE_BUSY),
        sqlite(sqlite3.SQLITE_BUSY_SNAPSHOT),
        sqlite(sqlite3.SQLITE_LOCKED),
        psycopg.OperationalError("server closed the connection unexpectedly"),
        *map(postgresql, ["40001", "40P01", "08006", "57P01", "57P02", "55P03"]),
        *map(mysql, [1205, 1213, 2006, 2013, 1927, 1053]),
        pymysql.err.InterfaceError(0, ""),
    ],
    ids=repr,
)
def test_an_error_that_an_immediate_retry_can_pass_is_transient(error: Exception):
    assert classify(error) == "transient"


@pytest.mark.parametrize(
    "error",
    [
        *map(sqlite, [sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN]),
        sqlite(sqlite3.SQLITE_IOERR_FSYNC),
        *map(postgresql, ["53100", "53300", "57P03", "58030", "25006", "57014"]),
        *map(mysql, [1021, 1114, 1040, 1290, 1836, 2003]),
        exc.TimeoutError("QueuePool limit"),
    ],
    ids=repr,
)
def test_an_error_that_can_pass_without_intervention_is_down(error: Exception):
    assert classify(error) == "down"


@pytest.mark.parametrize(
    "error",
    [
        *map(sqlite, [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT]),
        sqlite3.ProgrammingError("a driver's own, without a code"),
        *map(postgresql, ["42601", "23505", "28P01", "3D000", "XX001", "22001"]),
        *map(mysql, [1064, 1062, 1045, 1049, 1146]),
    ],
    ids=repr,
)
def test_all_other_errors_are_permanent(error: Exception):
    assert classify(error) == "permanent"


def test_an_error_wrapped_by_sqlalchemy_is_classified_by_the_original_error():
    wrapped = exc.DBAPIError.instance(
        "SELECT 1", None, sqlite(sqlite3.SQLITE_BUSY), sqlite3.Error, dialect=None
    )
    assert classify(wrapped) == "transient"


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), exc.NoResultFound("x")], ids=repr)
def test_errors_that_are_not_from_a_database_are_not_classified(error: Exception):
    assert classify(error) is None
    assert failure(error, "a store", committing=False) is None


@pytest.mark.parametrize(
    "error",
    [sqlite(sqlite3.SQLITE_BUSY), *map(postgresql, ["40001", "23505", "40P01"]), mysql(1213)],
    ids=repr,
)
def test_after_a_refused_commit_the_outcome_is_known(error: Exception):
    assert commit_outcome_known(error)


@pytest.mark.parametrize(
    "error",
    [
        *map(sqlite, [sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_FULL]),
        *map(postgresql, ["57P01", "08006", "40003"]),
        psycopg.OperationalError("server closed the connection unexpectedly"),
        *map(mysql, [2006, 2013, 1180]),
    ],
    ids=repr,
)
def test_after_any_other_failed_commit_the_outcome_is_unknown(error: Exception):
    assert not commit_outcome_known(error)


def test_before_the_commit_the_outcome_is_always_known():
    failed = failure(mysql(2013), "a store", committing=False)
    assert isinstance(failed, Unavailable)
    assert failed.outcome_known
