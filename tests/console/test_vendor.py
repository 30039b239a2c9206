"""The libraries of the console are those of the pinned versions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import trio

from ..vendor.bundles import BUNDLES, FOLDER, VENDOR, NoPackages, bundle, install


def test_the_folder_has_the_bundles_and_their_licences():
    made = {*(f"{name}.js" for name in BUNDLES), "LICENSES.txt"}
    assert {file.name for file in VENDOR.iterdir()} == made | {"editor.d.ts", "graph.d.ts", "ui.d.ts"}


def test_every_package_has_its_pinned_version_and_its_licence():
    pinned = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))["dependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in pinned.values())
    licences = (VENDOR / "LICENSES.txt").read_text(encoding="utf-8")
    for name, version in pinned.items():
        if name != "esbuild":  # it makes the bundles, and is in none
            assert f"{name} {version}\n" in licences


@pytest.mark.parametrize("name", BUNDLES)
def test_no_library_evaluates_text_as_code(name):
    text = (VENDOR / f"{name}.js").read_text(encoding="utf-8")
    assert not re.search(r"\beval\(|new Function\(|importScripts|https?://(?!www\.w3\.org)[a-z]", text)


async def test_the_bundles_are_those_of_the_pinned_versions(tmp_path: Path):
    try:
        await trio.to_thread.run_sync(install, tmp_path)
    except NoPackages as reason:
        pytest.skip(str(reason))
    made = await trio.to_thread.run_sync(bundle, tmp_path)
    different = [name for name, content in made.items() if (VENDOR / name).read_bytes() != content]
    assert different == [], "run `python -m tests.vendor`"
