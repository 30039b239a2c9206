"""Leases in Redis, with real servers: addresses, failures, and the loss of data."""

import logging
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trio

from greenroom.persistence.holders import Holder
from greenroom.persistence.leases import LeasesBroken
from greenroom.persistence.redis_leases import RedisLeases
from greenroom.protocol.errors import Invalid, Unavailable
from tests.redis_servers import Redis, RedisCluster, RedisReplica, RedisSentinel, running
from tests.servers import free_port

NAME = "leader"
ANN, BOB = Holder("ann", "first", 1), Holder("bob", "second", 2)
TTL = 60.0


def opened(url: str, timeout: float = 20) -> RedisLeases:
    return RedisLeases(url, "test", timeout=timeout)


@contextmanager
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


async def test_all_keys_of_a_cluster_have_one_hash_tag_and_only_the_lease_expires(redis: Redis):
    leases = opened(redis.url())
    assert await leases.acquire(NAME, ANN, TTL) == 1
    lease, term = "{greenroom:test}:lease:leader", "{greenroom:test}:term:leader"
    assert sorted(redis.execute("KEYS *")) == [lease, term]
    assert int(redis.execute(f"PTTL {lease}")[0]) > 0
    assert redis.execute(f"PTTL {term}") == ["-1"]
    await leases.release(NAME, ANN, 1)
    assert redis.execute("KEYS *") == [term]


async def test_clusters_with_different_names_do_not_share_leases(redis: Redis):
    assert await opened(redis.url()).acquire(NAME, ANN, TTL) == 1
    assert await RedisLeases(redis.url(), "another").acquire(NAME, BOB, TTL) == 1


@pytest.mark.parametrize("name", ["", "a{b", "a}b"])
def test_the_name_of_a_cluster_cannot_contain_braces(name: str):
    with pytest.raises(Invalid, match=r"must not be empty or contain braces \(got "):
        RedisLeases("redis://one", name)


# Addresses.


async def test_the_password_can_be_that_of_the_default_user_or_of_a_named_one(redis: Redis):
    assert await opened(redis.url()).acquire(NAME, ANN, TTL) == 1
    by_default = f"redis://:{redis.default_password}@127.0.0.1:{redis.port}"
    assert await opened(by_default).read(NAME) is not None


@pytest.mark.parametrize("credentials", ["", ":wrong@", "greenroom:wrong@"])
async def test_a_wrong_or_missing_password_is_refused_with_the_remedy(redis: Redis, credentials: str):
    leases = opened(f"redis://{credentials}127.0.0.1:{redis.port}")
    with pytest.raises(
        LeasesBroken, match="user name or password is wrong or missing: correct the address"
    ) as caught:
        await leases.read(NAME)
    assert f"127.0.0.1:{redis.port}" in caught.value.message
    assert ":wrong" not in caught.value.message


@pytest.mark.parametrize("rules", ["-eval", "-hset", "resetkeys ~other"])
async def test_a_user_without_the_permissions_is_refused_with_the_remedy(redis: Redis, rules: str):
    redis.execute(f"ACL SETUSER limited reset on >pw ~* +@all {rules}")
    leases = opened(f"redis://limited:pw@127.0.0.1:{redis.port}")
    with pytest.raises(LeasesBroken, match="the user may not do this: grant it"):
        await leases.acquire(NAME, ANN, TTL)


async def test_each_database_has_its_own_leases(redis: Redis):
    assert await opened(redis.url("1")).acquire(NAME, ANN, TTL) == 1
    assert await opened(redis.url("0")).read(NAME) is None
    with pytest.raises(LeasesBroken, match="has fewer databases: correct the number"):
        await opened(redis.url("99")).read(NAME)


