"""The files in deploy/ are correct: the commands, paths and settings that they name, and their timeouts.

No container is started: the commands of the image are executed here, in an environment like the image's.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
PATIENCE = 120.0
TO_STOP = 30 + 10 + 5
"""Seconds that a server needs to stop: `shutdown_timeout`, the default `grace`, and 5."""

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
UNIT = (DEPLOY / "greenroom.service").read_text()


def in_image(name: str) -> list[str]:
    """The command of the last instruction of this name, in its exec form."""
    found = re.findall(rf"^ *{name} (\[.*\])$", DOCKERFILE, re.MULTILINE)
    command: list[str] = json.loads(found[-1])
    return command


def image_environment(folder: Path) -> dict[str, str]:
    """The variables that the image sets, with its volume in this folder, and this Python as its own."""
    [block] = re.findall(r"^ENV ((?:.*\\\n)*.*)$", DOCKERFILE, re.MULTILINE)
    words = shlex.split(block.replace("\\\n", " ").replace("/var/lib/greenroom", str(folder)))
    return {**os.environ, **dict(word.split("=", 1) for word in words), "PATH": f"{BIN}:{os.environ['PATH']}"}


def unit(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A folder with jobs and a token file, as in /app."""
    (tmp_path / "app.py").write_text("from greenroom import Jobs\njobs = Jobs()\n")
    added = [
        BIN / "greenroom",
        "token",
        "add",
        "alice",
        "--role",
        "operator",
        "--tokens",
        tmp_path / "tokens",
    ]
    subprocess.run(added, check=True, capture_output=True)
    return tmp_path


def test_the_image_serves_is_healthy_and_drains(app: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = image_environment(app) | {
        "GREENROOM_JOBS": "app:jobs",
        "GREENROOM_GATEWAY_TOKEN_FILE": str(app / "tokens"),
        "GREENROOM_GATEWAY_PORT": port,
    }
    check = [word.replace("8440", port) for word in healthcheck()]
    server = subprocess.Popen(in_image("CMD"), cwd=app, env=environment, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    impatience = threading.Timer(PATIENCE, server.kill)
    impatience.start()
    try:
        messages = (json.loads(line)["message"] for line in server.stderr)
        assert any("gateway listening on" in message for message in messages), "the log has ended without it"
        assert subprocess.run(check, env=environment, timeout=PATIENCE).returncode == 0
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=PATIENCE)
        assert server.returncode == 0
        stopped = subprocess.run(check, env=environment, timeout=PATIENCE, capture_output=True)
        assert stopped.returncode != 0
    finally:
        impatience.cancel()
        server.kill()
        server.wait()
    assert (app / "greenroom.db").exists()


def healthcheck() -> list[str]:
    [command] = re.findall(r"^HEALTHCHECK .*\\\n +CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    found: list[str] = json.loads(command)
    return found


def test_the_image_is_no_root_and_listens_on_the_documented_port():
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE) == ["10001"]
    assert "EXPOSE 8440" in DOCKERFILE
    assert "8440" in healthcheck()[-1]


def test_the_compose_file_sets_what_the_server_accepts(app: Path):
    server = COMPOSE["services"]["greenroom"]
    variables = {name: interpolated(value) for name, value in server["environment"].items()}
    assert variables["GREENROOM_GATEWAY_TOKEN_FILE"] == f"/run/secrets/{server['secrets'][0]['source']}"
    environment = image_environment(app) | variables
    environment["GREENROOM_GATEWAY_TOKEN_FILE"] = str(app / "tokens")
    checked = subprocess.run(
        ["greenroom", "config", "check"], cwd=app, env=environment, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
    assert "postgresql://greenroom" in checked.stdout


def interpolated(value: str) -> str:
    """The value as Compose reads it, with defaults, and `secret` for what is required."""
    return re.sub(r"\$\{\w+(?::-([^}]*))?(?::\?[^}]*)?\}", lambda found: found[1] or "secret", value)


def test_the_services_of_the_compose_file_wait_for_each_other_and_have_time_to_stop():
    services = COMPOSE["services"]
    assert services["greenroom"]["depends_on"] == {"upgrade": {"condition": "service_completed_successfully"}}
    assert services["upgrade"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert int(services["greenroom"]["stop_grace_period"].removesuffix("s")) >= TO_STOP
    build = services["greenroom"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    volumes = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())}
    assert volumes - {"./app"} == set(COMPOSE["volumes"])
    assert {secret["source"] for secret in services["greenroom"]["secrets"]} == set(COMPOSE["secrets"])


def test_the_upgrade_of_the_compose_file_is_a_command(app: Path):
    command = COMPOSE["services"]["upgrade"]["command"]
    environment = image_environment(app)
    assert subprocess.run(command, cwd=app, env=environment, capture_output=True).returncode == 0
    assert (app / "greenroom.db").exists()


def test_docker_accepts_the_compose_file(tmp_path: Path):
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        pytest.skip("docker compose is not installed")
    checked = subprocess.run(
        [docker, "compose", "--file", DEPLOY / "compose.yaml", "config", "--quiet"],
        env=os.environ | {"GREENROOM_DATABASE_PASSWORD": "secret"},
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("name", ["greenroom.service", "greenroom-executor.service"])
def test_systemd_accepts_the_unit(name: str, tmp_path: Path):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / name
    copy.write_text((DEPLOY / name).read_text().replace("/srv/greenroom/.venv/bin", str(BIN)))
    checked = subprocess.run([program, "verify", copy], capture_output=True, text=True)
    own = [line for line in checked.stderr.splitlines() if "greenroom" in line]
    assert (checked.returncode, own) == (0, [])


def test_the_commands_of_the_unit_can_be_executed(app: Path):
    [check] = unit("ExecStartPre")
    [serve] = unit("ExecStart")
    (app / "greenroom.toml").write_text('[engine]\njobs = "app:jobs"\n')
    for command, ends in ((check, 0), (f"{serve} --help", 0)):
        here = command.replace("/srv/greenroom/.venv/bin", str(BIN)).replace("/etc/greenroom", str(app))
        assert subprocess.run(shlex.split(here), cwd=app, capture_output=True).returncode == ends
    for setting in unit("Environment"):
        assert setting.partition("=")[0] in ("GREENROOM_STORE", "GREENROOM_DATA_DIR")
        assert "/var/lib/" + unit("StateDirectory")[0] in setting


def test_the_command_of_the_executors_unit_can_be_executed():
    text = (DEPLOY / "greenroom-executor.service").read_text()
    [command] = re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE)
    here = command.replace("/srv/greenroom/.venv/bin", str(BIN))
    helped = subprocess.run([*shlex.split(here), "--help"], capture_output=True, text=True)
    assert helped.returncode == 0
    assert all(option in helped.stdout for option in re.findall(r"--[\w-]+", command))


def test_the_unit_reloads_by_sighup_and_gives_the_server_time_to_stop():
    assert unit("ExecReload") == ["/bin/kill -HUP $MAINPID"]
    assert unit("Type") == ["exec"]
    assert int(unit("TimeoutStopSec")[0]) >= TO_STOP
    assert unit("KillSignal") == []  # SIGTERM, the default
