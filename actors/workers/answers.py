"""The wire format of push workers: the request, and the parsing of the response."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from ...protocol.codec import json_fault, misfit
from ...protocol.errors import Invalid, TooLarge
from ...protocol.values import json_value, shown
from .push import PushFailed
from .states import Work

_MAX_ERROR = 2000
_EXCERPT = 200


class _Answer(msgspec.Struct):
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType | None = msgspec.UNSET


_decoder = msgspec.json.Decoder(_Answer)


def request(work: Work, max_bytes: int) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a request. Raises `PushFailed` if the body is too large."""
    body = msgspec.json.encode({"input": work.input, "params": work.params})
    if len(body) > max_bytes:
        raise PushFailed(
            "too_large",
            f"input and params have {len(body):,} bytes as JSON, more than the {max_bytes:,} allowed: "
            "send less, or a reference to the data",
        )
    return body, {"Idempotency-Key": quote(work.key, safe=":/@[]")}


def result(status: int, body: bytes, max_bytes: int) -> Any:
    """The result in a worker's response. Raises `PushFailed` if the response contains none."""
    if status != 200:
        moved = "; redirects are not followed" if 300 <= status < 400 else ""
        raise PushFailed("bad_status", f"responded with status {status}{moved}{_excerpt(body)}")
    try:
        answer = _decoder.decode(body)
    except msgspec.ValidationError as error:
        reason = misfit(error, "the response").message
        raise PushFailed("bad_answer", f'the response is not {{"result", "error"}}: {reason}') from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise PushFailed(
            "bad_json", f"the response is not valid JSON: {json_fault(error)}{_excerpt(body)}"
        ) from None
    if answer.error:
        raise PushFailed("service_error", error_text(answer.error))
    if isinstance(answer.result, msgspec.UnsetType):
        if answer.error is None or isinstance(answer.error, msgspec.UnsetType):
            raise PushFailed("bad_answer", f'the response has neither "result" nor "error"{_excerpt(body)}')
        return None
    return _value(answer.result, max_bytes)


def error_text(text: str) -> str:
    """A service's error message as valid UTF-8, shortened if it is long."""
    sound = text.encode("utf-8", "replace").decode()
    return sound if len(sound) <= _MAX_ERROR else f"{sound[:_MAX_ERROR]}…"


def _value(raw: msgspec.Raw, max_bytes: int) -> Any:
    size = len(memoryview(raw))
    if size > max_bytes:  # not decoded: a short JSON text can contain a very large number of objects
        raise PushFailed("too_large", f"the result has {size:,} bytes, more than the {max_bytes:,} allowed")
    try:
        return json_value(msgspec.json.decode(raw), "result", max_bytes)
    except TooLarge as error:
        raise PushFailed("too_large", error.message) from None
    except Invalid as error:
        raise PushFailed("bad_answer", error.message) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise PushFailed("bad_json", f"the result is not valid JSON: {json_fault(error)}") from None


def _excerpt(body: bytes) -> str:
    text = body[: 4 * _EXCERPT].decode("utf-8", "replace").strip()
    short = text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"
    return f": {shown(short)}" if short else ""
