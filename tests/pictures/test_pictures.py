"""The pictures in the documentation are current."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from greenroom.protocol.states import TRANSITIONS

from . import states
from .drawn import FOLDER, pictures
from .layout import lay_out

PICTURES = pictures()


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_is_current(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PICTURES[name], "draw it again: python -m tests.pictures"


def test_every_picture_of_a_flow_belongs_to_an_example() -> None:
    assert {f"flows/{file.name}" for file in (FOLDER / "flows").iterdir()} <= PICTURES.keys()


@pytest.mark.parametrize("name", sorted(file.name for file in FOLDER.glob("**/*.svg")))
def test_a_picture_loads_no_other_file(name: str) -> None:
    [file] = FOLDER.glob(f"**/{name}")
    text = file.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert re.findall(r'(?:href|src)="[^#]|url\((?!#)|@import|@font-face', text) == []


def test_the_picture_of_the_states_names_every_status_and_who_decides_each_transition() -> None:
    shown = states.draw()
    for row in TRANSITIONS:
        assert f">{row.to}</text>" in shown
        assert not row.sources or row.decided_by in shown


def test_a_node_is_drawn_below_those_that_lead_to_it() -> None:
    sizes = dict.fromkeys("abcd", (40.0, 20.0))
    centres = lay_out(sizes, [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")]).centres
    assert [centres[key][1] for key in "abcd"] == sorted(centres[key][1] for key in "abcd")


def test_an_edge_that_leads_back_ends_at_the_node_above() -> None:
    sizes = dict.fromkeys("abc", (40.0, 20.0))
    layout = lay_out(sizes, [("a", "b"), ("b", "c"), ("c", "a")])
    _, _, back = layout.routes
    assert back[0][1] > back[-1][1]
    assert back[-1][0] == layout.centres["a"][0]


def test_nodes_of_one_layer_do_not_overlap() -> None:
    sizes = {"top": (40.0, 20.0), **{f"node {number}": (60.0, 20.0) for number in range(5)}}
    centres = lay_out(sizes, [("top", key) for key in sizes if key != "top"]).centres
    places = sorted(centres[key][0] for key in sizes if key != "top")
    assert all(right - left > 60 for left, right in pairwise(places))
