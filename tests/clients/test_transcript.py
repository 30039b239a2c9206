"""The conversation in docs/how-to/write-a-client.md is a real one."""

from __future__ import annotations

import json
import re
from typing import Any

from trio.testing import MockClock

from greenroom.protocol.codec import JSON
from greenroom.protocol.events import Event
from greenroom.protocol.fold import fold
from greenroom.protocol.records import Snapshot

from ..test_docs import ROOT
from .transcript import hold


def shown() -> list[str]:
    page = (ROOT / "docs" / "how-to" / "write-a-client.md").read_text(encoding="utf-8")
    block = page.partition("\n## A conversation\n")[2].partition("```text\n")[2].partition("```")[0]
    return [line for line in re.sub(r"\n\n.*\n\n", "\n-\n", block).splitlines() if line]


def said(lines: list[str], who: str) -> list[dict[str, Any]]:
    return [json.loads(line[3:]) for line in lines if line.startswith(who)]


def events_in(lines: list[str]) -> list[dict[str, Any]]:
    """The events, without their batches, which vary."""
    return [event for message in said(lines, "S") for event in message.get("events", ())]


def answers(lines: list[str]) -> list[dict[str, Any]]:
    """All other messages of the server, without its version and the seqs of replies."""
    others = [message for message in said(lines, "S") if message["type"] != "events"]
    chance = {"ok": "seq", "welcome": "server"}
    return [{**message, chance.get(message["type"], "type"): None} for message in others]


async def test_the_documented_conversation_is_the_real_one(autojump_clock: MockClock):
    lines = await hold()
    assert said(shown(), "C") == said(lines, "C")
    assert answers(shown()) == answers(lines)
    assert events_in(shown()) == events_in(lines)
    assert shown().count("-") == lines.count("-") == 1


def test_the_events_that_are_shown_lead_to_the_snapshot_that_is_shown():
    [first] = [message["snapshot"] for message in said(shown(), "S") if message["type"] == "resync"]
    [*_, last] = [message["snapshot"] for message in said(shown(), "S") if "snapshot" in message]
    events = [JSON.decode(json.dumps(event), Event) for event in events_in(shown())]
    assert fold(JSON.decode(json.dumps(first), Snapshot), events) == JSON.decode(json.dumps(last), Snapshot)


def test_no_batch_that_is_shown_leaves_a_gap():
    for connection in "\n".join(shown()).split("\n-\n"):
        batches = [message for message in said(connection.splitlines(), "S") if message["type"] == "events"]
        assert [batch["from"] for batch in batches[1:]] == [batch["to"] for batch in batches[:-1]]
