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
    methods, _ = find(_request(message).segments)
    route = methods.get(message.method)
    return route is not None and route.waits


async def answer_request(shared: Shared, message: ForwardRequest, caller: Caller) -> Response:
    """Answer a request that a follower has forwarded. The follower has checked its form."""
    request = _request(message)
    methods, names = find(request.segments)
    route = methods.get(message.method)
    if route is None:
        raise Invalid(f"method {message.method} not allowed for {message.path}")
    if not route.permits(caller):
        raise Forbidden(f"requires the role {route.role}", role=caller.role)
    return await route.run(Call(shared, caller, request, names, message.body.encode()))


def _request(message: ForwardRequest) -> Request:
    headers = {"content-type": ["application/json"]}
    return Request(message.method, message.path, message.query, headers)
