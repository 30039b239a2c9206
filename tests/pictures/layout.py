"""Where the nodes of a directed graph are drawn: in layers from top to bottom, with few crossing edges.

The steps of layered graph drawing: edges that lead back are reversed; each node is in a layer below its
predecessors; long edges get a place in each layer that they pass; the nodes of a layer are sorted by the
average position of their neighbours, and then moved as near to that position as possible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import attrs

Edge = tuple[str, str]
Key = str | tuple[int, int]
"""A node, or the place that an edge (its number) has in a layer that it passes."""

GAP_X = 28
GAP_Y = 54
_PASSING = 26.0
"""The width of an edge that passes a layer."""


@attrs.frozen
class Layout:
    """The centre of each node, the points of each edge from start to end, and the size of the drawing."""

    centres: dict[str, tuple[float, float]]
    routes: list[list[tuple[float, float]]]
    width: float
    height: float


def lay_out(sizes: dict[str, tuple[float, float]], edges: Sequence[Edge]) -> Layout:
    """Place nodes of these sizes. The first one is the top; edges from a node to itself are not possible."""
    turned = _leading_back(list(sizes), edges)
    layers, chains = _layered(
        list(sizes), [(to, from_) if (from_, to) in turned else (from_, to) for from_, to in edges]
    )
    links = [link for chain in chains for link in pairwise(chain)]
    _sort(layers, links)

    def size(key: Key) -> tuple[float, float]:
        return sizes[key] if isinstance(key, str) else (_PASSING, 0.0)

    x = _columns(layers, links, {key: size(key)[0] for layer in layers for key in layer})
    left = min(x[key] - size(key)[0] / 2 for key in x)
    x = {key: value - left for key, value in x.items()}
    top: dict[Key, float] = {}
    bottom: dict[Key, float] = {}  # of the whole layer; long edges cross it in a straight line
    height = 0.0
    for layer in layers:
        top |= dict.fromkeys(layer, height)
        height += max(size(key)[1] for key in layer)
        bottom |= dict.fromkeys(layer, height)
        height += GAP_Y
    routes = []
    for edge, (first, *passed, last) in zip(edges, chains, strict=True):
        route = [(x[first], top[first] + size(first)[1])]
        for key in passed:
            route += [(x[key], top[key]), (x[key], bottom[key])]
        route.append((x[last], top[last]))
        routes.append(route[::-1] if edge in turned else route)
    return Layout(
        {key: (x[key], top[key] + size(key)[1] / 2) for key in sizes},
        routes,
        max(x[key] + size(key)[0] / 2 for key in x),
        height - GAP_Y,
    )


def _layered(keys: list[str], edges: Sequence[Edge]) -> tuple[list[list[Key]], list[list[Key]]]:
    """The contents of each layer, and for each edge its chain: the two nodes, and its places between them."""
    depths = dict.fromkeys(keys, 0)  # the length of the longest path to each
    for _ in keys:
        for from_, to in edges:
            depths[to] = max(depths[to], depths[from_] + 1)
    layers: list[list[Key]] = [[] for _ in range(max(depths.values()) + 1)]
    for key, depth in depths.items():
        layers[depth].append(key)
    chains: list[list[Key]] = []
    for number, (from_, to) in enumerate(edges):
        passed = [(number, depth) for depth in range(depths[from_] + 1, depths[to])]
        for place in passed:
            layers[place[1]].append(place)
        chains.append([from_, *passed, to])
    return layers, chains


def _leading_back(keys: list[str], edges: Sequence[Edge]) -> set[Edge]:
    """The edges that lead to a node on the path by which they were reached."""
    back: set[Edge] = set()
    done: set[str] = set()
    path: set[str] = set()

    def visit(key: str) -> None:
        path.add(key)
        for from_, to in edges:
            if from_ == key:
                if to in path:
                    back.add((from_, to))
                elif to not in done:
                    visit(to)
        path.remove(key)
        done.add(key)

    for key in keys:
        if key not in done:
            visit(key)
    return back


def _sort(layers: list[list[Key]], links: Sequence[tuple[Key, Key]]) -> None:
    """Sort each layer by the positions of the neighbours, from top to bottom and back."""
    connected = _connected(links)
    for _ in range(4):
        for before, layer in [*pairwise(layers), *pairwise(layers[::-1])]:
            place = {key: index for index, key in enumerate(before)}
            middles = {}
            for index, key in enumerate(layer):
                places = [place[other] for other in connected[key] if other in place]
                middles[key] = sum(places) / len(places) if places else index
            layer.sort(key=middles.__getitem__)


def _connected(links: Sequence[tuple[Key, Key]]) -> defaultdict[Key, list[Key]]:
    connected: defaultdict[Key, list[Key]] = defaultdict(list)
    for one, other in links:
        connected[one].append(other)
        connected[other].append(one)
    return connected


def _columns(
    layers: list[list[Key]], links: Sequence[tuple[Key, Key]], widths: dict[Key, float]
) -> dict[Key, float]:
    """The centre of each, as near to its neighbours in other layers as the space in its layer permits."""
    connected = _connected(links)
    x: dict[Key, float] = {}
    for layer in layers:
        x.update(_spread(layer, dict.fromkeys(layer, 0.0), widths))
    for _ in range(8):
        for before, layer in [*pairwise(layers), *pairwise(layers[::-1])]:
            wanted = {}
            for key in layer:
                near = [x[other] for other in connected[key] if other in before] or [x[key]]
                wanted[key] = sum(near) / len(near)
            x.update(_spread(layer, wanted, widths))
    return x


def _spread(layer: list[Key], wanted: dict[Key, float], widths: dict[Key, float]) -> dict[Key, float]:
    """The positions nearest to the requested ones that keep order and gaps (isotonic regression)."""
    offsets = [0.0]
    for left, right in pairwise(layer):
        offsets.append(offsets[-1] + (widths[left] + widths[right]) / 2 + GAP_X)
    blocks: list[tuple[float, int]] = []
    for key, offset in zip(layer, offsets, strict=True):
        blocks.append((wanted[key] - offset, 1))
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            (first, few), (second, more) = blocks[-2:]
            blocks[-2:] = [((first * few + second * more) / (few + more), few + more)]
    starts = [value for value, count in blocks for _ in range(count)]
    return {key: start + offset for key, start, offset in zip(layer, starts, offsets, strict=True)}
