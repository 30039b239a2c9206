"""A silent server: packets are dropped, and no connection is closed."""

import time
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection

from greenroom.persistence import drivers, timelimits
from greenroom.persistence.addresses import parse_addresses
from greenroom.persistence.advisory import ServerLock
from greenroom.persistence.failures import StoreDown
from greenroom.persistence.locks import StoreLock
from tests.servers import Server

from .proxy import Proxy
from .rows import Opened, ids, insert, statement


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.pass_on()
    proxy.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "CONNECT_TIMEOUT", 2)
    monkeypatch.setattr("greenroom.persistence.database.CONNECT_TIMEOUT", 1)
    monkeypatch.setattr("greenroom.persistence.advisory.CONNECT_TIMEOUT", 1)


def through(server: Server, proxy: Proxy, timeout: float = 1) -> str:
    url = server.fresh_database().replace(str(server.port), str(proxy.port))
    return f"{url}?call_timeout={timeout:g}"


async def test_a_statement_without_an_answer_times_out(server: Server, proxy: Proxy):
    def swallowed(connection: Connection) -> None:
        proxy.swallow()
        insert(1)(connection)

    async with Opened(through(server, proxy)) as database:
        began = time.monotonic()
        with pytest.raises(StoreDown, match="timed out after 1 s") as caught:
            await database.run(swallowed)
        assert time.monotonic() - began < 4
        assert caught.value.outcome_known
        assert not caught.value.transient
        proxy.pass_on()
        assert await database.read(ids) == []
        await database.run(insert(2))
        assert await database.read(ids) == [(2,)]


async def test_the_outcome_of_a_commit_that_timed_out_is_unknown(server: Server, proxy: Proxy):
    def insert_and_swallow(connection: Connection) -> None:
        insert(1)(connection)
        proxy.swallow()  # the next statement is COMMIT

    async with Opened(through(server, proxy)) as database:
        with pytest.raises(StoreDown, match="timed out after 1 s") as caught:
            await database.run(insert_and_swallow)
        assert not caught.value.outcome_known
        proxy.pass_on()


async def test_a_silent_connection_is_replaced(server: Server, proxy: Proxy):
    async with Opened(through(server, proxy)) as database:
        await database.run(insert(1))
        proxy.forget()
        await database.run(insert(2))
        assert await database.read(ids) == [(1,), (2,)]


async def test_a_call_to_a_silent_server_takes_the_time_limit_for_connecting(server: Server, proxy: Proxy):
    async with Opened(through(server, proxy)) as database:
        await database.run(insert(1))
        proxy.swallow()
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(StoreDown) as caught:
                await database.with_retry(insert(2))
            assert time.monotonic() - began < 10
            assert caught.value.outcome_known
        proxy.pass_on()
        assert await database.read(ids) == [(1,)]


async def test_a_silent_database_can_be_closed(server: Server, proxy: Proxy):
    async with Opened(through(server, proxy)) as database:
        await database.run(insert(1))
        proxy.swallow()
        began = time.monotonic()
    assert time.monotonic() - began < 10


async def test_a_long_call_within_its_limit_is_not_aborted(server: Server, proxy: Proxy):
    sleep = "SELECT pg_sleep(2)" if server.kind == "postgresql" else "SELECT SLEEP(2)"
    async with Opened(through(server, proxy)) as database:
        await database.run(statement(sleep), limit=60)
        with pytest.raises(StoreDown, match="timed out after 1 s"):
            await database.run(statement(sleep))


async def test_the_lock_of_a_silent_server_is_not_held_and_can_be_released(server: Server, proxy: Proxy):
    lock = StoreLock(through(server, proxy))
    await lock.acquire()
    proxy.swallow()
    began = time.monotonic()
    assert not await lock.check()
    with pytest.raises(StoreDown):
        await lock.acquire()
    await lock.release()
    assert time.monotonic() - began < 15


async def test_the_release_of_a_lock_on_a_silent_server_times_out(server: Server, proxy: Proxy):
    lock = StoreLock(through(server, proxy))
    await lock.acquire()
    proxy.swallow()
    began = time.monotonic()
    await lock.release()
    assert time.monotonic() - began < 10


def test_the_time_limit_of_a_call_is_ten_seconds_or_that_of_its_address():
    def seconds(url: str) -> float:
        return drivers.call_timeout(parse_addresses(url)[0])

    assert seconds("postgresql://h/d") == 10
    assert seconds("mysql://h/d?call_timeout=2.5") == 2.5
    assert seconds("postgresql://h/d?command_timeout=30") == 30


def test_no_time_limit_remains_after_the_calls(server: Server):
    lock = ServerLock(parse_addresses(server.fresh_database()), holder="a test")
    lock.acquire()
    lock.release()
    assert not timelimits._watch._due