async def test_over_tls_the_server_must_prove_its_name(redis: Redis):
    url = redis.tls_url()
    assert await opened(f"{url}?ssl_ca={redis.certificate}").acquire(NAME, ANN, TTL) == 1
    with pytest.raises(LeasesBroken, match="name the authority of its certificate with ssl_ca"):
        await opened(url).read(NAME)
    elsewhere = url.replace("localhost", "127.0.0.1")
    with pytest.raises(LeasesBroken, match="certificate verify failed"):
        await opened(f"{elsewhere}?ssl_ca={redis.certificate}").read(NAME)


async def test_a_server_can_require_a_certificate_of_its_clients(redis: Redis):
    redis.execute("CONFIG SET tls-auth-clients yes")
    try:
        url = f"{redis.tls_url()}?ssl_ca={redis.certificate}"
        with pytest.raises(Unavailable):
            await opened(url).read(NAME)
        key = redis.certificate.with_name("key.pem")
        assert await opened(f"{url}&ssl_cert={redis.certificate}&ssl_key={key}").read(NAME) is None
    finally:
        redis.execute("CONFIG SET tls-auth-clients no")


async def test_an_address_with_tls_for_a_port_without_it_is_unavailable_and_vice_versa(redis: Redis):
    for url in (f"rediss://localhost:{redis.port}", f"redis://localhost:{redis.tls_port}"):
        with pytest.raises(Unavailable, match=r"Redis is unavailable: rediss?://localhost"):
            await opened(url, timeout=1).read(NAME)


def test_files_without_certificates_are_refused(redis: Redis, tmp_path: Path):
    (tmp_path / "empty").touch()
    with pytest.raises(LeasesBroken, match=r"no certificates or keys in its TLS parameters \(/.*/empty\)"):
        opened(f"{redis.tls_url()}?ssl_ca={tmp_path}/empty")


def test_without_the_driver_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "greenroom.persistence.redis_client", None)
    with pytest.raises(LeasesBroken, match=r'pip install "greenroom\[redis\]"'):
        opened("redis://one")


