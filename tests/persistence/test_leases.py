"""Leases that processes share: the same behaviour in memory, in each database, and in Redis.

A lease that must be held during a test has a ttl of a minute. One that must expire has a short ttl, and the
test waits until it has expired by the clock of its storage.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from greenroom.persistence.database import DatabaseManager
from greenroom.persistence.holders import Holder
from greenroom.persistence.lease import Lease
from greenroom.persistence.leases import SharedLeases
from greenroom.persistence.memory_leases import MemoryLeases
from greenroom.persistence.redis_leases import RedisLeases
from greenroom.persistence.schema import metadata
from greenroom.persistence.sql_leases import SqlLeases
from tests.redis_servers import Redis
from tests.servers import Server

HOUR = 3600.0
LONG, SHORT = 60.0, 0.2
NAME = "leader"
ANN, BOB = Holder("ann", "first", 1), Holder("bob", "second", 2)


class Clock:
    """The clock of a storage that has none of its own."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Storage:
    """The storage of leases. `process` returns the leases as another process uses them."""

    process: Callable[[], SharedLeases]
    sleep: Callable[[float], Awaitable[None]]
    """Let its clock go on."""


@asynccontextmanager
async def sql_storage(url: str) -> AsyncIterator[Storage]:
    database, clock = DatabaseManager(url), Clock()
    await database.open()
    metadata.create_all(database.engine)
    try:
        if database.kind == "sqlite":
            yield Storage(lambda: SqlLeases(database, clock=clock), clock.sleep)
        else:
            wrong = iter(range(0, 10**9, 10**6))
            yield Storage(lambda: SqlLeases(database, clock=lambda: next(wrong)), trio.sleep)
    finally:
        await database.close()


