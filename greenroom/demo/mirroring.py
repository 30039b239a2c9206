"""The demo's job: mirror an account's album, file by file, so that nothing of it is lost or half there.

It reads like a job of an application, and is one: the demo gives it nothing but the site's address.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
import trio

from ..actors.jobs import Jobs
from ..actors.run.api import Run

jobs = Jobs()


class Mirror(msgspec.Struct):
    """Where the account is."""

    site: str
    account: str


@jobs.job("mirror", resumable=True)
async def mirror(run: Run, params: Mirror) -> dict[str, int]:
    """Download every file of the album, beginning where the last checkpoint was."""
    album = json.loads(b"".join([chunk async for chunk in get(params.site, f"/{params.account}")]))
    total = sum(picture["size"] for picture in album)
    begin, done = run.checkpoint or (0, 0)
    files = 0
    for number, picture in enumerate(album[begin:], begin + 1):
        name = picture["name"]
        question = f"{name} is private: mirror it, too?"
        if picture["private"] and not await run.confirm(question, timeout=120, key=name):
            await run.log(f"{name} is left out")
            total -= picture["size"]
            continue
        await run.log(f"downloading {name}")
        async with (
            run.open_file(name, overwrite=True) as file,
            aclosing(get(params.site, f"/{params.account}/{name}")) as chunks,
        ):
            async for chunk in chunks:
                await file.write(chunk)
                done += len(chunk)
                await run.progress(done, total, files=number - 1)
        files += 1
        await run.save_checkpoint((number, done))
        await run.progress(done, total, files=number)
    return {"files": files, "bytes": done}


async def get(site: str, path: str) -> AsyncGenerator[bytes, None]:
    """The body of an HTTP answer, as it comes. Raises `OSError` unless all of it does."""
    host, _, port = site.removeprefix("http://").rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        received = b""
        while b"\r\n\r\n" not in received:
            received += await _some(stream, path)
        head, _, body = received.partition(b"\r\n\r\n")
        status, *headers = head.decode().split("\r\n")
        if status.split()[1] != "200":
            raise OSError(f"{site}{path}: {status}")
        left = int(dict(line.split(": ", 1) for line in headers)["Content-Length"])
        while left:
            chunk = body or await _some(stream, path)
            left -= len(chunk)
            body = b""
            yield chunk


async def _some(stream: trio.SocketStream, path: str) -> bytes:
    data: Any = await stream.receive_some()
    if not data:
        raise OSError(f"{path}: the site ended it too early")
    return bytes(data)
