"""The gateway's settings and their defaults.

Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

from typing import Literal

import attrs


@attrs.frozen
class Limits:
    """Limits per connection and for all connections together; they can change while the gateway runs."""

    max_connections: int = 10_000
    """Open connections. Further connections are answered with 503."""
    max_subscriptions: int = 10_000
    """WebSocket subscriptions and `GET /api/events` together."""
    max_filter_names: int = 1_000
    """Handles, lanes, runs and types in one filter."""
    max_head_bytes: int = 16_384
    """The head of a request."""
    max_message_bytes: int = 2 << 20
    """A WebSocket message, or the body of a request."""
    max_commands: int = 256
    """Commands of one connection in flight. Further commands stay unread until one is answered."""
    max_waits: int = 1_000
    """`wait` commands of one connection in flight. A further `wait` is refused."""
    rate: float = 5_000.0
    """Messages or requests per second of one connection. Messages above the rate are refused."""
    burst: int = 10_000
    """Messages or requests that are accepted in a burst before `rate` applies."""
    frame_rate: float = 10_000.0
    """WebSocket frames and chunks of request bodies per second of one connection. Frames above the rate stay
    unread for a while."""
    stranger_frames: int = 100
    """Frames, chunks and requests that a connection can send before it authenticates, if tokens are
    required. A tenth of the limit is added each second. A connection that exceeds the limit is closed."""
    stranger_bytes: int = 65_536
    """Bytes that a connection can send before it authenticates; as for `stranger_frames`."""
    stranger_time: float = 0.05
    """Seconds of processor time for reading what a connection sends before it authenticates; as for
    `stranger_frames`."""
    strangers_per_address: int = 20
    """All connections from one address together can use this many times the three limits above."""
    max_batch: int = 256
    """Events in one `events` message."""
    head_timeout: float = 10.0
    """Seconds for a request head, from its first byte; for the first request, from the connection."""
    body_timeout: float = 30.0
    """Seconds for the body of a request."""
    keep_alive: float = 60.0
    """Seconds until the next request on a connection."""
    auth_timeout: float = 10.0
    """Seconds until the `auth` message, if tokens are required."""
    ping_interval: float = 20.0
    """Seconds without data from a client before the server sends a ping."""
    idle_timeout: float = 60.0
    """Seconds without data from a client, pongs included, before its connection is closed. The connection
    stays open while the client reads pending data."""
    stall_timeout: float = 20.0
    """A connection is closed if the client reads less than 64 KiB in this many seconds while more data is
    pending."""
    close_timeout: float = 5.0
    """Seconds for the other side to complete the closing of a connection."""


@attrs.frozen
class GatewayConfig:
    """The gateway's address and its access rules."""

    host: str = "127.0.0.1"
    port: int = 8440
    """0 selects a free port."""
    tls_certificate: str | None = None
    tls_key: str | None = None
    """The file of the private key, if the certificate's file does not contain it."""
    token_file: str | None = None
    """Without a token file, every client has the role `admin`, so the gateway must listen on loopback."""
    workers_without_token: Literal["never", "loopback"] = "never"
    """With `loopback`, workers on this machine need no token. Do not use it behind a proxy."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that can use the gateway, in addition to the pages that it serves."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names of the gateway, in addition to `localhost` and numeric addresses."""
    console: bool = True
    """Whether the gateway serves the web console at `/`."""
    limits: Limits = attrs.field(factory=Limits)