@pytest.fixture(params=["memory", "sqlite", "postgresql", "mariadb", "redis"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Storage]:
    if request.param == "memory":
        clock = Clock()
        memory = MemoryLeases(clock)
        yield Storage(lambda: memory, clock.sleep)
    elif request.param == "redis":
        redis: Redis = request.getfixturevalue("redis")
        yield Storage(lambda: RedisLeases(redis.url(), "test"), trio.sleep)
    else:
        sqlite = request.param == "sqlite"
        server: Server | None = None if sqlite else request.getfixturevalue(request.param)
        async with AsyncExitStack() as stack:
            url = f"sqlite:///{tmp_path}/x.db" if server is None else server.fresh_database()
            yield await stack.enter_async_context(sql_storage(url))


@pytest.fixture
def leases(storage: Storage) -> SharedLeases:
    return storage.process()


@pytest.fixture
def others(storage: Storage) -> SharedLeases:
    return storage.process()


async def expiry(storage: Storage, leases: SharedLeases) -> None:
    """Wait until the lease can be taken."""
    with trio.fail_after(20):
        while await leases.read(NAME) is not None:
            await storage.sleep(0.02)


async def test_a_lease_has_a_holder_a_term_an_address_and_a_time_left(
    leases: SharedLeases, others: SharedLeases
):
    assert await others.read(NAME) is None
    assert await leases.acquire(NAME, ANN, LONG, address="wss://ann:8440/é") == 1
    found = await others.read(NAME)
    assert found is not None
    assert (found.holder, found.term, found.address) == (ANN, 1, "wss://ann:8440/é")
    assert LONG - 20 < found.left <= LONG
    assert found.is_held
    assert not found.is_blocked


async def test_an_address_is_optional(leases: SharedLeases):
    await leases.acquire(NAME, ANN, LONG)
    found = await leases.read(NAME)
    assert found is not None
    assert found.address is None


async def test_the_address_is_that_of_the_current_holder(leases: SharedLeases, others: SharedLeases):
    assert await leases.acquire(NAME, ANN, LONG, address="wss://ann") == 1
    await leases.release(NAME, ANN, 1)
    assert await others.acquire(NAME, BOB, LONG) == 2
    found = await leases.read(NAME)
    assert found is not None
    assert found.address is None


async def test_a_held_lease_is_refused_to_others_and_leases_of_other_names_are_not(
    leases: SharedLeases, others: SharedLeases
):
    assert await leases.acquire(NAME, ANN, LONG) == 1
    assert await others.acquire(NAME, BOB, LONG) is None
    assert await others.acquire("another", BOB, LONG) == 1
    found = await others.read(NAME)
    assert found is not None
    assert (found.holder, found.term) == (ANN, 1)


async def test_a_refused_request_does_not_shorten_or_prolong_the_lease(
    leases: SharedLeases, others: SharedLeases
):
    await leases.acquire(NAME, ANN, LONG)
    await others.acquire(NAME, BOB, HOUR)
    await others.acquire(NAME, BOB, SHORT)
    found = await leases.read(NAME)
    assert found is not None
    assert LONG - 20 < found.left <= LONG


async def test_a_released_lease_can_be_taken_with_a_higher_term(leases: SharedLeases, others: SharedLeases):
    assert await leases.acquire(NAME, ANN, LONG) == 1
    await leases.release(NAME, ANN, 1)
    assert await others.read(NAME) is None
    assert await others.acquire(NAME, BOB, LONG) == 2


async def test_an_expired_lease_can_be_taken_with_a_higher_term(
    storage: Storage, leases: SharedLeases, others: SharedLeases
):
    assert await leases.acquire(NAME, ANN, SHORT) == 1
    await expiry(storage, others)
    assert await others.acquire(NAME, BOB, LONG) == 2
    assert not await leases.renew(NAME, ANN, 1, LONG)
    found = await leases.read(NAME)
    assert found is not None
    assert found.holder == BOB


async def test_a_renewal_prolongs_the_lease_from_now_on(leases: SharedLeases):
    assert await leases.acquire(NAME, ANN, LONG) == 1
    assert await leases.renew(NAME, ANN, 1, HOUR)
    found = await leases.read(NAME)
    assert found is not None
    assert HOUR - 20 < found.left <= HOUR
    assert (found.holder, found.term) == (ANN, 1)


async def test_an_expired_lease_cannot_be_renewed_although_nobody_has_taken_it(
    storage: Storage, leases: SharedLeases
):
    await leases.acquire(NAME, ANN, SHORT)
    await expiry(storage, leases)
    assert not await leases.renew(NAME, ANN, 1, LONG)
    assert await leases.read(NAME) is None


@pytest.mark.parametrize(("holder", "term"), [(BOB, 1), (ANN, 2), (ANN, 0)])
async def test_a_wrong_holder_or_term_neither_renews_nor_releases(
    leases: SharedLeases, others: SharedLeases, holder: Holder, term: int
):
    assert await leases.acquire(NAME, ANN, LONG) == 1
    assert not await others.renew(NAME, holder, term, HOUR)
    await others.release(NAME, holder, term)
    found = await leases.read(NAME)
    assert found is not None
    assert (found.holder, found.term) == (ANN, 1)
    assert found.left <= LONG


async def test_a_lease_that_nobody_has_acquired_is_neither_renewed_nor_released(leases: SharedLeases):
    assert not await leases.renew(NAME, ANN, 1, LONG)
    await leases.release(NAME, ANN, 1)
    assert await leases.read(NAME) is None
    assert await leases.acquire(NAME, ANN, LONG) == 1


async def test_the_holder_can_acquire_its_lease_again_and_its_old_term_ends(leases: SharedLeases):
    """Its first request can have been executed although no answer arrived."""
    assert await leases.acquire(NAME, ANN, LONG, address="old") == 1
    assert await leases.acquire(NAME, ANN, HOUR, address="new") == 2
    assert not await leases.renew(NAME, ANN, 1, LONG)
    found = await leases.read(NAME)
    assert found is not None
    assert (found.term, found.address) == (2, "new")
    assert found.left > LONG


async def test_of_twenty_concurrent_requests_exactly_one_gets_the_lease(storage: Storage):
    for expected in (1, 2):  # the first time there is no record of this lease
        terms: dict[str, int] = {}

        async def acquire(number: int, terms: dict[str, int] = terms) -> None:
            term = await storage.process().acquire(NAME, Holder(f"{number}"), LONG)
            if term is not None:
                terms[f"{number}"] = term

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(acquire, number)
        [(winner, term)] = terms.items()
        assert term == expected
        found = await storage.process().read(NAME)
        assert found is not None
        assert found.holder == Holder(winner)
        await storage.process().release(NAME, Holder(winner), term)


# Terms that the storage has lost.


async def test_a_term_is_higher_than_that_of_the_store_and_a_lost_one_blocks_the_lease_for_a_ttl(
    storage: Storage, leases: SharedLeases, others: SharedLeases
):
    assert await leases.acquire(NAME, ANN, LONG, above=7) is None
    found = await others.read(NAME)
    assert found is not None
    assert (found.holder, found.term, found.address) == (None, 7, None)
    assert found.is_blocked
    assert LONG - 20 < found.left <= LONG
    for holder in (ANN, BOB):
        assert await others.acquire(NAME, holder, SHORT, above=7) is None
    still = await others.read(NAME)
    assert still is not None
    assert LONG - 20 < still.left <= found.left


async def test_a_higher_term_raises_that_of_a_blocked_lease(leases: SharedLeases, others: SharedLeases):
    assert await leases.acquire(NAME, ANN, LONG, above=7) is None
    assert await others.acquire(NAME, BOB, LONG, above=9) is None
    found = await leases.read(NAME)
    assert found is not None
    assert found.is_blocked
    assert found.term == 9


async def test_a_blocked_lease_can_be_taken_when_the_ttl_has_passed(
    storage: Storage, leases: SharedLeases, others: SharedLeases
):
    assert await leases.acquire(NAME, ANN, SHORT, above=7) is None
    await expiry(storage, others)
    assert await others.acquire(NAME, BOB, LONG, above=7) == 8


async def test_the_term_of_the_last_holder_is_no_sign_of_a_loss(leases: SharedLeases, others: SharedLeases):
    assert await leases.acquire(NAME, ANN, LONG) == 1
    await leases.release(NAME, ANN, 1)
    assert await others.acquire(NAME, BOB, LONG, above=1) == 2


async def test_a_lost_term_does_not_take_the_lease_from_its_holder(
    leases: SharedLeases, others: SharedLeases
):
    assert await leases.acquire(NAME, ANN, LONG) == 1
    assert await others.acquire(NAME, BOB, LONG, above=7) is None
    assert await leases.renew(NAME, ANN, 1, LONG)


@pytest.mark.parametrize("above", [1, 7])
async def test_a_holder_that_learns_of_a_term_not_below_its_own_loses_the_lease_until_the_ttl_has_passed(
    storage: Storage, leases: SharedLeases, others: SharedLeases, above: int
):
    """The store has refused its term: its own request did not see the term that was lost."""
    assert await leases.acquire(NAME, ANN, LONG) == 1
    assert await leases.acquire(NAME, ANN, SHORT, above=above) is None
    assert not await leases.renew(NAME, ANN, 1, LONG)
    found = await others.read(NAME)
    assert found is None or found.is_blocked
    await expiry(storage, others)
    assert await others.acquire(NAME, BOB, LONG, above=above) == above + 1


async def test_a_blocked_lease_has_no_address(leases: SharedLeases):
    assert await leases.acquire(NAME, ANN, LONG, address="wss://ann") == 1
    assert await leases.acquire(NAME, ANN, LONG, above=1) is None
    found = await leases.read(NAME)
    assert found is not None
    assert (found.is_blocked, found.address) == (True, None)


async def test_a_holder_whose_lease_has_expired_can_take_it_again_with_its_own_term_in_the_store(
    storage: Storage, leases: SharedLeases
):
    assert await leases.acquire(NAME, ANN, SHORT) == 1
    await expiry(storage, leases)
    assert await leases.acquire(NAME, ANN, LONG, above=1) == 2


# The clocks of holders.


async def test_the_wall_clock_of_a_holder_is_irrelevant(
    storage: Storage, leases: SharedLeases, others: SharedLeases, monkeypatch: pytest.MonkeyPatch
):
    assert await leases.acquire(NAME, ANN, LONG) == 1
    for shift in (-HOUR, HOUR):
        with monkeypatch.context() as patch:
            patch.setattr("time.time", lambda shift=shift: 1_800_000_000 + shift)
            found: Lease | None = await others.read(NAME)
            assert found is not None
            assert LONG - 20 < found.left <= LONG
            assert await others.acquire(NAME, BOB, LONG) is None
            assert await leases.renew(NAME, ANN, 1, LONG)
