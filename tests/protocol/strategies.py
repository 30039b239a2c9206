"""Hypothesis strategies for the messages of the protocol, derived from their types."""

from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
floats = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | floats | text
json_values = st.recursive(
    scalars,
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(text, parts, max_size=4),
    max_leaves=8,
)

_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    Any: json_values,
    NoneType: st.none(),
    bool: st.booleans(),
    int: st.integers(0, 2**63 - 1),
    float: floats,
    str: text,
}


@cache
def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a field of this type."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _constrained(*arguments)
    if origin in (Union, UnionType):
        return st.one_of([values_of(member) for member in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*[values_of(argument) for argument in arguments])
    if origin in (list, tuple, frozenset):
        return st.lists(values_of(arguments[0]), max_size=3).map(origin)
    if origin is dict:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=3)
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    fields = msgspec.structs.fields(kind)
    return st.builds(kind, **{field.name: values_of(field.type) for field in fields})


def _constrained(kind: Any, meta: msgspec.Meta) -> st.SearchStrategy[Any]:
    if meta.pattern is not None:
        return st.just(meta.pattern.strip("^$"))
    lowest = meta.ge
    return st.integers(lowest, 2**40) if kind is int else st.floats(lowest, 1e12)
