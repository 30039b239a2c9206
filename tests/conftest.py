"""Settings for all tests.

Hypothesis searches at random; if `CI` is set, it always makes the same examples. For tests of mutants,
failing examples are not shrunk, because only the failure matters.

All modules and tests are loaded before the first test, so the garbage collector does not have to track them.

Ctrl-C also works if a shell starts the tests in the background. Such a shell lets its processes ignore
Ctrl-C.

Tests with the mark `long("VARIABLE")` are skipped unless that environment variable is `long`.
"""

import gc
import os
import signal

import pytest
from hypothesis import Phase, settings

signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadlines, because the duration of one example depends more on the machine than on the code.
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
