"""Paths: what they resolve to, which ones are invalid, and what they write."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.errors import Invalid
from greenroom.protocol.flow.paths import MAX_PATH, Scope, parse_path, parse_source, parse_target
from tests.protocol.strategies import json_values

SCOPE = Scope(
    params={"a": {"b": 1}, "services": ["x", "y"]},
    shared={"a": [{"c": 2}], "x y": 3, "d.e": 4, "d": {"e": 5, "f": None}, "list[0]": 6, "é": 7},
    input={"x": [8, [9]]},
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$params.a.b", 1),
        ("$params.services[1]", "y"),
        ("$shared.a[0].c", 2),
        ('$shared["x y"]', 3),
        ("$shared['x y']", 3),
        ('$shared["d.e"]', 4),
        ("$shared.d.e", 5),
        ("$shared.é", 7),
        ("$input", {"x": [8, [9]]}),
        ("$input.x[1][0]", 9),
        ("$params", {"a": {"b": 1}, "services": ["x", "y"]}),
        ("a[0].c", 2),
        ("x y", 3),
        ("d.f", None),
    ],
)
def test_a_path_resolves_to_a_value(text: str, value: Any):
    assert parse_path(text).get(SCOPE) == value


@pytest.mark.parametrize(
    "text",
    [
        "$params.b",
        "$params.a.b.c",
        "$shared.a[1]",
        "$shared.a.c",
        "$shared.d[0]",
        "$input.x[2]",
        "none",
        "a.c",
        "x.y",
    ],
)
def test_a_path_to_nothing_resolves_to_null(text: str):
    assert parse_path(text).get(SCOPE) is None


def test_a_bare_text_is_a_key_of_shared_or_else_a_path():
    assert parse_path("d.e").get(SCOPE) == 4
    assert parse_path("list[0]").get(SCOPE) == 6
    assert parse_path("d.e").get(Scope({}, {"d": {"e": 5}})) == 5


def test_a_string_has_no_items_and_no_attributes():
    scope = Scope({}, {"text": "abc"}, input=["x"])
    for text in ("text[0]", "text.upper", "$input.append", "$shared.__class__", "$shared.keys"):
        assert parse_path(text).get(scope) is None


def test_the_same_steps_resolve_in_another_value():
    assert parse_path("a.b").within({"a": {"b": 1}}) == 1
    assert parse_path("a.b").within({"a.b": 2, "a": {"b": 1}}) == 2
    assert parse_path("a.b").within([1]) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("$parms.a", "did you mean $params?"),
        ("$", "expected $params, $shared or $input"),
        ("$shared.a[-1]", "an index must be 0 or more"),
        ("$shared.a[x]", "brackets must contain an index or a quoted key"),
        ("$shared.a[0", "brackets must contain an index or a quoted key"),
        ("$shared.", "expected a name after the dot"),
        ("$shared..a", "expected a name after the dot"),
        (".a", "expected a name after the dot"),
        ("a.b.", "expected a name after the dot"),
        ("$shared[0]", "begins with an index"),
        ("a" * (MAX_PATH + 1), "at most 1,000 are allowed"),
        ("a" + "[0]" * 120, "at most 100 are allowed"),
    ],
)
def test_an_invalid_path_is_refused_with_the_reason(text: str, reason: str):
    with pytest.raises(Invalid) as refused:
        parse_path(text)
    assert reason in refused.value.message


@pytest.mark.parametrize("value", [None, 5, ["$shared.a"], {"a": 1}])
def test_a_path_that_is_not_a_string_is_refused(value: Any):
    with pytest.raises(Invalid, match="must be a string"):
        parse_path(value)


@given(st.text(max_size=30) | st.text("$params.hed[]0\"'\\ ", max_size=30), json_values)
def test_any_text_is_a_path_or_refused_and_any_path_has_a_value(text: str, value: Any):
    try:
        path = parse_path(text)
    except Invalid:
        return
    path.get(Scope({"a": value}, {"a": value}, value))
    path.within(value)


# Writing.


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("a", {}, {"a": 1}),
        ("a", {"a": 0, "b": 0}, {"a": 1, "b": 0}),
        ("$shared.a.b", {}, {"a": {"b": 1}}),
        ("a.b", {"a": {"c": 0}}, {"a": {"c": 0, "b": 1}}),
        ("a.b", {"a": None}, {"a": {"b": 1}}),
        ("a.b", {"a.b": 0}, {"a.b": 1}),
        ("$shared.a.b", {"a.b": 0}, {"a.b": 0, "a": {"b": 1}}),
        ("a[0]", {"a": [0, 2]}, {"a": [1, 2]}),
        ("a[2]", {"a": [0, 2]}, {"a": [0, 2, 1]}),
        ("a[0].b", {}, {"a": [{"b": 1}]}),
        ('$shared["x y"].z', {}, {"x y": {"z": 1}}),
    ],
)
def test_writing_creates_missing_objects(text: str, before: dict[str, Any], after: dict[str, Any]):
    parse_target(text).set(before, 1)
    assert before == after


@pytest.mark.parametrize(
    ("text", "before", "reason"),
    [
        ("a.b", {"a": 5}, "5 is not an object"),
        ("a.b", {"a": []}, "is not an object"),
        ("a[0]", {"a": {}}, "is not a list"),
        ("a[3]", {"a": [0]}, "the list has only 1 items"),
        ("a.b[1].c", {}, "the list is empty"),
    ],
)
def test_writing_below_a_value_that_is_not_an_object_is_refused_and_changes_nothing(
    text: str, before: dict[str, Any], reason: str
):
    shared = copy.deepcopy(before)
    with pytest.raises(Invalid) as refused:
        parse_target(text).set(shared, 1)
    assert reason in refused.value.message
    assert shared == before


@pytest.mark.parametrize(
    "text", ["$params.a", "$input", "$shared", "_rt", "_rt.pl:a", "$shared._rt", '$shared["_rt.x"].y']
)
def test_only_keys_of_shared_that_are_not_the_engines_can_be_written(text: str):
    with pytest.raises(Invalid, match="is not writable"):
        parse_target(text)


keys = st.text(st.characters(exclude_categories=["Cs"], exclude_characters='"\\'), min_size=1, max_size=5)


@given(st.lists(keys.map(lambda key: f'["{key}"]'), min_size=1, max_size=4), json_values)
def test_what_was_written_is_found_at_the_same_path(steps: list[str], value: Any):
    shared: dict[str, Any] = {}
    path = parse_path("$shared" + "".join(steps))
    path.set(shared, value)
    assert path.get(Scope({}, shared)) == value


# Fields that contain a path or a literal.


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("$params.a.b", 1),
        ("$params.nothing", None),
        (5, 5),
        (None, None),
        ({"a": "$params.a"}, {"a": "$params.a"}),
        ("x y", 3),
        ("d.e", 4),
        ("d.f", None),
        ("fast", "fast"),
        ("Hello, world.", "Hello, world."),
        ("", ""),
        ("$5", "$5"),
    ],
)
def test_a_source_is_a_path_or_a_literal_and_a_bare_text_is_a_key_of_shared_or_itself(
    written: Any, value: Any
):
    assert parse_source(written).get(SCOPE) == value


def test_a_bare_text_that_is_not_a_path_can_be_a_key():
    assert parse_source("a..b").get(Scope({}, {"a..b": 1})) == 1


def test_an_invalid_path_is_not_taken_as_a_literal():
    with pytest.raises(Invalid, match=r"did you mean \$params"):
        parse_source("$parms.a")


def test_a_literal_is_copied():
    source = parse_source([1])
    source.get(SCOPE).append(2)
    assert source.get(SCOPE) == [1]
