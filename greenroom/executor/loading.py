"""Import the jobs of an engine in its child process; the counterpart of `actors/executors/locating.py`."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from ..actors.executors.locating import Location
from ..actors.jobs import Jobs
from ..protocol.errors import Invalid

_PROGRAM = "__mp_main__"
"""The name of a program's module in processes that it has started; `multiprocessing` uses the same."""


def load_jobs(location: Location) -> Jobs:
    """Import the jobs. Raises `Invalid` with the error if that fails."""
    try:
        found: Any = _program(location) if location.main else _module(location)
        for part in location.name.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        if isinstance(error.obj, ModuleType):
            raise Invalid(f"{location} not found: {error}", value=str(location)) from error
        raise _failed(location, error) from error
    except (Exception, SystemExit) as error:  # a module can raise anything when it is imported
        raise _failed(location, error) from error
    if not isinstance(found, Jobs):
        raise Invalid(
            f"{location} must be a greenroom.Jobs (got {type(found).__name__})", value=str(location)
        )
    return found


def _failed(location: Location, error: BaseException) -> Invalid:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == location.file] or [
        frame for frame in frames if frame.filename != __file__ and not frame.filename.startswith("<")
    ]
    place = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
    text = error.message if isinstance(error, Invalid) else f"{type(error).__name__}: {error}"
    return Invalid(f"cannot import {location}: {text}{place}", value=str(location))


def _program(location: Location) -> ModuleType:
    """Execute the program under another name, so that code for `__main__` only is not executed."""
    name = f"{location.package}.{_PROGRAM}" if location.package else _PROGRAM
    module = module_from_spec(_file_spec(name, location))
    sys.modules["__main__"] = sys.modules[_PROGRAM] = sys.modules[name] = module
    return _executed(module)


def _module(location: Location) -> ModuleType:
    """Import a module by its name; if its name finds no module or another file, from its file."""
    spec = None
    with suppress(ImportError, ValueError):
        spec = find_spec(location.module)
    if location.file is None or (spec is not None and spec.origin == location.file):
        return import_module(location.module)
    _add_parents(location.module, Path(location.file))
    module = module_from_spec(_file_spec(location.module, location))
    sys.modules[location.module] = module
    return _executed(module)


def _add_parents(name: str, file: Path) -> None:
    """Add an empty package for each package around a module that cannot be imported."""
    parents = name.split(".")[:-1]
    for index, folder in enumerate(reversed(list(file.parents)[: len(parents)])):
        package = ".".join(parents[: index + 1])
        with suppress(ImportError):
            import_module(package)
        if package not in sys.modules:
            module = sys.modules[package] = ModuleType(package)
            module.__path__ = [str(folder)]


def _file_spec(name: str, location: Location) -> ModuleSpec:
    spec = None if location.file is None else spec_from_file_location(name, location.file)
    if spec is None:
        raise ImportError(f"{location.file} is not a Python source file")
    return spec


def _executed(module: ModuleType) -> ModuleType:
    loader = None if module.__spec__ is None else module.__spec__.loader
    assert loader is not None, "it has a source file"
    loader.exec_module(module)
    return module
