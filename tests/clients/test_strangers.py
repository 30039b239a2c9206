"""Independent clients: Python's `websockets`, Node's own and the package `ws`, a browser, curl."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import trio

from greenroom import Engine
from greenroom.gateway import GatewayConfig, Role, add_token

from .browser import browse, needs_browser, pages
from .javascript import needs_node, run_node
from .test_javascript import CLASSES, WS, serving

PATIENCE = 30

SUBMIT = {"type": "submit", "id": 2, "job": "add", "handle": "alice", "params": {"a": 1, "b": 2}}


@pytest.fixture
def token(tmp_path: Path) -> str:
    return add_token(tmp_path / "tokens", "stranger", Role.OPERATOR)


@asynccontextmanager
async def guarded(folder: Path, *origins: str) -> AsyncIterator[tuple[Engine, str]]:
    """A gateway that requires the token."""
    config = GatewayConfig(port=0, token_file=str(folder / "tokens"), allowed_origins=origins)
    async with serving(config) as (engine, _, url):
        yield engine, url


def check(told: dict[str, Any], last_seq: int) -> None:
    """Check what every client has received that follows the events from the first one, and submits a run."""
    assert told["kinds"][:2] == ["welcome", "ok"]
    assert told["seqs"] == list(range(1, last_seq + 1))
    assert told["run"] == ["succeeded", 3]
    assert told["refused"] == "invalid"


# Python's `websockets`, on asyncio.

PYTHON = """
    import asyncio, json, sys, msgspec, websockets
    from websockets.asyncio.client import connect

    argument = json.load(sys.stdin)
    binary = argument["subprotocol"] == "greenroom.v1.msgpack"
    encode = msgspec.msgpack.encode if binary else lambda message: json.dumps(message)
    decode = msgspec.msgpack.decode if binary else json.loads

    async def main():
        headers = {"Authorization": "Bearer " + argument["token"]} if argument["header"] else {}
        subprotocols = [argument["subprotocol"]] if argument["subprotocol"] else None
        kinds, seqs, run, refused = [], [], None, None
        async with connect(argument["url"], additional_headers=headers, subprotocols=subprotocols) as socket:
            if not argument["header"]:
                await socket.send(encode({"type": "auth", "token": argument["token"]}))
            await socket.send(encode({"type": "subscribe", "id": 1, "after": 0}))
            submit = encode(argument["submit"])
            await socket.send([submit[:5], submit[5:6], submit[6:]])  # in fragments
            await socket.send(encode({"type": "nonsense", "id": 3}))
            await (await socket.ping())
            while run is None or refused is None:
                message = decode(await socket.recv())
                kinds.append(message["type"])
                if message["type"] == "error":
                    refused = message["code"]
                for event in message.get("events", ()):
                    seqs.append(event["seq"])
                    if event.get("to") == "succeeded":
                        run = [event["to"], event["result"]]
            told = {"kinds": kinds, "seqs": seqs, "run": run, "refused": refused}
        told["subprotocol"], told["closed"] = socket.subprotocol, socket.close_code
        print(json.dumps(told))

    asyncio.run(main())
