"""`greenroom token`: tokens are created, listed and removed; the file never contains a token."""

import json
import stat
from pathlib import Path

import pytest
from click.testing import Result

from greenroom.cli import main
from greenroom.gateway.auth.tokens import Role, Tokens
from tests.cli.runner import runner


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "tokens"


def token(*arguments: object) -> Result:
    result = runner().invoke(main, ["token", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.parametrize("role", [*Role])
def test_a_token_is_printed_once_and_only_its_hash_is_kept(file: Path, role: Role):
    added = token("add", "me", "--role", role.value, "--tokens", file)
    assert added.exit_code == 0
    [secret] = added.stdout.split()
    assert secret not in file.read_text()
    assert secret not in added.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    caller = Tokens.load(file).find(secret)
    assert caller is not None
    assert (caller.name, caller.role) == ("me", role)


def test_tokens_are_listed_and_removed_by_name(file: Path):
    file.write_text("# who may what\n\n")
    mine = token("add", "me", "--role", "admin", "--tokens", file).stdout.strip()
    theirs = token("add", "them", "--role", "viewer", "--tokens", file).stdout.strip()
    assert token("list", "--tokens", file).stdout.splitlines() == ["admin     me", "viewer    them"]
    assert [json.loads(line) for line in token("list", "--json", "--tokens", file).stdout.splitlines()] == [
        {"name": "me", "role": "admin"},
        {"name": "them", "role": "viewer"},
    ]
    assert token("remove", "me", "--tokens", file).exit_code == 0
    assert Tokens.load(file).find(mine) is None
    assert Tokens.load(file).find(theirs) is not None
    assert file.read_text().startswith("# who may what\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_file_is_the_configured_one_unless_it_is_named(file: Path):
    assert token("add", "me", "--role", "admin").exit_code == 2
    Path("greenroom.toml").write_text("[gateway]\ntoken_file = 'tokens'")
    assert token("add", "me", "--role", "admin").exit_code == 0
    assert token("list").stdout == "admin     me\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("add", "me"), 2, "Missing option '--role'"),
        (
            ("add", "me", "--role", "king"),
            2,
            "'king' is not one of 'executor', 'worker', 'viewer'",
        ),
        (("add", "me", "--role", "admin"), 1, "token 'me' already exists"),
        (("remove", "you"), 1, "token 'you' not found"),
        (("list", "--tokens", "elsewhere"), 1, "cannot read token file 'elsewhere'"),
    ],
)
def test_an_invalid_request_is_refused_in_one_sentence(
    file: Path, arguments: tuple[str, ...], code: int, told: str
):
    token("add", "me", "--role", "viewer", "--tokens", file)
    result = token(*arguments, *([] if "--tokens" in arguments else ["--tokens", file]))
    assert result.exit_code == code
    assert told in result.stderr
    assert result.stdout == ""
