"""The commands and programs of the first tutorial work as they are written, for a newcomer."""

from __future__ import annotations

import pytest

from .newcomer import Newcomer, blocks, commands, has_tools, in_a_function

pytestmark = pytest.mark.skipif(not has_tools(), reason="needs git, and Python for other users")

TUTORIAL = "docs/tutorial/first-engine.md"


@pytest.mark.long("GREENROOM_FRESH")  # the README's programs are executed in the same way
def test_the_first_tutorial_works_after_pip_install(newcomer: Newcomer) -> None:
    newcomer.install()
    program, *_, connecting = blocks(TUTORIAL, "python")
    (newcomer.home / "first.py").write_text(program)
    assert newcomer.run("python first.py") == "hello Alice\n"
    (newcomer.home / "app.py").write_text(program.partition("async def main")[0])
    (newcomer.home / "client.py").write_text(newcomer.as_here(in_a_function(connecting)))

    serve, submit, watch, cancel, runs = commands(TUTORIAL)
    with newcomer.started(serve) as server:
        server.wait_for(str(newcomer.port))
        newcomer.run(submit)
        with newcomer.started(watch) as watching:
            watching.wait_for("alice")
        newcomer.run(cancel)
        assert "cancelled" in newcomer.run(runs)
        assert newcomer.run("python client.py") == "hello Alice\n"
