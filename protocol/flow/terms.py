"""Terms: the parts of a parsed expression. `term.get(scope)` returns the value of a term.

Comparisons follow JSON's types. Integers and floats compare as numbers, but true is not a number. Two values
of different types are not equal, and neither is less or greater. Only numbers and strings have an order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from ..errors import Invalid
from ..values import shown
from .paths import Path, Scope


class Term(Protocol):
    """A part of an expression."""

    def get(self, scope: Scope, /) -> Any:
        """Return the value of the term."""


@attrs.frozen
class Literal:
    """A literal value."""

    value: Any

    def get(self, scope: Scope) -> Any:
        return self.value


@attrs.frozen
class Items:
    """A list whose items can be paths."""

    parts: tuple[Term, ...]

    def get(self, scope: Scope) -> list[Any]:
        return [part.get(scope) for part in self.parts]


@attrs.frozen
class Every:
    """True if all parts are true; parts after the first false one are not evaluated."""

    parts: tuple[Term, ...]

    def get(self, scope: Scope) -> bool:
        return all(part.get(scope) is True for part in self.parts)


@attrs.frozen
class Either:
    """True if any part is true; parts after it are not evaluated."""

    parts: tuple[Term, ...]

    def get(self, scope: Scope) -> bool:
        return any(part.get(scope) is True for part in self.parts)


@attrs.frozen
class Negation:
    """True if the part is not true."""

    part: Term

    def get(self, scope: Scope) -> bool:
        return self.part.get(scope) is not True


@attrs.frozen
class Existence:
    """True if the value at the path is not null."""

    path: Path

    def get(self, scope: Scope) -> bool:
        return self.path.get(scope) is not None


@attrs.frozen
class Comparison:
    """True if the two values satisfy the operator's comparison."""

    operator: str
    left: Term
    right: Term

    def get(self, scope: Scope) -> bool:
        return COMPARISONS[self.operator](self.left.get(scope), self.right.get(scope))


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal, of any depth."""
    pairs = [(left, right)]
    while pairs:
        one, other = pairs.pop()
        kind = _type(one)
        if kind != _type(other):
            return False
        if kind == "object":
            if one.keys() != other.keys():
                return False
            pairs.extend((part, other[key]) for key, part in one.items())
        elif kind == "list":
            if len(one) != len(other):
                return False
            pairs.extend(zip(one, other, strict=True))
        elif one != other:
            return False
    return True


def _type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, Mapping):
        return "object"
    if isinstance(value, list | tuple):
        return "list"
    return "text" if isinstance(value, str) else type(value).__name__


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compared(left: Any, right: Any) -> bool:
        kind = _type(left)
        return kind in ("number", "text") and kind == _type(right) and compare(left, right)

    return compared


def _contains(whole: Any, part: Any) -> bool:
    """Whether a list has this item, an object this key, or a string this substring."""
    kind = _type(whole)
    if kind == "list":
        return any(same(item, part) for item in whole)
    return kind in ("object", "text") and isinstance(part, str) and part in whole


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": same,
    "ne": lambda left, right: not same(left, right),
    "gt": _ordered(operator.gt),
    "lt": _ordered(operator.lt),
    "ge": _ordered(operator.ge),
    "le": _ordered(operator.le),
    "in": lambda part, whole: _contains(whole, part),
    "contains": _contains,
}

OPERATORS = ("and", "or", "not", "exists", *COMPARISONS)
"""The names of all operators."""


def combined(name: str, parts: Sequence[Term]) -> Term:
    """Return the term of an operator and its operands. Raises `Invalid` if they do not fit."""
    wanted = {"and": None, "or": None, "not": 1, "exists": 1}.get(name, 2)
    if not parts if wanted is None else len(parts) != wanted:
        values = "at least one condition" if wanted is None else "one value" if wanted == 1 else "two values"
        raise Invalid(f"{shown(name)} takes {values} (got {len(parts)})")
    match name:
        case "and":
            return Every(tuple(parts))
        case "or":
            return Either(tuple(parts))
        case "not":
            return Negation(parts[0])
        case "exists":
            if not isinstance(parts[0], Path):
                raise Invalid("'exists' takes a path, as in exists $shared.done")
            return Existence(parts[0])
    return Comparison(name, parts[0], parts[1])
