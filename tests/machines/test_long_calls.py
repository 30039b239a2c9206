"""The calls that every run makes are short enough for Python to pass the arguments without a dict."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType

import pytest

from greenroom.actors.engine import entry_point
from greenroom.actors.journal import batch
from greenroom.actors.run import machine, state, termination, transitions
from greenroom.actors.scheduling import admission, supervisor
from greenroom.protocol import fold

MODULES = [entry_point, supervisor, admission, machine, state, transitions, termination, batch, fold]

MOST = 30
"""CPython builds a dict for a call with more arguments than that, of which a keyword counts twice. For an
event or a record, the call then takes several times as long."""


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_no_call_has_so_many_keywords_that_python_builds_a_dict(module: ModuleType) -> None:
    calls = (node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Call))
    long = [
        f"{ast.unparse(call.func)} in line {call.lineno}"
        for call in calls
        if len(call.args) + 2 * len(call.keywords) > MOST
    ]
    assert long == []
