"""The recipes' pages show code that is in the programs, and the front end of a recipe works."""

from __future__ import annotations

import os
import re
import urllib.request
from pathlib import Path

import pytest
import trio

from tests.cli.served import PATIENCE, Served
from tests.clients.javascript import needs_node, node

HERE = Path(__file__).parent
PAGES = HERE.parent.parent / "docs" / "how-to"
PROGRAMS = {
    "recipe-crawler": ["crawler.py"],
    "recipe-chat-agent": ["chat_agent.py", "chat_client.mjs"],
    "recipe-nightly-flow": ["nightly_flow.py", "nightly.yaml", "nightly_worker.mjs", "nightly.sh"],
}
COMMANDS = "greenroom "


@pytest.mark.parametrize("page", PROGRAMS)
def test_the_code_of_a_recipe_is_in_its_programs(page: str):
    programs = [(HERE / name).read_text(encoding="utf-8") for name in PROGRAMS[page]]
    known = programs + [output(program) for program in programs]
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:python|js|yaml|sh|text)\n(.*?)```", text, re.DOTALL)
    shown = [block for block in blocks if not block.startswith((COMMANDS, "30 2 * * *"))]
    assert len(shown) >= 3
    assert [block for block in shown if not any(block in program for program in known)] == []


def output(program: str) -> str:
    """What a program prints, by its last lines."""
    lines = program.partition("\n# Output:\n")[2].splitlines()
    return "".join(line.removeprefix("#").removeprefix(" ") + "\n" for line in lines)


@needs_node
async def test_the_front_end_of_the_chat_agent_shows_the_answer(tmp_path: Path):
    agent = (HERE / "chat_agent.py").read_text(encoding="utf-8")
    with Served(tmp_path, app=agent) as server, trio.fail_after(PATIENCE):
        with await trio.to_thread.run_sync(urllib.request.urlopen, f"{server.url}/greenroom.js") as module:
            (tmp_path / "greenroom.js").write_bytes(module.read())
        (tmp_path / "client.mjs").write_bytes((HERE / "chat_client.mjs").read_bytes())
        done = await trio.run_process(
            [str(node()), str(tmp_path / "client.mjs")],
            capture_stdout=True,
            env=os.environ | {"GREENROOM_URL": server.url},
        )
    assert done.stdout.decode().splitlines() == [
        "sent: accepted",
        'permit weather {"city":"Lisbon"}',
        "answer: It is sunny in Lisbon.",
    ]
