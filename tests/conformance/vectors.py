"""The files with the vectors."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from greenroom.protocol.codec import JSON

FOLDER = Path(__file__).parents[2] / "docs" / "reference" / "conformance"
NAMES = sorted(file.stem for file in FOLDER.glob("*.json"))


@cache
def vector(name: str) -> dict[str, Any]:
    """One of them, as JSON values."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def as_json(value: Any) -> Any:
    """A value as it is sent in JSON."""
    return json.loads(JSON.encode(value))
