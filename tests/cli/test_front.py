"""The group of all commands: it lists the commands, and imports only what the called command needs."""

import json
import subprocess
import sys
from importlib.metadata import version

import pytest

import greenroom
from greenroom import errors
from greenroom.cli import LazyCommand, main
from tests.cli.runner import runner

HEAVY = {"alembic", "cattrs", "hypothesis", "prometheus_client", "pytest", "sqlalchemy", "trio_websocket"}
"""Packages that are slow to import, and packages that only some commands need."""

CALL = """
import json, runpy, sys
sys.argv[0] = "greenroom"
try:
    runpy.run_module("greenroom", run_name="__main__")
finally:
    print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def imported(*arguments: str) -> set[str]:
    """The packages that a command has imported when it ends."""
    command = [sys.executable, "-c", CALL, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    packages = set(json.loads(ended.stdout.splitlines()[-1]))
    assert "click" in packages
    return packages


def test_the_list_of_commands_needs_neither_an_engine_nor_a_terminal():
    assert imported("--help") & (HEAVY | {"trio", "msgspec", "rich", "wsproto"}) == set()


@pytest.mark.parametrize("command", ["runs", "submit", "watch", "state", "lanes", "handles"])
def test_a_command_to_a_server_needs_no_engine_no_store_and_no_configuration(command: str):
    assert imported(command, "--help") & HEAVY == set()


def test_a_client_needs_neither_an_engine_nor_a_store():
    program = "import sys; from greenroom import connect; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(ended.stdout.split())
    assert {"greenroom.gateway.client", "greenroom.actors.channel"} <= loaded
    assert {name for name in loaded if name.startswith(("greenroom.actors.", "greenroom.persistence"))} == {
        "greenroom.actors.channel",
        "greenroom.actors.tracing",
    }
    assert not loaded & {"sqlalchemy", "sqlite3"}


def test_a_client_for_asyncio_needs_neither_an_engine_nor_a_store():
    program = "import sys; from greenroom.aio import connect; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name for name in ended.stdout.split() if name.startswith("greenroom.")}
    assert {name for name in loaded if name.startswith(("greenroom.actors.", "greenroom.persistence"))} == {
        "greenroom.actors.aio",
        "greenroom.actors.aio.methods",
        "greenroom.actors.aio.portal",
        "greenroom.actors.channel",
        "greenroom.actors.tracing",
    }


def test_the_programs_without_trio_are_found_under_the_package():
    program = "import greenroom; print(greenroom.aio.connect.__name__, greenroom.sync.connect.__name__)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "connect connect\n"


def test_the_list_of_commands_has_the_first_sentences_of_their_help():
    for name, listed in main.commands.items():
        assert isinstance(listed, LazyCommand)
        assert listed.get_short_help_str(200) == listed.load().get_short_help_str(200), name


def test_a_command_that_is_mistyped_is_guessed():
    result = runner().invoke(main, ["shwo"])
    assert result.exit_code == 2
    assert "Did you mean 'show'?" in result.stderr


def test_the_package_has_exactly_the_public_names():
    assert {name for name in greenroom.__all__ if hasattr(greenroom, name)} == {*greenroom.__all__}
    assert {*greenroom.__all__} <= {*dir(greenroom)}
    with pytest.raises(AttributeError, match="no attribute 'open_motor'"):
        _ = greenroom.open_motor


def test_every_error_can_be_imported_from_the_package():
    assert {*errors.__all__} <= {*greenroom.__all__}
    assert all(getattr(greenroom, name) is getattr(errors, name) for name in errors.__all__)


def test_the_version_is_that_of_the_installed_package():
    assert greenroom.__version__ == version("greenroom")
    assert runner().invoke(main, ["--version"]).stdout.endswith(f" {greenroom.__version__}\n")
