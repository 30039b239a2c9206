"""Names whose name servers do not respond: they hold up nothing else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from greenroom.actors.workers.lookups import LookupHangs, Lookups

PATIENCE = 30.0


class NameServers:
    """Replaces the system's lookups. Names that end with `.slow` have no result until `respond` is called."""

    def __init__(self) -> None:
        self._respond = threading.Event()
        self._lock = threading.Lock()
        self.looking_up = 0

    def getaddrinfo(self, host: str, port: int, family: int = 0, type: int = 0, **more: Any) -> Any:
        if more.get("flags"):
            raise socket.gaierror(socket.EAI_NONAME, "not an address")
        if host == "unknown":
            raise socket.gaierror(socket.EAI_NONAME, "unknown name")
        if host.endswith(".slow"):
            with self._lock:
                self.looking_up += 1
            assert self._respond.wait(PATIENCE)
            with self._lock:
                self.looking_up -= 1
        return [(socket.AF_INET, type, 6, "", ("192.0.2.1", port))] * 2

    def respond(self) -> None:
        self._respond.set()


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServers]:
    servers = NameServers()
    monkeypatch.setattr(socket, "getaddrinfo", servers.getaddrinfo)
    yield servers
    servers.respond()


async def until(condition: Any) -> None:
    with trio.fail_after(PATIENCE):
        while not condition():  # a thread changes it  # noqa: ASYNC110
            await trio.sleep(0.001)


async def give_up(lookups: Lookups, servers: NameServers, name: str) -> None:
    """Begin a lookup of a slow name, and give it up."""
    before = servers.looking_up
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lookups.addresses, name, 80)
        await until(lambda: servers.looking_up > before)
        nursery.cancel_scope.cancel()


async def test_lookups_that_hang_take_no_threads_of_the_application(servers: NameServers) -> None:
    lookups = Lookups()
    assert await lookups.addresses("known", 80) == ["192.0.2.1"]
    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(lookups.addresses, f"{number}.slow", 80)
        await until(lambda: servers.looking_up == 16)
        with trio.fail_after(PATIENCE / 2):
            assert await trio.to_thread.run_sync(lambda: 1) == 1
            assert await lookups.addresses("known", 80) == ["192.0.2.1"]
        assert servers.looking_up == 16, "they are limited"
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        nursery.cancel_scope.cancel()  # and do not wait


async def test_a_name_whose_lookup_hangs_is_refused_until_the_lookup_ends(servers: NameServers) -> None:
    lookups = Lookups()
    await give_up(lookups, servers, "a.slow")
    with trio.fail_after(PATIENCE / 2), pytest.raises(LookupHangs, match="name server does not respond"):
        await lookups.addresses("a.slow", 80)
    assert servers.looking_up == 1
    servers.respond()
    await until(lambda: servers.looking_up == 0)
    await until(lambda: all(each.ended for each in lookups._abandoned.values()))
    assert await lookups.addresses("a.slow", 80) == ["192.0.2.1"]


async def test_names_whose_lookups_hung_do_not_take_the_threads_of_new_names(servers: NameServers) -> None:
    lookups = Lookups()
    names = [f"{number}.slow" for number in range(10)]
    for name in names:
        await give_up(lookups, servers, name)
    servers.respond()
    await until(lambda: servers.looking_up == 0)
    await until(lambda: all(each.ended for each in lookups._abandoned.values()))
    servers._respond = threading.Event()
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(lookups.addresses, name, 80)
        await until(lambda: servers.looking_up == 4)
        for number in range(20):
            assert await lookups.addresses(f"new-{number}", 80)
        assert servers.looking_up == 4
        nursery.cancel_scope.cancel()


async def test_a_name_that_is_unknown_raises_the_error_of_the_system(servers: NameServers) -> None:
    with pytest.raises(socket.gaierror, match="unknown name"):
        await Lookups().addresses("unknown", 80)


@pytest.mark.parametrize(
    ("host", "address"), [("127.1", "127.0.0.1"), ("2130706433", "127.0.0.1"), ("::1", "::1")]
)
async def test_an_address_needs_no_thread(host: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trio.to_thread, "run_sync", None)
    assert await Lookups().addresses(host, 80) == [address]


async def test_what_is_known_of_names_is_bounded(servers: NameServers) -> None:
    lookups = Lookups()
    for number in range(1100):
        lookups._remember(str(number), succeeded=True)
    assert len(lookups._succeeded) == 1000
