"""`GET /api/runs/{id}/files/{path}`: the content of a finished file of a run, as a download.

The node that leads sends the files of its data folder; those in data folders of executors stay there.
Browsers never render a file: it is always an attachment.
"""

from __future__ import annotations

from urllib.parse import quote

import trio

from ...protocol.errors import NotFound
from ..auth.tokens import Caller
from ..shared import Shared
from .responses import Response, Write

_PIECE = 1 << 16


async def run_file(shared: Shared, caller: Caller, run_id: str, path: str) -> Response:
    """The response with a file. Raises `NotFound`."""
    if shared.router is not None and shared.router.engine is None:
        raise NotFound(
            "the files of runs are at the node that leads the cluster: download them from that node"
        )
    location = await shared.context(caller).engine.locate_file(run_id, path)

    async def stream(write: Write) -> None:
        try:
            async with await trio.open_file(location, "rb") as file:
                while piece := await file.read(_PIECE):
                    await write(piece)
        except OSError as error:  # the headers are sent, so only a lost connection tells the client
            raise trio.BrokenResourceError(f"cannot read {location}: {error.strerror}") from error

    name = quote(location.name, safe="")
    return Response(
        200,
        content_type="application/octet-stream",
        headers=(("Content-Disposition", f"attachment; filename*=UTF-8''{name}"),),
        stream=stream,
        must_complete=True,
    )
