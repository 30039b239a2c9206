"""JSON values, and the errors for other values."""

import math
from collections import Counter, OrderedDict, namedtuple
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.errors import Invalid, TooLarge
from greenroom.protocol.values import MAX_DEPTH, child_path, json_value, shown

from .strategies import json_values

UNFIT = (
    st.sampled_from([b"x", {1}, 1j, math.nan, math.inf, -math.inf, "\ud800", 2**64, -(2**63) - 1])
    | st.datetimes()
    | st.decimals()
    | st.dictionaries(st.integers() | st.none(), st.none(), min_size=1, max_size=2)
)
anything = st.recursive(
    json_values | UNFIT,
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=3), parts, max_size=3),
    max_leaves=6,
)


def checked(value, max_bytes=None):
    return json_value(value, "result", max_bytes)


def refusal(value):
    with pytest.raises(Invalid) as refused:
        checked(value)
    return refused.value


def comes_back(value):
    """Whether every codec decodes the value unchanged."""
    try:
        return all(wire.decode(wire.encode(value)) == value for wire in (msgspec.json, msgspec.msgpack))
    except (TypeError, ValueError, OverflowError):
        return False


@given(anything)
def test_exactly_the_values_that_survive_every_codec_are_accepted(value):
    if comes_back(value):
        assert checked(value) == value
    else:
        refusal(value)


@given(json_values)
def test_an_accepted_value_is_accepted_again_and_unchanged(value):
    assert checked(checked(value)) == checked(value)


def test_the_copy_shares_no_data_with_the_original():
    inner = [1]
    original = {"pages": inner, "more": (inner,)}
    copy = checked(original)
    inner.append(2)
    original["new"] = None
    assert copy == {"pages": [1], "more": [[1]]}


class Colour(StrEnum):
    RED = "red"


class Rank(IntEnum):
    FIRST = 1


class Ratio(float):
    pass


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ((1, (2,)), [1, [2]]),
        (Point(1, 2), [1, 2]),
        (Colour.RED, "red"),
        (Rank.FIRST, 1),
        (Ratio(0.5), 0.5),
        ({Colour.RED: Rank.FIRST}, {"red": 1}),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (Counter("aab"), {"a": 2, "b": 1}),
        (True, True),
        (False, False),
        ([], []),
        ({}, {}),
        ("", ""),
    ],
)
def test_values_of_subclasses_become_plain(value, plain):
    copy = checked(value)
    assert copy == plain
    assert all(type(part) in (dict, list, str, int, float, bool) for part in walk(copy))


def walk(value):
    yield value
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from walk(item)
    elif isinstance(value, list):
        for item in value:
            yield from walk(item)


class Record(msgspec.Struct):
    a: int


class Plain(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ({"pages": [0, 1, 2, {3}]}, "result.pages[3]", "set is not a JSON value ({3}); use a list"),
        (b"x", "result", "bytes is not a JSON value (b'x'); encode it as text, for example as base64"),
        (
            [Decimal("1.5")],
            "result[0]",
            "Decimal is not a JSON value (Decimal('1.5')); use a number or a string",
        ),
        (
            {"at": datetime(2024, 1, 1, tzinfo=UTC)},
            "result.at",
            "datetime is not a JSON value (2024-01-01 00:00:00+00:00)"
            "; use Unix seconds or an ISO 8601 string",
        ),
        (
            {"a b": Record(1)},
            'result["a b"]',
            "Record is not a JSON value (Record(a=1)); use an object, array, string, number, boolean or null",
        ),
        (
            Plain.RED,
            "result",
            "Plain is not a JSON value (<Plain.RED: 'red'>); "
            "use an object, array, string, number, boolean or null",
        ),
        (
            object(),
            "result",
            "object is not a JSON value (<object object>); "
            "use an object, array, string, number, boolean or null",
        ),
        (
            MappingProxyType({}),
            "result",
            "mappingproxy is not a JSON value (mappingproxy({})); "
            "use an object, array, string, number, boolean or null",
        ),
        ({"a": {3: 1}}, "result.a", "the key 3 is not a string; keys must be strings"),
        (
            {"a": {"b": 1}, "c": [[1], b""]},
            "result.c[1]",
            "bytes is not a JSON value (b''); encode it as text, for example as base64",
        ),
        ([math.nan], "result[0]", "the number NaN is not a JSON value; use null or a string"),
        (-math.inf, "result", "the number -Infinity is not a JSON value; use null or a string"),
        (2**64, "result", "the number 18446744073709551616 is outside -2^63 to 2^64-1; use a string"),
        (10**5000, "result", "the number <int> is outside -2^63 to 2^64-1; use a string"),
        ("ab\udc80", "result", r'the string "ab\udc80" has a lone surrogate at 2, which UTF-8 cannot encode'),
        (
            {"\ud800": 1},
            "result",
            r'the string "\ud800" has a lone surrogate at 0, which UTF-8 cannot encode',
        ),
    ],
    ids=range(16),
)
def test_the_error_for_an_invalid_value_contains_its_path_and_the_remedy(value, path, message):
    error = refusal(value)
    assert error.message == f"{path}: {message}"
    assert error.details["path"] == path
    assert error.message.encode()


