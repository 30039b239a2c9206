"""The finished files of a run over the gateway: the command, HTTP, downloads, and limited tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from greenroom import Run
from greenroom.actors.journal.change import Change
from greenroom.gateway import Role, add_token, remove_token
from greenroom.persistence.store import FileFinished

from ..support import Bodies
from .support import House, Refused, house

CONTENT = bytes(range(256)) * 1000


class Writers(Bodies):
    """Jobs that write files."""

    def __init__(self) -> None:
        super().__init__()

        @self.jobs.job("write")
        async def write(run: Run, params: list[str]) -> None:
            for path in params:
                async with run.open_file(path) as file:
                    await file.write(CONTENT)
            await run.next_message()


async def written(home: House, *paths: str, handle: str = "alice") -> str:
    """A run that has written these files, and waits."""
    ticket = await home.engine.submit("write", handle=handle, params=list(paths))
    while len(await home.engine.list_files(ticket.id)) < len(paths):  # noqa: ASYNC110 # no event tells it
        await trio.sleep(0.01)
    return ticket.id


@pytest.fixture
async def home(tmp_path: Path):
    async with house(Writers(), options={"data_dir": tmp_path}) as home:
        yield home


async def test_files_are_listed_by_the_command_and_by_http(home):
    run = await written(home, "b.bin", "a/ü.bin")
    expected = [{"path": path, "size": 256_000, "folder": ""} for path in ("a/ü.bin", "b.bin")]
    async with home.socket() as talk:
        assert (await talk.call("list_files", run_id=run))["files"] == expected
        with pytest.raises(Refused, match="not found"):
            await talk.call("list_files", run_id="x")
    assert (await home.http("GET", f"/api/runs/{run}/files")).json["files"] == expected


@pytest.mark.at_engine
async def test_a_file_is_downloaded_as_an_attachment(home):
    run = await written(home, "a/ü.bin")
    answer = await home.http("GET", f"/api/runs/{run}/files/a%2F%C3%BC.bin")
    assert (answer.status, answer.body) == (200, CONTENT)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''%C3%BC.bin"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert (await home.http("HEAD", f"/api/runs/{run}/files/a%2F%C3%BC.bin")).status == 200


@pytest.mark.at_engine
async def test_only_finished_files_of_the_run_are_found(home, tmp_path):
    run = await written(home, "a.bin")
    other = await written(home, "b.bin", handle="bob")
    (tmp_path / "alice" / "secret").write_text("x")
    (tmp_path / "alice" / "link.bin").symlink_to("/etc/hostname")
    await home.engine._journal.ask(
        Change((), memos=(FileFinished(run, "link.bin"), FileFinished(run, "far.bin", "feed01")))
    )
    listed = (await home.http("GET", f"/api/runs/{run}/files")).json["files"]
    assert [(file["path"], file["size"], file["folder"]) for file in listed] == [
        ("a.bin", 256_000, ""),
        ("far.bin", None, "feed01"),
    ]
    for path in (
        "b.bin",
        "secret",
        "link.bin",
        "..%2Fbob%2Fb.bin",
        "%2Fetc%2Fhostname",
        "a.bin%00",
        "%2E%2E",
    ):
        answer = await home.http("GET", f"/api/runs/{run}/files/{path}")
        assert (answer.status, answer.json["code"]) in ((404, "not_found"), (400, "invalid")), path
    answer = await home.http("GET", f"/api/runs/{run}/files/far.bin")
    assert (answer.status, "in the data folder feed01" in answer.json["message"]) == (404, True)
    assert (await home.http("GET", f"/api/runs/{other}/files/b.bin")).status == 200


async def test_deleted_files_are_no_longer_listed(home):
    run = await written(home, "a.bin")
    await home.engine.cancel(run, files="delete")
    await home.engine.wait(run)
    assert (await home.http("GET", f"/api/runs/{run}/files")).json["files"] == []
    assert (await home.http("GET", f"/api/runs/{run}/files/a.bin")).status == 404


async def test_a_node_that_follows_names_the_node_that_has_the_files(home):
    run = await written(home, "a.bin")
    answer = await home.http("GET", f"/api/runs/{run}/files/a.bin")
    if home.gateway._shared.router is not None:
        assert (answer.status, answer.json["code"]) == (404, "not_found")
        assert "at the node that leads" in answer.json["message"]


@pytest.mark.at_engine
async def test_a_download_needs_a_token_or_a_ticket(tmp_path):
    tokens = tmp_path / "tokens"
    mark = {"authorization": f"Bearer {add_token(tokens, 'eve', Role.VIEWER)}"}
    async with house(Writers(), options={"data_dir": tmp_path / "data"}, token_file=tokens) as home:
        path = f"/api/runs/{await written(home, 'a.bin')}/files/a.bin"
        assert (await home.http("GET", path)).status == 401
        assert (await home.http("GET", path, **mark)).body == CONTENT
        ticket = (await home.http("POST", "/api/tickets", **mark)).json["ticket"]
        assert (await home.http("GET", f"{path}?ticket={ticket}")).body == CONTENT
        assert (await home.http("GET", f"{path}?ticket={ticket}")).status == 401


@pytest.mark.at_engine
async def test_a_limited_token_reads_the_files_of_its_runs_only(tmp_path):
    tokens = tmp_path / "tokens"
    mark = {"authorization": f"Bearer {add_token(tokens, 'eve', Role.VIEWER, handles=['alice'])}"}
    async with house(Writers(), options={"data_dir": tmp_path / "data"}, token_file=tokens) as home:
        own = f"/api/runs/{await written(home, 'a.bin')}/files"
        foreign = f"/api/runs/{await written(home, 'a.bin', handle='bob')}/files"
        for path in ("", "/a.bin"):
            assert (await home.http("GET", f"{own}{path}", **mark)).status == 200
            assert (await home.http("GET", f"{foreign}{path}", **mark)).status == 404


@pytest.mark.at_engine
async def test_a_download_that_the_gateway_ends_does_not_look_complete(tmp_path):
    tokens = tmp_path / "tokens"
    secret = add_token(tokens, "eve", Role.VIEWER)
    async with house(Writers(), options={"data_dir": tmp_path / "data"}, token_file=tokens) as home:
        run = await written(home, "a.bin")
        file = tmp_path / "data" / "alice" / "a.bin"
        with file.open("ab") as more:
            more.truncate(64 << 20)  # more than fits into the buffers of the sockets
        raw = await home.raw()
        async with raw.stream:
            await raw.send(
                f"GET /api/runs/{run}/files/a.bin HTTP/1.1\r\nHost: localhost\r\n"
                f"Authorization: Bearer {secret}\r\n\r\n".encode()
            )
            received = await raw.stream.receive_some()
            assert received.startswith(b"HTTP/1.1 200 ")
            remove_token(tokens, "eve")
            home.gateway.reconfigure(home.gateway._shared.config)
            with trio.fail_after(30):
                while data := await raw.stream.receive_some():
                    received = (received + data)[-10:]
            assert not received.endswith(b"0\r\n\r\n")
