"""Scenarios by name, `module:function`, or a word for one that comes with Greenroom: for a command line, and
for other processes that are to find one."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from ..world.world import Scenario

BUILT_IN = "greenroom.simulation.scenarios.commands:either"
"""Every command of the API, and a crowd in a hurry."""

NAMED = {
    "commands": BUILT_IN,
    "resumed": "greenroom.simulation.scenarios.commands:resumed",
    "clinging": "greenroom.simulation.scenarios.commands:clinging",
    "connected": "greenroom.simulation.scenarios.connected:connected",
    "flows": "greenroom.simulation.scenarios.flows.scenario:flows",
    "leases": "greenroom.simulation.scenarios.leases:leases",
}
"""Those that come with Greenroom."""


class NoScenario(ValueError):
    """There is no scenario of this name; the text says why."""


def find(name: str) -> Scenario:
    """The scenario of a name."""
    module_name, colon, path = NAMED.get(name, name).partition(":")
    if not (module_name and colon and path):
        known = ", ".join(NAMED)
        raise NoScenario(f"{name!r} names no scenario: write module:function, or one of {known}")
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and lacks another
        raise NoScenario(f"there is no module {error.name!r} here, which {name!r} names") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise NoScenario(f"module {module_name!r} has no {path!r}")
        found = getattr(found, part)
    if not callable(found):
        raise NoScenario(f"{name!r} is no function, but {type(found).__name__}")
    scenario: Scenario = found
    return scenario


def name_of(scenario: Scenario) -> str | None:
    """The name by which another process finds a scenario; `None` if none does, as for one that is defined
    in a function, or in the program that was started."""
    module = getattr(scenario, "__module__", None)
    path = getattr(scenario, "__qualname__", None)
    if module in (None, "__main__") or path is None or "<" in path:
        return None
    name = f"{module}:{path}"
    try:
        return name if module in sys.modules and find(name) is scenario else None
    except NoScenario:
        return None
