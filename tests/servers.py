"""Private database servers for the tests: a PostgreSQL and a MariaDB, on free ports of the loopback.

The fixtures `postgresql` and `mariadb` start a server when a test first requests it, one per pytest worker,
and stop it at the end of the session. They skip the test if the program is not installed. The data is in a
temporary folder and is not synced to the disk, so it survives a crash of the server, but not of the machine.
`tests/redis_servers.py` does the same for Redis.

A test uses its own database (`fresh_database`), and can stop, kill and start the server. The next test that
requests a database gets a running server.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import pytest

PATIENCE = 60
"""Seconds that a server gets to start or to end."""


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    server = started(PostgreSQL)
    yield server
    server.close()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    server = started(MariaDB)
    with _one_context_for_all():
        yield server
    server.close()


@contextlib.contextmanager
def _one_context_for_all() -> Iterator[None]:
    """Let connections without certificates share one TLS context. Otherwise the driver reads all certificate
    authorities of the system for each connection, which takes longer than connecting, and does not use
    them."""
    kind = import_module("pymysql.connections").Connection
    make = kind._create_ssl_ctx
    shared: list[Any] = []

    def made(connection: Any, named: dict[str, Any]) -> Any:
        if named:
            return make(connection, named)
        if not shared:
            shared.append(make(connection, named))
        return shared[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "_create_ssl_ctx", made)
        yield


@cache  # the fixtures can be imported in several modules, but must start only one server
def started(kind: type[Server]) -> Server:
    """Start the server of this kind."""
    server = kind()
    try:
        server.initialize()
        server.start()
    except BaseException:
        server.close()
        raise
    return server


class Server:
    """A server, its folder and its port; these stay the same while it is stopped and started."""

    kind: ClassVar[str]
    user = "greenroom"
    password = "se/cr@t ✓"
    probe: ClassVar[str] = "SELECT 1"
    """A statement that succeeds when the server has started."""

    def __init__(self) -> None:
        self.programs = self._find_programs()
        self.folder = Path(tempfile.mkdtemp(prefix="greenroom-"))  # short: sockets have short paths
        self.data = self.folder / "data"
        self.port = free_port()
        self.owner = self._owner()
        self.log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self.certificate, self._key = make_certificate(self.folder, "localhost")
        for path in (self.folder, self.certificate, self._key):
            shutil.chown(path, self.owner)

    def url(self, database: str, *, user: str | None = None, password: str | None = None) -> str:
        """The address of a database; by default for the server's own user."""
        name = quote(user or self.user, safe="")
        secret = quote(self.password if password is None else password, safe="")
        return f"{self.kind}://{name}:{secret}@127.0.0.1:{self.port}/{database}"

    def fresh_database(self, *, like: str | None = None) -> str:
        """The address of a new database. It is empty, or a copy of the named database, whose tables must be
        empty and to which no client must be connected. The server is started if it is not running."""
        if not self.is_running:
            self.start()
        name = f"fresh_{next(self._numbers)}"
        self._create(name, like)
        return self.url(name)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it with its existing data, and wait until it responds."""
        assert not self.is_running
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdout=log, stderr=log, cwd=self.folder, **self._as_owner()
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.execute(self.probe)
            except Exception as error:
                if not self.is_running or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"no server: {error}\n{self.log.read_text(errors='replace')}"
                    ) from error
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """Stop it; its clients lose their connections."""
        self._end(self._stop_signal)

    def kill(self) -> None:
        """Kill it, as in a crash: it recovers at the next start."""
        self._end(self._kill_signal)

    def close(self) -> None:
        """Stop it permanently, and remove its folder."""
        if self.is_running:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def end_sessions(self) -> None:
        """Close the connections of all clients, as an administrator can do."""
        raise NotImplementedError

    def initialize(self) -> None:
        """Create its data."""
        raise NotImplementedError

    def execute(self, statement: str, database: str | None = None) -> list[Any]:
        """Run a statement as the server's administrator."""
        raise NotImplementedError

    _stop_signal: ClassVar[signal.Signals]
    _kill_signal: ClassVar[signal.Signals]

    def _create(self, database: str, like: str | None) -> None:
        raise NotImplementedError

    def _find_programs(self) -> Path:
        raise NotImplementedError

    def _owner(self) -> str:
        return pwd.getpwuid(os.geteuid()).pw_name

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _as_owner(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        entry = pwd.getpwnam(self.owner)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self.folder, **self._as_owner()
        )
        assert done.returncode == 0, done.stdout + done.stderr


