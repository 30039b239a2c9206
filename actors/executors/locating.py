"""Where a `Jobs` object is defined, so that a child process can import the same jobs.

An engine passes a `Location` to its children. `greenroom/executor/loading.py` imports it there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import msgspec

from ...protocol.errors import Invalid
from ..jobs import Jobs

_REMEDY = "assign it to a variable at the top level of a module that can be imported, as in `jobs = Jobs()`"


class Location(msgspec.Struct, frozen=True):
    """The variable `name` of a module. `file` is its source; not every module can be imported by its name.

    `main`: the module is the program itself, in `package`. A child executes it again, but not as `__main__`.
    """

    module: str
    name: str
    file: str | None
    main: bool = False
    package: str = ""

    def __str__(self) -> str:
        return f"{self.file if self.main else self.module}:{self.name}"


def locate(jobs: Jobs) -> Location:
    """Find the variable that contains these jobs. Raises `Invalid` if no module has one."""
    if jobs.import_path is not None:
        module, _, name = jobs.import_path.partition(":")
        return Location(module, name, _file(sys.modules.get(module)))
    for module, name in _candidates(jobs):
        found = sys.modules[module]
        if module != "__main__":
            return Location(module, name, _file(found))
        if _file(found) is not None:
            return Location(module, name, _file(found), main=True, package=found.__package__ or "")
        raise Invalid(
            f"executors requires jobs that other processes can import, but {name!r} is defined in an "
            "interactive session: define the jobs in a module, and import it"
        )
    raise Invalid(
        "executors requires jobs that other processes can import, but no module has this Jobs object as a "
        f"variable: {_REMEDY}"
    )


def _candidates(jobs: Jobs) -> Iterator[tuple[str, str]]:
    """The variables that contain the jobs: first in the module that created them, last in the program."""
    modules = [name for name, module in list(sys.modules.items()) if isinstance(module, ModuleType)]
    modules.sort(key=lambda name: (name != jobs.created_in, name in ("__main__", "__mp_main__")))
    for module in modules:
        for name, value in list(vars(sys.modules[module]).items()):
            if value is jobs:
                yield module, name


def _file(module: ModuleType | None) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None