"""


@pytest.mark.parametrize("header", [True, False], ids=["header", "auth"])
@pytest.mark.parametrize("subprotocol", [None, "greenroom.v1.json", "greenroom.v1.msgpack"])
async def test_websockets(tmp_path: Path, token: str, subprotocol: str | None, header: bool):
    async with guarded(tmp_path) as (engine, url):
        argument = {"url": url, "token": token, "header": header, "subprotocol": subprotocol}
        with trio.fail_after(PATIENCE):
            done = await trio.run_process(
                [sys.executable, "-c", "if True:" + PYTHON],
                stdin=json.dumps({**argument, "submit": SUBMIT}).encode(),
                capture_stdout=True,
            )
        told = json.loads(done.stdout)
        check(told, (await engine.snapshot()).seq)
        assert (told["subprotocol"], told["closed"]) == (subprotocol, 1000)


# WebSocket in JavaScript: the same program in Node, with its own and with that of the package `ws`, and in a
# page.

JAVASCRIPT = """
    const talk = (Socket) => new Promise((resolve, reject) => {
        const socket = new Socket(argument.url, "greenroom.v1.json");
        const told = { kinds: [], seqs: [], run: null, refused: null };
        const send = (message) => socket.send(JSON.stringify(message));
        socket.onopen = () => {
            send({ type: "auth", token: argument.token });
            send({ type: "subscribe", id: 1, after: 0 });
            send(argument.submit);
            send({ type: "nonsense", id: 3 });
        };
        socket.onmessage = ({ data }) => {
            const message = JSON.parse(data);
            told.kinds.push(message.type);
            if (message.type === "error") told.refused = message.code;
            for (const event of message.events ?? []) {
                told.seqs.push(event.seq);
                if (event.to === "succeeded") told.run = [event.to, event.result];
            }
            if (told.run && told.refused) socket.close(1000, "thanks");
        };
        socket.onclose = ({ code, wasClean }) => resolve({ ...told, closed: [code, wasClean] });
        socket.onerror = (event) => reject(new Error(event.message ?? "no connection"));
    });
"""


@needs_node
@pytest.mark.parametrize("which", CLASSES)
async def test_websockets_of_node(tmp_path: Path, token: str, which: str):
    program = (
        JAVASCRIPT
        + """
        answer(await talk(argument.ws ? (await import(argument.ws)).default : WebSocket));
    """
    )
    async with guarded(tmp_path) as (engine, url):
        ws = WS.as_uri() if which == "ws" else None
        told = await run_node(program, {"url": url, "token": token, "submit": SUBMIT, "ws": ws})
        check(told, (await engine.snapshot()).seq)
        assert told["closed"] == [1000, True]


@needs_browser
async def test_the_websocket_of_a_browser(tmp_path: Path, token: str):
    program = JAVASCRIPT + "answer(await talk(WebSocket));"
    async with pages() as its, guarded(tmp_path, its.origin) as (engine, url):
        told = await browse(its, program, {"url": url, "token": token, "submit": SUBMIT}, tmp_path)
        check(told, (await engine.snapshot()).seq)
        assert told["closed"] == [1000, True]


@needs_browser
async def test_the_event_source_of_a_browser(tmp_path: Path, token: str):
    program = """
        const authorized = { Authorization: "Bearer " + argument.token };
        const post = (path, body) => fetch(argument.http + path, {
            method: "POST",
            headers: body ? { ...authorized, "Content-Type": "application/json" } : authorized,
            body: body && JSON.stringify(body),
        }).then((response) => response.json());
        const open = (ticket) => new EventSource(`${argument.http}/api/events?after=0&ticket=${ticket}`);
        const { ticket } = await post("/api/tickets");
        const source = open(ticket);
        const seqs = [];
        const succeeded = new Promise((resolve) => {
            source.addEventListener("run_state_changed", ({ data, lastEventId }) => {
                const event = JSON.parse(data);
                seqs.push([event.seq, lastEventId]);
                if (event.to === "succeeded") resolve(event.result);
            });
        });
        await new Promise((resolve, reject) => { source.onopen = resolve; source.onerror = reject; });
        const { run_id } = await post("/api/runs", argument.submit);
        const result = await succeeded;
        source.close();
        const again = open(ticket); // it was good once
        const state = await new Promise((resolve) => { again.onerror = () => resolve(again.readyState); });
        answer({ run_id, result, seqs, closed: state === EventSource.CLOSED });
    """
    async with pages() as its, guarded(tmp_path, its.origin) as (engine, url):
        submit = {name: value for name, value in SUBMIT.items() if name not in ("type", "id")}
        argument = {"http": url.replace("ws", "http"), "token": token, "submit": submit}
        told = await browse(its, program, argument, tmp_path)
        snapshot = await engine.snapshot()
    assert list(snapshot.runs) == [told["run_id"]]
    assert told["result"] == 3
    assert told["closed"]
    assert told["seqs"] == [[seq, f"{snapshot.epoch}:{seq}"] for seq in range(1, snapshot.seq + 1)]


# curl.

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")


async def curl(*arguments: str) -> tuple[int, str]:
    """curl's exit code and output."""
    with trio.fail_after(PATIENCE):
        done = await trio.run_process(
            ["curl", "--silent", "--show-error", *arguments], capture_stdout=True, check=False
        )
    return done.returncode, done.stdout.decode()


