"""Three nodes on PostgreSQL behind nginx and HAProxy, configured as in docs/how-to/cluster.md.

Clients of other makers follow all events without a gap, also when the leader is killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any, get_args

import pytest
import trio

from greenroom.gateway import Role, add_token
from greenroom.protocol.events import Event
from tests.cli.served import Served
from tests.clients.javascript import ROOT, node
from tests.servers import Server, postgresql

from .node_processes import node_processes
from .proxies import NAMES, Proxy, shown, started

__all__ = ["postgresql"]

PATIENCE = 120.0
WS = ROOT / ".venv" / "node_modules" / "ws" / "wrapper.mjs"

TYPES = [str(event.__struct_config__.tag) for event in get_args(Event)]

pytestmark = [
    pytest.mark.parametrize("name", NAMES),
    pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl"),
]


class Site:
    """The nodes, their proxy, and the token of an operator."""

    def __init__(self, nodes: list[Served], proxy: Proxy, token: str, folder: Path) -> None:
        self.nodes = nodes
        self.proxy = proxy
        self.token = token
        self.certificate = folder / "certificate.pem"

    async def curl(self, *arguments: str) -> Any:
        """The JSON that curl prints. A proxy whose node is killed during the request answers with 502."""
        port = self.proxy.port
        done = await trio.run_process(
            [
                *("curl", "--silent", "--show-error", "--fail-with-body", "--max-time", "60"),
                *("--cacert", str(self.certificate), "--resolve", f"runs.example:{port}:127.0.0.1"),
                *("-H", f"Authorization: Bearer {self.token}"),
                *(argument.replace("https://", f"https://runs.example:{port}") for argument in arguments),
            ],
            capture_stdout=True,
            check=False,
        )
        try:
            return json.loads(done.stdout)
        except ValueError:
            return {"code": "unavailable"}

    async def leader(self) -> Served:
        """The node that leads."""
        while True:
            found = await self.curl("https:///api/cluster")
            if found.get("leader") is not None:
                [leader] = [node for node in self.nodes if node.url == found["leader"]["address"]]
                return leader
            await trio.sleep(0.1)

    async def submit(self, handle: str, request_id: str) -> str:
        """Submit a run, again with the same request id if it is not acknowledged; its id."""
        body = {"job": "quick", "handle": handle, "params": {}, "request_id": request_id}
        while True:
            answer = await self.curl("https:///api/runs", "--json", json.dumps(body))
            if "run_id" in answer:
                return str(answer["run_id"])
            assert answer.get("code", "unavailable") == "unavailable", answer

    async def succeeds(self, run: str) -> None:
        """Wait until a run has succeeded."""
        while True:
            if (await self.curl(f"https:///api/runs/{run}")).get("status") == "succeeded":
                return
            await trio.sleep(0.1)


@asynccontextmanager
async def site(name: str, database: Server, folder: Path) -> AsyncIterator[Site]:
    token = add_token(folder / "tokens", "alice", Role.OPERATOR)
    toml = (
        f"[gateway]\ntoken_file = '{folder / 'tokens'}'\nallowed_hosts = ['runs.example']\n"
        "[cluster]\nlease_ttl = 4\n"
    )
    text = "".join(shown(name, "cluster.md"))
    with trio.fail_after(PATIENCE), node_processes(database, folder, toml=toml) as nodes:
        given = {
            f"10.0.0.{number}:8440": node.url.partition("://")[2] for number, node in enumerate(nodes, 1)
        }
        async with started(name, text, given, folder) as proxy:
            yield Site(nodes, proxy, token, folder)


PYTHON = """
    import asyncio, json, socket, ssl, sys
    from websockets.asyncio.client import connect
    from websockets.exceptions import WebSocketException

    argument = json.loads(sys.argv[1])
    tls = ssl.create_default_context(cafile=argument["certificate"])

    async def main():
        at, epoch, ended = 0, None, 0
        while ended < 2:
            try:
                async with connect(
                    f"wss://runs.example:{argument['port']}/", ssl=tls, host="127.0.0.1", proxy=None,
                    additional_headers={"Authorization": "Bearer " + argument["token"]},
                ) as socket:
                    subscribe = {"type": "subscribe", "id": 1, "after": at}
                    await socket.send(json.dumps(subscribe | ({"epoch": epoch} if epoch else {})))
                    while ended < 2:
                        message = json.loads(await socket.recv())
                        if message["type"] == "resync" and not at:  # this node has no earlier events
                            at = message["snapshot"]["seq"]
                            continue
                        assert message["type"] in ("welcome", "ok", "events"), message
                        if message["type"] == "welcome":
                            assert epoch in (None, message["epoch"])
                            epoch = message["epoch"]
                            print("connected", flush=True)
                        for event in message.get("events", ()):
                            assert event["seq"] == at + 1, (event, at)
                            at = event["seq"]
                            ended += event.get("to") == "succeeded"
            except (WebSocketException, OSError):
                await asyncio.sleep(0.2)
        print("done", at, flush=True)

    asyncio.run(main())
