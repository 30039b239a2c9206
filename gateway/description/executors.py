"""The protocol of executors as an AsyncAPI document, generated from `protocol.executors`."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from ...protocol import executors as wire
from .schemas import Json, asyncapi_head, message, named_discriminators, schemas, tag

_NAMES: dict[type[msgspec.Struct], str] = {
    wire.ExecutorFrame: "frame_of_executor",
    wire.EngineFrame: "frame_of_engine",
}
"""The names of messages whose `type` is not unique."""


def executor_asyncapi(*, version: str, license: str) -> Json:
    """The WebSocket protocol of executors, as AsyncAPI 3, from the executor's point of view."""
    sent, received = get_args(wire.ExecutorSends), get_args(wire.EngineSends)
    return {
        **asyncapi_head(
            "Greenroom executors",
            version,
            license,
            "The messages between an executor, a process that executes bodies, and a "
            "Greenroom gateway over a WebSocket. They are explained in docs/reference/executor-protocol.md.",
        ),
        "channels": {
            "executor": {
                "address": wire.PATH,
                "messages": {
                    _name(kind): {"$ref": f"#/components/messages/{_name(kind)}"} for kind in sent + received
                },
                "bindings": {
                    "ws": {
                        "method": "GET",
                        "headers": {
                            "type": "object",
                            "properties": {
                                "Sec-WebSocket-Protocol": {"type": "string", "enum": [wire.SUBPROTOCOL]}
                            },
                        },
                    }
                },
            }
        },
        "operations": {
            "attach": _send(wire.Attach, wire.Attached, wire.Refused),
            "beat": _send(wire.Beat, wire.Beaten),
            "report": _send(wire.ExecutorFrame),
            "receive": {
                "action": "receive",
                "channel": {"$ref": "#/channels/executor"},
                "summary": "What the engine sends to an attached executor.",
                "messages": [_in_channel(wire.EngineFrame)],
            },
        },
        "components": {
            "messages": {_name(kind): {**message(kind), "name": _name(kind)} for kind in sent + received},
            "schemas": named_discriminators(schemas([*sent, *received])),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _send(kind: type[msgspec.Struct], *replies: type[msgspec.Struct]) -> Json:
    operation: dict[str, Any] = {
        "action": "send",
        "channel": {"$ref": "#/channels/executor"},
        "messages": [_in_channel(kind)],
    }
    if replies:
        operation["reply"] = {
            "channel": {"$ref": "#/channels/executor"},
            "messages": [_in_channel(reply) for reply in replies],
        }
    return operation


def _in_channel(kind: type[msgspec.Struct]) -> Json:
    return {"$ref": f"#/channels/executor/messages/{_name(kind)}"}


def _name(kind: type[msgspec.Struct]) -> str:
    return _NAMES.get(kind) or tag(kind)
