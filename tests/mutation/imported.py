"""A pytest plugin that imports one module with one of its mutants."""

from __future__ import annotations

import ast
import importlib.abc
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from .operators import points

ROOT = Path(__file__).resolve().parents[2]


class _Mutant(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, path: str, number: int) -> None:
        self._path = path
        self._number = number
        self._name = "greenroom." + path.removesuffix(".py").replace("/", ".")

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, ROOT / self._path, loader=self)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        tree = ast.parse((ROOT / self._path).read_text())
        points(tree)[self._number].apply()
        exec(compile(ast.fix_missing_locations(tree), self._path, "exec"), vars(module))


_path, _, _number = os.environ["GREENROOM_MUTANT"].partition(":")
sys.meta_path.insert(0, _Mutant(_path, int(_number)))
