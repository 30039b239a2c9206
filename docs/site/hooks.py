"""The hooks with which MkDocs makes a site of `docs/`: what plain Markdown in a repository cannot do alone.

- The navigation lists the pages as the tables in `docs/index.md` do, with a section for each heading.
- The examples become pages, so that the site shows each of them.
- Links to files outside `docs/` lead to files in the repository. On the site they lead to the page of the
  example, or to the file at the address of the source (`repo_url`).
- The API reference is read from the sources, whose folders are laid out by `package-dir` in `pyproject.toml`.

MkDocs calls the functions; nothing else imports this module.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
import shutil
import tomllib
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "tests" / "examples"
FLOWS = "examples/flows.md"

_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
_package = TemporaryDirectory(prefix="greenroom-package-")


@event_priority(100)  # before mkdocstrings, which reads the paths at this event
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show mkdocstrings the package as it is installed, and make the navigation."""
    for name, folder in _packages().items():
        target = Path(_package.name, *name.split("."))
        target.mkdir(parents=True, exist_ok=True)
        for module in (ROOT / folder).glob("*.py"):
            shutil.copy(module, target)
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [_package.name]
    config.nav = [{"Greenroom": "index.md"}, *_navigation()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each example program, and one for all example flows."""
    for program in _programs():
        show = _show_notebook if program.suffix == ".ipynb" else _show_program
        files.append(File.generated(config, _page_of(program), content=show(program)))
    files.append(File.generated(config, FLOWS, content=_show_flows()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead each link to where its target is on the site."""
    place = page.file.src_uri
    source = "tests/examples/flows/README.md" if place == FLOWS else f"docs/{place}"
    return _LINK.sub(partial(_lead, page=place, source=source, root=str(config.repo_url)), markdown)


def _lead(link: re.Match[str], page: str, source: str, root: str) -> str:
    path, anchor = link[1], link[2] or ""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if ":" in path or not (ROOT / target).exists():
        return link[0]  # an address, or an error that MkDocs reports
    found, _, within = _place(target).partition("#")
    if not found:
        return f"{root}/{target}{anchor}"
    return posixpath.relpath(found, posixpath.dirname(page)) + (f"#{within}" if within else anchor)


def _place(target: str) -> str:
    """Where on the site a file or folder of the repository is; empty if it is not there."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if target == "tests/examples":
        return "index.md#examples"
    if target.startswith("tests/examples/flows"):
        return FLOWS + (f"#{_anchor(ROOT / target)}" if target.endswith((".yaml", ".json")) else "")
    return _page_of(ROOT / target) if ROOT / target in _programs() else ""


def _navigation() -> list[dict[str, list[dict[str, str]]]]:
    """Each section of the map with the pages of its table."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    sections = []
    for section in index.split("\n## ")[1:]:
        rows = re.findall(r"^\| \[([^\]]+)\]\(([^)]+)\)", section, re.MULTILINE)
        if rows:
            sections.append(
                {
                    section.splitlines()[0]: [
                        {title: _place(posixpath.normpath(f"docs/{link}"))} for title, link in rows
                    ]
                }
            )
    return sections


def _packages() -> dict[str, str]:
    """Each package with its folder. The modules are copied: mkdocstrings does not follow links to folders."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages: dict[str, str] = project["tool"]["setuptools"]["package-dir"]
    return packages


def _programs() -> list[Path]:
    return sorted(
        file
        for file in EXAMPLES.iterdir()
        if file.suffix in {".py", ".ipynb"} and not file.name.startswith(("_", "test_"))
    )


def _page_of(program: Path) -> str:
    return f"examples/{program.stem}.md"


def _anchor(flow: Path) -> str:
    return flow.name.replace(".", "").lower()


def _show_program(program: Path) -> str:
    text = program.read_text(encoding="utf-8")
    return f"# {program.stem}\n\n{_about(text)}\n\n{_block('python', _without_about(text), program)}"


def _about(text: str) -> str:
    """What the docstring of a module says."""
    return ast.get_docstring(ast.parse(text)) or ""


def _without_about(text: str) -> str:
    begin = ast.parse(text).body[0]
    return "".join(text.splitlines(keepends=True)[begin.end_lineno or 0 :]).lstrip("\n")


def _show_notebook(notebook: Path) -> str:
    parts = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        printed = "".join(line for output in cell.get("outputs", ()) for line in output["text"])
        if printed:
            parts.append(f"```text\n{printed}```")
    return "\n\n".join(parts)


def _show_flows() -> str:
    """The table of the flows, and each of them drawn and written out."""
    parts = [(EXAMPLES / "flows" / "README.md").read_text(encoding="utf-8").rstrip()]
    for flow in sorted((EXAMPLES / "flows").iterdir()):
        if flow.suffix in {".yaml", ".json"}:
            drawing = f"../../../docs/pictures/flows/{flow.stem}.svg"
            parts.append(f"## {flow.name} {{ #{_anchor(flow)} }}\n\n![{flow.stem}, drawn]({drawing})")
            parts.append(_block(flow.suffix[1:], flow.read_text(encoding="utf-8"), flow))
    return "\n\n".join(parts)


def _block(language: str, text: str, file: Path) -> str:
    return f'```{language} title="{file.relative_to(ROOT)}"\n{text.rstrip()}\n```'
