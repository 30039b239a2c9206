"""A client over HTTP that knows nothing of clusters: one request on one connection, without a request id."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from ..network import Line
from .node import SimulatedNode

_HEAD = "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {size}"


async def post(node: SimulatedNode, random: Random, path: str, body: object) -> tuple[int, Any]:
    """Send a request to a node. Returns the status and the body of the response; raises `OSError` if there
    is none."""
    line = Line(random, None, lambda: None)
    node.accept(line)
    try:
        payload = json.dumps(body).encode()
        head = _HEAD.format(path=path, size=len(payload))
        await line.near.send_all(f"{head}\r\nConnection: close\r\n\r\n".encode() + payload)
        received = b""
        while data := await line.near.receive_some():
            received += data
    finally:
        line.near.shut()
    response, separator, content = received.partition(b"\r\n\r\n")
    if not separator:
        raise ConnectionResetError("the node has closed the connection without a response")
    status = int(response.split()[1])
    if status == 503 and not content:  # the gateway is closing, and has not read the request
        return status, {}
    try:
        return status, json.loads(content)
    except ValueError:
        raise ConnectionResetError("the node has closed the connection within the response") from None
