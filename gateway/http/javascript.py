"""`GET /greenroom.js` and `GET /greenroom.d.ts`: the JavaScript client of this version, and its types.

They need no token, since they are the same everywhere. A browser caches the module and checks each time
whether it is current, so that after an upgrade no page keeps the old client.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from .head import Request
from .responses import Response

_TYPES = {
    "greenroom.js": "text/javascript; charset=utf-8",
    "greenroom.d.ts": "application/typescript; charset=utf-8",
}
FILES = tuple(_TYPES)


def client_file(request: Request, name: str) -> Response:
    """The file, or 304 for a client that has it already."""
    source = _source(name)
    tag = f'"{hashlib.sha256(source).hexdigest()[:32]}"'
    headers = (("Cache-Control", "no-cache"), ("ETag", tag))
    known = {name.removeprefix("W/") for name in request.tokens("if-none-match")}
    if known & {tag, "*"}:
        return Response(304, headers=headers)
    return Response(200, source, _TYPES[name], headers)


@cache
def _source(name: str) -> bytes:
    return files("greenroom.gateway").joinpath("console", name).read_bytes()
