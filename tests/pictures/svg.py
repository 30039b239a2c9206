"""A drawing as SVG: shapes in one plain style, on a background that is readable on any page.

The file loads no other files, and its colours follow the reader's light or dark mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Point = tuple[float, float]

_LIGHT = {
    "card": "#ffffff",
    "rim": "#d0d7de",
    "ink": "#1f2328",
    "faint": "#59636e",
    "plain": "#f6f8fa",
    "active": "#d8f3df",
    "active-rim": "#1a7f37",
    "wait": "#fff3d1",
    "wait-rim": "#9a6700",
    "work": "#dcebff",
    "work-rim": "#0969da",
    "bad": "#ffe4e1",
    "bad-rim": "#cf222e",
}
_DARK = {
    "card": "#15191f",
    "rim": "#3d444d",
    "ink": "#e6edf3",
    "faint": "#a3adb8",
    "plain": "#212830",
    "active": "#123d22",
    "active-rim": "#3fb950",
    "wait": "#41320b",
    "wait-rim": "#d29922",
    "work": "#12305c",
    "work-rim": "#58a6ff",
    "bad": "#4d1a1d",
    "bad-rim": "#f85149",
}


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


_STYLE = f"""
svg {{ {_variables(_LIGHT)} }}
@media (prefers-color-scheme: dark) {{ svg {{ {_variables(_DARK)} }} }}
text {{ font: 13px system-ui, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif; fill: var(--ink);
  text-anchor: middle; dominant-baseline: central; }}
.small {{ font-size: 11px; fill: var(--faint); }}
.strong {{ font-weight: 600; }}
.left {{ text-anchor: start; }}
.card {{ fill: var(--card); stroke: var(--rim); }}
.plain {{ fill: var(--plain); stroke: var(--faint); }}
.group {{ fill: none; stroke: var(--rim); stroke-dasharray: 4 3; }}
.active {{ fill: var(--active); stroke: var(--active-rim); }}
.wait {{ fill: var(--wait); stroke: var(--wait-rim); }}
.work {{ fill: var(--work); stroke: var(--work-rim); }}
.bad {{ fill: var(--bad); stroke: var(--bad-rim); }}
.empty {{ fill: none; stroke: var(--faint); stroke-dasharray: 3 3; }}
.line {{ fill: none; stroke: var(--faint); stroke-width: 1.4; }}
.head, .dot {{ fill: var(--faint); }}
.behind {{ fill: var(--card); }}
""".strip()


def width_of(text: str, size: float = 13) -> float:
    """The approximate width of a text, never too narrow."""
    return len(text) * size * 0.56


class Drawing:
    """Shapes, in the order in which they are drawn. `label` is the description for screen readers."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._parts: list[str] = []

    def box(
        self, x: float, y: float, width: float, height: float, kind: str = "plain", round: float = 6
    ) -> None:
        """A rectangle from its upper left corner."""
        self._parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round:g}"/>'
        )

    def polygon(self, points: Sequence[Point], kind: str = "plain") -> None:
        corners = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._parts.append(f'<polygon class="{kind}" points="{corners}"/>')

    def dot(self, x: float, y: float, radius: float, kind: str = "dot") -> None:
        self._parts.append(f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="{radius:g}"/>')

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        """A line of text around its centre, or from its left end if it is `left`."""
        shown = f' class="{kind}"' if kind else ""
        self._parts.append(f'<text{shown} x="{x:g}" y="{y:g}">{escape(text)}</text>')

    def note(self, x: float, y: float, text: str) -> None:
        """A small text that hides the line on which it is."""
        width = width_of(text, 11) + 6
        self.box(x - width / 2, y - 8, width, 16, "behind", round=2)
        self.text(x, y, text, "small")

    def arrow(self, *points: Point) -> None:
        """A line through the points, with a head at the last one."""
        self._line(" L ".join(f"{x:g} {y:g}" for x, y in points))

    def line(self, *points: Point) -> None:
        """The same without a head."""
        self._line(" L ".join(f"{x:g} {y:g}" for x, y in points), head=False)

    def curve(self, points: Sequence[Point]) -> None:
        """A line that leaves and reaches each point vertically, with a head at the last one."""
        (x, y), *rest = points
        path = f"{x:g} {y:g}"
        for to_x, to_y in rest:
            middle = (y + to_y) / 2
            path += f" C {x:g} {middle:g} {to_x:g} {middle:g} {to_x:g} {to_y:g}"
            x, y = to_x, to_y
        self._line(path)

    def _line(self, path: str, *, head: bool = True) -> None:
        marker = ' marker-end="url(#head)"' if head else ""
        self._parts.append(f'<path class="line"{marker} d="M {path}"/>')

    def svg(self, width: float, height: float) -> str:
        """The whole file, on a card of this size."""
        card = f'<rect class="card" x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="8"/>'
        head = (
            '<marker id="head" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path class="head" d="M 0 0.8 L 8 4 L 0 7.2 z"/></marker>'
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
                f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(self._label)}">',
                f"<style>\n{_STYLE}\n</style>",
                f"<defs>{head}</defs>",
                card,
                *self._parts,
                "</svg>\n",
            ]
        )
