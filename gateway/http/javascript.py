"""`GET /greenroom.js`: the JavaScript client, as it comes with this gateway, for pages to import.

Everyone may have it, since it is the same everywhere. A browser keeps it, and asks each time whether it is
still this one, so that after an upgrade no page goes on with the client of before.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from .head import Request
from .responses import Response

_TYPE = "text/javascript; charset=utf-8"


def module(request: Request) -> Response:
    """The module, or 304 for whoever has it already."""
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
