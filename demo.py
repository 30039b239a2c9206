"""See Greenroom at work: `python3 demo.py [--once]`.

It needs only Python. It makes `.venv` in the project's folder unless one is there, installs the project into
it, and then becomes `greenroom demo`.
"""

from __future__ import annotations

import os
import sys

from environment import prepare

python = prepare(tests=False)
os.execv(python, [str(python), "-m", "greenroom", "demo", *sys.argv[1:]])
