"""The picture in the README: the screen of a real `greenroom demo` while an interrupt is open.

`python -m tests.cli.picture` draws `docs/pictures/demo.svg` again.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trio
from rich.console import Console

from greenroom.demo import scenario
from greenroom.demo.display import Display
from greenroom.protocol.records import Snapshot

PICTURE = Path(__file__).resolve().parent.parent.parent / "docs" / "pictures" / "demo.svg"

_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""They would be fetched from elsewhere; the reader's own do as well."""


class Photographed(Display):
    """A display that is saved when erin has opened an interrupt and dave has made some progress."""

    taken = False

    def draw(self, state: Snapshot, height: int) -> Any:
        drawn = super().draw(state, height)
        done = {run.handle: (run.progress or {}).get("done") or 0 for run in state.runs.values()}
        if not self.taken and state.interrupts and done["dave"] > 1_000_000:
            self.taken = True
            camera = Console(record=True, width=108, file=io.StringIO(), force_terminal=True)
            camera.print(drawn)
            picture = camera.export_svg(title="greenroom demo", unique_id="demo")
            PICTURE.write_text(_FONTS.sub("", picture), encoding="utf-8")
        return drawn


def main() -> None:
    scenario.Display = Photographed  # type: ignore[misc]
    with TemporaryDirectory(prefix="greenroom-demo-") as folder:
        trio.run(lambda: scenario.play(Path(folder), once=True))


if __name__ == "__main__":
    main()
