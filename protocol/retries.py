"""What a body raises to decide itself about further attempts: `Retry` and `Fail`."""

from __future__ import annotations

import math

from .errors import Invalid
from .validation import check_seconds
from .values import shown


class Retry(Exception):
    """Raised in a body: this attempt has failed, and the next one begins `after` seconds later.

    It takes precedence over the job's `backoff`, `retry_on` and `never_on`. If no attempts are left, the run
    fails.
    """

    def __init__(self, after: float) -> None:
        seconds = check_seconds("after", after, 0)
        if not math.isfinite(seconds):
            raise Invalid(f"after must be a finite number of seconds (got {shown(after)})")
        super().__init__(f"another attempt after {seconds:g} s")
        self.after = seconds


class Fail(Exception):
    """Raised in a body: the run fails with this message, and no further attempt is made."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
