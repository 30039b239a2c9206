"""Expressions: the conditions of a choice, in one of three equivalent forms.

    $input.amount gt 100 and not exists $shared.done
    and(gt($input.amount, 100), not(exists($shared.done)))
    {"and": [{"gt": ["$input.amount", 100]}, {"not": {"exists": "$shared.done"}}]}

In the text forms, a bare word is a key of shared, and a literal string is quoted. In the structured form, an
operand string is a literal unless it begins like `$name`, and a string in place of a condition is parsed as
the text form.

An expression is parsed once, into terms, which are then evaluated. Terms only compare values, and no value
makes them fail: values that cannot be compared are not equal, not less and not greater.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ..errors import Invalid
from ..structuring import MAX_MISTAKES, Fault, Keys, Several, written_path
from ..suggestions import suggestion
from ..values import shown
from .grammar import MAX_DEPTH, parse_text
from .paths import Scope, is_path, parse_path
from .terms import OPERATORS, Items, Literal, Term, combined

MAX_TERMS = 10_000
"""The maximum number of values and operators of a structured expression."""

_CONNECTIVES = ("and", "or")


@attrs.frozen
class Expression:
    """An expression as it was written, and its parsed term."""

    written: Any
    term: Term = attrs.field(eq=False, repr=False)

    def holds(self, scope: Scope) -> bool:
        """Whether its value is `true`; other non-empty values do not count."""
        return self.term.get(scope) is True


def parse_expression(written: Any) -> Expression:
    """Parse an expression in text or structured form. Raises `Invalid` with all errors."""
    try:
        return read_expression(written)
    except Several as error:
        mistakes = [f"{written_path(keys, 'expr')}: {text}" for keys, text in error.faults]
        raise Invalid("; ".join(mistakes), mistakes=mistakes) from None


def read_expression(written: Any) -> Expression:
    """Parse an expression of a definition. Raises `Several`."""
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
        """Parse a condition."""
        if self._exceeds_limits(keys):
            return Literal(None)
        if isinstance(written, bool):
            return Literal(written)
        if isinstance(written, str):
            term, mistakes = parse_text(written)
            self.faults.extend((keys, mistake) for mistake in mistakes)
            return term
        if not isinstance(written, Mapping):
            return self._wrong(keys, f"must be an expression (got {shown(written)})")
        if len(written) != 1:
            names = ", ".join(map(str, list(written)[:5]))
            has = f"has {len(written)} operators ({names})" if written else "has no operator"
            return self._wrong(keys, f"{has}: use one; combine several conditions with 'and'")
        [(name, parts)] = written.items()
        if name not in OPERATORS:
            known = suggestion(str(name), OPERATORS)
            return self._wrong(keys, f"unknown operator {shown(name)}{known}")
        return self._operation(name, parts, (*keys, name))

    def _operation(self, name: str, written: Any, keys: Keys) -> Term:
        if name in _CONNECTIVES and not isinstance(written, list | tuple):
            return self._wrong(keys, f"takes a list of conditions (got {shown(written)})")
        if name in ("not", "exists") and not isinstance(written, list | tuple):
            written, parts_keys = [written], [keys]
        elif not isinstance(written, list | tuple):
            return self._wrong(keys, f"takes a list of two values (got {shown(written)})")
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
        """Parse an operand of a comparison."""
        if self._exceeds_limits(keys):
            return Literal(None)
        if isinstance(written, str) and is_path(written):
            return self._reference(written, keys)
        if isinstance(written, list | tuple):
            parts = tuple(self._operand(part, (*keys, index)) for index, part in enumerate(written))
            return Items(parts) if any(not isinstance(part, Literal) for part in parts) else Literal(written)
        return Literal(written)

    def _reference(self, written: Any, keys: Keys) -> Term:
        """Parse an operand that must be a path."""
        try:
            return parse_path(written)
        except Invalid as error:
            return self._wrong(keys, error.message)

    def _exceeds_limits(self, keys: Keys) -> bool:
        self._terms += 1
        if self._terms == MAX_TERMS + 1:
            self._wrong((), f"has too many parts: at most {MAX_TERMS:,} are allowed")
        if self._terms > MAX_TERMS or len(self.faults) > MAX_MISTAKES:
            return True
        if len(keys) > 2 * MAX_DEPTH:  # each level has an operator's key and an index
            self._wrong(keys[:4], f"is nested more than {MAX_DEPTH} levels deep")
            return True
        return False

    def _wrong(self, keys: Keys, text: str) -> Term:
        self.faults.append((keys, text))
        return Literal(None)
