"""Parameters of jobs: all errors together, each with its path, for all kinds of declared types."""

import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    TypeVar,
)

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.errors import Invalid
from greenroom.protocol.parameters import check_params, convert_params, plain_params

from .strategies import json_values, values_of


class AsStruct(msgspec.Struct):
    url: str
    pages: int = 10


@attrs.define
class AsAttrs:
    url: str
    pages: int = 10


@dataclass
class AsDataclass:
    url: str
    pages: int = 10


class AsTypedDict(TypedDict, total=False):
    url: Required[str]
    pages: int


class AsTotalTypedDict(TypedDict):
    url: str
    pages: NotRequired[int]


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    pages: int = 10


ALIKE = [AsStruct, AsAttrs, AsDataclass, AsTypedDict, AsTotalTypedDict, Strict]
alike = pytest.mark.parametrize("kind", ALIKE, ids=lambda kind: kind.__name__)


@alike
@pytest.mark.parametrize(
    ("params", "mistakes"),
    [
        ({"url": "u"}, []),
        ({"url": "u", "pages": 3}, []),
        ({}, ["params.url: missing (a string is required)"]),
        (None, ["params.url: missing (a string is required)"]),
        ({"url": "u", "pages": "x"}, ['params.pages: expected integer, got string "x"']),
        ({"url": "u", "pages": True}, ["params.pages: expected integer, got boolean true"]),
        ({"url": "u", "pages": 1.0}, ["params.pages: expected integer, got number 1.0"]),
        ({"url": "u", "pages": None}, ["params.pages: expected integer, got null"]),
        ({"url": "u", "ulr": 1}, ["params.ulr: unknown field; known fields: url, pages"]),
        (
            {"pages": "x", "ulr": "u"},
            [
                "params.url: missing (a string is required)",
                'params.pages: expected integer, got string "x"',
                "params.ulr: unknown field; known fields: url, pages",
            ],
        ),
        ([1], ["params: expected object, got array [1]"]),
        ("u", ['params: expected object, got string "u"']),
    ],
    ids=range(12),
)
def test_all_errors_are_reported_alike_for_all_kinds_of_types(kind, params, mistakes):
    assert check_params(params, kind) == mistakes


class Mode(StrEnum):
    FAST = "fast"
    SLOW = "slow"


class Address(msgspec.Struct, rename="camel"):
    street_name: str
    house_no: int = 1


Home = NewType("Home", Address)


class Circle(msgspec.Struct, tag=True):
    radius: float


class Square(msgspec.Struct, tag=True):
    side: float


UserId = NewType("UserId", int)
Item = TypeVar("Item")


class Page(msgspec.Struct, Generic[Item]):
    items: list[Item]


class Range(msgspec.Struct):
    low: int
    high: int

    def __post_init__(self):
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")


class Odd(msgspec.Struct):
    def __post_init__(self):
        raise KeyError("lost")


class Row(msgspec.Struct, array_like=True):
    x: int
    y: int


@attrs.define
class Private:
    _token: str
    limit: Annotated[int, msgspec.Meta(le=5)] = attrs.field(default=1, alias="most")
    count: int = attrs.field(default=3, validator=attrs.validators.gt(0))


@dataclass
class Everything:
    address: Address | None = None
    addresses: list[Address] = field(default_factory=list)
    by_name: dict[str, Address] = field(default_factory=dict)
    by_number: dict[int, str] = field(default_factory=dict)
    shape: Circle | Square | None = None
    mode: Mode = Mode.FAST
    choice: Literal["a", "b"] | None = None
    size: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1
    pair: tuple[int, str] = (1, "")
    numbers: tuple[int, ...] = ()
    words: Sequence[Annotated[str, msgspec.Meta(min_length=2)]] = ()
    tags: set[str] = field(default_factory=set)
    user: UserId | str = ""
    page: Page[int] | None = None
    at: datetime | None = None
    range: Range | None = None
    odd: Odd | None = None
    row: Row | None = None
    private: Private | None = None
    maybe: Optional[AsTypedDict] = None  # noqa: UP045
    mixed: Mapping[str, int | list[int]] = field(default_factory=dict)
    least: Annotated[list[int], msgspec.Meta(min_length=2)] | None = None
    home: Home | None = None


