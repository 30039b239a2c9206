"""Settings for all tests.

Hypothesis searches at random; if `CI` is set, it always makes the same examples. For tests of mutants,
failing examples are not shrunk, because only the failure matters.

All modules and tests are loaded before the first test, so the garbage collector does not have to track them.
It is off while they are loaded, which so takes half of the time.

Ctrl-C also works if a shell starts the tests in the background. Such a shell lets its processes ignore
Ctrl-C.

Tests with the mark `long("VARIABLE")` are skipped unless that environment variable is `long`. Tests with the
mark `in_process` are not executed over a link, and those with the mark `at_engine` not at a follower.
"""

import gc
import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import Phase, settings

signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadlines, because the duration of one example depends more on the machine than on the code.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("brief", settings.get_profile("ci"), max_examples=10)
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
        if ((long := item.get_closest_marker("long")) and os.environ.get(long.args[0]) != "long")
        or (item.get_closest_marker("in_process") and _parameter(item, "place") == "link")
        or (item.get_closest_marker("at_engine") and _parameter(item, "node") == "follower")
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _parameter(item: pytest.Item, name: str) -> object:
    return getattr(getattr(item, "callspec", None), "params", {}).get(name)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
