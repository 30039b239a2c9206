"""Where commands find the modules that people name, such as `app` in `greenroom serve app:jobs`.

The current folder is searched last. A file there called `queue.py`, `types.py` or `greenroom.py` then never
replaces a module of Python, of Greenroom or of an installed package.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable


def search_current_folder() -> None:
    """Make the modules in the current folder importable."""
    search_also([os.getcwd()])


def search_also(folders: Iterable[str]) -> None:
    """Make the modules in these folders importable, after everything that is importable already."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)