@pytest.mark.parametrize(
    ("params", "mistake"),
    [
        ({"address": {"streetName": 1}}, "address.streetName: expected string, got integer 1"),
        ({"address": {}}, "address.streetName: missing (a string is required)"),
        ({"address": 3}, "address: expected object | null, got integer 3"),
        (
            {"address": {"streetName": "x", "street_name": "x"}},
            "address.street_name: unknown field; known fields: streetName, houseNo",
        ),
        ({"addresses": [{"streetName": "x"}, {}]}, "addresses[1].streetName: missing (a string is required)"),
        (
            {"addresses": [{"streetName": "x", "y": 1}]},
            "addresses[0].y: unknown field; known fields: streetName, houseNo",
        ),
        (
            {"by_name": {"a b": {"streetName": "x", "houseNo": "1"}}},
            'by_name["a b"].houseNo: expected integer, got string "1"',
        ),
        (
            {"by_name": {"ann": {"streetName": "x", "y": 1}}},
            "by_name.ann.y: unknown field; known fields: streetName, houseNo",
        ),
        ({"by_number": {"1": 2}}, 'by_number["1"]: expected string, got integer 2'),
        ({"by_number": {"one": "x"}}, "by_number: a key is invalid: expected integer, got string"),
        ({"shape": {"type": "Circle", "radius": "x"}}, 'shape.radius: expected number, got string "x"'),
        ({"shape": {"type": "Square"}}, "shape.side: missing (a number is required)"),
        (
            {"shape": {"type": "Square", "side": 1, "radius": 1}},
            "shape.radius: unknown field; known fields: side",
        ),
        ({"shape": {"type": "Star"}}, 'shape.type: invalid value "Star"'),
        ({"shape": {"side": 1}}, "shape: object missing required field type"),
        ({"mode": "medium"}, 'mode: must be one of "fast", "slow" (got "medium")'),
        ({"mode": 3}, "mode: expected string, got integer 3"),
        ({"choice": "c"}, 'choice: must be one of "a", "b" (got "c")'),
        ({"size": 10}, "size: expected integer <= 9, got 10"),
        ({"pair": [1]}, "pair: expected array of length 2, got 1"),
        ({"pair": [1, 2]}, "pair[1]: expected string, got integer 2"),
        ({"pair": [1, "a", 2]}, "pair: expected array of length 2, got 3"),
        ({"numbers": [1, 2, "x"]}, 'numbers[2]: expected integer, got string "x"'),
        ({"words": ["ab", "a"]}, 'words[1]: expected string of length >= 2, got "a"'),
        ({"tags": ["a", 1]}, "tags[1]: expected string, got integer 1"),
        ({"tags": {"a": 1}}, 'tags: expected array, got object {"a": 1}'),
        ({"user": 1.5}, "user: expected integer | string, got number 1.5"),
        ({"page": {"items": [1, "x"]}}, "page.items[1]: expected integer, got string"),
        ({"page": {"items": [], "next": 2}}, "page.next: unknown field; known fields: items"),
        ({"at": "soon"}, 'at: invalid RFC3339 encoded datetime, got "soon"'),
        ({"range": {"low": 2, "high": 1}}, "range: low 2 is above high 1"),
        ({"odd": {}}, "odd: KeyError: 'lost'"),
        ({"odd": {"x": 1}}, "odd.x: unknown field; known fields: none"),
        ({"row": [1, "x"]}, "row[1]: expected integer, got string"),
        ({"private": {}}, "private._token: missing (a string is required)"),
        ({"private": {"_token": "t", "limit": 6}}, "private.limit: expected integer <= 5, got 6"),
        ({"private": {"_token": "t", "count": 0}}, "private: 'count' must be > 0: 0"),
        (
            {"private": {"_token": "t", "most": 1}},
            "private.most: unknown field; known fields: _token, limit, count",
        ),
        ({"maybe": {"url": 1}}, "maybe.url: expected string, got integer 1"),
        ({"maybe": {"url": "", "x": 1}}, "maybe.x: unknown field; known fields: url, pages"),
        ({"mixed": {"a": 1, "b": [1, "x"]}}, 'mixed.b[1]: expected integer, got string "x"'),
        ({"least": [1]}, "least: expected array of length >= 2, got [1]"),
        ({"least": [1, "x"]}, 'least[1]: expected integer, got string "x"'),
        ({"home": {"streetName": 1}}, "home.streetName: expected string, got integer 1"),
        ({"size": "x" * 1000}, 'size: expected integer, got string "' + "x" * 47 + "..." + "x" * 48 + '"'),
    ],
)
def test_an_error_is_reported_with_its_path(params, mistake):
    assert f"params.{mistake}" in check_params(params, Everything)


