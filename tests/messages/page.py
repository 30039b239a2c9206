"""The page with all texts, `docs/reference/messages.md`, sorted by kind and by module."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from .collecting import ROOT, Kind, messages

PAGE = ROOT / "docs" / "reference" / "messages.md"

_HEAD = """# Messages

Every text that Greenroom's Python code can show, with sample values. Use this page to find a message that you
have received and the module that reports it. `<name>` is a value without a sample. [Errors](errors.md)
explains the error codes. `python -m tests.messages` generates this page from the code.
"""
_TITLES: dict[Kind, str] = {
    "error": "Errors",
    "log": "Log lines",
    "help": "Help texts",
    "text": "Parts of messages and other output",
}


def page() -> str:
    """The page for the current code."""
    found = sorted(
        (message for message in messages() if not _is_internal(message.module)),
        key=lambda message: (list(_TITLES).index(message.kind), message.module, message.line),
    )
    lines = [_HEAD]
    for kind, of_kind in groupby(found, key=lambda message: message.kind):
        lines.append(f"## {_TITLES[kind]}\n")
        for module, of_module in groupby(of_kind, key=lambda message: message.module):
            texts = dict.fromkeys(_as_lines(message.text) for message in of_module)
            lines.append(f"### {module}\n\n```text\n" + "\n".join(texts) + "\n```\n")
    return "\n".join(lines)


def _is_internal(module: str) -> bool:
    """The story of a simulation is told in texts of its own, which `docs/how-to/simulation.md` shows."""
    return "simulation" in Path(module).parts


def _as_lines(text: str) -> str:
    return text.strip().replace("```", "'''")
