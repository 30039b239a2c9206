"""Where workers can be called: addresses that are always refused, addresses that must be listed, and that the
checked address is the one that is connected to."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

from greenroom import Jobs
from greenroom.actors.workers.connections import MAX_IDLE
from greenroom.actors.workers.networks import LOOPBACK, Networks
from greenroom.actors.workers.push import HttpPush, PushFailed
from greenroom.actors.workers.states import WorkFailed
from greenroom.config.mistakes import ConfigMistakes
from greenroom.config.reading import Flag, read_config
from greenroom.errors import Invalid
from tests.servers import make_certificate
from tests.support import open_engine
from tests.workers.support import dispatch_of, read_request, response, serving, work

EVERYWHERE = ("0.0.0.0/0", "::/0")


@asynccontextmanager
async def pushing(*networks: str) -> AsyncIterator[HttpPush]:
    push = HttpPush(Networks(networks))
    try:
        yield push
    finally:
        await push.aclose()


class Names(trio.abc.HostnameResolver):
    """A fake name server: each lookup of a name returns its next list of addresses."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def getaddrinfo(self, host: Any, port: Any, *args: Any, **kwargs: Any) -> list[Any]:
        name = host.decode() if isinstance(host, bytes) else host
        self.asked.append(name)
        rounds = self.answers[name.replace(".", "_")]
        addresses = rounds.pop(0) if len(rounds) > 1 else rounds[0]
        found: list[Any] = []
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            where = (address, port, 0, 0) if ":" in address else (address, port)
            found.append((family, socket.SOCK_STREAM, 6, "", where))
        return found

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise NotImplementedError


@contextmanager
def names(**answers: list[list[str]]) -> Iterator[Names]:
    resolver = Names(**answers)
    before = trio.socket.set_custom_hostname_resolver(resolver)
    try:
        yield resolver
    finally:
        trio.socket.set_custom_hostname_resolver(before)


async def answering(stream: trio.SocketStream) -> None:
    while (await read_request(stream))[0]:
        await stream.send_all(response(b'{"result": 1}'))


# Which addresses.


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.0.1",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd00:c1::a9fe:a9fe",
        "fd00:42::42",
        "fd20:ce::254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "0.0.0.0",
        "0.1.2.3",
        "::",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "::ffff:169.254.169.254",
        "::ffff:0.0.0.0",
        "::169.254.169.254",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::a9fe:a9fe",
        "64:ff9b:1:a9fe:a9:fe00::",  # the prefix has 48 bits
        "64:ff9b:1:a9fe:a9:fe00:808:808",
        "64:ff9b:1:a9:fe:a9fe::",  # 56 bits
        "64:ff9b:1:0:a9:fea9:fe00:0",  # 64 bits
        "::ffff:0:169.254.169.254",
        "2002:a9fe:a9fe::1",
        "2001:0:4136:e378:8000:63bf:5601:5601",  # Teredo, whose client is 169.254.169.254
    ],
)
def test_some_addresses_are_always_refused(address):
    assert "which is never called" in (Networks(EVERYWHERE).refusal(address) or "")


@pytest.mark.parametrize(
    ("address", "networks", "allowed"),
    [
        ("127.0.0.1", LOOPBACK, True),
        ("127.8.9.1", LOOPBACK, True),
        ("::1", LOOPBACK, True),
        ("::ffff:127.0.0.1", LOOPBACK, True),
        ("10.0.0.7", LOOPBACK, False),
        ("192.168.1.1", LOOPBACK, False),
        ("8.8.8.8", LOOPBACK, False),
        ("fd00::7", LOOPBACK, False),
        ("10.0.0.7", ("10.0.0.0/8",), True),
        ("::ffff:10.0.0.7", ("10.0.0.0/8",), True),
        ("11.0.0.7", ("10.0.0.0/8",), False),
        ("127.0.0.1", ("10.0.0.0/8",), False),
        ("fd00::7", ("fd00::/8",), True),
        ("8.8.8.8", EVERYWHERE, True),
        ("127.0.0.1", (), False),
    ],
)
def test_other_addresses_are_called_if_the_operator_lists_them(address, networks, allowed):
    refusal = Networks(networks).refusal(address)
    assert (refusal is None) == allowed
    assert refusal is None or "worker_networks" in refusal