async def curl_follows(count: int, *arguments: str) -> list[str]:
    """The ids of this number of events, which curl prints as they arrive."""
    lines: list[str] = []
    async with trio.open_nursery() as nursery:
        run = partial(trio.run_process, ["curl", "-sN", *arguments], stdout=PIPE, check=False)
        process = await nursery.start(run)
        text = ""
        with trio.fail_after(PATIENCE):
            while text.count("\nevent: ") < count or not text.endswith("\n\n"):
                text += (await process.stdout.receive_some()).decode()
        process.kill()
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        if "data" in fields:
            assert json.loads(fields["data"])["seq"] == int(fields["id"].rpartition(":")[2])
            lines.append(fields["id"])
    return lines


@needs_curl
async def test_curl_gives_commands(tmp_path: Path, token: str):
    async with guarded(tmp_path) as (_, url):
        http = url.replace("ws", "http")
        bearer = ("-H", f"Authorization: Bearer {token}")
        submit = {name: value for name, value in SUBMIT.items() if name not in ("type", "id")}
        json_ = ("-H", "Content-Type: application/json", "-d", json.dumps(submit))
        status = ("-o", str(tmp_path / "answer"), "-w", "%{http_code}")
        assert await curl(*status, f"{http}/api/state") == (0, "401")
        assert await curl(*status, *bearer, *json_, f"{http}/api/runs") == (0, "201")
        run_id = json.loads((tmp_path / "answer").read_text())["run_id"]
        chunked = ("-H", "Transfer-Encoding: chunked", "-H", "Expect: 100-continue")
        other = json.dumps({**submit, "handle": "bob"})
        assert await curl(*status, *bearer, *chunked, *json_[:2], "-d", other, f"{http}/api/runs") == (
            0,
            "201",
        )
        code, text = await curl(*bearer, f"{http}/api/runs/{run_id}")
        assert (code, json.loads(text)["handle"]) == (0, "alice")
        code, text = await curl("--head", *bearer, f"{http}/api/state")
        assert (code, text.splitlines()[0]) == (0, "HTTP/1.1 200 OK")
        assert await curl("--http2", *status, f"{http}/healthz") == (0, "200")
        assert await curl("--http1.0", *status, f"{http}/healthz") == (0, "200")
        assert (await curl("--fail", *bearer, f"{http}/api/runs/none"))[0] == 22
        assert await curl(*status, *bearer, "-X", "DELETE", f"{http}/api/runs") == (0, "405")
        assert await curl(*status, *bearer, *json_[2:], f"{http}/api/runs") == (0, "415")
        several = [("-o", "/dev/null", http + path) for path in ("/healthz", "/readyz", "/greenroom.js")]
        connects = await curl("-w", "%{num_connects}", *(word for words in several for word in words))
        assert connects == (0, "100"), "one connection is used for all of them"


@needs_curl
async def test_curl_follows_the_events_and_resumes_after_the_last_one():
    async with serving() as (engine, _, url):
        for number in range(5):
            await engine.set_params("alice", number)
        epoch = (await engine.snapshot()).epoch
        events = url.replace("ws", "http") + "/api/events"
        assert await curl_follows(5, f"{events}?after=0") == [f"{epoch}:{seq}" for seq in range(1, 6)]
        assert await curl_follows(3, "-H", f"Last-Event-ID: {epoch}:2", events) == [
            f"{epoch}:{seq}" for seq in range(3, 6)
        ]
