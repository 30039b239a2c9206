"""Several addresses of one store: which one is used, and the error if none answers."""

import socket
from collections.abc import Iterator

import pytest
import trio

from greenroom.persistence import drivers
from greenroom.persistence.database import DatabaseManager
from greenroom.persistence.failures import StoreDown
from greenroom.protocol.errors import Invalid
from tests.servers import Server

from .rows import Opened, statement


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port without a listener."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
def silent() -> Iterator[int]:
    """A port with a listener that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


async def test_the_first_address_that_answers_is_taken(server: Server, nobody: int):
    first, second = server.fresh_database(), server.fresh_database()
    dead = first.replace(str(server.port), str(nobody))
    which = statement(f"SELECT {'current_database' if server.kind == 'postgresql' else 'database'}()")
    for urls, taken in (
        ([first, second], first),
        ([dead, second, first], second),
        (f"{second},{dead}", second),
    ):
        database = DatabaseManager(urls)
        await database.open()
        assert await database.read(which) == [(taken.rpartition("/")[2],)]
        await database.close()


async def test_connecting_to_an_address_that_does_not_answer_times_out(
    server: Server, silent: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(drivers, "CONNECT_TIMEOUT", 2)
    url = server.fresh_database()
    began = trio.current_time()
    async with Opened([url.replace(str(server.port), str(silent)), url]):
        assert 1.5 < trio.current_time() - began < 20


def test_the_time_limit_for_connecting_to_an_address_is_five_seconds():
    assert drivers.CONNECT_TIMEOUT == 5


async def test_if_no_address_answers_the_error_contains_each_with_its_reason_but_no_password(
    server: Server, nobody: int
):
    url = server.fresh_database()
    dead = url.replace(str(server.port), str(nobody))
    wrong = server.url("d", password="guess")
    with pytest.raises(StoreDown) as caught:
        await DatabaseManager([dead, wrong]).open()
    message = caught.value.message
    shown = f"{server.kind}://greenroom@127.0.0.1"
    assert f"{shown}:{nobody}/" in message
    assert "refused" in message
    assert f"{shown}:{server.port}/d: the user name or password is wrong" in message
    assert "guess" not in message
    assert "cr" not in message.partition("refused")[0].replace("greenroom", "")
    assert "\n" not in message


async def test_a_standby_is_not_accepted(postgresql: Server):
    standby, primary = postgresql.fresh_database(), postgresql.fresh_database()
    name = standby.rpartition("/")[2]
    postgresql.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    database = DatabaseManager([standby, primary])
    await database.open()
    assert await database.read(statement("SELECT current_database()")) == [(primary.rpartition("/")[2],)]
    await database.close()
    with pytest.raises(StoreDown, match="read-only"):
        await DatabaseManager(standby).open()


def test_a_bad_address_is_refused_before_anything_is_opened():
    with pytest.raises(Invalid, match="autocommit"):
        DatabaseManager("mysql://h/d?autocommit=1")
