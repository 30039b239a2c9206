"""`greenroom worker` as a process: how it finds its server, listens, and ends."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from greenroom.cli import main
from greenroom.commands.worker import _own_url
from tests.cli.runner import runner
from tests.worker.standin import StandIn

PATIENCE = 60.0
"""Seconds for what should happen immediately, also on a slow machine."""

APP = """
import time
from pathlib import Path

import trio

from greenroom import Services

services = Services()
nothing = Services()


@services.service("upper")
async def upper(text):
    return text.upper()


@services.service("wait")
async def wait(file):
    print("waiting", flush=True)
    while not Path(file).exists():
        await trio.sleep(0.01)
    return "waited"


@services.service("stuck")
def stuck(input):
    print("stuck", flush=True)
    time.sleep(600)
"""


class Working:
    """A worker's process."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._said: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self.log: list[dict[str, Any]] = []

    async def _line(self, which: str) -> bytes:
        pipe = getattr(self._process, which)
        while b"\n" not in self._said[which]:
            more = await pipe.receive_some()
            if not more:
                raise AssertionError(f"the worker ended: {self.log} {self._said[which]!r}")
            self._said[which] += more
        line, _, self._said[which] = self._said[which].partition(b"\n")
        return line

    async def said(self) -> str:
        """The next line that a service prints."""
        return (await self._line("stdout")).decode()

    async def logged(self, pattern: str) -> str:
        """Wait until a message that matches the pattern is logged; return it."""
        while True:
            self.log.append(json.loads(await self._line("stderr")))
            if re.search(pattern, self.log[-1]["message"]):
                return str(self.log[-1]["message"])

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ends(self) -> int:
        """Wait for the end; the exit code."""
        while data := await self._process.stderr.receive_some():
            self._said["stderr"] += data
        self.log += [json.loads(line) for line in self._said["stderr"].splitlines()]
        return await self._process.wait()