def test_all_errors_are_reported_together_and_each_once():
    params = {
        "address": {"houseNo": "1", "street": "x"},
        "addresses": [{"streetName": 1}, {"streetName": "x"}, 7],
        "pair": ["x", 1],
        "size": 0,
        "nothing": None,
    }
    assert check_params(params, Everything) == [
        "params.address.streetName: missing (a string is required)",
        'params.address.houseNo: expected integer, got string "1"',
        "params.addresses[0].streetName: expected string, got integer 1",
        "params.addresses[2]: expected object, got integer 7",
        'params.pair[0]: expected integer, got string "x"',
        "params.pair[1]: expected string, got integer 1",
        "params.size: expected integer >= 1, got 0",
        "params.address.street: unknown field; known fields: streetName, houseNo",
        "params.nothing: unknown field; known fields: address, addresses, by_name, by_number, shape, mode, "
        "choice, size, pair, numbers, words, tags, user, page, at, range, odd, row, private, maybe, mixed, "
        "least, home",
    ]


def test_only_the_first_hundred_errors_are_reported():
    mistakes = check_params({"numbers": ["x"] * 200_000, "nothing": 1}, Everything)
    assert len(mistakes) == 101
    assert mistakes[99] == 'params.numbers[99]: expected integer, got string "x"'
    assert mistakes[100] == "params: further errors are not listed"


class Box(msgspec.Struct):
    inner: Strict | None = None
    many: Page[Strict] | None = None


def test_an_unknown_key_that_the_type_itself_forbids_is_reported_once():
    params = {"inner": {"url": "u", "ulr": "u"}}
    assert check_params(params, Box) == ["params.inner.ulr: unknown field; known fields: url, pages"]


def test_an_error_that_only_msgspec_can_find_has_its_message():
    params = {"many": {"items": [{"url": "u", "ulr": "u"}]}}
    assert check_params(params, Box) == ["params.many.items[0]: object contains unknown field ulr"]


if sys.version_info >= (3, 12):  # which introduced the `type` statement

    def test_an_alias_by_a_type_statement_is_resolved():
        addresses = typing.TypeAliasType("addresses", list[Address])
        assert check_params({"a": [{"streetName": "x", "y": 1}]}, dict[str, addresses]) == [
            "params.a[0].y: unknown field; known fields: streetName, houseNo"
        ]


@pytest.mark.parametrize(
    ("kind", "article"),
    [
        (Address, "an object"),
        (int | None, "an integer | null"),
        (Any, "any value"),
        (Mode | None, 'one of "fast", "slow"'),
    ],
)
def test_a_missing_field_is_reported_with_its_type(kind, article):
    wanted = msgspec.defstruct("Wanted", [("it", kind)])
    assert check_params({}, wanted) == [f"params.it: missing ({article} is required)"]


@pytest.mark.parametrize("kind", [Any, dict, dict[str, Any], dict[str, int]])
def test_a_dict_accepts_any_keys(kind):
    assert check_params({"a": 1, "b c": 2}, kind) == []
    assert check_params({}, kind) == check_params(None, kind) == []


def test_the_values_of_a_dict_are_checked():
    assert check_params({"a": 1, "b": "x"}, dict[str, int]) == ['params.b: expected integer, got string "x"']


@pytest.mark.parametrize(
    ("params", "mistakes"),
    [
        (None, []),
        ({}, []),
        ({"url": 1}, ["params.url: unknown field; this job takes no parameters"]),
        ([], ["params: this job takes no parameters (got [])"]),
        (0, ["params: this job takes no parameters (got 0)"]),
    ],
    ids=range(5),
)
def test_a_job_without_parameters_accepts_none(params, mistakes):
    assert check_params(params, None) == mistakes
    assert convert_params(params, None) is None


class Unreadable(msgspec.Struct):
    both: list[int] | set[int]


class Unknown:
    pass


