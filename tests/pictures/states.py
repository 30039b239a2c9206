"""The statuses of a run, drawn from the table in `protocol/states.py`."""

from __future__ import annotations

from greenroom.protocol.states import ENDED, TRANSITIONS, Body, Source, Status, Transition

from .svg import Drawing

_WIDTH, _HEIGHT = 120, 44
_PENDING = {
    Status.QUEUED: (40.0, 80.0),
    Status.RUNNING: (500.0, 80.0),
    Status.SUSPENDED: (500.0, 220.0),
    Status.CANCELLING: (40.0, 220.0),
}
"""The upper left corners of the statuses of a pending run."""

_COLOURS = {
    Status.RUNNING: "active",
    Status.SUSPENDED: "wait",
    Status.CANCELLING: "bad",
    Status.SUCCEEDED: "active",
}


def draw() -> str:
    """Transitions between pending statuses are arrows; each final status lists the statuses before it."""
    drawing = Drawing("The statuses of a run and the transitions between them, as in the table on this page")
    drawing.box(20, 20, 680, 266, "group")
    drawing.text(360, 38, "pending", "strong")
    drawing.arrow((100, 52), (100, 78))
    drawing.dot(100, 48, 5)
    for row in TRANSITIONS:
        if row.to not in ENDED:
            for source in row.sources:
                _draw_arrow(drawing, source, row)
    for status, (x, y) in _PENDING.items():
        _draw_status(drawing, status, x, y)
    drawing.arrow((360, 286), (360, 318))
    drawing.box(20, 320, 680, 306, "group")
    drawing.text(360, 338, "ended", "strong")
    for number, row in enumerate(row for row in TRANSITIONS if row.to in ENDED):
        y = 356 + 52 * number
        _draw_status(drawing, row.to, 40, y)
        drawing.text(176, y + 13, f"from {', '.join(map(_named, row.sources))}", "left")
        drawing.text(176, y + 32, row.decided_by, "small left")
    return drawing.svg(720, 646)


def _named(source: Source) -> str:
    return source.status if source.body == Body.ANY else f"{source.status} {source.body}"


def _draw_status(drawing: Drawing, status: Status, x: float, y: float) -> None:
    drawing.box(x, y, _WIDTH, _HEIGHT, _COLOURS.get(status, "plain"))
    drawing.text(x + _WIDTH / 2, y + _HEIGHT / 2, status, "strong")


def _draw_arrow(drawing: Drawing, source: Source, row: Transition) -> None:
    """Horizontal, vertical, or diagonal; a transition and its reverse are drawn side by side."""
    (x, y), (to_x, to_y) = _PENDING[source.status], _PENDING[row.to]
    if y == to_y:
        begin, end = (x + _WIDTH, to_x) if to_x > x else (x, to_x + _WIDTH)
        drawing.arrow((begin, y + _HEIGHT / 2), (end, y + _HEIGHT / 2))
        drawing.note((begin + end) / 2, y + _HEIGHT / 2, _labelled(source, row))
    elif x == to_x:
        down = to_y > y
        column = x + _WIDTH / 2 + (-40 if down else 40)
        begin, end = (y + _HEIGHT, to_y) if down else (y, to_y + _HEIGHT)
        drawing.arrow((column, begin), (column, end))
        drawing.note(column, (begin + end) / 2 + (-16 if down else 16), _labelled(source, row))
    else:
        drawing.arrow((x, y + _HEIGHT), (to_x + _WIDTH, to_y))
        drawing.note((x + to_x + _WIDTH) / 2, (y + to_y + _HEIGHT) / 2, _labelled(source, row))


def _labelled(source: Source, row: Transition) -> str:
    return row.decided_by if source.body == Body.ANY else f"{row.decided_by} ({source.body})"
