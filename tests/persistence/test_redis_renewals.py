"""Renewals of a lease in Redis by a thread: their results, their time limits, and the thread itself."""

import subprocess
import time
from collections.abc import Callable
from functools import partial

import pytest
import trio

from greenroom.persistence.holders import Holder
from greenroom.persistence.leasekeeping import Failed, Keeping, Renewed, Taken, now
from greenroom.persistence.leasethread import LeaseThread
from greenroom.persistence.redis_leases import RedisLeases
from greenroom.persistence.redis_renewals import RedisRenewals
from tests.redis_servers import Redis

NAME = "leader"
ANN, BOB = Holder("ann", "first", 1), Holder("bob", "second", 2)
TTL = 60.0


@pytest.fixture
def leases(redis: Redis) -> RedisLeases:
    return RedisLeases(redis.url(), "test", timeout=20)


@pytest.fixture
def renewals(leases: RedisLeases) -> RedisRenewals:
    return RedisRenewals(leases, NAME, ANN, 1, TTL)


async def in_thread(call: Callable[[], object]) -> object:
    return await trio.to_thread.run_sync(call)


async def test_a_renewal_prolongs_the_lease_and_tells_when_it_was_sent(
    leases: RedisLeases, renewals: RedisRenewals
):
    assert await leases.acquire(NAME, ANN, 20) == 1
    assert await in_thread(partial(renewals.renew, 12.5)) == Renewed(12.5)
    found = await leases.read(NAME)
    assert found is not None
    assert 20 < found.left <= TTL


async def test_a_renewal_tells_who_has_taken_the_lease(leases: RedisLeases, renewals: RedisRenewals):
    assert await leases.acquire(NAME, BOB, TTL) == 1
    told = await in_thread(partial(renewals.renew, 0))
    assert told == Taken(f"another process (pid 2 on second) has taken the lease leader in {leases.name}")


async def test_a_lease_that_redis_has_lost_counts_as_taken(
    redis: Redis, leases: RedisLeases, renewals: RedisRenewals
):
    assert await leases.acquire(NAME, ANN, TTL) == 1
    redis.execute("FLUSHALL")
    lost = Taken(f"the lease leader in {leases.name} has expired, or Redis has lost its data")
    assert await in_thread(partial(renewals.renew, 0)) == lost
    assert await leases.acquire(NAME, BOB, TTL, above=1) is None  # now it is blocked
    assert await in_thread(partial(renewals.renew, 0)) == lost


async def test_a_released_lease_can_be_taken(leases: RedisLeases, renewals: RedisRenewals):
    assert await leases.acquire(NAME, ANN, TTL) == 1
    assert await in_thread(renewals.release) is None
    assert await leases.acquire(NAME, BOB, TTL) == 2
    assert await in_thread(renewals.release) is None
    assert await leases.read(NAME) is not None


async def test_a_failed_call_returns_its_reason_and_the_next_one_succeeds(
    redis: Redis, leases: RedisLeases, renewals: RedisRenewals
):
    assert await leases.acquire(NAME, ANN, TTL) == 1
    redis.stop()
    failed = await in_thread(partial(renewals.renew, 0))
    assert isinstance(failed, Failed)
    assert failed.why.startswith(f"Redis is unavailable: {leases.name}: ")
    assert failed.why.endswith("Connection refused")
    assert await in_thread(renewals.release) == failed.why
    redis.start()
    assert await in_thread(partial(renewals.renew, 1)) == Renewed(1)


@pytest.mark.parametrize("call", [lambda renewals: renewals.renew(0), lambda renewals: renewals.release()])
async def test_a_call_to_a_silent_server_ends_at_its_time_limit(
    redis: Redis, call: Callable[[RedisRenewals], object]
):
    renewals = RedisRenewals(RedisLeases(redis.url(), "test", timeout=0.3), NAME, ANN, 1, TTL)
    with redis.paused():
        began = time.monotonic()
        assert "timed out after 0.3 s" in str(await in_thread(partial(call, renewals)))
        assert time.monotonic() - began < 5


