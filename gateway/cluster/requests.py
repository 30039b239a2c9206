"""Requests of followers' clients that the leader answers over HTTP's routes: the compatible API for tasks."""

from __future__ import annotations

from ...protocol.cluster import ForwardRequest
from ...protocol.errors import Forbidden, Invalid
from ..auth.tokens import Caller
from ..http.head import Request
from ..http.responses import Response
from ..http.routes import Call, find
from ..shared import Shared


def waits(message: ForwardRequest) -> bool:
    """Whether the answer to this request can take long."""
    methods = find(_request(message).segments)
    return message.method in methods and methods[message.method][0].waits


async def answer_request(shared: Shared, message: ForwardRequest, caller: Caller) -> Response:
    """Answer a request that a follower has forwarded. The follower has checked its form."""
    request = _request(message)
    methods = find(request.segments)
    if message.method not in methods:
        raise Invalid(f"method {message.method} not allowed for {message.path}")
    route, names = methods[message.method]
    if not route.permits(caller):
        raise Forbidden(f"requires the role {route.role}", role=caller.role)
    return await route.run(Call(shared, caller, request, names, message.body.encode()))


def _request(message: ForwardRequest) -> Request:
    headers = {"content-type": ["application/json"]}
    return Request(message.method, message.path, message.query, headers)
