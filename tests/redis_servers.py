"""Private Redis servers for the tests, as those of databases in `tests/servers.py`.

The fixture `redis` is a single server, one per pytest worker, without keys. Tests of a Redis Cluster or of
Sentinels start their own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .servers import PATIENCE, Server, free_port, started


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    server = started(Redis)
    assert isinstance(server, Redis)
    yield server
    server.close()


@pytest.fixture
def redis(redis_server: Redis) -> Redis:
    if not redis_server.is_running:
        redis_server.start()
    redis_server.execute("FLUSHALL")
    return redis_server


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a server has got into a state."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextlib.contextmanager
def running(server: Server) -> Iterator[None]:
    """Start a server of one test, and remove it at the end."""
    try:
        server.initialize()
        server.start()
        yield
    finally:
        server.close()


class Redis(Server):
    """A server with a password for its default user, and a user with a password. It also accepts TLS."""

    kind = "redis"
    probe = "PING"
    default_password = "pass:word"
    _stop_signal = signal.SIGTERM
    _kill_signal = signal.SIGKILL

    def __init__(self) -> None:
        super().__init__()
        self.tls_port = free_port()

    def url(self, database: str = "0", *, user: str | None = None, password: str | None = None) -> str:
        return super().url(database, user=user, password=password)

    def tls_url(self) -> str:
        """The address with TLS, without the file of the authority."""
        return f"rediss://:{self.default_password}@localhost:{self.tls_port}"

    def initialize(self) -> None:
        self._configuration.write_text("".join(f"{line}\n" for line in self._settings()))

    def execute(self, statement: str, database: str | None = None) -> list[str]:
        """Run a command, without quotes in it; returns the lines of its answer."""
        done = subprocess.run(
            ["redis-cli", "-e", "-p", str(self.port), *statement.split()],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            env={**os.environ, "REDISCLI_AUTH": self.default_password},
        )
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)
        return done.stdout.splitlines()

    def end_sessions(self) -> None:
        self.execute("CLIENT KILL TYPE normal")

    def wait_for_info(self, text: str) -> None:
        """Wait until its information about itself contains this text."""
        wait_until(lambda: text in "\n".join(self.execute("INFO")))

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the process without ending it: it accepts connections, and is silent."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    @property
    def _configuration(self) -> Path:
        return self.folder / "redis.conf"

    def _settings(self) -> list[str]:
        return [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self.folder}",
            'save ""',
            "appendonly yes",
            "appendfsync no",
            "repl-diskless-sync-delay 0",
            f"requirepass {self.default_password}",
            f'user {self.user} on ">{self.password}" ~* &* +@all',
            f"tls-port {self.tls_port}",
            f"tls-cert-file {self.certificate}",
            f"tls-key-file {self._key}",
            f"tls-ca-cert-file {self.certificate}",
            "tls-auth-clients no",
        ]

    def _create(self, database: str, like: str | None) -> None:
        raise NotImplementedError("databases of Redis have numbers: use FLUSHALL")

    def _find_programs(self) -> Path:
        found = shutil.which("redis-server")
        if found is None or shutil.which("redis-cli") is None:
            pytest.skip("Redis is not installed (on Debian: apt-get install redis-server)")
        return Path(found).parent

    def _command(self) -> list[str]:
        return [str(self.programs / "redis-server"), str(self._configuration)]


class RedisCluster(Redis):
    """A Redis Cluster of one node, which has all slots."""

    def start(self) -> None:
        super().start()
        self.take_slots()

    def take_slots(self) -> None:
        """Let the node serve all slots, after it has lost them or has just been created."""
        self.execute("CLUSTER ADDSLOTSRANGE 0 16383")
        wait_until(lambda: self.execute("CLUSTER INFO")[0] == "cluster_state:ok")

    def url(self, database: str = "", *, user: str | None = None, password: str | None = None) -> str:
        return super().url(database, user=user, password=password).replace("redis://", "redis+cluster://")

    def _settings(self) -> list[str]:
        return [*super()._settings(), "cluster-enabled yes", f"cluster-port {free_port()}"]


class RedisReplica(Redis):
    """A replica of another server."""

    def __init__(self, primary: Redis) -> None:
        super().__init__()
        self._primary = primary

    def _settings(self) -> list[str]:
        return [
            *super()._settings(),
            f"replicaof 127.0.0.1 {self._primary.port}",
            f"masterauth {self._primary.default_password}",
        ]


class RedisSentinel(Redis):
    """A Sentinel that monitors a server, under the name `leases`, and has no password."""

    default_password = ""

    def __init__(self, primary: Redis) -> None:
        super().__init__()
        self._primary = primary

    def _settings(self) -> list[str]:
        return [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self.folder}",
            f"sentinel monitor leases 127.0.0.1 {self._primary.port} 1",
            f"sentinel auth-pass leases {self._primary.default_password}",
        ]

    def _command(self) -> list[str]:
        return [*super()._command(), "--sentinel"]