class PostgreSQL(Server):
    kind = "postgresql"
    _stop_signal = signal.SIGINT  # "fast": it closes its sessions
    _kill_signal = signal.SIGQUIT  # "immediate": its processes exit without cleanup

    def initialize(self) -> None:
        password = self.folder / "password"
        password.write_text(self.password)
        shutil.chown(password, self.owner)
        self._run(
            *(str(self.programs / "initdb"), f"--pgdata={self.data}", f"--username={self.user}"),
            *("--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password}"),
            *("--encoding=UTF8", "--locale=C", "--no-sync"),
        )

    def execute(self, statement: str, database: str | None = None) -> list[Any]:
        connection = import_module("psycopg").connect(
            host=str(self.folder),
            port=self.port,
            user=self.user,
            dbname=database or "postgres",
            autocommit=True,
            connect_timeout=PATIENCE,
        )
        with connection:
            cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def end_sessions(self) -> None:
        self.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )

    def _create(self, database: str, like: str | None) -> None:
        self.execute(f"CREATE DATABASE {database} TEMPLATE {like or 'template1'}")

    def _command(self) -> list[str]:
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.folder,
            "fsync": "off",
            "full_page_writes": "off",
            "shared_buffers": "32MB",
            "max_connections": 60,
            "ssl": "on",
            "ssl_cert_file": self.certificate,
            "ssl_key_file": self._key,
        }
        options = itertools.chain.from_iterable(("-c", f"{key}={value}") for key, value in settings.items())
        return [str(self.programs / "postgres"), "-D", str(self.data), *options]

    def _owner(self) -> str:
        # PostgreSQL refuses to run as root.
        return "postgres" if os.geteuid() == 0 else super()._owner()

    def _find_programs(self) -> Path:
        versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda bin: float(bin.parent.name))
        for folder in reversed(versions):
            if (folder / "postgres").exists() and (folder / "initdb").exists():
                return folder
        found = shutil.which("initdb")
        if found is None:
            pytest.skip("PostgreSQL is not installed (on Debian: apt-get install postgresql)")
        return Path(found).resolve().parent


class MariaDB(Server):
    kind = "mysql"
    _stop_signal = signal.SIGTERM
    _kill_signal = signal.SIGKILL

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    @property
    def _at_start(self) -> Path:
        return self.folder / "at_start.sql"

    def initialize(self) -> None:
        self._run(
            *("mariadb-install-db", "--no-defaults", f"--datadir={self.data}", f"--user={self.owner}"),
            # In the common temporary folder, its tables could have the names of another server's tables.
            *("--auth-root-authentication-method=normal", "--skip-test-db", f"--tmpdir={self.folder}"),
        )
        self._at_start.write_text(
            f"CREATE USER IF NOT EXISTS '{self.user}'@'%' IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO '{self.user}'@'%';\n"
        )

    def execute(self, statement: str, database: str | None = None) -> list[Any]:
        connection = import_module("pymysql").connect(
            user="root", database=database, autocommit=True, ssl_disabled=True, defer_connect=True
        )
        line = socket.socket(socket.AF_UNIX)  # the driver would leave it open if no server listens
        try:
            line.connect(str(self.socket))
        except OSError:
            line.close()
            raise
        connection.connect(line)
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def end_sessions(self) -> None:
        sessions = "SELECT id FROM information_schema.processlist WHERE "
        killed = [id for [id] in self.execute(f"{sessions} user = '{self.user}'")]
        for session in killed:
            with contextlib.suppress(import_module("pymysql").err.OperationalError):  # it has ended already
                self.execute(f"KILL {session}")
        # Wait only for these: clients can have reconnected.
        while killed and self.execute(f"{sessions} id IN ({', '.join(map(str, killed))})"):
            time.sleep(0.01)

    def _create(self, database: str, like: str | None) -> None:
        self.execute(f"CREATE DATABASE {database}")
        if like is not None:
            tables = [table for [table] in self.execute("SHOW TABLES", like)]
            copies = (f"CREATE TABLE {database}.{table} LIKE {like}.{table};" for table in tables)
            self.execute(f"BEGIN NOT ATOMIC {' '.join(copies)} END")

    def _command(self) -> list[str]:
        settings = {
            "datadir": self.data,
            "tmpdir": self.folder,
            "user": self.owner,
            "port": self.port,
            "bind-address": "127.0.0.1",
            "socket": self.socket,
            "pid-file": self.folder / "pid",
            "init-file": self._at_start,
            "innodb-flush-log-at-trx-commit": 2,
            "innodb-flush-method": "nosync",
            "debug-no-sync": 1,
            "innodb-doublewrite": 0,
            "innodb-file-per-table": 0,  # files by the thousand take long to remove
            "innodb-buffer-pool-size": "32M",
            "innodb-log-file-size": "32M",
            "skip-log-bin": 1,
            "skip-name-resolve": 1,
            "ssl-cert": self.certificate,
            "ssl-key": self._key,
        }
        return [
            str(self.programs / "mariadbd"),
            "--no-defaults",
            *(f"--{key}={value}" for key, value in settings.items()),
        ]

    def _find_programs(self) -> Path:
        found = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if found is None or shutil.which("mariadb-install-db") is None:
            pytest.skip("MariaDB is not installed (on Debian: apt-get install mariadb-server)")
        return Path(found).parent


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate for a host name, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].touch(mode=0o600)
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def free_port() -> int:
    """A port of the loopback on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
