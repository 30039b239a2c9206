"""`python -m tests.vendor`: renew the libraries of the console in `gateway/console/vendor` from npm.

To use other versions, change `tests/vendor/package.json`, execute `npm install --package-lock-only` in that
folder, and then this program.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from .bundles import VENDOR, bundle, install

with TemporaryDirectory() as name:
    install(Path(name))
    for file, content in bundle(Path(name)).items():
        (VENDOR / file).write_bytes(content)
        print(f"{file}: {len(content):,} bytes")
