"""Leases in Redis, for processes that share a server, a Redis Cluster, or servers with Sentinels.

The keys of a cluster have one hash tag, so that they are on one node of a Redis Cluster:

    {greenroom:<cluster>}:lease:<name>    a hash: holder, term, address; exists while the lease is held
    {greenroom:<cluster>}:term:<name>     the last term; never expires

Each call is one Lua script, which Redis executes atomically. The lease's key expires by the server's
clock. If that clock jumps, a lease ends too early or too late, and the store still accepts one holder only.

Redis can lose both keys: by FLUSHALL, by a restart without persistence or with an old copy, by an eviction,
or by a failover to a replica that had not received the last writes. Then:

- The next renewal of the old holder returns false, and it stops. If it cannot reach Redis, it stops when its
  ttl has passed. Until then it believes that it holds the lease.
- The first `acquire` with the store's term as `above` finds that the term counter is lower. It sets the
  counter to `above` and blocks the lease: its key exists without a holder for a whole ttl, after which the
  old holder has stopped. Meanwhile `acquire` returns `None`, and `read` a lease that `is_blocked`, for logs.
- Then the lease can be taken. Its term is higher than `above`, so the store accepts it and refuses the old
  one.

The same happens once when a store that had another kind of lease is first used with Redis.
"""

from __future__ import annotations

from ..protocol.errors import Invalid
from .holders import Holder, read_holder
from .lease import Lease
from .leases import LeasesBroken
from .redis_addresses import parse_redis_address

TIMEOUT = 5.0
"""The time limit of a call, in seconds: a third of the default ttl."""

# Decides as `leases.judge` does. A blocked lease has the empty holder.
_ACQUIRE = """
local lease, counter = KEYS[1], KEYS[2]
local holder, ttl, above, address = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local function write(holder, term, address)
  redis.call('SET', counter, term)
  redis.call('HSET', lease, 'holder', holder, 'term', term, 'address', address)
  redis.call('PEXPIRE', lease, ttl)
end

local found = redis.call('HMGET', lease, 'holder', 'term')
if found[1] and found[1] ~= '' and found[1] ~= holder then
  return false
end
local last = math.max(tonumber(found[2] or 0), tonumber(redis.call('GET', counter) or 0))
if above > last or (found[1] == holder and above == last) then
  write('', above, '')
  return false
end
if found[1] == '' then
  return false
end
write(holder, last + 1, address)
return last + 1
"""

_RENEW = """
local found = redis.call('HMGET', KEYS[1], 'holder', 'term')
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[3])
"""

_RELEASE = """
local found = redis.call('HMGET', KEYS[1], 'holder', 'term')
if found[1] == ARGV[1] and found[2] == ARGV[2] then
  redis.call('DEL', KEYS[1])
end
"""

_READ = """
local found = redis.call('HMGET', KEYS[1], 'holder', 'term', 'address')
if not found[1] then
  return false
end
found[4] = redis.call('PTTL', KEYS[1])
return found
"""


class RedisLeases:
    """Implements `leases.SharedLeases`, for the cluster of this name. `url` is an address as in
    `redis_addresses.py`. Each call, including its connection, has `timeout` seconds; it also raises
    `LeasesBroken`.

    Threads can share it, each with its own event loop.
    """

    def __init__(self, url: str, cluster: str, *, timeout: float = TIMEOUT) -> None:
        if not cluster or "{" in cluster or "}" in cluster:
            raise Invalid(f"the name of a cluster must not be empty or contain braces (got {cluster!r})")
        address = parse_redis_address(url)
        try:
            from .redis_client import RedisClient
        except ImportError as error:
            raise LeasesBroken(
                f"the driver for Redis is not installed ({error}): install it with "
                'pip install "greenroom[redis]"'
            ) from error
        self.name = str(address)
        self._client = RedisClient(address, timeout)
        self._prefix = f"{{greenroom:{cluster}}}"

    async def acquire(
        self, name: str, holder: Holder, ttl: float, *, address: str | None = None, above: int = 0
    ) -> int | None:
        keys = [self._lease(name), f"{self._prefix}:term:{name}"]
        term = await self._client.call(
            _ACQUIRE, keys, [holder.text(), _milliseconds(ttl), above, address or ""]
        )
        return None if term is None else int(term)

    async def renew(self, name: str, holder: Holder, term: int, ttl: float) -> bool:
        renewed = await self._client.call(
            _RENEW, [self._lease(name)], [holder.text(), term, _milliseconds(ttl)]
        )
        return bool(renewed)

    async def release(self, name: str, holder: Holder, term: int) -> None:
        await self._client.call(_RELEASE, [self._lease(name)], [holder.text(), term])

    async def read(self, name: str) -> Lease | None:
        found = await self._client.call(_READ, [self._lease(name)], [])
        if found is None:
            return None
        holder, term, address, left = found
        return Lease(read_holder(holder) if holder else None, int(term), address or None, left / 1000)

    def _lease(self, name: str) -> str:
        return f"{self._prefix}:lease:{name}"


def _milliseconds(ttl: float) -> int:
    return max(1, round(ttl * 1000))
