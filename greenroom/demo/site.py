"""The HTTP server of the demo: albums of accounts, served slowly.

`GET /<account>` returns a JSON list of the album's files, `GET /<account>/<file>` one file. The content is
generated, and deterministic.
"""

from __future__ import annotations

import json
import random

import attrs
import trio

_CHUNK = 16_384
_PER_CHUNK = 0.045
"""Seconds per chunk, so that downloads are slow enough to watch."""

PRIVATE = "erin"
"""The account with a private picture."""


@attrs.frozen
class Picture:
    """A file of an album."""

    name: str
    size: int
    private: bool = False


def album(account: str) -> list[Picture]:
    """The files of an account."""
    lots = random.Random(account)
    pictures = [Picture(f"{number:02}.jpg", lots.randrange(200_000, 420_000)) for number in range(1, 8)]
    if account == PRIVATE:
        pictures[2] = attrs.evolve(pictures[2], private=True)
    return pictures


async def serve(stream: trio.SocketStream) -> None:
    """Answer one request, and close the connection."""
    try:
        request = b""
        while b"\r\n\r\n" not in request:
            received = await stream.receive_some()
            if not received:
                return
            request += received
        await _answer(stream, request.split()[1].decode())
    except trio.BrokenResourceError:
        return  # a run was cancelled, and its download with it


async def _answer(stream: trio.SocketStream, path: str) -> None:
    account, _, name = path.strip("/").partition("/")
    if not name:
        listing = json.dumps([attrs.asdict(picture) for picture in album(account)]).encode()
        await stream.send_all(_head(200, len(listing)) + listing)
        return
    sizes = {picture.name: picture.size for picture in album(account)}
    if name not in sizes:
        await stream.send_all(_head(404, 0))
        return
    await stream.send_all(_head(200, sizes[name]))
    lots = random.Random(path)
    left = sizes[name]
    while left:
        chunk = lots.randbytes(min(left, _CHUNK))
        await stream.send_all(chunk)
        left -= len(chunk)
        await trio.sleep(_PER_CHUNK)


def _head(status: int, length: int) -> bytes:
    return f"HTTP/1.0 {status} -\r\nContent-Length: {length}\r\n\r\n".encode()