async def test_an_aborted_call_fails_at_once_and_the_next_one_succeeds(
    redis: Redis, leases: RedisLeases, renewals: RedisRenewals
):
    assert await leases.acquire(NAME, ANN, TTL) == 1
    renewals.abort()  # without a call, it has no effect
    results: list[object] = []

    async def renew() -> None:
        results.append(await in_thread(partial(renewals.renew, 0)))

    with trio.fail_after(10):  # less than the time limit of the call
        with redis.paused():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(renew)
                while not results:
                    renewals.abort()  # until there is a call that it can abort
                    await trio.sleep(0.01)
        assert results == [Failed(f"Redis is unavailable: {leases.name}: no response in time")]
        assert await in_thread(partial(renewals.renew, 1)) == Renewed(1)
    renewals.abort()  # the call has ended


async def test_an_unexpected_error_is_a_failed_renewal(
    renewals: RedisRenewals, leases: RedisLeases, monkeypatch: pytest.MonkeyPatch
):
    async def renew(*arguments: object) -> bool:
        raise ZeroDivisionError("by accident")

    monkeypatch.setattr(leases, "renew", renew)
    assert await in_thread(partial(renewals.renew, 0)) == Failed("by accident")


# In the thread that keeps the lease.


async def test_the_thread_keeps_the_lease_while_the_event_loop_is_blocked_and_releases_it_at_its_end(
    redis: Redis,
):
    ttl = 1.5
    leases = RedisLeases(redis.url(), "test", timeout=ttl / 3)
    sent = now()
    assert await leases.acquire(NAME, ANN, ttl) == 1
    keeping = Keeping(ttl, sent)
    thread = LeaseThread(keeping, RedisRenewals(leases, NAME, ANN, 1, ttl), now)
    thread.start()
    subprocess.run(["sleep", "2"], check=True)  # noqa: ASYNC221  # blocking it is the matter
    assert keeping.state == "held"
    found = await leases.read(NAME)
    assert found is not None
    assert (found.holder, found.term) == (ANN, 1)
    await in_thread(thread.stop)
    assert await leases.read(NAME) is None


class Watch:
    """What an engine is told about its lease."""

    exits = False

    def __init__(self) -> None:
        self.told: list[str] = []
        self.changed = trio.Event()

    def tell(self, what: str, why: str = "") -> None:
        self.told.append(f"{what} {why}".strip())
        changed, self.changed = self.changed, trio.Event()
        changed.set()

    def lease_lapses(self, why: str) -> None:
        self.tell("lapses")

    def lease_over(self, executing: object) -> None:
        self.tell("over")

    def lease_renewed(self) -> None:
        self.tell("renewed")

    def lease_lost(self, why: str) -> None:
        self.tell("lost", why)

    def executing(self) -> list[str]:
        return []


async def test_the_holder_stops_acting_while_redis_is_silent_and_continues_if_the_lease_survived(
    redis: Redis,
):
    ttl = 3.0
    leases = RedisLeases(redis.url(), "test", timeout=ttl / 3)
    sent = now()
    assert await leases.acquire(NAME, ANN, 600) == 1  # silent for longer than its ttl, Redis keeps it
    watch, keeping = Watch(), Keeping(ttl, sent)
    thread = LeaseThread(keeping, RedisRenewals(leases, NAME, ANN, 1, ttl), now)
    thread.watch(watch)
    thread.start()
    with trio.fail_after(30):
        with redis.paused():
            while "lapses" not in watch.told:
                await watch.changed.wait()
        while "renewed" not in watch.told:
            await watch.changed.wait()
    assert keeping.state == "held"
    await in_thread(thread.stop)


async def test_the_holder_stops_when_redis_was_flushed(redis: Redis):
    ttl = 1.5
    leases = RedisLeases(redis.url(), "test", timeout=ttl / 3)
    sent = now()
    assert await leases.acquire(NAME, ANN, ttl) == 1
    watch = Watch()
    thread = LeaseThread(Keeping(ttl, sent), RedisRenewals(leases, NAME, ANN, 1, ttl), now)
    thread.watch(watch)
    redis.execute("FLUSHALL")
    thread.start()
    with trio.fail_after(30):
        while not any(what.startswith("lost ") for what in watch.told):
            await watch.changed.wait()
    await in_thread(thread.stop)
    assert any("has expired, or Redis has lost its data" in what for what in watch.told)
