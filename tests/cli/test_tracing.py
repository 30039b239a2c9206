"""The trace of a run that the command line submits."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from greenroom.cli import main
from greenroom.commands.connection import Server
from greenroom.gateway.client import Client

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class _Sent(Exception):
    """The command has submitted."""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options of the last submission."""
    options: dict[str, Any] = {}

    async def submit(self: object, job: str, **given: Any) -> None:
        options.update(given)
        raise _Sent

    def ask(self: Server, talk: Any, **given: Any) -> None:
        with pytest.raises(_Sent):
            talk(Client.__new__(Client)).send(None)

    monkeypatch.setattr(Client, "submit", submit)
    monkeypatch.setattr(Server, "ask", ask)
    return options


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--traceparent", PARENT, "--tracestate", "a=1"], {}),
        ([], {"TRACEPARENT": PARENT, "TRACESTATE": "a=1"}),
        (["--traceparent", PARENT, "--tracestate", "a=1"], {"TRACEPARENT": "other", "TRACESTATE": "b=2"}),
    ],
)
def test_a_submit_carries_the_trace_of_its_options_or_of_the_environment(
    sent: dict[str, Any], arguments: list[str], environment: dict[str, str]
):
    done = CliRunner(env=environment).invoke(main, ["submit", "add", "-H", "a", *arguments])
    assert done.exit_code == 0, done.output
    assert (sent["traceparent"], sent["tracestate"]) == (PARENT, "a=1")


def test_a_submit_without_a_trace_has_none(sent: dict[str, Any]):
    assert CliRunner().invoke(main, ["submit", "add", "-H", "a"]).exit_code == 0
    assert (sent["traceparent"], sent["tracestate"]) == (None, None)
