"""Server-sent events: their format, their start, resuming, and their end."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import trio

from greenroom.protocol.events import Event
from greenroom.protocol.fold import Projection
from greenroom.protocol.parts import joined
from greenroom.protocol.records import Snapshot

from .support import PATIENCE_IN_MOCK_TIME, House, Raw, house


class Source:
    """A parser like EventSource."""

    def __init__(self, raw: Raw, head: str) -> None:
        self.head = head
        self.last_id = ""
        self.comments: list[str] = []
        self.ended = False
        self._raw = raw
        self._text = ""

    @classmethod
    async def open(cls, home: House, path: str = "/api/events", **headers: str) -> Source:
        raw = Raw(await home.stream())
        given = {"Host": "localhost"} | {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        await raw.send(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
        while b"\r\n\r\n" not in raw.buffer:
            raw.buffer += await raw.stream.receive_some()
        head, _, raw.buffer = raw.buffer.partition(b"\r\n\r\n")
        return cls(raw, head.decode())

    async def next(self) -> tuple[str, Any]:
        """The type and the data of the next event."""
        while True:
            block = await self.block()
            fields: dict[str, str] = {}
            for line in block.split("\n"):
                name, _, value = line.partition(": ")
                fields[name] = value
                if not name:
                    self.comments.append(value)
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                return fields["event"], json.loads(fields["data"])

    async def block(self) -> str:
        while "\n\n" not in self._text:
            await self._chunk()
        block, _, self._text = self._text.partition("\n\n")
        return block

    async def _chunk(self) -> None:
        raw = self._raw
        with trio.fail_after(PATIENCE_IN_MOCK_TIME):
            while True:
                size, line, rest = raw.buffer.partition(b"\r\n")
                if line and len(rest) >= int(size, 16) + 2:
                    break
                more = await raw.stream.receive_some()
                if not more:
                    raise trio.EndOfChannel
                raw.buffer += more
        length = int(size, 16)
        if not length:
            self.ended = True
            raise trio.EndOfChannel
        self._text += rest[:length].decode()
        raw.buffer = rest[length + 2 :]


async def test_each_event_has_its_id_its_type_and_its_data(autojump_clock):
    async with house(listen=False) as home:
        source = await Source.open(home)
        assert "content-type: text/event-stream" in source.head.lower()
        assert "cache-control: no-store" in source.head.lower()
        assert "connection: close" in source.head.lower()  # data of a client during a stream is not a request
        await home.engine.set_params("alice", {"text": "one\ntwo\r\nthree"})
        type, event = await source.next()
        assert (type, event["type"]) == ("handle_changed", "handle_changed")
        assert event["params"] == {"text": "one\ntwo\r\nthree"}
        assert source.last_id == f"{(await home.engine.snapshot()).epoch}:1"


async def test_the_stream_starts_with_the_next_event(autojump_clock):
    async with house(listen=False) as home:
        await home.engine.set_params("alice", 1)
        source = await Source.open(home)
        await home.engine.set_params("alice", 2)
        assert (await source.next())[1]["seq"] == 2


@pytest.mark.parametrize("how", ["header", "query", "after", "after and epoch"])
async def test_the_stream_resumes_after_the_last_received_event(how, autojump_clock):
    async with house(listen=False) as home:
        for number in range(5):
            await home.engine.set_params("alice", number)
        epoch = (await home.engine.snapshot()).epoch
        path, headers = "/api/events", {}
        match how:
            case "header":
                headers = {"Last_Event_ID": f"{epoch}:2"}
            case "query":
                path += f"?last_event_id={epoch}%3A2"
            case "after":
                path += "?after=2"
            case _:
                path += f"?after=2&epoch={epoch}"
        source = await Source.open(home, path, **headers)
        assert [(await source.next())[1]["seq"] for _ in range(3)] == [3, 4, 5]


@pytest.mark.parametrize(
    "last", ["another:3", "nonsense", "{epoch}:99", "{epoch}:x", "{epoch}:", ":1", "{epoch}:-1"]
)
async def test_if_resuming_is_impossible_a_snapshot_is_sent_first(last, autojump_clock):
    async with house(listen=False) as home:
        await home.engine.set_params("alice", 1)
        whole = await home.engine.snapshot()
        source = await Source.open(home, Last_Event_ID=last.format(epoch=whole.epoch))
        type, message = await source.next()
        assert type == "resync"
        assert message["snapshot"] == msgspec.to_builtins(whole)
        assert source.last_id == f"{whole.epoch}:1"
        await home.engine.set_params("alice", 2)
        assert (await source.next())[1]["seq"] == 2


async def test_a_large_snapshot_is_sent_in_parts(autojump_clock):
    async with house(listen=False) as home:
        for number in range(30):
            await home.engine.set_params(f"h{number}", "x" * 50_000)
        source = await Source.open(home, "/api/events?after=3&epoch=another")
        parts = []
        more = True
        while more:
            type, message = await source.next()
            assert type == "resync"
            parts.append(msgspec.convert(message["snapshot"], Snapshot))
            more = message.get("more", False)
        assert len(parts) > 3
        assert joined(parts) == await home.engine.snapshot()


async def test_the_fold_of_the_events_is_the_engines_snapshot(autojump_clock):
    async with house(listen=False) as home:
        source = await Source.open(home, "/api/events?after=9&epoch=another")
        projection = Projection.from_snapshot(msgspec.convert((await source.next())[1]["snapshot"], Snapshot))
        for number in range(5):
            await home.engine.submit("wait", handle=f"h{number}", params={})
        while projection.seq < home.engine.stream.last_seq:
            projection.apply(msgspec.convert((await source.next())[1], Event))
        assert projection.snapshot() == await home.engine.snapshot()


async def test_a_filter_lets_through_what_fits(autojump_clock):
    async with house(listen=False) as home:
        source = await Source.open(home, "/api/events?handle=bob&handle=carol&type=handle_changed")
        for handle in ("alice", "bob", "carol"):
            await home.engine.set_params(handle, 1)
            await home.engine.set_max_concurrent(1)
        assert [(await source.next())[1]["handle"] for _ in range(2)] == ["bob", "carol"]


@pytest.mark.parametrize(
    "query", ["after=x", "after=-1", "after=x&last_event_id=e:1", "nothing=1", "token=gr_x"]
)
async def test_an_invalid_query_is_refused(query, autojump_clock):
    async with house(listen=False) as home:
        answer = await Raw(await home.stream()).http("GET", f"/api/events?{query}")
        assert (answer.status, answer.json["code"]) == (400, "invalid")


async def test_a_quiet_stream_gets_a_ping_with_its_position_every_15_seconds(autojump_clock):
    async with house(listen=False) as home:
        source = await Source.open(home, "/api/events?handle=nobody")
        begun = trio.current_time()
        await home.engine.set_params("alice", 1)
        await source.block()
        for number in range(1, 4):
            block = await source.block()
            assert block == f": ping\nid: {(await home.engine.snapshot()).epoch}:1"
            assert trio.current_time() - begun == 15 * number


async def test_a_client_that_disconnects_is_removed(autojump_clock):
    async with house(listen=False) as home:
        source = await Source.open(home)
        assert home.gateway.connections == 1
        await trio.aclose_forcefully(source._raw.stream)
        await trio.testing.wait_all_tasks_blocked()
        assert home.gateway.connections == 0
        await home.engine.set_params("alice", 1)
