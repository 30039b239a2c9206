"""The wire of push workers: what is sent to them, and what their answers say."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from ...protocol.codec import misfit
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
    """The body and the headers of a call."""
    body = msgspec.json.encode({"input": work.input, "params": work.params})
    if len(body) > max_bytes:
        raise PushFailed(
            "too_large",
            f"input and params have {len(body):,} bytes as JSON, where {max_bytes:,} are sent: "
            "send less, or where it can be found",
        )
    return body, {"Idempotency-Key": quote(work.key, safe=":/@[]")}


def result(status: int, body: bytes, max_bytes: int) -> Any:
    """What a worker's answer brings. Raises `PushFailed` if that isn't a result."""
    if status != 200:
        moved = ", which is not followed" if 300 <= status < 400 else ""
        raise PushFailed("bad_status", f"it answered with status {status}{moved}{_excerpt(body)}")
    try:
        answer = _decoder.decode(body)
    except msgspec.ValidationError as error:
        reason = misfit(error, "all of it").message
        raise PushFailed("bad_answer", f'its answer is not {{"result", "error"}}: {reason}') from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise PushFailed("bad_json", f"its answer is no JSON: {error}{_excerpt(body)}") from None
    if answer.error:
        raise PushFailed("service_error", error_text(answer.error))
    if isinstance(answer.result, msgspec.UnsetType):
        if answer.error is None or isinstance(answer.error, msgspec.UnsetType):
            raise PushFailed("bad_answer", f'its answer has neither "result" nor "error"{_excerpt(body)}')
        return None
    return _value(answer.result, max_bytes)


def error_text(text: str) -> str:
    """What a service says about its failure, as it goes on."""
    sound = text.encode("utf-8", "replace").decode()
    return sound if len(sound) <= _MAX_ERROR else f"{sound[:_MAX_ERROR]}…"


def _value(raw: msgspec.Raw, max_bytes: int) -> Any:
    size = len(memoryview(raw))
    if size > max_bytes:  # not even looked at: a small text can stand for very many objects
        raise PushFailed("too_large", f"the result has {size:,} bytes, where {max_bytes:,} are allowed")
    try:
        return json_value(msgspec.json.decode(raw), "result", max_bytes)
    except TooLarge as error:
        raise PushFailed("too_large", error.message) from None
    except Invalid as error:
        raise PushFailed("bad_answer", error.message) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise PushFailed("bad_json", f"its result is no JSON: {error}") from None


def _excerpt(body: bytes) -> str:
    text = body[: 4 * _EXCERPT].decode("utf-8", "replace").strip()
    short = text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"
    return f": {shown(short)}" if short else ""