PUBLIC = ("8.8.8.8", "192.0.1.1", "2606:4700::1", "2a00::1", "64:ff9b::808:808", "::ffff:8.8.8.8")
NOT_PUBLIC = """
    0.1.2.3 10.0.0.1 100.64.0.1 100.127.255.255 127.0.0.1 169.254.0.1 172.31.0.1 192.0.0.9 192.0.0.170
    192.0.2.1 192.31.196.1 192.88.99.1 192.168.0.1 198.18.0.1 198.51.100.3 203.0.113.1 224.0.0.1 240.0.0.1
    :: ::1 ::2 ::808:808 ::ffff:10.0.0.1 ::ffff:0:8.8.8.8 64:ff9b::7f00:1 64:ff9b::a00:1 64:ff9b:1::808:808
    64:ff9b:1:a00:1:100:808:808 100::1 0200::1 1::1 2001:0:7f00:1:: 2001:2::1 2001:20::1 2001:db8::1
    2002:a00:1:: 2002:808:808:: 2620:4f:8000::1 3fff::1 3fff:fff::1 4000::1 5f00::1 e000::1 fd00::1 fdff::1
    fe80::1 fec0::1 ff02::1
""".split()


@pytest.mark.parametrize("address", [*PUBLIC, *NOT_PUBLIC])
def test_receivers_of_webhooks_are_called_at_public_addresses_only(address):
    networks = Networks((), setting="webhook_networks", public=True)
    assert (networks.refusal(address) is None) is (address in PUBLIC)


@pytest.mark.parametrize(
    "address", ["fec0::1", "64:ff9b:1::a00:1", "64:ff9b:1:1:2:300::", "4000::1", "3fff::1"]
)
def test_an_address_that_is_not_public_is_called_in_a_listed_network(address):
    networks = Networks(("::/0",), setting="webhook_networks", public=True)
    assert networks.refusal(address) is None


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("10.0.0.1/8", "not a network"),
        ("intranet", "not a network"),
        ("169.254.0.0/16", "never called"),
        ("fe80::/10", "never called"),
        ("::ffff:10.0.0.0/104", r"consists of IPv4 addresses: write it as 10\.0\.0\.0/8"),
        ("::ffff:127.0.0.1", r"write it as 127\.0\.0\.1/32"),
    ],
)
def test_an_invalid_setting_is_refused(network, said):
    with pytest.raises(Invalid, match=said):
        Networks([network])
    with pytest.raises(ConfigMistakes, match=said):
        read_config(flags=[Flag("x", "engine.worker_networks", [network])], environ={})


def test_the_setting_is_read_from_a_variable_too():
    read = read_config(environ={"GREENROOM_WORKER_NETWORKS": "10.0.0.0/8, fd00::/8"})
    assert read.config.engine.worker_networks == ("10.0.0.0/8", "fd00::/8")


# Registering.


async def test_an_address_that_is_always_refused_cannot_be_registered():
    async with open_engine(Jobs(), worker_networks=EVERYWHERE) as engine:
        for url in ("http://169.254.169.254", "http://[fe80::1]:80", "http://0.0.0.0:8080"):
            with pytest.raises(Invalid, match="never called"):
                await engine.workers.register("w", url, ["sum"])


async def test_a_registration_over_the_gateway_with_an_unlisted_address_is_refused():
    async with open_engine(Jobs(), worker_networks=["10.0.0.0/8"]) as engine:
        for url in ("http://127.0.0.1:80", "http://192.168.0.1", "http://[::1]:80"):
            with pytest.raises(Invalid, match="worker_networks"):
                engine.workers.permit(url)
        for url in ("http://10.1.2.3:80/base", "http://later.example", ""):
            engine.workers.permit(url)


# Calling.


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[::ffff:a9fe:a9fe]", "0.0.0.0", "2852039166", "0xa9fea9fe"]
)
async def test_no_connection_is_opened_to_a_refused_address(host):
    async with pushing(*EVERYWHERE) as push:
        with pytest.raises(PushFailed, match="never called") as failed:
            await push.post(f"http://{host}:80/exec/sum", b"{}", {})
        assert failed.value.code == "unreachable"


async def test_a_name_is_checked_by_its_addresses():
    async with serving(answering) as url, pushing(*LOOPBACK) as push:
        port = urlsplit(url).port
        with names(inside_example=[["10.0.0.7"]], here_example=[["127.0.0.1"]]):
            with pytest.raises(PushFailed, match=r"10\.0\.0\.7 is in none of the worker_networks"):
                await push.post(f"http://inside.example:{port}/exec/sum", b"{}", {})
            assert (await push.post(f"http://here.example:{port}/exec/sum", b"{}", {}))[0] == 200


