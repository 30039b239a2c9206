"""Decode commands. An error names the unknown command or field, and the known one that is most similar."""

from __future__ import annotations

import re
from typing import Any, get_args

import msgspec

from .codec import Codec
from .commandbase import CommandBase
from .commands import Command
from .errors import Invalid
from .suggestions import similar, suggestion
from .values import shown

_UNKNOWN_FIELD = re.compile(r"object contains unknown field (.*)$", re.DOTALL)
_KINDS: dict[str, type[CommandBase]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Command)}


class _Typed(msgspec.Struct):
    type: str


def decode_command(codec: Codec, message: bytes | str) -> Command:
    """Return the command in a message. Raises `Invalid` with `path` in its details."""
    try:
        command: Command = codec.decode(message, Command)
        return command
    except Invalid as error:
        raise _explained(codec, message, error) from None


def _explained(codec: Codec, message: bytes | str, error: Invalid) -> Invalid:
    try:
        name = codec.decode(message, _Typed).type
    except Invalid:
        return error
    if name not in _KINDS:
        hint = similar(name, _KINDS)
        return Invalid(f"unknown command {shown(name)}{hint}", path="type")
    return with_known_fields(error, _KINDS[name])


def with_known_fields(error: Invalid, kind: type[msgspec.Struct]) -> Invalid:
    """Return an error of decoding a `kind`; one about an unknown field with the most similar known field."""
    unknown = _UNKNOWN_FIELD.search(error.message)
    within = _struct_at(kind, error.details.get("path", ""))
    if unknown is None or within is None:
        return error
    known = [name for name in (field.encode_name for field in msgspec.structs.fields(within)) if name != "id"]
    if not known:
        return error
    return Invalid(error.message + suggestion(unknown[1], known), **error.details)


def _struct_at(kind: Any, path: str) -> type[msgspec.Struct] | None:
    """The class of the part of a `kind` at a path, if it is a class with fields."""
    for part in path.split(".") if path else ():
        name = part.partition("[")[0]
        types = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        kind = next((one for one in _options(types.get(name)) if _is_struct(one)), None)
        if kind is None:
            return None
    found: type[msgspec.Struct] = kind
    return found


def _options(kind: Any) -> tuple[Any, ...]:
    return (kind, *get_args(kind))


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
