"""The gateway's settings, as people write them, with the defaults that hold where they say nothing.

Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

from typing import Literal

import attrs


@attrs.frozen
class Limits:
    """What one client, and all of them together, may ask for. They can be changed while the gateway runs."""

    max_connections: int = 10_000
    """Beyond it a connection is answered with 503."""
    max_subscriptions: int = 10_000
    """WebSocket subscriptions and `GET /api/events` together."""
    max_filter_names: int = 1_000
    """How many handles, lanes, runs and types one filter may name."""
    max_head_bytes: int = 16_384
    """The head of a request."""
    max_message_bytes: int = 2 << 20
    """A WebSocket message, or the body of a request."""
    max_commands: int = 256
    """How many commands of one connection may be on their way; beyond it, the next ones wait unread."""
    max_waits: int = 1_000
    """How many `wait` of one connection may be on their way; beyond it, the next is refused."""
    rate: float = 5_000.0
    """Messages or requests per second of one connection; beyond it, they are refused."""
    burst: int = 10_000
    """How many may come at once before the rate holds."""
    frame_rate: float = 10_000.0
    """WebSocket frames and chunks of bodies per second of one connection; beyond it, the next wait unread."""
    stranger_frames: int = 100
    """How many frames, chunks and requests a connection may send without a token where one is needed; a tenth
    as many more each second. Beyond it the connection is closed."""
    stranger_bytes: int = 65_536
    """How many bytes, likewise."""
    stranger_time: float = 0.05
    """How much processor time reading them may take, likewise."""
    strangers_per_address: int = 20
    """All connections of one address together may use so many times what one may without a token."""
    max_batch: int = 256
    """How many events one `events` message may hold."""
    head_timeout: float = 10.0
    """For the head of a request, from its first byte (of the first one: from the connection)."""
    body_timeout: float = 30.0
    """For the body of a request."""
    keep_alive: float = 60.0
    """For the next request on a connection."""
    auth_timeout: float = 10.0
    """For the `auth` message where a token is needed."""
    ping_interval: float = 20.0
    """After so long without a word from a client it is pinged."""
    idle_timeout: float = 60.0
    """After so long without a word, not even a pong, its connection is closed, unless it takes what waits for
    it."""
    stall_timeout: float = 20.0
    """A client that takes less than 64 KiB in so long while more waits for it is dropped."""
    close_timeout: float = 5.0
    """For the other side's part in closing a connection."""


@attrs.frozen
class GatewayConfig:
    """Where the gateway listens, and whom it lets in."""

    host: str = "127.0.0.1"
    port: int = 8440
    """0 takes any free port."""
    tls_certificate: str | None = None
    tls_key: str | None = None
    """The key's file, where it is not in that of the certificate."""
    token_file: str | None = None
    """Without one, everyone who can reach the gateway may do everything; so it has to be on loopback."""
    workers_without_token: Literal["never", "loopback"] = "never"
    """With `loopback`, the calls of workers need no token from this machine. Never behind a proxy."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may use the gateway, besides those that it serves itself."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which the gateway is reached, besides `localhost` and addresses in numbers."""
    limits: Limits = attrs.field(factory=Limits)
