"""The text of a definition: JSON and YAML, what both refuse, and that no text overloads the parser."""

import datetime
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.flow.check import check
from greenroom.protocol.flow.documents import MAX_BYTES, parse
from greenroom.protocol.flow.yamltext import MAX_VALUES
from greenroom.protocol.structuring import written_path
from tests.protocol.strategies import json_values

from .definitions import as_yaml, flow


def mistakes(definition: Any) -> list[str]:
    return [f"{written_path(keys)}: {text}" for keys, text in parse(definition)[1]]


def value(definition: Any) -> Any:
    found, faults = parse(definition)
    assert faults == []
    return found


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), json_values, min_size=1)
)
def test_a_value_is_the_same_as_json_as_yaml_and_as_python(written: dict[str, Any]):
    assert value(written) == written
    assert value(json.dumps(written)) == written
    assert value(json.dumps(written, ensure_ascii=False)) == written
    assert value(as_yaml(written)) == written


def test_yaml_is_read_as_version_1_2():
    text = """
      text: [yes, no, on, Off, 1_000, 12:30, '5', "true", 'null', ~x, 0x, 1.2.3]
      number: [5, -5, +5, 010, 0o10, 0x1F, 5.5, 1e3, .5, 5.]
      other: [true, FALSE, null, ~, !!str 5, ! 5]
      empty:
      1: one
      2024-01-01: a key is a text
      block: |
        a
         b
    """
    assert value(text) == {
        "text": ["yes", "no", "on", "Off", "1_000", "12:30", "5", "true", "null", "~x", "0x", "1.2.3"],
        "number": [5, -5, 5, 10, 8, 31, 5.5, 1000.0, 0.5, 5.0],
        "other": [True, False, None, None, "5", "5"],
        "empty": None,
        "1": "one",
        "2024-01-01": "a key is a text",
        "block": "a\n b\n",
    }


def test_braces_without_quotes_are_yaml():
    assert value("{start: a, nodes: {a: {kind: timer}}}") == {"start": "a", "nodes": {"a": {"kind": "timer"}}}


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (
            "a: {b: [1, 2024-01-01]}",
            'a.b[1]: "2024-01-01" is a date, which is not a JSON value: put it in quotes',
        ),
        ("a: 2024-01-01 10:00:00", 'a: "2024-01-01 10:00:00" is a date'),
        ("a: .nan", "a: the number NaN is not a JSON value"),
        ("a: -.inf", "a: the number -Infinity is not a JSON value"),
        ("a: 1e999", "a: the number Infinity is not a JSON value"),
        ("a: 99999999999999999999", "a: the number 99999999999999999999 is outside"),
        (f"a: {'9' * 5000}", "a: the number Infinity is not a JSON value"),
        ("a: 1\nb: 2\na: 3", "a: is a duplicate key: lines 1 and 3"),
        ("a: {b: 1, b: 1}", "a.b: is a duplicate key: lines 1 and 1"),
        ("a: &x 1\nb: [*x]", "b[0]: alias *x at line 2 is not supported: repeat the value"),
        ("a: &x {b: 1}\nc:\n  <<: *x", "c: merge key << at line 3 is not supported"),
        (
            "a: !!python/object:os.system x",
            'a: tag "tag:yaml.org,2002:python/object:os.system" is not supported',
        ),
        ("a: !!binary aGk=", 'a: tag "tag:yaml.org,2002:binary" is not supported'),
        ("? [a]\n: 1", ": key at line 1 is an object or a list"),
        ("a: 1\n---\nb: 1", ": has a second document at line 2"),
        ("a: [1", ": is not valid YAML: did not find expected ',' or ']' at line"),
        ("a: \x00", ": is not valid YAML:"),
        ("a: \ud800", ": is not valid YAML:"),
        ('{"a": NaN}', "a: the number NaN is not a JSON value"),
        ('{"a": [-Infinity, 1e999]}', "a[1]: the number Infinity is not a JSON value"),
        ('{"a": {"b": 1, "c": 2, "b": 1}}', "a.b: is a duplicate key"),
        ('{"a": "\\ud800"}', 'a: the string "\\ud800" has a lone surrogate'),
        ('{"a": 1', ": is not valid JSON: Expecting ',' delimiter: line 1 column 8 (char 7)"),
        ("", ": is empty"),
        (" \n", ": is empty"),
    ],
)
def test_values_that_json_cannot_represent_are_refused_with_their_path(text: str, mistake: str):
    assert any(found.startswith(mistake) for found in mistakes(text)), mistakes(text)


