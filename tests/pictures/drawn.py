"""All pictures that are drawn from the code, by the names of their files in `docs/pictures/`."""

from __future__ import annotations

import re
from pathlib import Path

from . import concepts, flows, states

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "pictures"
TUTORIAL = ROOT / "docs" / "tutorial" / "flows.md"


def pictures() -> dict[str, str]:
    """The name and the SVG of each."""
    blocks = re.findall(r"```yaml\n(start:.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)
    return {
        "handles.svg": concepts.handles(),
        "workers.svg": concepts.workers(),
        "states.svg": states.draw(),
        "flow.svg": flows.draw("order", blocks[-1]),
        **dict(flows.pictures()),
    }
