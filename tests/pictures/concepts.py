"""Two diagrams: the path of a run to a slot, and how workers receive their work."""

from __future__ import annotations

from .svg import Drawing


def handles() -> str:
    """Handle, lane, slot."""
    drawing = Drawing(
        "Runs of a handle execute one at a time. The next run of each handle waits in its lane, and the "
        "engine grants slots first in, first out, within the limits of the lanes and the global limit."
    )
    for x, title, note in (
        (120, "Handles", "one run at a time for each"),
        (385, "Lanes", "first in, first out, each with a limit"),
        (640, "Slots", "the global limit, here 3"),
    ):
        drawing.text(x, 28, title, "strong")
        drawing.text(x, 48, note, "small")
    _handle(drawing, 70, "alice", [("run 1", "active"), ("run 5", "plain"), ("run 6", "plain")])
    _handle(drawing, 140, "bob", [("run 2", "active")])
    _handle(drawing, 210, "carol", [("run 3", "plain")])
    _handle(drawing, 280, "dave", [("run 4", "plain")])
    _lane(drawing, 75, "main: no limit", [])
    _lane(drawing, 205, "images: limit 1, used by run 2", ["run 3", "run 4"])
    for y, lane in ((98, 113), (168, 233), (238, 243), (308, 253)):
        drawing.arrow((236, y), (283, lane))
    for y, run in ((90, "run 1"), (160, "run 2")):
        drawing.box(580, y, 120, 44, "active")
        drawing.text(640, y + 15, run, "strong")
        drawing.text(640, y + 31, "its body executes", "small")
    drawing.box(580, 230, 120, 44, "empty")
    drawing.text(640, 252, "free", "small")
    drawing.arrow((487, 113), (578, 112))
    drawing.arrow((487, 243), (578, 182))
    drawing.box(20, 358, 700, 40)
    drawing.text(
        370, 378, "Every change is committed to the store, and then shown as the next numbered event."
    )
    return drawing.svg(740, 418)


def _handle(drawing: Drawing, y: float, name: str, runs: list[tuple[str, str]]) -> None:
    drawing.box(20, y, 216, 56, "group")
    drawing.text(30, y + 13, name, "small left")
    for number, (run, kind) in enumerate(runs):
        drawing.box(28 + 68 * number, y + 24, 60, 24, kind)
        drawing.text(58 + 68 * number, y + 36, run)


def _lane(drawing: Drawing, y: float, title: str, runs: list[str]) -> None:
    drawing.box(285, y, 202, 76, "group")
    drawing.text(295, y + 15, title, "small left")
    for number, run in enumerate(runs):
        drawing.box(297 + 68 * number, y + 32, 60, 28, "wait")
        drawing.text(327 + 68 * number, y + 46, run)


def workers() -> str:
    """A push worker and a pull worker."""
    drawing = Drawing(
        "A push worker is an HTTP server, which Greenroom calls. A pull worker polls a queue and completes "
        "the work, so it needs no address of its own."
    )
    for x, title in ((125, "Push worker"), (370, "Greenroom"), (615, "Pull worker")):
        drawing.box(x - 90, 20, 180, 36, "work" if title != "Greenroom" else "plain")
        drawing.text(x, 38, title, "strong")
        drawing.line((x, 56), (x, 306))
    _message(drawing, 88, 125, 370, "register (its URL, its services)")
    _message(drawing, 88, 615, 370, "register (its services)")
    _message(drawing, 138, 370, 125, "POST <url>/exec/<service>")
    _message(drawing, 138, 615, 370, "poll, for at most 25 s")
    _message(drawing, 188, 125, 370, "200 with the result or the error")
    _message(drawing, 188, 370, 615, "an item of work")
    _message(drawing, 238, 125, 370, "heartbeat")
    _message(drawing, 238, 615, 370, "complete, with the result or the error")
    _message(drawing, 282, 615, 370, "heartbeat")
    return drawing.svg(740, 326)


def _message(drawing: Drawing, y: float, from_: float, to: float, text: str) -> None:
    side = 3 if to > from_ else -3
    drawing.arrow((from_, y), (to - side, y))
    drawing.note((from_ + to) / 2, y - 12, text)
