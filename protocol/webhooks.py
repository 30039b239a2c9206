"""Webhooks: the delivery of a run's events to a receiver, as data and decisions.

A receiver gets the events of a run in order, each at least once: the next one is sent after the one before it
was delivered. A delivery that fails is repeated with growing pauses, for a day; then the webhook is dead, and
nothing is sent until it is redelivered. Each request is signed with the engine's secret.
"""

from __future__ import annotations

import hmac
import re
from hashlib import blake2b, sha256
from urllib.parse import urlsplit

import msgspec

from .errors import Invalid
from .values import shown

GIVE_UP_AFTER = 86_400.0
"""Seconds for which failed deliveries of an event are repeated."""

LONGEST_PAUSE = 3600.0
"""Seconds between two attempts, at most. An attempt is never due later than this from now, except after the
clock was set back."""

SETTLING_TIME = 3600.0
"""Seconds for which the engine must have attempted deliveries without an interruption before a webhook can be
dead: a receiver may need a while after the machine was down."""

_FIRST_PAUSE = 5.0
_SHORTEST_SECRET = 16
_REMEDY = 'create one with "openssl rand -hex 32"'

TIMESTAMP = "Greenroom-Timestamp"
SIGNATURE = "Greenroom-Signature"
DELIVERY = "Greenroom-Delivery"


_ID = re.compile(r"[0-9a-f]{32}")


class Webhook(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The delivery of one run's events to one URL.

    `delivered` is the seq up to which it is complete. `attempts` are the failed ones of the next event, since
    `failing_since`, `error` is the last failure, and `next_at` is when the next attempt is due. `dead_at` is
    when the engine gave up.
    """

    id: str
    run: str
    url: str
    types: tuple[str, ...]
    delivered: int = 0
    attempts: int = 0
    failing_since: float | None = None
    error: str | None = None
    next_at: float | None = None
    dead_at: float | None = None


class Failure(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a failed attempt: the failed attempts so far, since when, and when the next one is due;
    `None` if the webhook is dead."""

    attempts: int
    since: float
    next_at: float | None


def webhook_id(run: str, url: str) -> str:
    """Return the id of the webhook of a run for a URL."""
    return blake2b(f"{run}\0{url}".encode(), digest_size=16).hexdigest()


def receiver_of(url: str) -> str:
    """Return the key of the receiver: the scheme, host and port of the URL."""
    parts = urlsplit(url)
    return blake2b(f"{parts.scheme}://{parts.netloc}".lower().encode(), digest_size=16).hexdigest()


def after_failure(webhook: Webhook, now: float, random: float, uninterrupted: float) -> Failure:
    """Decide when to try again; `random` is between 0 and 1. `uninterrupted` are the seconds since the engine
    started, or its clock was set."""
    since = now if webhook.failing_since is None else min(webhook.failing_since, now)
    if now - since >= GIVE_UP_AFTER and uninterrupted >= SETTLING_TIME:
        return Failure(webhook.attempts + 1, since, None)
    pause = min(LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(webhook.attempts, 30)) * (1 + random) / 2
    return Failure(webhook.attempts + 1, since, now + pause)


def check_secret(secret: object) -> bytes | None:
    """Return the secret as bytes. Raises `Invalid`, without showing it."""
    if secret is None:
        return None
    length = len(secret.strip()) if isinstance(secret, str) else 0
    if not isinstance(secret, str) or length < _SHORTEST_SECRET:
        what = f"{length} characters" if isinstance(secret, str) else "another type"
        raise Invalid(
            f"webhook_secret must be a string of at least {_SHORTEST_SECRET} characters (got {what}): "
            f"{_REMEDY}"
        )
    try:
        return secret.encode()
    except UnicodeEncodeError:
        raise Invalid(f"webhook_secret must be text in UTF-8: {_REMEDY}") from None


def check_webhook_id(id: object, what: str = "webhook_id") -> str:
    """Check the id of a webhook. Raises `Invalid`."""
    if not isinstance(id, str) or _ID.fullmatch(id) is None:
        raise Invalid(
            f"{what} must be the id of a webhook, which has 32 hexadecimal digits (got {shown(id)})",
            value=shown(id),
        )
    return id


def headers(secret: bytes, epoch: str, seq: int, now: float, body: bytes) -> dict[str, str]:
    """Return the headers of a delivery: its time, its signature, and the id by which a receiver can tell
    that it got an event twice."""
    timestamp = str(int(now))
    signed = hmac.new(secret, timestamp.encode() + b"." + body, sha256).hexdigest()
    return {TIMESTAMP: timestamp, SIGNATURE: f"v1={signed}", DELIVERY: f"{epoch}:{seq}"}
