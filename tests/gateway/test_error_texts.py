"""Every error about a value names the field as its sender knows it, and nothing of Python."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest

from greenroom.gateway.commands.entries import Entry
from greenroom.gateway.commands.table import TABLE

from .support import House, Refused, house

GRAPH = {
    "start": "q",
    "nodes": {"q": {"kind": "executor", "exec_type": "queue", "service": "s"}},
    "edges": [{"from": "q", "action": "default", "to": ""}],
}
GOOD: dict[str, Any] = {
    "job": "wait",
    "handle": "h",
    "lane": "main",
    "run_id": "r",
    "run_or_handle": "h",
    "interrupt_id": "r.1",
    "message": 1,
    "data": 1,
    "params": {},
    "n": 3,
    "key": "k",
    "value": 1,
    "name": "f",
    "flow": "f",
    "definition": GRAPH,
    "version_id": "v",
    "worker_id": "w",
    "service": "s",
    "services": ["s"],
    "url": "http://127.0.0.1:9",
    "item_id": "i",
}
"""What a command that needs a field is given where another one is wrong."""
BAD: list[Any] = [-1, 10**12, 10**30, 1.5, "", " ", "x" * 300, "a\nb", "a\0b", "asleep", True, None, [], {}]
UNPACKABLE: list[Any] = [10**30, {"a": [10**30]}]
BAD += [{"a": [10**30]}, [None], ["asleep"], {"a": None}, ["x"] * 1001]
PYTHON = re.compile(
    r"math\.|\bNone(Type)?\b|\bTrue\b|\bFalse\b|Struct|\bdict\b|\btuple\b|frozenset|Traceback|<class"
    r"|object at|valid Status|\bself\b|Error\b|`|nan\b|\binf\b"
)


TYPES = re.compile(r"\b(str|int|float|bool|bytes)\b|\*\*")
"""Python's names of types. Those of a job's own parameters are told as its author wrote them."""


def fields(entry: Entry) -> list[str]:
    return [name for name in entry.wire.__struct_fields__ if name not in ("id", "type")]


def arguments(entry: Entry, field: str, bad: Any) -> dict[str, Any]:
    required = {one.name for one in msgspec.structs.fields(entry.wire) if one.required} - {"id"}
    return {name: GOOD[name] for name in required} | {field: bad}


def fault(message: str, name: str, sent: Any) -> str:
    """What is wrong with a message about a field that was sent with a wrong value."""
    words = message.replace(repr(sent), "")
    if not re.search(rf"(?<![\w$]){re.escape(name)}(?!\w)", words):
        return f"{name} is not named: {message[:200]}\n"
    typed = not message.startswith("parameters of job") and TYPES.search(words)
    return f"{name}: Python: {message[:200]}\n" if typed or PYTHON.search(words) else ""


@pytest.fixture
async def home() -> Any:
    async with house() as home:
        await home.engine.flows.publish("f", GRAPH)
        yield home


@pytest.mark.parametrize("codec", ["json", "msgpack"])
async def test_over_websocket(home: House, codec: str):
    told, faults = 0, ""
    async with home.socket(f"greenroom.v1.{codec}") as talk:
        for entry in TABLE:
            for field in fields(entry):
                for bad in BAD:
                    if codec == "msgpack" and bad in UNPACKABLE:
                        continue
                    given = arguments(entry, field, bad)
                    if entry.waits:
                        given = {"timeout": 0, "wait": 0} | given if field in ("timeout", "wait") else given
                        given = {name: value for name, value in given.items() if name in fields(entry)}
                        short = "wait" if "wait" in fields(entry) else "timeout"
                        given.setdefault(short, 0)
                        if field == short and bad in (1.5, 10**12):
                            continue
                    try:
                        await talk.call(entry.wire.__struct_config__.tag, **given)
                    except Refused as refused:
                        if refused.code == "invalid":
                            told += 1
                            faults += fault(refused.message, field, bad)
    assert not faults, faults
    assert told > 300


async def test_over_http(home: House):
    told, faults = 0, ""
    raw = await home.raw()
    async with raw.stream:
        for entry in TABLE:
            if entry.http is None:
                continue
            called = {meant: name for name, meant in entry.http.also.items()}
            for field in fields(entry):
                for bad in BAD:
                    if entry.http.method == "GET" and not isinstance(bad, str):
                        bad = "x" if bad is None else repr(bad)  # all that a query can hold
                    given = arguments(entry, field, bad)
                    path = entry.http.path
                    for part in re.findall(r"{(\w+)}", path):
                        path = path.replace(f"{{{part}}}", quote(str(given.pop(part)), safe=""))
                    name = called.get(field, field)
                    given = {called.get(part, part): value for part, value in given.items()}
                    if entry.http.method == "GET":
                        answer = await raw.http("GET", f"{path}?{urlencode(given, doseq=True)}")
                    else:
                        answer = await raw.http(entry.http.method, path, given)
                    if answer.status == 400:
                        told += 1
                        faults += fault(answer.json["message"], name, bad if name in given else str(bad))
    assert not faults, faults
    assert told > 200


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("after=x", "after"),
        ("after=-1", "after"),
        ("before=1", "before"),
        ("limit=x", "limit"),
    ],
)
async def test_of_events(home: House, query: str, name: str):
    answer = await home.http("GET", f"/api/events?{query}")
    assert answer.status == 400
    assert not fault(answer.json["message"], name, "")
