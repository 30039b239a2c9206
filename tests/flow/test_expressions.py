"""Expressions: their three forms, their meaning, and that they cannot have side effects."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.errors import Invalid
from greenroom.protocol.flow.expressions import MAX_TERMS, parse_expression
from greenroom.protocol.flow.grammar import MAX_DEPTH, MAX_TEXT
from greenroom.protocol.flow.paths import Scope
from greenroom.protocol.flow.terms import COMPARISONS
from tests.protocol.strategies import json_values

SCOPE = Scope(
    params={"path": "B", "limit": 100, "yes": True},
    shared={"status": "done", "tags": ["a", 1], "flag": True, "n": None, "user-name": "eve", "zero": 0},
    input={"amount": 150, "items": [{"sku": "x1"}], "text": "hello world"},
)


def holds(written: Any, scope: Scope = SCOPE) -> bool:
    return parse_expression(written).holds(scope)


@pytest.mark.parametrize(
    "written",
    [
        "$input.amount gt 100 and not exists $shared.done",
        "and(gt($input.amount, 100), not(exists($shared.done)))",
        {"and": [{"gt": ["$input.amount", 100]}, {"not": {"exists": "$shared.done"}}]},
        {"and": ["$input.amount gt 100", {"not": ["exists(done)"]}]},
    ],
)
def test_the_three_forms_of_an_expression_are_equivalent(written: Any):
    assert holds(written)
    assert not holds(written, Scope({}, {}, {"amount": 100}))
    assert not holds(written, Scope({}, {"done": 1}, {"amount": 101}))


@pytest.mark.parametrize(
    "written",
    [
        "$params.path eq 'B'",
        'eq($params.path, "B")',
        {"eq": ["$params.path", "B"]},
        "status eq 'done'",
        "$shared.status ne 'open'",
        "$input.items[0].sku eq 'x1'",
        "user-name eq 'eve'",
        "$input.amount ge 150 and $input.amount le 150.0",
        "$input.amount lt 1.5e2 or $input.amount gt -3",
        "$params.path in ['A', 'B']",
        "$params.path in ['A', $params.path]",
        {"in": ["$params.path", ["A", "$params.path"]]},
        "1 in tags",
        "tags contains 'a'",
        "contains($input.text, 'lo wo')",
        "'lo' in $input.text",
        "'amount' in $input",
        "exists status",
        "exists($shared.zero)",
        "$shared.n eq null",
        "$shared.nothing eq null",
        "flag",
        "$params.yes and flag",
        "not zero",
        "not (flag and zero)",
        "true",
        True,
        {"not": {"eq": [1, 2]}},
        {"eq": [{"a": [1]}, {"a": [1.0]}]},
        {"exists": "status"},
        "  eq ( 'a\\'b' , \"a'b\" ) ",
        "eq(gt($input.amount, 100), true)",
        "[] eq []",
        "'\\n' eq \"\\n\"",
        "'é☃' eq 'é☃'",
    ],
)
def test_expressions_that_are_true(written: Any):
    assert holds(written)


@pytest.mark.parametrize(
    "written",
    [
        "exists nothing",
        "exists $shared.n",
        "status",  # a string is not true
        "$input.amount",  # nor is a number
        "false",
        False,
        "null",
        "$params.path eq B",  # without quotes, B is a key of shared
        "true eq 1",
        "false eq zero",
        "'100' eq 100",
        "'b' gt 'c'",
        {"eq": [[True], [1]]},
        {"eq": [{"a": 1}, {"a": 1, "b": None}]},
        "$input.nothing in [1]",
        "1 in 5",
        "1 in '1'",
        "tags contains true",
    ],
)
def test_expressions_that_are_false(written: Any):
    assert not holds(written)


def test_the_precedence_of_operators():
    assert holds("true or true and false")
    assert not holds("(true or true) and false")
    assert holds("not false and true")
    assert not holds("not (false or true)")
    assert holds("not 1 eq 2")
    assert holds("true and true and true")
    assert not holds("true and true and false")
    assert holds("false or false or true")
    assert not holds("false or false or false")


@pytest.mark.parametrize("operator", ["eq", "gt", "lt", "ge", "le", "in"])
@pytest.mark.parametrize("values", ["1 {} '1'", "true {} 1", "null {} 0", "'a' {} null", "true {} 'true'"])
def test_values_of_different_types_do_not_compare(operator: str, values: str):
    assert not holds(values.format(operator))
    assert holds(values.format("ne"))


@pytest.mark.parametrize("values", [("true", "true"), ("null", "null"), ("[1]", "[1]")])
def test_only_numbers_and_strings_have_an_order(values: tuple[str, str]):
    one, other = values
    assert holds(f"{one} eq {other}")
    assert not holds(f"{one} ge {other} or {one} le {other}")


def test_whole_numbers_compare_exactly_with_others():
    assert holds(f"{2**53 + 1} gt {2.0**53!r}")
    assert holds("1 eq 1.0")


def test_a_quoted_string_that_looks_like_a_path_is_compared_as_a_string():
    scope = Scope({}, {}, "$5 and $params.a")
    assert holds("$input contains '$params.a'", scope)
    assert holds({"contains": ["$input", "$5"]}, scope)
    with pytest.raises(Invalid, match=r'unknown root "\$a"'):  # in a structure, it is meant as one
        parse_expression({"contains": ["$input", "$a"]})


# Errors.


@pytest.mark.parametrize(
    ("written", "mistake"),
    [
        ("$input.a equals 5", 'unknown operator "equals"'),
        ("equals($input.a, 5)", 'unknown operator "equals"'),
        ({"equals": ["$input.a", 5]}, 'unknown operator "equals"'),
        ("a >= 3", 'unknown operator ">=": did you mean "ge"?'),
        ("a && b", 'did you mean "and"?'),
        ("!a", 'did you mean "not"?'),
        ("a contians 'x'", 'did you mean "contains"?'),
        ("", "expected a value before the end"),
        ("a eq", "expected a value before the end"),
        ("and a", 'expected a value before "and"'),
        ("(a", 'expected ")" before the end'),
        ("[1, 2", 'expected "]" before the end'),
        ("a)", 'unexpected ")"'),
        ("a 'b'", "expected an operator before"),
        ("a $input", 'expected an operator before "$input"'),
        ("a eq 1 eq 2", "combine them with 'and'"),
        ("a exists", '"exists" is not an operator between two values'),
        ("exists 5", "'exists' takes a path"),
        ("eq(1)", '"eq" takes two values (got 1)'),
        ("not(a, b)", 'expected ")" before ","'),
        ("'abc", "unterminated string (at character 1)"),
        ("a eq .", 'unexpected "." (at character 6)'),
        ("$parms.a eq 1", "did you mean $params?"),
        ("a[-1] eq 1", "an index must be 0 or more"),
        ("1" * 30 + " eq 1", "is too large"),
        ({}, "has no operator"),
        ({"eq": [1, 2], "ne": [1, 2]}, "has 2 operators (eq, ne)"),
        ({"eq": [1]}, 'expr.eq: "eq" takes two values (got 1)'),
        ({"eq": 1}, "expr.eq: takes a list of two values (got 1)"),
        ({"and": {"eq": [1, 1]}}, "expr.and: takes a list of conditions"),
        ({"and": []}, 'expr.and: "and" takes at least one condition (got 0)'),
        ({"and": [5]}, "expr.and[0]: must be an expression (got 5)"),
        ({"exists": 5}, "expr.exists: path must be a string (got 5)"),
        ({"eq": ["$parms.a", 1]}, 'expr.eq[0]: unknown root "$parms"'),
        (None, "must be an expression (got null)"),
        (5, "must be an expression (got 5)"),
    ],
)
def test_an_invalid_expression_is_refused_with_the_reason(written: Any, mistake: str):
    with pytest.raises(Invalid) as refused:
        parse_expression(written)
    assert mistake in refused.value.message


def test_several_errors_are_reported_together():
    with pytest.raises(Invalid) as of_a_structure:
        parse_expression({"or": [{"is": [1]}, {"eq": [1]}, {"and": ["a is b"]}]})
    assert [text.partition(":")[0] for text in of_a_structure.value.details["mistakes"]] == [
        "expr.or[0]",
        "expr.or[1].eq",
        "expr.or[2].and[0]",
    ]
    with pytest.raises(Invalid) as of_a_text:
        parse_expression("and(is(a), eq($parms.a), between(1, 2, 3))")
    assert len(of_a_text.value.details["mistakes"]) == 4


@pytest.mark.parametrize(
    "written",
    [
        "(" * 5000 + "1" + ")" * 5000,
        "not " * 2000 + "a",
        "exists " * 1000,
        "[" * 9000,
        "and(" * 2000,
        "a " * MAX_TEXT,
        "x is y, " * 1000,
        '"\\' * 4000,
        {"or": ["a"] * (MAX_TERMS + 1)},
    ],
)
def test_recursive_expressions_are_refused_quickly(written: Any):
    with pytest.raises(Invalid):
        parse_expression(written)


def test_nesting_is_limited_in_each_form():
    def nested(depth: int) -> Any:
        return {"not": [nested(depth - 1)]} if depth else "flag"

    assert holds("(" * MAX_DEPTH + "flag" + ")" * MAX_DEPTH)
    assert holds(nested(MAX_DEPTH))
    for written in ("(" * (MAX_DEPTH + 1) + "flag" + ")" * (MAX_DEPTH + 1), nested(MAX_DEPTH + 1)):
        with pytest.raises(Invalid, match="nested more than 50 levels deep"):
            parse_expression(written)


# Comparison with a simple model.

_paths = ["$params.a", "$shared.b", "$input", "$input.c", "$shared.nothing"]
_literals = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([1.0, 2.5])
    | st.text("abc '\"\\", max_size=3)
)
_values = st.sampled_from(_paths).map(lambda path: ("path", path)) | _literals.map(
    lambda value: ("literal", value)
)
_operands = _values | st.lists(_values, max_size=3).map(lambda parts: ("list", parts))
_conditions: st.SearchStrategy[Any] = st.recursive(
    st.tuples(st.sampled_from(list(COMPARISONS)), _operands, _operands)
    | st.tuples(st.just("exists"), st.sampled_from(_paths).map(lambda path: ("path", path))),
    lambda inner: st.tuples(st.sampled_from(["and", "or"]), inner, inner) | st.tuples(st.just("not"), inner),
    max_leaves=6,
)
_data = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 2.5]) | st.text("abc", max_size=2)
)
_data = _data | st.lists(_data, max_size=3) | st.dictionaries(st.text("abc", max_size=1), _data, max_size=2)


def _as_infix(term: Any) -> str:
    match term:
        case ("path", path):
            return str(path)
        case ("literal", None | bool() as value):
            return {None: "null", True: "true", False: "false"}[value]
        case ("literal", str(text)):
            return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case ("literal", value):
            return repr(value)
        case ("list", parts):
            return f"[{', '.join(map(_as_infix, parts))}]"
        case (operator, part):
            return f"{operator} ({_as_infix(part)})"
        case (operator, one, other):
            return f"({_as_infix(one)}) {operator} ({_as_infix(other)})"
    raise AssertionError(term)


def _as_call(term: Any) -> str:
    if term[0] in ("path", "literal", "list"):
        return _as_infix(term)
    return f"{term[0]}({', '.join(map(_as_call, term[1:]))})"


def _as_structure(term: Any) -> Any:
    match term:
        case ("path" | "literal", value):
            return value
        case ("list", parts):
            return [_as_structure(part) for part in parts]
        case (operator, *parts):
            return {operator: [_as_structure(part) for part in parts]}
    raise AssertionError(term)


def _kind(value: Any) -> Any:
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


def _same(one: Any, other: Any) -> bool:
    if _kind(one) is not _kind(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)


def _meaning(term: Any, data: dict[str, Any]) -> Any:
    """The value of a term, by a simple model."""
    match term:
        case ("path", path):
            return data.get(path)
        case ("literal", value):
            return value
        case ("list", parts):
            return [_meaning(part, data) for part in parts]
        case ("exists", path):
            return _meaning(path, data) is not None
        case ("not", part):
            return not _meaning(part, data)
        case ("and", one, other):
            return _meaning(one, data) and _meaning(other, data)
        case ("or", one, other):
            return _meaning(one, data) or _meaning(other, data)
    operator, one, other = term[0], _meaning(term[1], data), _meaning(term[2], data)
    if operator == "in":
        operator, one, other = "contains", other, one
    if operator == "contains":
        if isinstance(one, list):
            return any(_same(item, other) for item in one)
        return isinstance(one, str | dict) and isinstance(other, str) and other in one
    if operator in ("eq", "ne"):
        return _same(one, other) is (operator == "eq")
    if _kind(one) is not _kind(other) or _kind(one) not in (float, str):
        return False
    return {"gt": one > other, "lt": one < other, "ge": one >= other, "le": one <= other}[operator]


@given(_conditions, _data, _data, _data)
def test_all_forms_of_any_expression_agree_with_the_model(term: Any, a: Any, b: Any, c: Any):
    scope = Scope({"a": a}, {"b": b}, {"c": c})
    data = {"$params.a": a, "$shared.b": b, "$input": {"c": c}, "$input.c": c}
    expected = _meaning(term, data)
    assert [holds(write(term), scope) for write in (_as_infix, _as_call, _as_structure)] == [expected] * 3


_words = st.sampled_from(
    [*"()[],.$'\"", *COMPARISONS, "and", "or", "not", "exists", "$input", "a", "1", " ", "#", "<="]
)
_structures = st.recursive(
    json_values | _words,
    lambda inner: st.dictionaries(
        st.sampled_from([*COMPARISONS, "and", "or", "not", "exists"]), inner | st.lists(inner)
    ),
    max_leaves=8,
)


@given(st.text(max_size=40) | st.lists(_words, max_size=12).map(" ".join) | _structures, json_values)
def test_any_text_is_refused_or_has_a_truth_value_for_any_values(written: Any, value: Any):
    try:
        expression = parse_expression(written)
    except Invalid:
        return
    assert expression.holds(Scope({"a": value}, {"a": value}, value)) in (True, False)
