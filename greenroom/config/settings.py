"""The settings and their defaults. Times are in seconds.

The gateway's settings are in `gateway/config.py`. Each field is a name in `greenroom.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from ..actors.engine.retention import Keep
from ..actors.schedules.configured import Tables
from ..gateway.config import GatewayConfig
from ..protocol.lane_settings import LaneSettings
from .logs import LogsConfig

DEFAULT_STORE = "sqlite:///greenroom.db"


@attrs.frozen
class EngineConfig:
    """The engine: the arguments of `open_engine`."""

    jobs: str | None = None
    """The jobs that the engine can run: `module:name`, as in `app.jobs:jobs`."""
    store: str | tuple[str, ...] = DEFAULT_STORE
    """The address of the store, or several addresses of one server, primary first."""
    max_concurrent: int | None = None
    """The maximum number of runs that execute at the same time. Default: the stored limit, initially 3."""
    lanes: Mapping[str, LaneSettings] = attrs.field(factory=dict)
    """The limits of lanes, or tables of limits and rules; `"none"` means only the global limit."""
    data_dir: str = "data"
    """The folder in which runs write their files."""
    runs_dir: str | None = None
    """The folder in which each run's latest state is written as a file."""
    keep_runs: Keep = attrs.field(factory=Keep)
    """Which ended runs are kept."""
    keep_events: Keep = attrs.field(factory=Keep)
    """Which events are kept."""
    max_pending: int = 100_000
    """The maximum number of pending runs; further submissions are refused."""
    max_value_bytes: int = 1 << 20
    """The maximum size of a result, a checkpoint, a message or a run's parameters."""
    shutdown_timeout: float = 30.0
    """The time that executing runs have to finish when the server shuts down."""
    executors: int | None = None
    """The number of child processes that execute bodies. Default: the server executes them itself."""
    executor_ttl: float = 30.0
    """The time without a sign of life after which an executor is lost."""
    allow_scripts: bool = False
    """Whether nodes of flows are allowed to start programs on the server's machine."""
    worker_networks: tuple[str, ...] | None = None
    """The networks in which workers can be called, such as `10.0.0.0/8`. Default: only the loopback."""
    webhook_secret: str | None = None
    """The secret with which webhooks are signed."""
    webhook_secret_file: str | None = None
    """The file with the secret with which webhooks are signed, instead of `webhook_secret`."""
    webhook_networks: tuple[str, ...] | None = None
    """The networks in which webhooks are delivered in addition to public addresses, such as `10.0.0.0/8`."""


@attrs.frozen
class ClusterConfig:
    """A cluster: several servers, its nodes, with one store."""

    enabled: bool = False
    """Whether this server is a node of a cluster. Requires PostgreSQL, MySQL or MariaDB."""
    secret_file: str | None = None
    """The file with the secret with which nodes authenticate to each other; the same for all nodes."""
    advertise: str | None = None
    """The URL at which other nodes reach this one. Default: the address on which its gateway listens."""
    node: str | None = None
    """The id of the node. Default: the host and port of its address."""
    lease: str | None = None
    """The address of a Redis in which the leader holds its lease. Default: it holds it in the store."""
    name: str = "greenroom"
    """The name of the cluster, for clusters that share a Redis."""
    lease_ttl: float = 15.0
    """The time without a renewal after which another node can become the leader."""
    ca_file: str | None = None
    """The certificates with which nodes verify each other's, instead of the system's."""


@attrs.frozen
class Config:
    """The whole configuration; each field is a table of `greenroom.toml`."""

    engine: EngineConfig = attrs.field(factory=EngineConfig)
    schedules: Tables = attrs.field(factory=dict)
    """Schedules by their names: tables of a job and the arguments of `schedules.put`."""
    gateway: GatewayConfig = attrs.field(factory=GatewayConfig)
    cluster: ClusterConfig = attrs.field(factory=ClusterConfig)
    logs: LogsConfig = attrs.field(factory=LogsConfig)