@pytest.mark.parametrize("kind", [Unreadable, Unknown, list[int] | set[int]], ids=str)
def test_a_type_that_msgspec_does_not_support_is_an_error_and_not_a_crash(kind):
    [mistake] = check_params({"both": []}, kind)
    assert mistake.startswith("params: ")


@given(
    json_values, st.sampled_from([*ALIKE, Everything, Box, Private, Address, dict[str, int], Circle | Square])
)
def test_exactly_the_valid_values_are_accepted(params, kind):
    mistakes = check_params(params, kind)
    try:
        msgspec.convert({} if params is None else params, kind, strict=True, str_keys=True)
    except msgspec.ValidationError:
        assert mistakes
    else:
        assert all(": unknown field; known fields: " in mistake for mistake in mistakes)


class Fields(msgspec.Struct):
    address: Address
    shapes: list[Circle | Square]
    mode: Mode
    size: Annotated[int, msgspec.Meta(ge=1)]
    by_name: dict[str, Address | None]


@given(values_of(Fields))
def test_an_instance_survives_the_conversion_to_plain_values_and_back(instance):
    plain = plain_params(instance, Fields)
    assert check_params(plain, Fields) == []
    assert convert_params(plain, Fields) == instance


@given(values_of(Fields), st.data())
def test_a_valid_value_without_one_required_field_has_one_error(instance, data):
    plain = plain_params(instance, Fields)
    lost = data.draw(st.sampled_from(sorted(plain)))
    del plain[lost]
    [mistake] = check_params(plain, Fields)
    assert mistake.startswith(f"params.{lost}: missing (")


@alike
def test_a_body_gets_what_it_declares(kind):
    made = convert_params({"url": "u", "pages": 3}, kind)
    assert made == kind(url="u", pages=3)


@pytest.mark.parametrize("kind", [Any, dict, dict[str, Any]])
def test_a_body_that_changes_its_parameters_does_not_change_those_of_the_run(kind):
    stored = {"pages": [1]}
    convert_params(stored, kind)["pages"].append(2)
    assert stored == {"pages": [1]}


@pytest.mark.parametrize("kind", [Any, dict, Box])
def test_no_parameters_become_empty_ones(kind):
    assert convert_params(None, kind) == (Box() if kind is Box else {})


def test_invalid_parameters_are_not_converted():
    with pytest.raises(Invalid) as refused:
        convert_params({"pages": "x"}, AsStruct)
    assert refused.value.details["mistakes"] == check_params({"pages": "x"}, AsStruct)
    assert refused.value.message == (
        'params.url: missing (a string is required); params.pages: expected integer, got string "x"'
    )


def test_parameters_that_are_not_json_values_are_not_converted():
    with pytest.raises(Invalid, match=r"^params.url: set is not a JSON value"):
        convert_params({"url": {1}}, dict)


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (AsStruct("u"), {"url": "u", "pages": 10}),
        (AsAttrs("u"), {"url": "u", "pages": 10}),
        (AsDataclass("u"), {"url": "u", "pages": 10}),
        (Address("x"), {"streetName": "x", "houseNo": 1}),
        (Circle(1.0), {"type": "Circle", "radius": 1.0}),
        (Row(1, 2), [1, 2]),
        (Private(token="t", most=2), {"_token": "t", "limit": 2, "count": 3}),
        (Page([Private("t")]), {"items": [{"_token": "t", "limit": 1, "count": 3}]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_instance_is_converted_to_plain_values(given, plain):
    assert plain_params(given, type(given)) == plain


@pytest.mark.parametrize("given", [None, {}, {"url": object()}])
def test_dicts_and_none_are_unchanged(given):
    assert plain_params(given, AsStruct) is given


def test_a_value_that_cannot_be_parameters_is_refused_with_the_expected_type():
    with pytest.raises(Invalid, match=r"^params: must be an object \(got <object object>\): "):
        plain_params(object(), AsStruct)
    with pytest.raises(Invalid, match=r"^params: must be an object \(got <object object>\): "):
        plain_params(object(), None)


def test_numbers_as_keys_become_strings_and_numbers_again():
    instance = Everything(by_number={1: "x"})
    plain = plain_params(instance, Everything)
    assert plain["by_number"] == {"1": "x"}
    assert check_params(plain, Everything) == []
    assert convert_params(plain, Everything).by_number == {1: "x"}