@pytest.mark.parametrize("number", [2**64 - 1, -(2**63), 0, 1.5, -0.0, 5e-324, 1.7976931348623157e308])
def test_the_greatest_and_smallest_numbers_are_accepted(number):
    assert checked(number) == number


def nested(depth):
    value = 0
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def test_a_hundred_levels_are_accepted_and_one_more_is_refused():
    assert checked(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    assert "nested more than 100 levels deep" in refusal(nested(MAX_DEPTH + 1)).message


def test_siblings_do_not_count_as_nesting():
    wide = {str(number): {"number": number, "list": [number, [], {}]} for number in range(300)}
    assert checked(wide) == wide


def test_a_value_that_contains_itself_is_refused():
    loop = []
    loop += [loop, loop]
    error = refusal({"loop": loop})
    assert "or it contains itself" in error.message
    assert error.message.startswith("result.loop[0][0]")
    assert len(error.details["path"]) <= 200


def test_a_value_with_a_repr_that_raises_is_still_reported():
    class Broken:
        def __repr__(self):
            raise RuntimeError("no")

    message = refusal([Broken()]).message
    assert message.startswith("result[0]: Broken is not a JSON value (")


@given(json_values)
def test_the_size_as_json_decides_what_is_too_large(value):
    size = len(msgspec.json.encode(value))
    assert checked(value, size) == value
    if size > 1:
        with pytest.raises(TooLarge) as refused:
            checked(value, size - 1)
        assert refused.value.details["limit"] == size - 1


def test_the_error_for_a_value_that_is_too_large_contains_its_size_and_the_limit():
    with pytest.raises(TooLarge) as refused:
        json_value({"text": "é" * 100}, "checkpoint", 100)
    message = "checkpoint: too large: 211 bytes as JSON, at most 100 are allowed; store it in a file"
    assert refused.value.message == message
    assert refused.value.details == {"path": "checkpoint", "size": 211, "limit": 100}


def test_a_small_value_with_shared_parts_that_is_huge_as_json_is_refused_early():
    value = []
    for _ in range(90):
        value = [value, value]
    with pytest.raises(
        TooLarge, match=r"^result: too large: at least 100\d bytes as JSON, at most 1000 are allowed"
    ):
        checked(value, 1000)


def test_without_a_limit_any_size_is_accepted():
    assert checked("x" * 3_000_000) == "x" * 3_000_000


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("pages", "params.pages"),
        (3, "params[3]"),
        ("a.b", 'params["a.b"]'),
        ("页", "params.页"),
        ("", 'params[""]'),
    ],
)
def test_a_path_has_the_form_of_a_python_expression(key, path):
    assert child_path("params", key) == path


def test_the_path_of_a_long_key_is_short():
    assert len(child_path("params", "x" * 10_000)) <= 110


def test_the_text_of_a_long_value_is_short():
    assert len(shown("x" * 10_000)) <= 100
    assert len(shown([[i] for i in range(10_000)])) < 100
