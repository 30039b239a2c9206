"""The secret with which webhooks are signed: in the setting itself, or in a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
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
    if len(secret.splitlines()) > 1:
        lines = len(secret.splitlines())
        raise Invalid(f"engine.webhook_secret_file {shown(file)} must contain one line (got {lines})")
    try:
        check_secret(secret)
    except Invalid as error:
        text = error.message.removeprefix("webhook_secret ")
        raise Invalid(f"engine.webhook_secret_file {shown(file)} {text}") from None
    return secret


def webhook_risks(config: EngineConfig) -> Iterator[str]:
    """Warnings about a valid secret that others can read."""
    file = config.webhook_secret_file
    mode = 0 if file is None else mode_for_others(file)
    if mode:
        yield (
            f"engine.webhook_secret_file {shown(file)} is accessible to other users (mode {mode:04o}), and "
            f"every user that has the secret can forge webhooks: run `chmod 600 {file}`"
        )


def mode_for_others(file: str) -> int:
    """The mode of a file that users other than its owner can read or write; 0 for any other file."""
    mode = Path(file).stat().st_mode
    return mode & 0o777 if os.name == "posix" and mode & 0o066 else 0
