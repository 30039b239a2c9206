"""The import path of modules in arguments, such as `app` in `greenroom serve app:jobs`.

The current folder is searched last. So a file such as `queue.py`, `types.py` or `greenroom.py` in it never
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
    """Make the modules in these folders importable, after all folders of the current import path."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)
