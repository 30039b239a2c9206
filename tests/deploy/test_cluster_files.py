"""The files in deploy/cluster/ are correct: settings that a node accepts, and a proxy for these nodes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from .test_files import DEPLOY, TO_STOP, app, image_environment, interpolated

__all__ = ["app"]

FOLDER = DEPLOY / "cluster"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
PROXY = (FOLDER / "haproxy.cfg").read_text()
NODES = {name: service for name, service in COMPOSE["services"].items() if name.startswith("node")}


@pytest.mark.parametrize("name", NODES)
def test_a_node_has_settings_that_the_server_accepts(name: str, app: Path):
    node = NODES[name]
    variables = {key: interpolated(value) for key, value in node["environment"].items()}
    assert variables["GREENROOM_CLUSTER_ADVERTISE"] == f"http://{name}:8440"
    for secret, variable in (("tokens", "GATEWAY_TOKEN_FILE"), ("cluster", "CLUSTER_SECRET_FILE")):
        assert variables[f"GREENROOM_{variable}"] == f"/run/secrets/greenroom_{secret}"
        assert {"source": f"greenroom_{secret}"} in node["secrets"]
        variables[f"GREENROOM_{variable}"] = str(app / secret)
    (app / "cluster").write_text("secret")
    environment = image_environment(app) | variables
    checked = subprocess.run(
        ["greenroom", "config", "check"], cwd=app, env=environment, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
    assert "cluster.enabled" in checked.stdout


def test_nodes_differ_only_in_their_address_and_files():
    assert list(NODES) == ["node1", "node2", "node3"]
    kept = []
    for name, node in NODES.items():
        text = repr(node).replace(name, "node").replace(f"files{name[-1]}", "files")
        kept.append(text)
        assert int(node["stop_grace_period"].removesuffix("s")) >= TO_STOP
        assert node["depends_on"] == {"upgrade": {"condition": "service_completed_successfully"}}
        build = node["build"]
        assert (FOLDER / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    assert len(set(kept)) == 1


def test_all_volumes_and_secrets_are_declared():
    services = COMPOSE["services"]
    volumes = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())}
    assert volumes - {"./app", "./haproxy.cfg"} == set(COMPOSE["volumes"])
    assert {secret["source"] for node in NODES.values() for secret in node["secrets"]} == set(
        COMPOSE["secrets"]
    )


def test_the_proxy_knows_each_node():
    for backend in ("ready", "waiting"):
        [block] = re.findall(rf"^backend {backend}\n((?:    .*\n)+)", PROXY, re.MULTILINE)
        assert re.findall(r"server \w+ (\w+):8440", block) == list(NODES)


def test_the_proxy_has_the_documented_timeouts_and_checks():
    page = (DEPLOY.parent / "docs" / "how-to" / "cluster.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"```haproxy\n(.*?)```", page, re.DOTALL)
    for line in shown.splitlines():
        if re.match(r" +(timeout|option|retries|balance|http-check|use_backend|default-server)", line):
            assert line in PROXY


def test_haproxy_accepts_its_file():
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if program is None:
        pytest.skip("haproxy is not installed")
    checked = subprocess.run([program, "-c", "-f", FOLDER / "haproxy.cfg"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_docker_accepts_the_compose_file():
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        pytest.skip("docker compose is not installed")
    checked = subprocess.run(
        [docker, "compose", "--file", FOLDER / "compose.yaml", "config", "--quiet"],
        env=os.environ | {"GREENROOM_DATABASE_PASSWORD": "secret"},
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr
