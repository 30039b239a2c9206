"""The grammar of expressions in text form; `expressions` describes their meaning.

    either     = every {"or" every}
    every      = negation {"and" negation}
    negation   = "not" negation | comparison
    comparison = value [comparator value]
    value      = "(" either ")" | "[" [either {"," either}] "]" | "exists" path
               | operator "(" either {"," either} ")" | literal | path

Parsing continues after an error if the meaning is clear, so that several errors are reported together. The
length of the text and the nesting are bounded, so the time and the recursion depth are, too.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..errors import Invalid
from ..structuring import MAX_MISTAKES
from ..suggestions import suggestion
from ..values import shown
from .paths import parse_path
from .terms import COMPARISONS, OPERATORS, Items, Literal, Negation, Term, combined

MAX_TEXT = 10_000
"""The maximum number of characters of an expression."""

MAX_DEPTH = 50
"""The maximum nesting depth of parentheses, lists and negations."""

_LITERALS = {"true": True, "false": False, "null": None}
_SYMBOLS = {
    "==": "eq", "=": "eq", "!=": "ne", "<>": "ne", ">": "gt", "<": "lt", ">=": "ge", "<=": "le",
    "&&": "and", "||": "or", "!": "not", "&": "and", "|": "or",
}  # fmt: skip
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)(?![^\s()\[\],=<>!&|])
    |(?P<word>\$?[^\s.()\[\],"'$=<>!&|]+
        (?:\.[^\s.()\[\],"'=<>!&|]*|\[-?[0-9]+\]|\["(?:[^"\\]|\\.)*"\]|\['(?:[^'\\]|\\.)*'\])*)
    |(?P<symbol>==|!=|<>|>=|<=|&&|\|\||[=<>!&|])
    |(?P<mark>[()\[\],])
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str  # string, number, word, symbol, mark, end, or other (an invalid character)
    text: str
    at: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else shown(self.text)


class _Stopped(Exception):
    """Parsing cannot continue."""


def parse_text(text: str) -> tuple[Term, list[str]]:
    """Parse a text. Returns its term and its errors; with an error, the term has no meaning."""
    if len(text) > MAX_TEXT:
        return Literal(None), [f"expression has {len(text):,} characters: at most {MAX_TEXT:,} are allowed"]
    reader = _Reader(text)
    return reader.read(), reader.mistakes


class _Reader:
    def __init__(self, text: str) -> None:
        self.mistakes: list[str] = []
        self._tokens = list(_tokens(text))
        self._next = 0
        self._depth = 0

    def read(self) -> Term:
        last = self._tokens[-1]
        if last.kind == "other":
            unclosed = last.text in "\"'"
            self._wrong("unterminated string" if unclosed else f"unexpected {shown(last.text)}", last.at)
            return Literal(None)
        try:
            term = self._either()
            if self._token.kind != "end":
                raise self._stopped(f"unexpected {self._token}")
            return term
        except _Stopped:
            return Literal(None)

    # The rules, from the loosest to the tightest.

    def _either(self) -> Term:
        parts = [self._every()]
        while self._takes("word", "or"):
            parts.append(self._every())
        return parts[0] if len(parts) == 1 else combined("or", parts)

    def _every(self) -> Term:
        parts = [self._negation()]
        while self._takes("word", "and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else combined("and", parts)

    def _negation(self) -> Term:
        if not self._takes("word", "not"):
            return self._comparison()
        self._enter()
        term = Negation(self._negation())
        self._depth -= 1
        return term

    def _comparison(self) -> Term:
        left = self._value()
        token = self._token
        if token.kind in ("end", "mark") or token.text in ("and", "or"):
            return left
        if token.text in ("not", "exists"):
            raise self._stopped(f"{token} is not an operator between two values")
        name = self._comparator()
        if name not in COMPARISONS and self._token.kind == "end":
            return Literal(None)
        right = self._value()
        token = self._token
        if token.kind == "word" and token.text in COMPARISONS:
            raise self._stopped(f"{token} cannot follow another comparison: combine them with 'and'")
        return combined(name, [left, right]) if name in COMPARISONS else Literal(None)

    def _comparator(self) -> str:
        """Parse the operator between two values. After an unknown one, parsing continues."""
        token = self._token
        if token.kind not in ("word", "symbol") or token.text.startswith("$"):
            raise self._stopped(f"expected an operator before {token}")
        self._next += 1
        if token.text not in COMPARISONS:
            self._unknown(token)
        return token.text

    def _value(self) -> Term:
        token = self._token
        self._next += 1
        if token.kind == "string":
            return Literal(_unquoted(token.text))
        if token.kind == "number":
            return Literal(self._number(token))
        if token.text == "(" and token.kind == "mark":
            return self._nested(")")[0]
        if token.text == "[" and token.kind == "mark":
            return Items(tuple(self._nested("]")))
        if token.kind == "word" and token.text == "exists":
            self._enter()
            path = self._value()
            self._depth -= 1
            return self._combined(token, [path])
        if token.kind == "word" and self._token == ("mark", "(", self._token.at):
            self._next += 1
            return self._combined(token, self._nested("call"))
        if token.kind == "word" and token.text in _LITERALS:
            return Literal(_LITERALS[token.text])
        if token.kind == "word" and token.text not in OPERATORS:
            return self._path(token)
        if token.kind == "symbol":
            self._unknown(token)
            raise _Stopped
        self._next -= 1
        raise self._stopped(f"expected a value before {token}")

    # The parts of the rules.

    def _nested(self, closing: str) -> list[Term]:
        """Parse the parts up to the closing bracket: one in parentheses, several in a list or a call."""
        self._enter()
        parts: list[Term] = []
        mark = "]" if closing == "]" else ")"
        if closing == ")" or not self._takes("mark", mark):
            parts.append(self._either())
            while closing != ")" and self._takes("mark", ","):
                parts.append(self._either())
            if not self._takes("mark", mark):
                raise self._stopped(f"expected {shown(mark)} before {self._token}")
        self._depth -= 1
        return parts

    def _combined(self, token: _Token, parts: list[Term]) -> Term:
        if token.text not in OPERATORS:
            self._unknown(token)
            return Literal(None)
        try:
            return combined(token.text, parts)
        except Invalid as error:
            self._wrong(error.message, token.at)
            return Literal(None)

    def _path(self, token: _Token) -> Term:
        try:
            return parse_path(token.text)
        except Invalid as error:
            self._wrong(error.message, token.at)
            return Literal(None)

    def _number(self, token: _Token) -> int | float:
        if not token.text.lstrip("-").isdigit():
            return float(token.text)
        if len(token.text) > 20:  # out of range for an integer of a JSON value
            self._wrong(f"the number {shown(token.text)} is too large", token.at)
            return 0
        return int(token.text)

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _takes(self, kind: str, text: str) -> bool:
        token = self._token
        if token.kind != kind or token.text != text:
            return False
        self._next += 1
        return True

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._stopped(f"is nested more than {MAX_DEPTH} levels deep")

    def _unknown(self, token: _Token) -> None:
        instead = _SYMBOLS.get(token.text)
        hint = f": did you mean {shown(instead)}?" if instead else suggestion(token.text, OPERATORS)
        self._wrong(f"unknown operator {shown(token.text)}{hint}", token.at)

    def _wrong(self, text: str, at: int) -> None:
        self.mistakes.append(f"{text} (at character {at + 1})")
        if len(self.mistakes) == MAX_MISTAKES:
            raise _Stopped

    def _stopped(self, text: str) -> _Stopped:
        self._wrong(text, self._token.at)
        return _Stopped()


def _tokens(text: str) -> list[_Token]:
    """Return the tokens of a text, up to its end or to the first invalid character."""
    found: list[_Token] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "other"
        if kind != "space":
            found.append(_Token(kind, match.group(), match.start()))
        if kind == "other":
            return found
    return [*found, _Token("end", "", len(text))]


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1], flags=re.DOTALL)
