"""How Hypothesis searches: at random on a desk, and the same way each time where `CI` is set.

Where mutants are tried, what fails is not made smaller: it is enough to know that it fails.

What was imported and collected before the first test stays, so the garbage collector needn't look through it.

Ctrl-C works, also where the tests are started in the background of a shell, which lets them and all that they
start ignore it.

Tests that are marked as `long("VARIABLE")` are left out unless that variable of the environment says `long`.
"""

import gc
import os
import signal

import pytest
from hypothesis import Phase, settings

signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline in either: how long one example takes says more about the machine than about the code.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "mutation", deadline=None, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile(
    "mutation" if "GREENROOM_MUTATION" in os.environ else "ci" if os.environ.get("CI") else "desk"
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [
        item
        for item in items
        if (long := item.get_closest_marker("long")) and os.environ.get(long.args[0]) != "long"
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    gc.freeze()
