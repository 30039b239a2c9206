"""The secret with which webhooks are signed: in the setting itself, or in a file."""

from __future__ import annotations

from pathlib import Path

from ..protocol.errors import Invalid
from ..protocol.values import shown
from ..protocol.webhooks import check_secret
from .settings import EngineConfig


def webhook_secret(config: EngineConfig) -> str | None:
    """Return the secret; `None` if there is none. Raises `Invalid`."""
    file = config.webhook_secret_file
    if file is None:
        return config.webhook_secret
    if config.webhook_secret is not None:
        raise Invalid("engine.webhook_secret_file cannot be combined with webhook_secret: remove one of them")
    try:
        secret = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Invalid(f"engine.webhook_secret_file cannot be read (got {shown(file)}): {why}") from None
    try:
        check_secret(secret)
    except Invalid as error:
        text = error.message.removeprefix("webhook_secret ")
        raise Invalid(f"engine.webhook_secret_file {shown(file)} {text}") from None
    return secret