def test_python_values_that_json_cannot_represent_are_refused_with_their_path():
    written = {"a": {1, 2}, "b": [datetime.date(2024, 1, 1)], 5: "x", "c": {"d": object()}}
    assert [text.partition(":")[0] for text in mistakes(written)] == ["a", "b[0]", "", "c.d"]


def test_a_value_of_python_is_copied():
    written = flow(a={"kind": "timer", "params": {"list": [1]}})
    copied = value(written)
    written["nodes"]["a"]["params"]["list"].append(2)
    assert copied["nodes"]["a"]["params"] == {"list": [1]}


def test_a_byte_order_mark_is_no_error():
    assert value('\ufeff{"a": 1}') == value("\ufeffa: 1") == {"a": 1}


def _containing_itself() -> dict[str, Any]:
    itself: dict[str, Any] = {}
    itself["a"] = itself
    return itself


def _doubled(times: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(times):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    "definition",
    [
        "[" * (MAX_BYTES // 2),
        '{"a":' * 100_000,
        "- " * 100_000,
        "a: " + "{a: " * 100_000,
        "a: " + "[" * 100_000,
        "".join(" " * depth + "a:\n" for depth in range(1000)),
        "a: [" + "x," * (MAX_BYTES // 2 - 10) + "]",
        "x:\n" * (MAX_BYTES // 4),
        "a: &a [x]\nb: [" + "*a," * 200_000 + "]",
        'a: "' + '\\"' * (MAX_BYTES // 2 - 10),
        "a: 1\n" * MAX_BYTES,
        "a: [" + "2024-01-01," * 50_000 + "]",
        {"a": "x" * (MAX_BYTES + 1)},
        {"a": [None] * (MAX_VALUES + 1)},
        {"a": _doubled(60)},
        _containing_itself(),
    ],
)
def test_a_recursive_definition_is_refused_quickly(definition: Any):
    begun = time.process_time()
    checked = check(definition)
    assert checked.graph is None
    assert 0 < len(checked.errors) <= 101
    assert all(len(message) < 1000 for message in checked.errors)
    assert time.process_time() - begun < 10  # at most one second without other load


@pytest.mark.parametrize(
    ("definition", "error"),
    [
        ("a" * (MAX_BYTES + 1), "has 1,048,577 bytes: at most 1,048,576 are allowed"),
        ("é" * (MAX_BYTES // 2 + 1), "has 1,048,578 bytes: at most 1,048,576 are allowed"),
        ({"a": "x" * MAX_BYTES}, "is too large: at most 1,048,576 bytes"),
        ({"a": [None] * MAX_VALUES}, "has too many values: at most 200,000"),
        ("a: [" + "x," * MAX_VALUES + "]", "has too many values: at most 200,000"),
        ("[" * 101 + "]" * 101, "is nested more than 100 levels deep"),
        ("- " * 101, "line 1 is nested more than 100 levels deep"),
    ],
)
def test_the_limits_of_a_definition_are_reported(definition: Any, error: str):
    assert error in check(definition).errors[0]


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(list("ab:-?{}[],'\"&*!|>#% \n<")), max_size=40).map("".join)
)
def test_any_text_is_read_or_refused(text: str):
    found, faults = parse(text)
    assert faults or json.dumps(found)
