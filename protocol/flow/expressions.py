"""Expressions: the conditions of a choice, written in one of three ways that mean the same.

    $input.amount gt 100 and not exists $shared.done
    and(gt($input.amount, 100), not(exists($shared.done)))
    {"and": [{"gt": ["$input.amount", 100]}, {"not": {"exists": "$shared.done"}}]}

In text, a bare word is a key of shared, and a literal text is quoted. In the structured form JSON has quotes
already: there a text that is compared is a literal unless it begins like `$name`, and one that stands for a
condition is read as text is.

An expression is read once, into terms, and these are asked for their value. They compare values and can do
nothing else. No value makes them fail: what can't be compared is not equal, not less and not greater.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ..errors import Invalid
from ..structuring import MAX_MISTAKES, Fault, Keys, Several, suggestion, written_path
from ..values import shown
from .grammar import MAX_DEPTH, parse_text
from .paths import Scope, is_path, parse_path
from .terms import OPERATORS, Items, Literal, Term, combined

MAX_TERMS = 10_000
"""How many values and operators a structured expression may have."""

_CONNECTIVES = ("and", "or")


@attrs.frozen
class Expression:
    """An expression as it was written, and what was read from it."""

    written: Any
    term: Term = attrs.field(eq=False, repr=False)

    def holds(self, scope: Scope) -> bool:
        """Whether it is true: true itself, and not merely something other than null, zero or empty."""
        return self.term.get(scope) is True


def parse_expression(written: Any) -> Expression:
    """The expression that a text or a structure is. Raises `Invalid` with all that is wrong with it."""
    try:
        return read_expression(written)
    except Several as error:
        mistakes = [f"{written_path(keys, 'expr')}: {text}" for keys, text in error.faults]
        raise Invalid("; ".join(mistakes), mistakes=mistakes) from None


def read_expression(written: Any) -> Expression:
    """The same, for what reads definitions. Raises `Several`."""
    reader = _Reader()
    term = reader.condition(written, ())
    if reader.faults:
        raise Several(reader.faults)
    return Expression(written, term)


class _Reader:
    """One walk over a structured expression."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._terms = 0

    def condition(self, written: Any, keys: Keys) -> Term:
        """What is to be true."""
        if self._too_much(keys):
            return Literal(None)
        if isinstance(written, bool):
            return Literal(written)
        if isinstance(written, str):
            term, mistakes = parse_text(written)
            self.faults.extend((keys, mistake) for mistake in mistakes)
            return term
        if not isinstance(written, Mapping):
            return self._wrong(keys, f"must be an expression, not {shown(written)}")
        if len(written) != 1:
            names = ", ".join(map(str, list(written)[:5]))
            has = f"has {len(written)} operators ({names})" if written else "has no operator"
            return self._wrong(keys, f"{has}: give one, 'and' for several conditions")
        [(name, parts)] = written.items()
        if name not in OPERATORS:
            known = suggestion(str(name), OPERATORS)
            return self._wrong(keys, f"unknown operator {shown(name)}{known}")
        return self._operation(name, parts, (*keys, name))

    def _operation(self, name: str, written: Any, keys: Keys) -> Term:
        if name in _CONNECTIVES and not isinstance(written, list | tuple):
            return self._wrong(keys, f"takes a list of conditions, not {shown(written)}")
        if name in ("not", "exists") and not isinstance(written, list | tuple):
            written, parts_keys = [written], [keys]
        elif not isinstance(written, list | tuple):
            return self._wrong(keys, f"takes a list of two values, not {shown(written)}")
        else:
            parts_keys = [(*keys, index) for index in range(len(written))]
        read = self.condition if name in (*_CONNECTIVES, "not") else self._operand
        if name == "exists":
            read = self._reference
        faults = len(self.faults)
        parts = [read(part, its_keys) for part, its_keys in zip(written, parts_keys, strict=True)]
        if len(self.faults) > faults:
            return Literal(None)
        try:
            return combined(name, parts)
        except Invalid as error:
            return self._wrong(keys, error.message)

    def _operand(self, written: Any, keys: Keys) -> Term:
        """What is compared."""
        if self._too_much(keys):
            return Literal(None)
        if isinstance(written, str) and is_path(written):
            return self._reference(written, keys)
        if isinstance(written, list | tuple):
            parts = tuple(self._operand(part, (*keys, index)) for index, part in enumerate(written))
            return Items(parts) if any(not isinstance(part, Literal) for part in parts) else Literal(written)
        return Literal(written)

    def _reference(self, written: Any, keys: Keys) -> Term:
        """What must be a path."""
        try:
            return parse_path(written)
        except Invalid as error:
            return self._wrong(keys, error.message)

    def _too_much(self, keys: Keys) -> bool:
        self._terms += 1
        if self._terms == MAX_TERMS + 1:
            self._wrong((), f"has more than {MAX_TERMS:,} parts: an expression may have so many")
        if self._terms > MAX_TERMS or len(self.faults) > MAX_MISTAKES:
            return True
        if len(keys) > 2 * MAX_DEPTH:  # each level has an operator's key and an index
            self._wrong(keys[:4], f"is nested more than {MAX_DEPTH} deep")
            return True
        return False

    def _wrong(self, keys: Keys, text: str) -> Term:
        self.faults.append((keys, text))
        return Literal(None)
