"""The npm package `ws`, which the JavaScript client is tested with.

It has no dependencies, so npm isn't needed for it; and neither is more than the standard library here.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
import urllib.request
from pathlib import Path

WS = "https://registry.npmjs.org/ws/-/ws-8.23.0.tgz"
SHA512 = (
    "c029265fc40c3ab2a380ef075b65b20db4d219eaa4a1cc600f34bd891efdac40"
    "1ec6dcbaff6ab38a5c77020f13a9ff72928a778ab2ca95ed0cb559f9aa3567a1"
)


def fetch_ws(environment: Path) -> str | None:
    """Put it into `node_modules` of a virtual environment, unless it is there. Returns what prevents that."""
    folder = environment / "node_modules" / "ws"
    if folder.exists():
        return None
    try:
        with urllib.request.urlopen(WS, timeout=30) as answer:
            archive = answer.read()
    except OSError as error:
        return f"{WS} could not be fetched: {error}"
    if hashlib.sha512(archive).hexdigest() != SHA512:
        return f"{WS} is not what it was when its checksum was noted in {__file__}"
    with tempfile.TemporaryDirectory(dir=environment) as temporary:
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(temporary)
        folder.parent.mkdir(exist_ok=True)
        os.replace(Path(temporary) / "package", folder)
    return None
