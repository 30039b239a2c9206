"""What can be configured, with the defaults that hold where nothing is said. Times are in seconds.

The gateway's settings are its own (`gateway/config.py`); a name here is one of `greenroom.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from ..actors.engine.retention import Keep
from ..gateway.config import GatewayConfig

DEFAULT_STORE = "sqlite:///greenroom.db"


@attrs.frozen
class EngineConfig:
    """The engine: what `open_engine` is given."""

    jobs: str | None = None
    """The jobs that it can run: `module:name`, as in `app.jobs:jobs`."""
    store: str | tuple[str, ...] = DEFAULT_STORE
    """Where everything is kept: an address, or several of one server, the primary first."""
    max_concurrent: int | None = None
    """How many runs execute at once. Without it the stored limit holds, at first 3."""
    lanes: Mapping[str, int | None] = attrs.field(factory=dict)
    """The limits of lanes; `"none"` leaves a lane only the global one."""
    data_dir: str = "data"
    """Where runs write their files."""
    runs_dir: str | None = None
    """Where each run's latest state is shown as a file."""
    keep_runs: Keep = attrs.field(factory=Keep)
    """Which ended runs are kept."""
    keep_events: Keep = attrs.field(factory=Keep)
    """Which events are kept."""
    max_pending: int = 100_000
    """How many runs may wait or execute; beyond it, submissions are refused."""
    max_value_bytes: int = 1 << 20
    """The largest result, checkpoint, message or set of parameters."""
    shutdown_timeout: float = 30.0
    """How long executing runs get to finish when the server is stopped."""
    allow_scripts: bool = False
    """Whether nodes of flows may start programs on the server's machine."""
    worker_networks: tuple[str, ...] | None = None
    """The networks in which workers may be called, like `10.0.0.0/8`. Without it, the loopback."""


@attrs.frozen
class LogsConfig:
    """What the server writes to standard error."""

    format: Literal["text", "json"] = "text"
    """Lines for people, or one JSON object per line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important that is still written."""


@attrs.frozen
class Config:
    """All of it; each field is a table of `greenroom.toml`."""

    engine: EngineConfig = attrs.field(factory=EngineConfig)
    gateway: GatewayConfig = attrs.field(factory=GatewayConfig)
    logs: LogsConfig = attrs.field(factory=LogsConfig)
