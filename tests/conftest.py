"""How Hypothesis searches: at random on a desk, and the same way each time where `CI` is set."""

import os

from hypothesis import settings

# No deadline in either: how long one example takes says more about the machine than about the code.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")
