"""A demonstration of Greenroom: `python3 demo.py [--once]`; and of its flows: `python3 demo.py flow
[--once]`.

It requires only Python. It creates `.venv` in the project's folder if there is none, installs the project
into it, and then executes `greenroom demo`, or `greenroom flow demo`.
"""

from __future__ import annotations

import os
import sys

from environment import prepare

python = prepare(tests=False)
arguments = sys.argv[1:]
command = ["flow", "demo", *arguments[1:]] if arguments[:1] == ["flow"] else ["demo", *arguments]
os.execv(python, [str(python), "-P", "-m", "greenroom", *command])
