"""The npm package of the JavaScript client: what is in it, and that it works once it is installed."""

from __future__ import annotations

import json
import tarfile
import tomllib
from pathlib import Path

import pytest
import trio

from ..npm import npm
from .javascript import MODULE, PATIENCE, ROOT, node
from .test_javascript import serving
from .typescript import diagnose, needs_typescript, transpiled

NPM = npm(ROOT / ".venv")
PACKAGE = MODULE.parent
PROGRAM = Path(__file__).with_name("program.ts")

needs_npm = pytest.mark.skipif(NPM is None, reason="there is no npm in .venv")


async def run_npm(*arguments: str, folder: Path) -> str:
    """Run npm offline in a folder; returns its output."""
    assert NPM is not None, "the test is marked with `needs_npm`"
    command = [*NPM, *arguments, "--offline", "--no-audit", "--no-fund", "--cache", str(folder / "cache")]
    with trio.fail_after(PATIENCE):
        ended = await trio.run_process(command, cwd=folder, capture_stdout=True)
    return ended.stdout.decode()


async def packed(folder: Path) -> Path:
    """The tarball that would be published."""
    [made] = json.loads(await run_npm("pack", str(PACKAGE), "--json", folder=folder))
    return folder / str(made["filename"])


def test_the_package_has_the_version_and_the_license_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    package = json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))
    assert (package["name"], package["version"]) == (project["name"], project["version"])
    assert (package["license"], package["homepage"]) == (project["license"], project["urls"]["Homepage"])
    assert (PACKAGE / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


@needs_npm
async def test_the_tarball_has_the_client_its_types_and_the_texts(tmp_path: Path):
    with tarfile.open(await packed(tmp_path)) as tarball:
        names = {name.removeprefix("package/") for name in tarball.getnames()}
        assert names == {"package.json", "README.md", "LICENSE", "greenroom.js", "greenroom.d.ts"}
        for name in names:
            content = tarball.extractfile(f"package/{name}")
            assert content is not None
            assert content.read() == (PACKAGE / name).read_bytes()
    exported = json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))["exports"]["."]
    assert exported == {"types": "./greenroom.d.ts", "default": "./greenroom.js"}


@needs_npm
@needs_typescript
async def test_the_installed_package_works_in_node_and_in_typescript(tmp_path: Path):
    tarball = await packed(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    (home / "package.json").write_text("{}", encoding="utf-8")
    await run_npm("install", str(tarball), folder=home)
    declared = "declare const globalThis: { URL: new (url: string) => { href: string } };\n"
    text = declared + PROGRAM.read_text(encoding="utf-8")
    (home / "program.mts").write_text(text, encoding="utf-8")
    assert await diagnose(home / "program.mts", installed=True) == []
    (home / "program.mjs").write_text(await transpiled(text), encoding="utf-8")
    async with serving() as (_, _, url):
        with trio.fail_after(PATIENCE):
            command = [str(node()), str(home / "program.mjs"), url]
            ended = await trio.run_process(command, capture_stdout=True)
    assert ended.stdout.decode().splitlines() == [
        f"connecting at {url}",
        f"connected at {url}",
        "sum 3",
        "status succeeded",
        "refused invalid",
        "executor undefined",
        "same true 1",
        "old 0",
        "flows 0 of 0",
        "leader undefined of 0",
        "closed",
        "state null for the role admin",
        "one of 1: true",
    ]


@needs_npm
@needs_typescript
async def test_typescript_reports_the_package_where_it_is_not_installed(tmp_path: Path):
    (tmp_path / "program.mts").write_text('import { connect } from "greenroom";\n', encoding="utf-8")
    [error] = await diagnose(tmp_path / "program.mts", installed=True)
    assert "Cannot find module 'greenroom'" in error.message