def test_the_driver_is_imported_only_for_leases_in_redis():
    program = """
import sys
import greenroom
import greenroom.cli
import greenroom.persistence.redis_renewals
sys.exit("coredis" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# A Redis Cluster, and Sentinels.


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    server = RedisCluster()
    with running(server):
        yield server


async def test_leases_in_a_redis_cluster_are_used_like_those_of_a_server(cluster: RedisCluster):
    cluster.execute("FLUSHALL")
    leases = opened(cluster.url())
    assert await leases.acquire(NAME, ANN, TTL) == 1
    assert await leases.renew(NAME, ANN, 1, TTL)
    assert await leases.acquire(NAME, BOB, TTL) is None
    await leases.release(NAME, ANN, 1)
    assert await leases.read(NAME) is None


@pytest.mark.parametrize("silent", [False, True])
async def test_a_redis_cluster_is_found_by_any_of_its_nodes(cluster: RedisCluster, silent: bool):
    cluster.execute("FLUSHALL")
    with silent_port() as port:
        first = port if silent else free_port()
        url = cluster.url().replace("127.0.0.1", f"127.0.0.1:{first},127.0.0.1")
        assert await opened(url, timeout=3).acquire(NAME, ANN, TTL) == 1


async def test_a_redis_cluster_that_does_not_answer_is_unavailable_within_the_time_limit():
    with silent_port() as first, silent_port() as second:
        leases = opened(f"redis+cluster://127.0.0.1:{first},127.0.0.1:{second}", timeout=0.5)
        began = time.monotonic()
        with pytest.raises(Unavailable):
            await leases.read(NAME)
        assert time.monotonic() - began < 5


async def test_a_single_server_with_the_address_of_a_redis_cluster_is_refused(redis: Redis):
    url = redis.url().replace("redis://", "redis+cluster://")
    with pytest.raises(LeasesBroken, match=r"remove \+cluster from the address"):
        await opened(url).read(NAME)


async def test_sentinels_name_the_primary_also_after_a_failover():
    primary = Redis()
    replica, sentinel = RedisReplica(primary), RedisSentinel(primary)
    with ExitStack() as stack:
        silent = stack.enter_context(silent_port())
        for server, ready in (
            (primary, "role:master"),
            (replica, "master_link_status:up"),
            (sentinel, "slaves=1"),
        ):
            stack.enter_context(running(server))
            await trio.to_thread.run_sync(server.wait_for_info, ready)
        sentinels = f"127.0.0.1:{silent},127.0.0.1:{sentinel.port}"
        leases = opened(f"redis+sentinel://:{primary.default_password}@{sentinels}/leases", timeout=3)
        assert await leases.acquire(NAME, ANN, TTL) == 1
        assert primary.execute("WAIT 1 10000") == ["1"]
        primary.kill()
        await trio.to_thread.run_sync(sentinel.execute, "SENTINEL FAILOVER leases")
        with trio.fail_after(60):
            while True:
                try:
                    assert await leases.renew(NAME, ANN, 1, TTL)
                except Unavailable:
                    await trio.sleep(0.1)
                else:
                    break
        assert replica.execute("EXISTS {greenroom:test}:lease:leader") == ["1"]


async def test_an_unknown_service_is_reported_with_its_name(redis: Redis):
    sentinel = RedisSentinel(redis)
    with running(sentinel):
        leases = opened(f"redis+sentinel://127.0.0.1:{sentinel.port}/other")
        with pytest.raises(Unavailable, match=r"no Sentinel that answers knows the service \(.*'other'\)"):
            await leases.read(NAME)


async def test_a_server_that_is_no_sentinel_is_refused(redis: Redis):
    url = f"redis+sentinel://:{redis.default_password}@127.0.0.1:{redis.port}/leases"
    with pytest.raises(LeasesBroken, match="this server is not a Sentinel"):
        await opened(url).read(NAME)


# Failures.


async def test_a_stopped_server_is_unavailable_and_a_restarted_one_has_the_leases(redis: Redis):
    leases = opened(redis.url())
    assert await leases.acquire(NAME, ANN, TTL, address="wss://ann") == 1
    for end in (redis.stop, redis.kill):
        end()
        with pytest.raises(
            Unavailable, match=rf"redis://greenroom@127.0.0.1:{redis.port}: .*Connection refused"
        ):
            await leases.renew(NAME, ANN, 1, TTL)
        redis.start()
        assert await leases.renew(NAME, ANN, 1, TTL)
        found = await leases.read(NAME)
        assert found is not None
        assert (found.holder, found.term, found.address) == (ANN, 1, "wss://ann")


HELLO = b"%3\r\n+version\r\n+7.0.0\r\n+proto\r\n:3\r\n+id\r\n:1\r\n"


@pytest.mark.parametrize(
    ("answers", "error", "message"),
    [
        ([HELLO, b"-MOVED 1 127.0.0.1:1\r\n"], LeasesBroken, r"write redis\+cluster:// in the address"),
        ([b"-ERR unknown command `HELLO`\r\n"], LeasesBroken, "too old: Redis 6 or newer is required"),
        ([HELLO, b"-LOADING its data\r\n"], Unavailable, "its data"),
        ([HELLO, b"-OOM out of memory\r\n"], Unavailable, "out of memory"),
    ],
)
async def test_an_error_that_passes_is_distinguished_from_one_with_a_remedy(
    answers: list[bytes], error: type[Exception], message: str
):
    async def answer(stream: trio.SocketStream) -> None:
        for text in answers:
            await stream.receive_some()
            await stream.send_all(text)
        await stream.receive_some()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, answer, listeners)
        with pytest.raises(error, match=message):
            await opened(f"redis://127.0.0.1:{port}").read(NAME)
        nursery.cancel_scope.cancel()


async def test_a_host_without_an_address_is_unavailable():
    with pytest.raises(Unavailable, match=r"Redis is unavailable: redis://nobody\.invalid:6379: "):
        await opened("redis://nobody.invalid").read(NAME)


async def test_a_replica_is_unavailable(redis: Redis):
    redis.execute(f"REPLICAOF 127.0.0.1 {free_port()}")
    try:
        with pytest.raises(Unavailable, match="read only replica"):
            await opened(redis.url()).acquire(NAME, ANN, TTL)
    finally:
        redis.execute("REPLICAOF NO ONE")


async def test_a_silent_server_makes_each_call_time_out(redis: Redis):
    leases = opened(redis.url())
    hasty = opened(redis.url(), timeout=0.3)
    assert await leases.acquire(NAME, ANN, TTL) == 1
    with redis.paused(), trio.fail_after(20):
        for call in (
            lambda: hasty.acquire(NAME, BOB, TTL),
            lambda: hasty.renew(NAME, ANN, 1, TTL),
            lambda: hasty.release(NAME, BOB, 1),
            lambda: hasty.read(NAME),
        ):
            began = time.monotonic()
            with pytest.raises(Unavailable, match=r"timed out after 0\.3 s"):
                await call()
            assert 0.1 < time.monotonic() - began < 5
    assert await leases.renew(NAME, ANN, 1, TTL)
    assert await hasty.acquire(NAME, BOB, TTL) is None


async def test_the_driver_does_not_log_failed_calls(redis: Redis, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    with redis.paused(), pytest.raises(Unavailable):
        await opened(redis.url(), timeout=0.3).read(NAME)
    assert not caplog.records
    logging.getLogger("coredis").info("of a program that uses it, too")
    assert [record.message for record in caplog.records] == ["of a program that uses it, too"]


async def test_a_failed_call_is_not_repeated():
    """The caller decides that: the first call can have been executed."""
    connections = 0

    async def close(stream: trio.SocketStream) -> None:
        nonlocal connections
        connections += 1

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, close, listeners)
        with pytest.raises(Unavailable):
            await opened(f"redis://127.0.0.1:{port}").read(NAME)
        nursery.cancel_scope.cancel()
    assert connections == 1


async def test_an_error_of_another_kind_is_not_taken_for_one_of_redis(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
):
    def eval(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("coredis.Redis.eval", eval)
    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        await opened(redis.url()).read(NAME)


async def test_a_cancelled_call_raises_no_error_of_its_own(redis: Redis):
    leases = opened(redis.url())
    with redis.paused():
        with trio.move_on_after(0.3) as scope:
            await leases.read(NAME)
        assert scope.cancelled_caught


# The loss of data.


async def test_after_a_flush_the_old_holder_stops_and_nobody_leads_before_its_ttl_has_passed(redis: Redis):
    leases, others = opened(redis.url()), opened(redis.url())
    for term in range(1, 8):
        assert await leases.acquire(NAME, ANN, TTL) == term
    redis.execute("FLUSHALL")
    began = time.monotonic()
    assert await others.acquire(NAME, BOB, 1.0, above=7) is None
    blocked = await others.read(NAME)
    assert blocked is None or blocked.is_blocked
    assert not await leases.renew(NAME, ANN, 7, TTL)
    with trio.fail_after(20):
        term = None
        while term is None:
            await trio.sleep(0.02)
            term = await others.acquire(NAME, BOB, TTL, above=7)
    assert time.monotonic() - began > 0.99
    assert term == 8
    assert not await leases.renew(NAME, ANN, 7, TTL)
    assert await leases.acquire(NAME, ANN, TTL, above=7) is None


async def test_after_the_loss_of_the_counter_alone_terms_are_higher_than_that_of_the_holder(redis: Redis):
    leases = opened(redis.url())
    for _ in range(7):
        await leases.acquire(NAME, ANN, TTL)
    redis.execute("DEL {greenroom:test}:term:leader")
    assert await leases.renew(NAME, ANN, 7, TTL)
    assert await leases.acquire(NAME, ANN, TTL) == 8
