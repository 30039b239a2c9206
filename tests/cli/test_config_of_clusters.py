"""The settings of a cluster's node: `greenroom config check` names each mistake and its remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import Result

from greenroom.cli import main
from greenroom.config.clusters import cluster_risks
from greenroom.config.settings import ClusterConfig, Config
from tests.cli.runner import runner

SHARED = "postgresql://greenroom@db.example/greenroom"


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("secret").write_text("a long random text\n")


def check(
    cluster: str = "", *, store: str = SHARED, engine: str = "", gateway: str = "", secret: str = "secret"
) -> Result:
    """The result of a check of a node with these settings."""
    tables = {
        "engine": f"store = '{store}'\n{engine}",
        "gateway": gateway,
        "cluster": f"enabled = true\nsecret_file = '{secret}'\n{cluster}",
    }
    Path("greenroom.toml").write_text("".join(f"[{name}]\n{text}\n" for name, text in tables.items()))
    return runner().invoke(main, ["config", "check"])


def mistakes(result: Result) -> list[str]:
    assert result.exit_code == 2, result.output
    first, *rest = result.stderr.splitlines()
    assert first.startswith("Error: ")
    return rest or [first.removeprefix("Error: ")]


def test_a_valid_configuration_has_no_mistake():
    assert check("advertise = 'http://10.0.0.1:8440'").exit_code == 0
    assert check().exit_code == 0
    for store in ("mysql://greenroom@db.example/greenroom", "mariadb://greenroom@db.example/greenroom"):
        assert check(store=store).exit_code == 0


@pytest.mark.parametrize("store", ["sqlite:///greenroom.db", "memory:", "sqlite:///:memory:"])
def test_a_store_that_nodes_cannot_share_is_refused(store: str):
    [mistake] = mistakes(check(store=store))
    assert "engine.store cannot be shared by the nodes of a cluster" in mistake
    assert f'(got "{store}"): use PostgreSQL, MySQL or MariaDB' in mistake


def test_a_store_of_a_server_that_is_no_node_can_be_any():
    Path("greenroom.toml").write_text("[cluster]\nsecret_file = 'none'\n")
    assert runner().invoke(main, ["config", "check"]).exit_code == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "0:0::0"])
def test_a_node_that_listens_on_all_addresses_needs_one_for_the_others(host: str, tmp_path: Path):
    Path("tokens").touch(mode=0o600)
    gateway = f"host = '{host}'\nport = 9000\ntoken_file = 'tokens'"
    [mistake] = mistakes(check(gateway=gateway))
    assert f"cluster.advertise is required, because the gateway listens on all addresses ({host})" in mistake
    assert "such as http://10.0.0.1:9000" in mistake
    assert check("advertise = 'http://10.0.0.1:9000'", gateway=gateway).exit_code == 0


@pytest.mark.parametrize(
    "address", ["10.0.0.1:8440", "ftp://10.0.0.1", "http://", "http://0.0.0.0:8440", "http://[::]:1"]
)
def test_an_address_that_others_cannot_use_is_refused(address: str):
    [mistake] = mistakes(check(f"advertise = '{address}'"))
    assert "cluster.advertise must be" in mistake
    assert "such as http://10.0.0.1:8440" in mistake
    assert f'(got "{address}")' in mistake


def test_the_file_with_the_secret_must_contain_one(tmp_path: Path):
    Path("empty").write_text("\n")
    Path("two").write_text("one line\nanother")
    Path("foreign").write_text("geheim ✓")
    for secret, text in {
        "missing": 'cluster.secret_file cannot be read (got "missing"): No such file or directory',
        "empty": 'cluster.secret_file must contain the secret (it is empty) (got "empty")',
        "two": 'cluster.secret_file must contain one line of printable ASCII (got "two")',
        "foreign": 'cluster.secret_file must contain one line of printable ASCII (got "foreign")',
    }.items():
        [mistake] = mistakes(check(secret=secret))
        assert text in mistake
    Path("greenroom.toml").write_text(f"[engine]\nstore = '{SHARED}'\n[cluster]\nenabled = true\n")
    [mistake] = mistakes(runner().invoke(main, ["config", "check"]))
    assert "cluster.secret_file is required: write a long random text into a file" in mistake


def test_the_lease_must_be_the_address_of_a_redis():
    assert check("lease = 'redis://10.0.0.9:6379'").exit_code == 0
    [mistake] = mistakes(check("lease = 'http://10.0.0.9'"))
    assert "cluster.lease is not valid: " in mistake
    [mistake] = mistakes(check("name = '{a}'"))
    assert 'cluster.name must not contain braces (got "{a}")' in mistake


def test_the_file_with_the_certificates_must_exist():
    [mistake] = mistakes(check("ca_file = 'missing.pem'"))
    assert "cluster.ca_file is not a readable file (got 'missing.pem')" in mistake
    Path("ca.pem").touch()
    assert check("ca_file = 'ca.pem'").exit_code == 0


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has these modes")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o602])
def test_a_secret_that_other_users_can_access_is_a_risk(mode: int):
    config = Config(cluster=ClusterConfig(enabled=True, secret_file="secret"))
    os.chmod("secret", 0o600)
    assert list(cluster_risks(config)) == []
    os.chmod("secret", mode)
    assert list(cluster_risks(config)) == [
        f'cluster.secret_file "secret" is accessible to other users (mode {mode:04o}), and every client '
        "that has the secret can act as a node: run `chmod 600 secret`"
    ]


def test_a_secret_of_less_than_16_characters_is_a_risk():
    config = Config(cluster=ClusterConfig(enabled=True, secret_file="secret"))
    os.chmod("secret", 0o600)
    Path("secret").write_text("x" * 15 + "\n")
    [risk] = cluster_risks(config)
    assert 'the secret in cluster.secret_file "secret" is short (15 characters)' in risk
    assert "use at least 16 random characters" in risk
    Path("secret").write_text("x" * 16 + "\n")
    assert list(cluster_risks(config)) == []


def test_all_mistakes_are_reported_together_with_their_lines():
    found = mistakes(check("advertise = 'here'", store="memory:", secret="missing"))
    assert [line.partition(" ")[0] for line in found] == [
        "greenroom.toml:2:",
        "greenroom.toml:8:",
        "greenroom.toml:9:",
    ]


def test_the_server_reports_the_same():
    check(store="sqlite:///greenroom.db")
    result = runner().invoke(main, ["serve"])
    assert mistakes(result) == mistakes(runner().invoke(main, ["config", "check"]))
