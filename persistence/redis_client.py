"""Scripts on Redis, by the driver coredis: each call has its own connection and a time limit.

A connection per call costs about a millisecond, and has no state that can go stale: a restarted server, a new
primary, or a connection that a router has forgotten needs neither detection nor repair. It also lets threads
share a client, each with its own event loop.

Only this module imports coredis, which is an optional dependency. It also classifies the driver's errors:
`Unavailable` can pass without intervention; `LeasesBroken` requires an administrator.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import coredis
import trio
from coredis import exceptions as errors
from coredis.connection import TCPLocation
from coredis.retry import NoRetryPolicy

from ..protocol.errors import Unavailable
from .leases import LeasesBroken
from .redis_addresses import RedisAddress

Connected: TypeAlias = coredis.Redis[str] | coredis.RedisCluster[str]

_REMEDIES: tuple[tuple[type[BaseException], str, str], ...] = (
    (errors.AuthenticationError, "", "the user name or password is wrong or missing: correct the address"),
    (
        errors.AuthorizationError,
        "",
        "the user may not do this: grant it eval, get, set, hmget, hset, del, pexpire and pttl on all keys",
    ),
    (errors.ResponseError, "can't run this command", "the user may not do this: grant it that command"),
    (errors.MovedError, "", "this server belongs to a Redis Cluster: write redis+cluster:// in the address"),
    (
        errors.ResponseError,
        "cluster support disabled",
        "this server does not belong to a Redis Cluster: remove +cluster from the address",
    ),
    (errors.ResponseError, "DB index", "this server has fewer databases: correct the number in the address"),
    (errors.UnknownCommandError, "SENTINEL", "this server is not a Sentinel: correct the address"),
    (errors.UnknownCommandError, "", "the server is too old: Redis 6 or newer is required"),
    (ssl.SSLCertVerificationError, "", "name the authority of its certificate with ssl_ca in the address"),
)
"""Errors that do not pass without intervention: the driver's class, a part of its text, and the remedy."""

_calls: ContextVar[bool] = ContextVar("greenroom_calls_redis", default=False)
# The driver logs a traceback for each connection that fails; `RedisClient` raises the reason in a line.
logging.getLogger("coredis").addFilter(lambda record: not _calls.get())


class RedisClient:
    """Executes scripts. `timeout` is the time limit of a call, in seconds."""

    def __init__(self, address: RedisAddress, timeout: float) -> None:
        self._address = address
        self._timeout = timeout
        patience = _patience(address, timeout)
        self._settings: dict[str, Any] = {
            "password": address.password,
            "ssl_context": _tls_context(address) if address.tls else None,
            "connect_timeout": patience,
            "stream_timeout": patience,
        }

    async def call(self, script: str, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
        """Execute a Lua script, and return its result."""
        outside = _calls.set(True)
        with trio.move_on_after(self._timeout):
            try:
                async with self._connected() as client:
                    return await client.eval(script, keys, arguments)
            except (Exception, BaseExceptionGroup) as error:
                # The driver replaces a cancellation by an error of its own.
                await trio.lowlevel.checkpoint_if_cancelled()
                raise self._failure(error) from error
            finally:
                _calls.reset(outside)
        raise Unavailable(f"{self._unavailable}: timed out after {self._timeout:g} s")

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Connected]:
        address = self._address
        locations = [TCPLocation(host, port) for host, port in address.hosts]
        settings: dict[str, Any] = {**self._settings, "username": address.user}
        once = NoRetryPolicy()  # the caller decides whether to repeat a call
        if address.kind == "cluster":
            async with coredis.RedisCluster(
                startup_nodes=locations,
                skip_full_coverage_check=True,  # only the lease's slot matters
                retry_policy=once,
                decode_responses=True,
                **settings,
            ) as cluster:
                yield cluster
            return
        settings["db"] = address.database
        if address.kind == "sentinel":
            # Sentinels seldom have users, but can have the servers' password; without one, they accept any.
            found = coredis.Sentinel(
                locations,
                sentinel_kwargs=dict(self._settings),
                decode_responses=True,
                retry_policy=once,
                **settings,
            )
            async with found, found.primary_for(address.service) as primary:
                yield primary
            return
        [(host, port)] = address.hosts
        async with coredis.Redis(host, port, retry_policy=once, decode_responses=True, **settings) as server:
            yield server

    def _failure(self, error: BaseException) -> Unavailable | LeasesBroken:
        """Return the exception to raise for an error of the driver. Raises any other error."""
        causes = list(_causes(error))
        if not isinstance(causes[0], errors.RedisError | OSError):
            raise error
        for cause in causes:
            for kind, part, remedy in _REMEDIES:
                if isinstance(cause, kind) and part in str(cause):
                    return LeasesBroken(f"cannot use Redis at {self._address}: {remedy} ({cause})")
        return Unavailable(f"{self._unavailable}: {_describe(causes[-1])}")

    @property
    def _unavailable(self) -> str:
        return f"Redis is unavailable: {self._address}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, then its cause, and so on; of a group, the first one."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        else:
            yield found
            found = found.__cause__


def _describe(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no response in time"
    if isinstance(error, errors.PrimaryNotFoundError):
        return f"no Sentinel that answers knows the service ({error}); its name is in the address"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__


def _patience(address: RedisAddress, timeout: float) -> float | None:
    """Return the time limit of each step of a call. Silent nodes or Sentinels must leave time for the last
    one, and for the server that it names."""
    hosts = len(address.hosts)
    if address.kind == "cluster":
        return timeout / (3 * hosts)  # the driver asks a silent node three times
    return timeout / (hosts + 1) if address.kind == "sentinel" else None


def _tls_context(address: RedisAddress) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=address.ssl_ca)
        if address.ssl_cert is not None:
            context.load_cert_chain(address.ssl_cert, address.ssl_key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (address.ssl_ca, address.ssl_cert, address.ssl_key)))
        raise LeasesBroken(
            f"cannot use Redis at {address}: no certificates or keys in its TLS parameters ({files}): {error}"
        ) from error
    return context