async def test_only_allowed_addresses_of_a_name_are_connected_to():
    async with serving(answering) as url, pushing(*LOOPBACK) as push:
        port = urlsplit(url).port
        with names(both_example=[["169.254.169.254", "10.0.0.7", "127.0.0.1"]]), trio.fail_after(30):
            assert (await push.post(f"http://both.example:{port}/exec/sum", b"{}", {}))[0] == 200


async def test_a_name_is_resolved_and_checked_once_for_each_connection():
    heads: list[str] = []

    async def worker(stream: trio.SocketStream) -> None:
        heads.append((await read_request(stream))[0])
        await stream.send_all(response(b'{"result": 1}', "200 OK", "Connection: close"))

    async with serving(worker) as url, pushing(*LOOPBACK) as push:
        port = urlsplit(url).port
        with names(rebinding_example=[["127.0.0.1"], ["169.254.169.254"], ["127.0.0.1"]]) as resolver:
            call = f"http://rebinding.example:{port}/exec/sum"
            assert (await push.post(call, b"{}", {}))[0] == 200
            with pytest.raises(PushFailed, match="never called"):
                await push.post(call, b"{}", {})
            assert (await push.post(call, b"{}", {}))[0] == 200
        assert resolver.asked.count("rebinding.example") == 3
        assert all(f"Host: rebinding.example:{port}" in head for head in heads)


async def test_an_unreachable_address_does_not_delay_another_one(monkeypatch):
    connect = trio.open_tcp_stream

    async def slowly(host: Any, port: int, **kwargs: Any) -> trio.SocketStream:
        if host == "127.0.0.2":
            await trio.sleep_forever()
        return await connect(host, port, **kwargs)

    monkeypatch.setattr(trio, "open_tcp_stream", slowly)
    async with serving(answering) as url, pushing(*LOOPBACK) as push:
        port = urlsplit(url).port
        with names(slow_example=[["127.0.0.2", "127.0.0.1"]]), trio.fail_after(30):
            assert (await push.post(f"http://slow.example:{port}/exec/sum", b"{}", {}))[0] == 200


# Concurrent calls.


async def test_no_healthy_call_fails_with_many_concurrent_calls():
    count = 300
    arrived = 0
    everybody = trio.Event()

    async def worker(stream: trio.SocketStream) -> None:
        nonlocal arrived
        while (await read_request(stream))[0]:
            arrived += 1
            if arrived == count:
                everybody.set()
            await everybody.wait()
            await stream.send_all(response(b'{"result": 1}'))

    results: list[Any] = []
    async with serving(worker) as url, pushing(*LOOPBACK) as push, open_engine(Jobs()) as engine:
        await engine.workers.register("w", url, ["sum"])
        dispatch = dispatch_of(engine, push)

        async def call() -> None:
            results.append((await dispatch.push(work(timeout=20))).result)

        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(call)
        assert push._connections is not None
        assert len(push._connections._idle) <= MAX_IDLE
        assert (await dispatch.push(work(timeout=20))).result == 1
    assert results == [1] * count


async def test_a_shortage_of_connections_is_not_a_fault_of_the_worker(monkeypatch):
    async def none_left(*args: Any, **kwargs: Any) -> trio.SocketStream:
        raise OSError("all attempts failed") from OSError(24, "Too many open files")

    monkeypatch.setattr(trio, "open_tcp_stream", none_left)
    async with pushing(*LOOPBACK) as push, open_engine(Jobs()) as engine:
        await engine.workers.register("w", "http://127.0.0.1:9", ["sum"])
        with pytest.raises(WorkFailed, match="open another connection") as failed:
            await dispatch_of(engine, push).push(work())
        assert (failed.value.code, failed.value.workers_fault) == ("overloaded", False)


async def test_tls_checks_the_name_although_the_connection_uses_an_address(tmp_path, monkeypatch):
    certificate, key = make_certificate(tmp_path, "worker.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def worker(stream: trio.SocketStream) -> None:
        encrypted = trio.SSLStream(stream, context, server_side=True)
        await answering(encrypted)  # type: ignore[arg-type]

    async with serving(worker) as url, pushing(*LOOPBACK) as push:
        port = urlsplit(url).port
        with names(worker_example=[["127.0.0.1"]], other_example=[["127.0.0.1"]]):
            assert (await push.post(f"https://worker.example:{port}/exec/sum", b"{}", {}))[0] == 200
            with pytest.raises(PushFailed, match=r"(?i)certificate|hostname"):
                await push.post(f"https://other.example:{port}/exec/sum", b"{}", {})
