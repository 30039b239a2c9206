"""The pictures of a terminal in the documentation: what commands really show.

`python -m tests.cli.picture`, in a terminal of 108 columns, takes `demo.svg`, the screen of `greenroom demo`
while an interrupt is open, and `flow-watch.svg`, the screen of `greenroom flow run everything --watch` while
the flow waits for a signal.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trio
from rich.console import Console, RenderableType

from greenroom import connect
from greenroom.commands.flow.runs import tree_of
from greenroom.demo import scenario
from greenroom.demo.display import Display
from greenroom.protocol.events import InterruptOpened, RunStateChanged
from greenroom.protocol.records import Snapshot
from greenroom.protocol.states import ENDED

from .served import Served, Worker

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
FLOWS = ROOT / "tests" / "examples" / "flows"

_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""They would be fetched from elsewhere; the reader's own do as well."""


def photograph(shown: RenderableType, name: str, title: str, width: int) -> None:
    """Write what a terminal would show as `name`.svg."""
    camera = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    camera.print(shown)
    picture = camera.export_svg(title=title, unique_id=name)
    (PICTURES / f"{name}.svg").write_text(_FONTS.sub("", picture), encoding="utf-8")


class Photographed(Display):
    """A display that is saved when erin has opened an interrupt and dave has made some progress."""

    taken = False

    def draw(self, state: Snapshot, height: int) -> Any:
        drawn = super().draw(state, height)
        done = {run.handle: (run.progress or {}).get("done") or 0 for run in state.runs.values()}
        if not self.taken and state.interrupts and done["dave"] > 1_000_000:
            self.taken = True
            photograph(drawn, "demo", "greenroom demo", 108)
        return drawn


async def watch_flow(url: str) -> None:
    """Run the flow with all kinds of nodes until it waits for its signal."""
    async with connect(url) as client:
        for name in ("timer.json", "everything.yaml"):
            await client.flows.publish(Path(name).stem, (FLOWS / name).read_text(encoding="utf-8"))
        begin = client.state.seq
        params = {"prices": [10, 20], "address": "Main Street 1", "note": "left at the door"}
        ticket = await client.flows.start("everything", handle="alice", params=params)
        tree = await tree_of(client, ticket.id)
        async for event in client.events(after=begin, filter={"runs": [ticket.id]}):
            assert not isinstance(event, Snapshot), "too many events for this picture"
            tree.handle_event(event)
            if isinstance(event, InterruptOpened):
                await client.answer(event.interrupt, True)
            if isinstance(event, RunStateChanged):
                assert event.to not in ENDED, event
                if event.waiting_for == "signal":
                    break
        shown = tree.draw(await client.get_run(ticket.id), 40)
        photograph(shown, "flow-watch", "greenroom flow run everything --watch", 88)


def main() -> None:
    scenario.Display = Photographed  # type: ignore[misc]
    with TemporaryDirectory(prefix="greenroom-demo-") as folder:
        trio.run(lambda: scenario.play(Path(folder), once=True))
    with TemporaryDirectory(prefix="greenroom-flow-") as name:
        place = Path(name)
        app = (FLOWS / "functions.py").read_text(encoding="utf-8")
        with (
            Served(place, app=app) as server,
            Worker(place, server.url, "--id", "push"),
            Worker(place, server.url, "--id", "pull", "--queue"),
        ):
            trio.run(watch_flow, server.url)


if __name__ == "__main__":
    main()