"""

JAVASCRIPT = """
    import { readFileSync } from "node:fs";
    const argument = JSON.parse(process.argv[1]);
    const { default: WebSocket } = await import(argument.ws);
    let at = 0, epoch, ended = 0;
    const once = () => new Promise((resolve) => {
        const socket = new WebSocket(`wss://127.0.0.1:${argument.port}/`, "greenroom.v1.json", {
            ca: readFileSync(argument.certificate), servername: "runs.example",
            headers: { Host: `runs.example:${argument.port}`, Authorization: `Bearer ${argument.token}` },
        });
        socket.onopen = () => {
            const subscribe = { type: "subscribe", id: 1, after: at };
            socket.send(JSON.stringify(epoch ? { ...subscribe, epoch } : subscribe));
        };
        socket.onmessage = ({ data }) => {
            const message = JSON.parse(data);
            if (message.type === "resync" && !at) at = message.snapshot.seq; // it has no earlier events
            else if (!["welcome", "ok", "events"].includes(message.type)) throw new Error(data);
            if (message.type === "welcome") {
                if (epoch && epoch !== message.epoch) throw new Error("another epoch");
                epoch = message.epoch;
                console.log("connected");
            }
            for (const event of message.events ?? []) {
                if (event.seq !== at + 1) throw new Error(`a gap between ${at} and ${event.seq}`);
                at = event.seq;
                ended += event.to === "succeeded";
            }
            if (ended === 2) socket.close();
        };
        socket.onerror = () => {};
        socket.onclose = resolve;
    });
    while (ended < 2) {
        await once();
        if (ended < 2) await new Promise((resolve) => setTimeout(resolve, 200));
    }
    console.log("done", at);
"""

EVENT_SOURCE = """
    const argument = JSON.parse(process.argv[1]);
    const base = `https://127.0.0.1:${argument.port}`;
    const headers = { Authorization: `Bearer ${argument.token}` };
    let at = 0, last = "", ended = 0;
    const once = async () => {
        const issued = await fetch(`${base}/api/tickets`, { method: "POST", headers });
        if (!issued.ok) return;
        const { ticket } = await issued.json();
        const from = last ? `last_event_id=${encodeURIComponent(last)}` : "after=0";
        const source = new EventSource(`${base}/api/events?${from}&ticket=${ticket}`);
        await new Promise((resolve) => {
            source.onopen = () => console.log("connected");
            source.onerror = resolve;
            source.addEventListener("resync", ({ data, lastEventId }) => {
                if (at) process.exit(3); // events were missed
                at = JSON.parse(data).snapshot.seq; // this node has no earlier events
                last = lastEventId;
            });
            const take = ({ data, lastEventId }) => {
                const { seq, to } = JSON.parse(data);
                if (seq !== at + 1) process.exit(4);
                at = seq;
                last = lastEventId;
                ended += to === "succeeded";
                if (ended === 2) resolve();
            };
            for (const type of argument.types) source.addEventListener(type, take);
        });
        source.close();
    };
    while (ended < 2) {
        await once().catch(() => {}); // no node answers
        if (ended < 2) await new Promise((resolve) => setTimeout(resolve, 200));
    }
    console.log("done", at);
"""


def followers(here: Site) -> dict[str, list[str]]:
    """The commands that start the clients, each of which follows the events until two runs have succeeded."""
    argument = {
        "port": here.proxy.port,
        "token": here.token,
        "certificate": str(here.certificate),
        "ws": WS.as_uri(),
        "types": TYPES,
    }
    given = json.dumps(argument)
    found = {"websockets": [sys.executable, "-c", "if True:" + PYTHON, given]}
    javascript = node()
    if javascript is not None:
        run = [javascript, "--experimental-eventsource", "--no-warnings", "--input-type=module", "--eval"]
        found["EventSource"] = [*run, EVENT_SOURCE, given]
        if WS.exists():
            found["ws"] = [*run, JAVASCRIPT, given]
    return found


async def lines(process: trio.Process, count: int) -> list[str]:
    """The next lines of its output."""
    assert process.stdout is not None
    text = ""
    while text.count("\n") < count:
        piece = await process.stdout.receive_some()
        assert piece, f"it has ended after {text!r}"
        text += piece.decode()
    return text.splitlines()


async def test_clients_follow_all_events_while_the_leader_is_killed(
    name: str, tmp_path: Path, postgresql: Server
) -> None:
    # Only EventSource cannot be given the certificate to trust.
    variables = {**os.environ, "NODE_TLS_REJECT_UNAUTHORIZED": "0"}
    async with site(name, postgresql, tmp_path) as here, trio.open_nursery() as nursery:
        start = partial(trio.run_process, stdout=PIPE, check=True, env=variables)
        clients = {what: await nursery.start(start, command) for what, command in followers(here).items()}
        for process in clients.values():
            assert await lines(process, 1) == ["connected"]
        first = await here.submit("alice", "first")
        await here.succeeds(first)
        leader = await here.leader()
        leader.signal(signal.SIGKILL)
        second = await here.submit("alice", "second")
        for what, process in clients.items():
            text = ""
            while "done" not in text:
                [*_, text] = await lines(process, 1)
            assert int(text.split()[1]) > 0, what
        await here.succeeds(second)
        assert await here.submit("alice", "second") == second
        assert await here.leader() is not leader
