"""`GET /greenroom.js`: the JavaScript client of this gateway's version, for pages to import.

It needs no token. A browser caches it and revalidates it each time, so that pages use the new client after an
upgrade.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from .head import Request
from .responses import Response

_TYPE = "text/javascript; charset=utf-8"


def module(request: Request) -> Response:
    """The module, or 304 if the client has it already."""
    source = _source()
    tag = f'"{hashlib.sha256(source).hexdigest()[:32]}"'
    headers = (("Cache-Control", "no-cache"), ("ETag", tag))
    known = {name.removeprefix("W/") for name in request.tokens("if-none-match")}
    if known & {tag, "*"}:
        return Response(304, headers=headers)
    return Response(200, source, _TYPE, headers)


@cache
def _source() -> bytes:
    return files("greenroom.gateway").joinpath("console", "greenroom.js").read_bytes()
