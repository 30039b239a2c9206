"""Every error about a value names the field as the client wrote it, without terms of Python."""

from __future__ import annotations

import json
import re
from typing import Any, Literal
from urllib.parse import quote, urlencode

import attrs
import msgspec
import pytest
import trio

from greenroom import Run
from greenroom.gateway.commands.entries import Entry
from greenroom.gateway.commands.table import TABLE
from greenroom.gateway.tasks.calls import TABLE as TASK_CALLS
from greenroom.protocol.commands import LIMITING, OLD_NAMES, BulkCommand
from greenroom.protocol.records import default_limit
from greenroom.protocol.schedule_commands import PreviewSchedule, PutSchedule
from tests.support import Bodies
from tests.texts import WRONG, paths_of, python_in, replaced

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
    "limit": 3,
    "key": "k",
    "value": 1,
    "name": "f",
    "flow": "f",
    "definition": GRAPH,
    "version_id": "v",
    "worker_id": "w",
    "executor_id": "e",
    "service": "s",
    "services": ["s"],
    "url": "http://127.0.0.1:9",
    "item_id": "i",
    "webhook_id": "0" * 32,
    "rules": {},
    "priority": 1,
    "every": 60,
    "runs": [],
}
"""Valid values for required fields of a command when another field is wrong."""
TASKS_GOOD: dict[str, Any] = {
    "id": "i",
    "services": ["s"],
    "url": "http://127.0.0.1:9",
    "service": "s",
    "name": "g",
    "flow_id": "f",
    "definition_json": GRAPH,
    "task_id": "t",
    "key": "k",
    "worker_id": "w",
    "queue_id": "q",
}
"""The same for the calls about tasks and workers."""
BAD: list[Any] = [*WRONG, 10**12, "x" * 300, "a\nb", "asleep", ["asleep"], {"a": [10**30]}, ["x"] * 1001]
UNPACKABLE: list[Any] = [10**30, {"a": [10**30]}]


def fields(entry: Entry) -> list[str]:
    return [name for name in entry.wire.__struct_fields__ if name not in ("id", "type")]


def arguments(entry: Entry, field: str, bad: Any) -> dict[str, Any]:
    required = {one.name for one in msgspec.structs.fields(entry.wire) if one.required} - {"id"}
    if entry.wire in LIMITING and field not in OLD_NAMES:
        required.add("limit")  # its old name is accepted, too
    if issubclass(entry.wire, BulkCommand):  # requires at least one filter
        required.add("lane" if field == "handle" else "handle")
    if entry.wire in (PutSchedule, PreviewSchedule) and field != "cron":
        required.add("every")  # one of both is required
    return {name: GOOD[name] for name in required} | {field: bad}


def fault(refused: dict[str, Any], name: str, sent: Any) -> str:
    """The fault in the error about a field with a wrong value; empty if there is none."""
    message = refused["message"]
    if refused["code"] == "invalid" and not re.search(rf"(?<![\w$]){re.escape(name)}(?!\w)", message):
        return f"{name} is not named: {message[:200]}\n"
    python = python_in(f"{message} {refused['details'].get('value', '')}", sent)
    return f"{name}: {python} in: {message[:200]}\n" if python else ""


class Address(msgspec.Struct):
    street: str


@attrs.define
class Order:
    pages: int
    address: Address
    kind: Literal["a", "b"] | None = None


PARAMS = {"pages": 1, "address": {"street": "s"}, "kind": "a"}


async def place(run: Run, params: Order) -> None:
    await trio.sleep_forever()


@pytest.fixture
async def home() -> Any:
    bodies = Bodies()
    bodies.jobs.job("order")(place)
    async with house(bodies) as home:
        await home.engine.flows.publish("f", GRAPH)
        yield home


class Checked:
    """The received errors, and their faults."""

    def __init__(self, home: House) -> None:
        self._engine = home.engine
        self._runs: set[str] = set()
        self._rest: Any = None
        self.count = 0
        self.faults = ""

    async def _state(self) -> tuple[set[str], Any]:
        """All runs, and all other state that commands change, but not time."""
        now, (_, flows) = await self._engine.snapshot(), await self._engine.flows.list()
        limits = {name: lane.limit for name, lane in now.lanes.items() if lane.limit != default_limit(name)}
        workers = [(worker.id, worker.load) for worker in await self._engine.workers.list()]
        return set(now.runs), (flows, workers, limits, now.engine.max_concurrent, now.engine.draining)

    async def accepted(self) -> None:
        self._runs, self._rest = await self._state()

    async def refused(self, refused: dict[str, Any], name: str, sent: Any) -> None:
        self.count += 1
        self.faults += fault(refused, name, sent)
        runs, rest = await self._state()
        if not runs <= self._runs or self._rest not in (None, rest):
            self.faults += f"{name}: refused, and yet something was changed\n"
        self._runs, self._rest = runs, rest


