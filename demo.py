"""See Greenroom at work: `python3 demo.py [--once]`, and its flows: `python3 demo.py flow [--once]`.

It needs only Python. It makes `.venv` in the project's folder unless one is there, installs the project into
it, and then becomes `greenroom demo`, or `greenroom flow demo`.
"""

from __future__ import annotations

import os
import sys

from environment import prepare

python = prepare(tests=False)
arguments = sys.argv[1:]
command = ["flow", "demo", *arguments[1:]] if arguments[:1] == ["flow"] else ["demo", *arguments]
os.execv(python, [str(python), "-P", "-m", "greenroom", *command])
