"""Names of scenarios: `module:function`, or a single word for a built-in one. The command line and the
processes of a hunt use them."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from ..world.world import Scenario

BUILT_IN = "greenroom.simulation.scenarios.commands:either"
"""The default: a mixture of the scenarios in `commands.py`."""

NAMED = {
    "commands": BUILT_IN,
    "resumed": "greenroom.simulation.scenarios.commands:resumed",
    "clinging": "greenroom.simulation.scenarios.commands:clinging",
    "coalescing": "greenroom.simulation.scenarios.commands:coalescing",
    "connected": "greenroom.simulation.scenarios.connected:connected",
    "flows": "greenroom.simulation.scenarios.flows.scenario:flows",
    "executors": "greenroom.simulation.scenarios.executors:executors",
    "batches": "greenroom.simulation.scenarios.batches:batches",
    "delays": "greenroom.simulation.scenarios.delays:delays",
    "finding": "greenroom.simulation.scenarios.finding:finding",
    "leases": "greenroom.simulation.scenarios.leases:leases",
    "schedules": "greenroom.simulation.scenarios.schedules:schedules",
    "nodes": "greenroom.simulation.scenarios.nodes:nodes",
    "ordering": "greenroom.simulation.scenarios.ordering:ordering",
    "receivers": "greenroom.simulation.scenarios.receivers:receivers",
    "webhooks": "greenroom.simulation.scenarios.webhooks:webhooks",
    "failing_webhooks": "greenroom.simulation.scenarios.failing_webhooks:failing_webhooks",
}
"""The built-in scenarios."""


class NoScenario(ValueError):
    """No scenario has this name; the message contains the reason."""


def find(name: str) -> Scenario:
    """The scenario with a name. Raises `NoScenario`, and any error that its module raises."""
    module_name, colon, path = NAMED.get(name, name).partition(":")
    if not (module_name and colon and path):
        known = ", ".join(NAMED)
        raise NoScenario(f"unknown scenario {name!r}: use module:function, or one of {known}")
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module exists, but imports one that does not
        raise NoScenario(f"module {error.name!r} of scenario {name!r} not found") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise NoScenario(f"module {module_name!r} has no function {path!r}")
        found = getattr(found, part)
    if not callable(found):
        raise NoScenario(f"scenario {name!r} must be a function (got {type(found).__name__})")
    scenario: Scenario = found
    return scenario


def name_of(scenario: Scenario) -> str | None:
    """The name under which another process can import a scenario. `None` if it cannot, for example because
    the scenario is defined within a function, or in the main program."""
    module = getattr(scenario, "__module__", None)
    path = getattr(scenario, "__qualname__", None)
    if module in (None, "__main__") or path is None or "<" in path:
        return None
    name = f"{module}:{path}"
    try:
        return name if module in sys.modules and find(name) is scenario else None
    except NoScenario:
        return None
