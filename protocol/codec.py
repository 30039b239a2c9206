"""The two forms in which everything goes over a wire: JSON as text, MessagePack as binary.

Gateway and clients agree on one of them by its WebSocket subprotocol, and then only `encode` and `decode`.
Whatever arrives is judged here first: `decode` gives a value of exactly the type asked for, or raises
`Invalid` that says where and why, and never anything else, whatever the bytes are. What is encoded must have
passed `values.json_value` where it came from outside: JSON would turn NaN into null without a word.
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
    """One of the forms. `binary` says which kind of WebSocket message carries it."""

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
        """A Struct or a JSON value as bytes."""
        self._decoder_of = decoder_of
        self._decoders: dict[Any, Callable[[Any], Any]] = {}

    def __repr__(self) -> str:
        return f"<Codec {self.subprotocol}>"

    @overload
    def decode(self, data: bytes | str, type: type[_T]) -> _T: ...

    @overload
    def decode(self, data: bytes | str, type: Any) -> Any: ...

    def decode(self, data: bytes | str, type: Any) -> Any:
        """The value of `type` that `data` holds, or `Invalid` with `path` in its details."""
        decode = self._decoders.get(type)
        if decode is None:
            decode = self._decoders[type] = self._decoder_of(type)
        if self.binary and isinstance(data, str):
            raise Invalid(f"{self.subprotocol} takes binary messages, and this one is text", path="")
        try:
            return decode(data)
        except msgspec.DecodeError as error:
            raise misfit(error, "message") from None
        except UnicodeError as error:
            raise Invalid(f"message: not UTF-8 ({error})", path="") from None
        except TypeError as error:  # msgspec before 0.22, of a map whose key is a map
            raise Invalid(f"message: a key is of a wrong type ({error})", path="") from None
        except RecursionError:
            raise Invalid("message: nested too deeply; make it flatter", path="") from None


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
"""What msgspec calls types, in the words of those who write JSON."""
_TYPES = re.compile(rf"\b({'|'.join(_IN_JSON)})\b")
_QUOTED = re.compile(r"(?<= )'(.*)'$", re.DOTALL)


def place_and_reason(error: Exception) -> tuple[str, str]:
    """What an error of msgspec says: the place, as in `.params.pages[3]` (empty for all of it), and why.

    The reason names types as JSON does where the words are msgspec's own; those of a class that was built
    stay. It is cut where it is long, since it may quote what somebody sent.
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
        reason = f"a key is wrong: {reason}"
    if len(reason) > _MAX_REASON:
        reason = reason[:_MAX_REASON] + "…"
    return place, reason


def misfit(error: Exception, whole: str) -> Invalid:
    """The refusal that an error of msgspec stands for; `whole` names the value if no part of it is wrong."""
    place, reason = place_and_reason(error)
    path = place.lstrip(".")
    return Invalid(f"{path or whole}: {reason}", path=path)


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