@pytest.mark.parametrize("codec", ["json", "msgpack"])
async def test_over_websocket(home: House, codec: str):
    checked = Checked(home)
    async with home.socket(f"greenroom.v1.{codec}") as talk:
        for entry in TABLE:
            for field in fields(entry):
                for bad in BAD:
                    if codec == "msgpack" and bad in UNPACKABLE:
                        continue
                    given = arguments(entry, field, bad)
                    if entry.waits:
                        short = "wait" if "wait" in fields(entry) else "timeout"
                        given.setdefault(short, 0)
                        if field == short and isinstance(bad, int | float) and bad > 1:
                            continue
                    try:
                        await talk.call(entry.wire.__struct_config__.tag, **given)
                    except Refused as refused:
                        await checked.refused(vars(refused), field, bad)
                    else:
                        await checked.accepted()
    assert not checked.faults, checked.faults
    assert checked.count > 500


async def test_over_http(home: House):
    checked = Checked(home)
    raw = await home.raw()
    async with raw.stream:
        for entry in TABLE:
            if entry.http is None:
                continue
            called = {meant: name for name, meant in entry.http.also.items()}
            for field in fields(entry):
                for bad in BAD:
                    if not isinstance(bad, str) and (
                        entry.http.method == "GET" or f"{{{field}}}" in entry.http.path
                    ):
                        bad = json.dumps(bad)  # a query and a path contain only text
                    given = arguments(entry, field, bad)
                    path = entry.http.path
                    for part in re.findall(r"{(\w+)}", path):
                        path = path.replace(f"{{{part}}}", quote(given.pop(part), safe=""))
                    name = called.get(field, field)
                    given = {called.get(part, part): value for part, value in given.items()}
                    if entry.http.method == "GET":
                        answer = await raw.http("GET", f"{path}?{urlencode(given, doseq=True)}")
                    else:
                        answer = await raw.http(entry.http.method, path, given)
                    if answer.status >= 400:
                        await checked.refused(answer.json, name, bad)
                    else:
                        await checked.accepted()
    assert not checked.faults, checked.faults
    assert checked.count > 300


async def test_of_calls_about_tasks_and_workers(home: House):
    checked = Checked(home)
    raw = await home.raw()
    async with raw.stream:
        for task in TASK_CALLS:
            needed = TASKS_GOOD.keys() & set(task.takes.__struct_fields__)
            for field in task.takes.__struct_fields__:
                for bad in BAD:
                    if task.in_query and not isinstance(bad, str):
                        bad = json.dumps(bad)
                    given = {name: TASKS_GOOD[name] for name in needed} | {field: bad}
                    if (task.waits and field == "worker_id") or bad == ["asleep"] or bad == ["x"] * 1001:
                        continue  # valid: it waits for work
                    path = f"{task.path}?{urlencode(given)}" if task.in_query else task.path
                    answer = await raw.http(task.method, path, None if task.in_query else given)
                    if answer.status >= 400:
                        await checked.refused(answer.json, field, bad)
                    else:
                        await checked.accepted()
    assert not checked.faults, checked.faults
    assert checked.count > 300


async def test_of_parameters_of_a_job(home: House):
    checked = Checked(home)
    raw = await home.raw()
    async with raw.stream, home.socket() as talk:
        for path in paths_of(PARAMS):
            for bad in WRONG:
                given = {"job": "order", "handle": "h", "params": replaced(PARAMS, path, bad)}
                answer = await raw.http("POST", "/api/runs", given)
                if answer.status != 400:
                    await checked.accepted()
                    continue
                name = ".".join(("params", *map(str, path)))
                await checked.refused(answer.json, name, bad)
                with pytest.raises(Refused) as refused:
                    await talk.call("submit", **given)
                await checked.refused(vars(refused.value), name, bad)
    assert not checked.faults, checked.faults


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
    assert not fault(answer.json, name, "")
