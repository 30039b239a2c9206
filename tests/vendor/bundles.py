"""Bundles the libraries that the console needs into ES modules, one per file of this folder.

`package.json` pins the versions, and `package-lock.json` the contents of all packages. The bundles do not
depend on the machine, so a test can compare those in `gateway/console/vendor` with new ones.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from ..npm import npm

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
VENDOR = ROOT / "gateway" / "console" / "vendor"
BUNDLES = ("ui", "graph", "editor")
_INSTALL = ("ci", "--ignore-scripts", "--no-audit", "--no-fund")


class NoPackages(Exception):
    """npm could not fetch the packages."""


def install(folder: Path) -> None:
    """Install the pinned packages in an empty folder. Raises `NoPackages`, for example offline."""
    command = npm(ROOT / ".venv")
    if command is None:
        raise NoPackages("there is no npm in .venv")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(FOLDER / name, folder)
    try:
        ended = subprocess.run(
            [*command, *_INSTALL, "--prefix", folder, "--cache", folder / "cache"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoPackages(f"npm could not install the packages: {error}") from error
    if ended.returncode:
        raise NoPackages(f"npm could not install the packages: {ended.stderr.strip()}")


def bundle(folder: Path) -> dict[str, bytes]:
    """The files of `gateway/console/vendor` that are made of the packages in this folder, by name."""
    for name in BUNDLES:
        shutil.copy(FOLDER / f"{name}.js", folder)
    out = folder / "bundles"
    command = [
        *(folder / "node_modules" / "@esbuild").glob("*/bin/esbuild"),
        *(f"{name}.js" for name in BUNDLES),
        *("--bundle", "--minify", "--format=esm", "--target=es2022", "--legal-comments=none"),
        *(f"--outdir={out}", f"--metafile={folder / 'meta.json'}", "--log-level=warning"),
    ]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    made = {f"{name}.js": (out / f"{name}.js").read_bytes() for name in BUNDLES}
    inputs = json.loads((folder / "meta.json").read_text(encoding="utf-8"))["inputs"]
    made["LICENSES.txt"] = _licenses(folder, {_package(path) for path in inputs} - {""})
    return made


def _package(path: str) -> str:
    """The name of the package that a source file belongs to; empty for a file of this folder."""
    parts = path.split("/")
    if parts[0] != "node_modules":
        return ""
    return "/".join(parts[1:3] if parts[1].startswith("@") else parts[1:2])


def _licenses(folder: Path, packages: set[str]) -> bytes:
    texts = []
    for name in sorted(packages):
        place = folder / "node_modules" / name
        version = json.loads((place / "package.json").read_text(encoding="utf-8"))["version"]
        [license] = [file for file in place.iterdir() if file.stem.lower() in ("license", "licence")]
        texts.append(f"{name} {version}\n\n{license.read_text(encoding='utf-8').strip()}\n")
    return ("\n" + "-" * 72 + "\n\n").join(texts).encode()
