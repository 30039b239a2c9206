"""The mutants of a module: small changes, each of which some test should detect.

One mutant per comparison, boolean operator, arithmetic operator, `not`, condition, constant, return value and
removed statement. Code that decides nothing is not changed: docstrings, annotations, assertions and their
messages, decorators, the keywords of classes, and texts for readers (a string with a space in it).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd,
}

_TYPES = frozenset({"Literal", "Generator", "Callable", "tuple", "dict", "list", "frozenset", "type"})
"""Names whose subscripts are types."""

_SKIPPED_FIELDS = frozenset({"annotation", "returns", "decorator_list", "type_params", "keywords of a class"})


class Point(NamedTuple):
    """A place where the module can be changed. `scope` is the function around it, `None` outside of all
    functions; `apply` changes the tree permanently."""

    line: int
    scope: str | None
    what: str
    apply: Callable[[], None]


def points(tree: ast.Module) -> list[Point]:
    """All mutants of a module, in the order of their lines."""
    return sorted(_Search().module(tree), key=lambda point: point.line)


class _Search:
    def __init__(self) -> None:
        self._scope: str | None = None
        self._classes: list[str] = []

    def module(self, tree: ast.Module) -> Iterator[Point]:
        yield from self._body(tree.body, tree)

    # Statements.

    def _body(self, body: list[ast.stmt], parent: ast.AST) -> Iterator[Point]:
        for index, statement in enumerate(body):
            if index == 0 and _is_text(statement):
                continue
            yield from self._statement(statement, body, index)

    def _statement(self, node: ast.stmt, body: list[ast.stmt], index: int) -> Iterator[Point]:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Pass():
                return
            case ast.Expr(value=ast.Constant()):
                return  # the docstring of an attribute
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case ast.Assign(targets=[ast.Name(id="__slots__" | "logger")]):
                return
            case ast.Assign(value=ast.Subscript(value=ast.Name(id=name))) if name in _TYPES:
                return
            case ast.Assign(value=ast.BinOp(op=ast.BitOr())) if self._scope is None:
                return  # a type
            case ast.ClassDef():
                yield from self._class(node)
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from self._function(node)
                return
        if self._scope is not None and _is_removable(node):
            yield self._point(node, f"removed: {_first_line(node)}", lambda: _put(body, index, ast.Pass()))
        if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            before = _first_line(node)
            yield self._point(node, f"{before} → return None", lambda: _set_none(node))
        yield from self._fields(node)

    def _class(self, node: ast.ClassDef) -> Iterator[Point]:
        self._classes.append(node.name)
        yield from self._body(node.body, node)
        self._classes.pop()

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Point]:
        yield from self._fields(node.args)  # the defaults belong to the enclosing scope
        outer = self._scope
        if outer is None:
            self._scope = ".".join([*self._classes, node.name])
        yield from self._body(node.body, node)
        self._scope = outer

    # Expressions.

    def _fields(self, node: ast.AST) -> Iterator[Point]:
        for field, value in ast.iter_fields(node):
            if field in _SKIPPED_FIELDS:
                continue
            if isinstance(value, ast.expr):
                yield from self._expression(value, lambda new, f=field: setattr(node, f, new), node, field)
            elif isinstance(value, ast.AST):
                yield from self._fields(value)
            elif isinstance(value, list):
                if value and all(isinstance(item, ast.stmt) for item in value):
                    yield from self._body(value, node)
                    continue
                for index, item in enumerate(value):
                    if isinstance(item, ast.expr):
                        put = lambda new, v=value, i=index: v.__setitem__(i, new)  # noqa: E731
                        yield from self._expression(item, put, node, field)
                    elif isinstance(item, ast.AST):
                        yield from self._fields(item)

    def _expression(
        self, node: ast.expr, put: Callable[[Any], None], parent: ast.AST, field: str
    ) -> Iterator[Point]:
        if isinstance(node, ast.JoinedStr):
            return
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in _TYPES:
            return
        new = _changed(node)
        if new is None and field == "test" and isinstance(parent, ast.If | ast.While | ast.IfExp):
            new = ast.UnaryOp(ast.Not(), node)
        if new is not None:
            mutant = ast.copy_location(new, node)
            what = f"{ast.unparse(node)} → {ast.unparse(ast.fix_missing_locations(mutant))}"
            yield self._point(node, what, lambda: put(mutant))
        yield from self._fields(node)

    def _point(self, node: ast.stmt | ast.expr, what: str, apply: Callable[[], None]) -> Point:
        return Point(node.lineno, self._scope, what, apply)


def _changed(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.Compare(left, [first, *others], comparators):
            return ast.Compare(left, [_COMPARISONS[type(first)](), *others], comparators)
        case ast.BoolOp(op, values):
            return ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            return operand
        case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
            return ast.BinOp(left, _ARITHMETIC[type(op)](), right)
        case ast.Constant(value):
            return _other_constant(value)
    return None


def _other_constant(value: object) -> ast.expr | None:
    match value:
        case bool():
            return ast.Constant(not value)
        case int() | float():
            return ast.Constant(value + 1)
        case str() if " " not in value and value:
            return ast.Constant(f"{value}_other")
    return None


def _is_removable(node: ast.stmt) -> bool:
    if isinstance(node, ast.AnnAssign):
        return node.value is not None
    simple = ast.Expr | ast.Assign | ast.AugAssign | ast.Delete | ast.Raise | ast.Continue | ast.Break
    return isinstance(node, simple) or (isinstance(node, ast.Return) and node.value is None)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _first_line(node: ast.stmt) -> str:
    return ast.unparse(node).splitlines()[0]


def _put(body: list[ast.stmt], index: int, new: ast.stmt) -> None:
    body[index] = ast.copy_location(new, body[index])


def _set_none(node: ast.Return) -> None:
    assert node.value is not None, "the caller has looked"
    node.value = ast.copy_location(ast.Constant(None), node.value)
