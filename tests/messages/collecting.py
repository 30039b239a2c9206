"""Find the texts in the code: string literals and f-strings of two words or more that are not docstrings.

A text counts as an error, a log line or a command's help by the call that it is an argument of; anything else
is a part of a message, or is printed. Joined literals are one text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from .samples import sample

ROOT = Path(__file__).parents[2]
FOLDERS = ("greenroom", "actors", "gateway", "persistence", "protocol")

Kind = Literal["error", "log", "help", "text"]

_LOG_CALLS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
_HELP_ARGUMENTS = {"help", "short_help", "epilog", "metavar", "prompt", "description", "summary"}
_ERROR_NAMES = re.compile(
    r"(Error|Invalid|NotFound|Conflict|Unavailable|Unauthorized|Forbidden|RateLimited|Refused|BadRequest"
    r"|Broken|Lost|Down|Failed|Stopped|Several|Wrong|Mistake|Unreadable|TooLarge|ActiveRun|QueueFull|Draining"
    r"|NoScenario|NotAGateway|NotRepeatable|FellBehind|Exception|BadParameter|fault|refused|refusal|unfit|lacks|failed)$"
)
_NOT_PROSE = re.compile(
    r"^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|PRAGMA|BEGIN|SET|SHOW|LOCK|local|<)\b"
)
_WORDS = re.compile(r"[A-Za-z]{2,}[,;:]? +[A-Za-z]{2,}|\} +[A-Za-z]{2,}")


class Message(NamedTuple):
    """One text, with sample values for its placeholders."""

    module: str
    line: int
    kind: Kind
    text: str


@cache
def messages() -> tuple[Message, ...]:
    """All texts of the package, in the order of the modules."""
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    return tuple(
        message
        for file in files
        if "migrations" not in file.parts
        for message in messages_in(file.read_text(encoding="utf-8"), str(file.relative_to(ROOT)))
    )


def messages_in(source: str, module: str) -> Iterator[Message]:
    """The texts of a module."""
    reader = _Reader(module)
    reader.visit(ast.parse(source))
    return iter(sorted(reader.found, key=lambda message: message.line))


class _Reader(ast.NodeVisitor):
    def __init__(self, module: str) -> None:
        self.found: list[Message] = []
        self._module = module
        self._kind: Kind = "text"

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # else it is a docstring
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        before = self._kind
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if _ERROR_NAMES.search(name) and name != "error":
            self._kind = "error"
        elif isinstance(node.func, ast.Attribute) and name in _LOG_CALLS:
            self._kind = "log"
        self.generic_visit(node)
        self._kind = before

    def visit_keyword(self, node: ast.keyword) -> None:
        before = self._kind
        if node.arg in _HELP_ARGUMENTS:
            self._kind = "help"
        self.generic_visit(node)
        self._kind = before

    def visit_Constant(self, node: ast.Constant) -> None:
        self._take(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._take(node)
        for value in node.values:  # a text may be within a value, as in f"{'a b' if c else d}"
            if isinstance(value, ast.FormattedValue):
                self.visit(value.value)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add) and _is_text(node):
            self._take(node)
        else:
            self.generic_visit(node)

    def _take(self, node: ast.expr) -> None:
        text = rendered(node)
        if _WORDS.search(text) and not _NOT_PROSE.search(text):
            self.found.append(Message(self._module, node.lineno, self._kind, text))


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def rendered(node: ast.expr) -> str:
    """A text with samples for its placeholders; empty if the expression is not a text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(rendered, values))
        case ast.FormattedValue(value=value):
            return rendered(value) if _is_text(value) else sample(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right) if _is_text(node):
            return "".join(rendered(part) if _is_text(part) else sample(part) for part in (left, right))
    return ""
