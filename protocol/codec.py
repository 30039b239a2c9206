"""The two codecs of the wire: JSON as text, MessagePack as binary.

Gateway and client select one of them by its WebSocket subprotocol. `decode` returns a value of exactly the
requested type, or raises `Invalid` with the path and the reason; it raises nothing else, for any input. A
value from outside must pass `values.json_value` before it is encoded: JSON would silently turn NaN into null.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

from .errors import Invalid
from .values import shown

_T = TypeVar("_T")


class Codec:
    """One codec. `binary`: whether its WebSocket messages are binary."""

    def __init__(
        self,
        name: str,
        *,
        binary: bool,
        encode: Callable[[Any], bytes],
        decoder_of: Callable[[Any], Callable[[Any], Any]],
    ) -> None:
        self.name = name
        self.subprotocol = f"greenroom.v1.{name}"
        self.binary = binary
        self.encode = encode
        """Encode a Struct or a JSON value as bytes."""
        self._decoder_of = decoder_of
        self._decoders: dict[Any, Callable[[Any], Any]] = {}

    def __repr__(self) -> str:
        return f"<Codec {self.subprotocol}>"

    @overload
    def decode(self, data: bytes | str, type: type[_T]) -> _T: ...

    @overload
    def decode(self, data: bytes | str, type: Any) -> Any: ...

    def decode(self, data: bytes | str, type: Any) -> Any:
        """Return the value of `type` in `data`. Raises `Invalid` with `path` in its details."""
        decode = self._decoders.get(type)
        if decode is None:
            decode = self._decoders[type] = self._decoder_of(type)
        if self.binary and isinstance(data, str):
            raise Invalid(f"{self.subprotocol} requires binary messages (got a text message)", path="")
        try:
            return decode(data)
        except msgspec.DecodeError as error:
            raise misfit(error, "message") from None
        except UnicodeError as error:
            raise Invalid(f"message: invalid UTF-8 ({error})", path="") from None
        except TypeError as error:  # msgspec before 0.22, for a map whose key is a map
            raise Invalid(f"message: a key has the wrong type ({error})", path="") from None
        except RecursionError:
            raise Invalid("message: nested too deeply; reduce the nesting", path="") from None


_PLACE = re.compile(r"(.*) - at (`key` in )?`\$(.*)`", re.DOTALL)
_MAX_REASON = 300
_OWN_WORDS = ("Expected ", "Invalid ", "Object ", "Input ", "Integer ", "Number ")
_IN_JSON = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "None": "null",
    "bytes": "binary",
}
"""JSON's names for the types in msgspec's messages."""
_TYPES = re.compile(rf"\b({'|'.join(_IN_JSON)})\b")
_QUOTED = re.compile(r"(?<= )'(.*)'$", re.DOTALL)


def place_and_reason(error: Exception) -> tuple[str, str]:
    """Return the place that an error of msgspec names, as in `.params.pages[3]` (empty for the whole), and
    the reason.

    In msgspec's own messages, Python's names of types are replaced by JSON's; a message that a class raised
    stays as it is. A long reason is shortened, because it can quote input.
    """
    text = str(error)
    match = _PLACE.fullmatch(text)
    reason, in_key, place = match.groups() if match else (text, None, "")
    if reason.startswith(_OWN_WORDS):
        reason = _QUOTED.sub(lambda found: shown(found[1]), reason[0].lower() + reason[1:]).replace("`", "")
        if reason.startswith("expected "):
            reason = _TYPES.sub(lambda found: _IN_JSON[found[0]], reason)
        reason = reason.replace('string matching regex "^none$"', '"none"')
    if in_key:
        reason = f"a key is invalid: {reason}"
    if len(reason) > _MAX_REASON:
        reason = reason[:_MAX_REASON] + "…"
    return place, reason


def misfit(error: Exception, whole: str) -> Invalid:
    """Return `Invalid` for an error of msgspec; `whole` names the value if the error names no part of it."""
    place, reason = place_and_reason(error)
    path = place.lstrip(".")
    return Invalid(f"{path or whole}: {reason}", path=path)


def json_fault(error: Exception) -> str:
    """Return what is wrong with a text, for a message that already says that it is not valid JSON."""
    reason = str(error).removeprefix("JSON is malformed: ")
    return "unexpected end of input" if reason == "Input data was truncated" else reason


JSON = Codec(
    "json",
    binary=False,
    encode=msgspec.json.Encoder().encode,
    decoder_of=lambda type: msgspec.json.Decoder(type).decode,
)
MSGPACK = Codec(
    "msgpack",
    binary=True,
    encode=msgspec.msgpack.Encoder().encode,
    decoder_of=lambda type: msgspec.msgpack.Decoder(type).decode,
)
CODECS: dict[str, Codec] = {codec.subprotocol: codec for codec in (JSON, MSGPACK)}
