"""Executor processes at a real gateway: tokens, TLS, and servers that cannot be reached."""

import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from greenroom import open_engine
from greenroom.commands.exits import Exit
from greenroom.gateway import GatewayConfig, Role, add_token, open_gateway, remove_token
from tests.servers import make_certificate

from .processes import ended, until
from .programs import jobs

ROOT = Path(__file__).parents[2]


class Place:
    """A folder with the tokens and the certificate of a gateway, and executors for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokens = folder / "tokens"
        self.certificate, self._key = make_certificate(folder, "localhost")
        self.processes = []
        self.url = "http://localhost:1"

    def token(self, name: str, role: Role) -> Path:
        """The file of a new token."""
        file = self.folder / f"{name}.token"
        file.write_text(add_token(self.tokens, name, role))
        return file

    @asynccontextmanager
    async def serving(self, ttl: float = 30.0):
        config = GatewayConfig(
            port=0,
            token_file=str(self.tokens),
            tls_certificate=str(self.certificate),
            tls_key=str(self._key),
        )
        async with (
            open_engine(jobs, "memory:", executors=0, executor_ttl=ttl, shutdown_timeout=0) as engine,
            open_gateway(engine, config) as gateway,
        ):
            self.url = f"https://localhost:{gateway.port}"
            self.reload = lambda: gateway.reconfigure(config)
            yield engine

    def start(self, *options: object, trusted: Path | None = None) -> subprocess.Popen:
        """Start an executor that trusts the gateway's certificate, or another one."""
        process = subprocess.Popen(
            [sys.executable, "-m", "greenroom", "executor", "tests.executors.programs:jobs",
             "--url", self.url, "--node", "e", "--data-dir", self.folder / "files", *options],
            cwd=ROOT, stderr=subprocess.PIPE, text=True,
            env=os.environ
            | {"SSL_CERT_FILE": str(trusted or self.certificate), "MARKS": str(self.folder / "marks")},
        )  # fmt: skip
        self.processes.append(process)
        return process


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
        process.stderr.close()


async def is_attached(engine) -> bool:
    return [executor.status for executor in await engine.executors.list()] == ["attached"]


async def test_an_executor_and_its_beats_connect_over_tls_with_a_token(place):
    token = place.token("me", Role.EXECUTOR)
    async with place.serving(ttl=1.5) as engine:
        process = place.start("--token-file", token)
        ticket = await engine.submit("blocks", handle="h", params={"seconds": 3})
        with trio.fail_after(30):
            assert await ticket.result() == "done", "its executor was not lost, so beats were acknowledged"
        process.send_signal(signal.SIGTERM)
        code, log = await ended(process)
        assert code == Exit.DONE
        assert "not acknowledged" not in log


@pytest.mark.parametrize("role", [None, Role.ADMIN, Role.WORKER])
async def test_an_executor_without_a_token_of_its_role_exits_with_the_error(place, role):
    place.token("other", Role.EXECUTOR)
    if role is None:
        token = place.folder / "wrong"
        token.write_text("not a token")
    else:
        token = place.token("me", role)
    async with place.serving():
        code, log = await ended(place.start("--token-file", token))
        assert code == Exit.NOT_PERMITTED
        [error] = [line for line in log.splitlines() if line.startswith("Error:")]
        if role is None:
            assert "invalid or revoked token" in error
        else:
            assert f"requires the role executor (the token's role: {role})" in error


async def test_an_executor_without_a_token_learns_how_to_give_one(place):
    place.token("other", Role.EXECUTOR)
    async with place.serving():
        code, log = await ended(place.start())
        assert code == Exit.NOT_PERMITTED
        assert "Error: token required: set GREENROOM_TOKEN, or use --token-file" in log


async def test_an_executor_whose_token_is_revoked_exits_with_the_error(place):
    token = place.token("me", Role.EXECUTOR)
    place.token("other", Role.EXECUTOR)
    async with place.serving() as engine:
        process = place.start("--token-file", token)
        await until(lambda: is_attached(engine))
        remove_token(place.tokens, "me")
        place.reload()
        code, log = await ended(process)
        assert code == Exit.NOT_PERMITTED
        assert "Error: token has been revoked" in log


async def test_the_log_contains_why_a_certificate_is_not_trusted(place):
    token = place.token("me", Role.EXECUTOR)
    other = place.folder / "other"
    other.mkdir()
    trusted, _ = make_certificate(other, "localhost")
    async with place.serving():
        process = place.start("--token-file", token, trusted=trusted)
        line = ""
        while "not connected" not in line:
            line = await trio.to_thread.run_sync(process.stderr.readline)
        assert "certificate verify failed" in line


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://nonexistent.invalid"])
async def test_an_executor_connects_again_until_the_server_is_reachable(place, url):
    place.url = url
    process = place.start()
    lines = []
    while sum("not connected" in line for line in lines) < 3:
        lines.append(await trio.to_thread.run_sync(process.stderr.readline))
        assert lines[-1], lines
    process.send_signal(signal.SIGTERM)
    code, _ = await ended(process)
    assert code == Exit.DONE
    assert all("connecting again in" in line for line in lines[1:]), "one line for each attempt"