@asynccontextmanager
async def working(folder: Path, *arguments: str, **variables: str) -> AsyncIterator[Working]:
    (folder / "app.py").write_text(APP)
    command = [sys.executable, "-m", "greenroom", "worker", "--log-format", "json", *arguments]
    environ = {"WORKER_URL": "http://127.0.0.1:0"} | variables
    process = await trio.lowlevel.open_process(
        command, cwd=folder, env=os.environ | environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with trio.fail_after(PATIENCE):
        try:
            yield Working(process)
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                for pipe in (process.stdout, process.stderr):
                    assert pipe is not None
                    await pipe.aclose()


async def called(url: str, service: str, input: Any) -> Any:
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        return (await client.post(f"{url}/exec/{service}", json={"input": input})).json()


async def test_it_registers_the_url_where_it_listens_and_is_called_there(tmp_path: Path):
    server = StandIn()
    async with (
        server.listening() as url,
        working(tmp_path, "app:services", "--server", url, "--id", "w1") as worker,
    ):
        registered = await server.until("/workers/register")
        where = registered["url"]
        assert registered["services"] == ["upper", "wait", "stuck"]
        assert (registered["id"], registered["type"]) == ("w1", "http")
        line = await worker.logged("listens on")
        assert line == f"worker w1 listens on {where} and serves upper, wait, stuck for {url}"
        assert await called(where, "upper", "abc") == {"result": "ABC", "error": ""}
        worker.signal(signal.SIGTERM)
        assert await worker.ends() == 0


async def test_the_server_is_found_by_the_variable_that_existing_workers_use(tmp_path: Path):
    server = StandIn()
    async with server.listening() as url, working(tmp_path, REGISTRY_URL=url):
        registered = await server.until("/workers/register")
        assert registered["services"] == ["transform", "sum", "route"]
        assert registered["id"].startswith(f"{socket.gethostname()}-")


async def test_a_port_in_use_is_replaced_and_the_actual_one_is_registered(tmp_path: Path):
    server = StandIn()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with (
            server.listening() as url,
            working(tmp_path, "--server", url, WORKER_URL=f"http://127.0.0.1:{port}") as worker,
        ):
            where = (await server.until("/workers/register"))["url"]
            assert where != f"http://127.0.0.1:{port}"
            assert await called(where, "sum", [1, 2]) == {"result": 3, "error": ""}
            assert (
                await worker.logged("already in use") == f"port {port} is already in use; using another port"
            )


async def test_with_queue_it_polls_for_work(tmp_path: Path):
    server = StandIn()
    server.put("q1", "upper", input="abc")
    async with (
        server.listening() as url,
        working(tmp_path, "app:services", "--queue", "--server", url) as worker,
    ):
        assert (await server.until("/queue/complete"))["result"] == "ABC"
        assert server.bodies("/workers/register")[0]["type"] == "queue"
        worker.signal(signal.SIGTERM)
        assert await worker.ends() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_lets_calls_finish_and_exits_with_code_0(
    tmp_path: Path, number: signal.Signals
):
    server = StandIn()
    answers = []

    async def call(where: str) -> None:
        answers.append(await called(where, "wait", "go"))

    async with (
        server.listening() as url,
        working(tmp_path, "app:services", "--server", url) as worker,
        trio.open_nursery() as nursery,
    ):
        where = (await server.until("/workers/register"))["url"]
        nursery.start_soon(call, where)
        assert await worker.said() == "waiting"
        worker.signal(number)
        assert "1 calls in progress have 30 s" in await worker.logged("draining")
        with pytest.raises(httpx.ConnectError):
            await called(where, "upper", "abc")
        assert answers == []
        (tmp_path / "go").touch()
        assert await worker.ends() == 0
    assert answers == [{"result": "waited", "error": ""}]


async def test_results_of_taken_items_are_reported_before_it_exits(tmp_path: Path):
    server = StandIn()
    server.put("q1", "wait", input="go")
    async with (
        server.listening() as url,
        working(tmp_path, "app:services", "--queue", "--server", url) as worker,
    ):
        assert await worker.said() == "waiting"
        server.put("q2", "upper", input="abc")
        await server.until("/queue/poll", 3)  # that item has been taken, too
        worker.signal(signal.SIGTERM)
        await worker.logged("draining")
        (tmp_path / "go").touch()
        assert await worker.ends() == 0
    assert sorted(body["queue_id"] for body in server.bodies("/queue/complete")) == ["q1", "q2"]


@pytest.mark.parametrize("service", ["wait", "stuck"])
async def test_the_second_signal_ends_it_immediately(tmp_path: Path, service: str):
    server = StandIn()
    server.put("q1", service, input="never")
    async with (
        server.listening() as url,
        working(tmp_path, "app:services", "--queue", "--server", url) as worker,
    ):
        await worker.said()
        worker.signal(signal.SIGTERM)
        await worker.logged("draining")
        worker.signal(signal.SIGTERM)
        assert await worker.ends() == 128 + signal.SIGTERM
        left = "service 'stuck' has not ended; the worker ends without it"
        assert (left in [line["message"] for line in worker.log]) == (service == "stuck")


async def test_it_waits_for_its_server_and_can_be_stopped_during_the_wait(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    async with working(tmp_path, "--server", f"http://127.0.0.1:{port}") as worker:
        await worker.logged("cannot be reached")
        worker.signal(signal.SIGTERM)
        assert await worker.ends() == 0


@pytest.mark.parametrize("variable", ["GREENROOM_URL", "REGISTRY_URL"])
async def test_a_server_that_refuses_it_makes_it_exit_with_code_4(variable: str, tmp_path: Path):
    server = StandIn()
    server.instead = lambda *_: (401, {"code": "unauthorized", "message": "a token is needed", "details": {}})
    async with server.listening() as url:
        (tmp_path / "token").write_text("secret\n")
        command = [sys.executable, "-m", "greenroom", "worker", "--token-file", "token"]
        ended = await trio.run_process(
            command,
            cwd=tmp_path,
            env=os.environ | {"GREENROOM_WORKER_URL": "http://127.0.0.1:0", variable: url},
            capture_stderr=True,
            check=False,
        )
    assert ended.returncode == 4
    assert (
        f"Error: {url}/api/workers/register returned status 401: a token is needed" in ended.stderr.decode()
    )
    assert server.headers[0]["authorization"] == "Bearer secret"


def test_at_a_terminal_one_line_shows_its_url_and_its_services(tmp_path: Path):
    ours, theirs = pty.openpty()
    with socket.create_server(("127.0.0.1", 0)) as server:  # it accepts connections and never responds
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "greenroom", "worker", "--id", "w1", "--server", url],
            cwd=tmp_path,
            env=os.environ | {"WORKER_URL": "http://127.0.0.1:0"},
            stderr=theirs,
        )
        shown = b""
        while b"\n" not in shown:
            shown += os.read(ours, 1000)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        os.close(ours)
        os.close(theirs)
    line = re.sub(r"\x1b\[\d*m", "", shown.decode()).splitlines()[0]
    assert re.fullmatch(
        rf"worker w1 listens on http://127.0.0.1:\d+ and serves transform, sum, route for {url}", line
    )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["app"], 2, "MODULE:SERVICES must be like app.services:services (got 'app')"),
        (["worker_app:nothing"], 2, "worker_app:nothing has no services: register one with"),
        (["nowhere:services"], 1, "module 'nowhere' not found"),
        (["worker_app:wait"], 1, "worker_app:wait must be a greenroom.Services (got function)"),
        (["--id", ""], 1, 'id must not be empty (got "")'),
        (["--concurrency", "0"], 2, "0 is not in the range"),
        (["--token-file", "nowhere"], 1, "cannot read the token file"),
    ],
)
def test_invalid_arguments_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, said: str
):
    (tmp_path / "worker_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the command adds the folder
    monkeypatch.delitem(sys.modules, "worker_app", raising=False)
    ended = runner().invoke(main, ["worker", *arguments])
    assert (ended.exit_code, said in ended.stderr) == (code, True), ended.stderr


def test_its_help_names_the_required_options():
    help = runner().invoke(main, ["worker", "--help"]).stdout
    assert all(word in help for word in ("GREENROOM_URL", "REGISTRY_URL", "GREENROOM_WORKER_URL", "SIGTERM"))


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({}, "http://127.0.0.1:8080"),
        ({"WORKER_URL": "http://10.0.0.7:1"}, "http://10.0.0.7:1"),
        ({"GREENROOM_WORKER_URL": "", "WORKER_URL": "http://10.0.0.7:1"}, "http://10.0.0.7:1"),
        (
            {"GREENROOM_WORKER_URL": "http://10.0.0.7:2", "WORKER_URL": "http://10.0.0.7:1"},
            "http://10.0.0.7:2",
        ),
    ],
)
def test_its_own_url_can_be_set_by_a_variable_with_an_older_name(
    variables: dict[str, str], url: str, monkeypatch: pytest.MonkeyPatch
):
    for name in ("GREENROOM_WORKER_URL", "WORKER_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert _own_url() == url
