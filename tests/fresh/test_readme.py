"""Every command and every program of the README works as it is written, for a newcomer."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from tests.clients.javascript import node
from tests.servers import Server, make_certificate

from .newcomer import ROOT, Newcomer, blocks, commands, has_tools, in_a_function

pytestmark = pytest.mark.skipif(not has_tools(), reason="needs git, and Python for other users")

README = "README.md"
DEMO = "git clone REPOSITORY greenroom && cd greenroom && python3 demo.py"
TESTS = "git clone REPOSITORY greenroom && cd greenroom && python3 -m tests"


def test_the_demo_runs_in_a_fresh_clone(newcomer: Newcomer) -> None:
    assert DEMO in commands(README)
    with newcomer.started(DEMO) as demo:
        demo.wait_for(r"erin opens an interrupt")
        demo.type("y")
        demo.wait_for(r"erin 7")
        demo.type("q")
        demo.read_to_end()
    assert demo.process.returncode == 0, demo.text


def test_the_command_for_the_tests_is_that_of_ci() -> None:
    assert TESTS in commands(README)
    assert f"\n{TESTS.rpartition(' && ')[2]}\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.long("GREENROOM_FRESH")  # `.ci/run` does the same with all tests
def test_the_tests_run_in_a_fresh_clone(newcomer: Newcomer) -> None:
    # The README names `-k layers`. One process and one file: each process that collects all tests takes long.
    text = newcomer.run(f"{TESTS} -k layers -n 0 tests/test_layers.py", cwd=newcomer.home)
    assert " passed" in text


def test_the_programs_and_commands_run_after_pip_install(newcomer: Newcomer, postgresql: Server) -> None:
    newcomer.install("[postgres]")
    program, connecting = blocks(README, "python")
    embed, app = newcomer.home / "embed.py", newcomer.home / "app.py"
    embed.write_text(program)
    assert "{'pages': 10}" in newcomer.run("python embed.py")
    app.write_text(program.partition("async def main")[0])
    newcomer.run("rm greenroom.db*")

    left = commands(README)
    for command in (DEMO, TESTS, *(line for line in left if line.startswith(".venv/bin/"))):
        left.remove(command)  # they are for the clone, and have other tests

    def take(start: str) -> str:
        """The next command of the README, which must begin with this."""
        command = next(line for line in left if line.startswith(start))
        left.remove(command)
        return command

    newcomer.run(take("greenroom flow demo") + " --once")
    with newcomer.started(take("greenroom serve app:jobs")) as server:
        server.wait_for(str(newcomer.port))
        with newcomer.started(take("greenroom worker")) as worker:
            worker.wait_for("sum")
            order = newcomer.home / "order.yaml"
            order.write_text(blocks(README, "yaml")[0])
            newcomer.run(take("greenroom flow publish order.yaml"))
            with newcomer.started(take("greenroom flow run order")) as flow:
                flow.wait_for("approve")
                interrupts = json.loads(newcomer.run("greenroom state --json"))["interrupts"]
                newcomer.run(f"greenroom answer {next(iter(interrupts))} yes")
                flow.read_to_end()
            assert flow.process.returncode == 0, flow.text
        with newcomer.started(take("greenroom executor app:jobs")) as executor:
            executor.wait_for("attached to the engine")
        newcomer.run(take("greenroom submit mirror"))
        with newcomer.started(take("greenroom watch")) as watch:
            watch.wait_for("alice")
        assert '"run_id"' in newcomer.run(take("curl http://127.0.0.1:8440/api/runs"))
        with newcomer.started(take("curl --no-buffer http://127.0.0.1:8440/api/events")) as events:
            events.wait_for("id: ")
        newcomer.run("greenroom cancel alice")

        (newcomer.home / "client.py").write_text(newcomer.as_here(in_a_function(connecting)))
        assert "'pages': 10" in newcomer.run("python client.py")
        run_javascript(newcomer)

        newcomer.run(take("greenroom config check"))
        newcomer.run(take("greenroom lanes set images 4"))
        newcomer.run(take("greenroom db backup copy.db"))
        newcomer.run(take("greenroom drain --wait"))
    with newcomer.started(take("greenroom serve app:jobs --executors 4")) as server:
        server.wait_for(str(newcomer.port))
    newcomer.run(take("greenroom token add alice"))
    certificate, key = make_certificate(newcomer.home, "localhost")
    certificate.rename(newcomer.home / "cert.pem")
    key.chmod(0o644)  # the new user must read a file of another user
    newcomer.run("rm greenroom.db*")
    command = take("greenroom serve app:jobs --host 0.0.0.0").replace("0.0.0.0", "127.0.0.1")
    with newcomer.started(command) as server:
        server.wait_for(f"https://127.0.0.1:{newcomer.port}")
    run_a_node(newcomer, take("greenroom serve app:jobs --store"), take("greenroom cluster"), postgresql)
    assert not left, "commands of the README that no test runs"


def run_a_node(newcomer: Newcomer, serve: str, status: str, postgresql: Server) -> None:
    """One node of a cluster, with what its documentation prepares before."""
    store = postgresql.fresh_database()
    newcomer.run(f"greenroom db upgrade --store {store}")
    newcomer.run("(umask 077; openssl rand -hex 32 > cluster-secret)")
    newcomer.environment["GREENROOM_CLUSTER_SECRET_FILE"] = "cluster-secret"
    with newcomer.started(serve.replace("postgresql://…", store)) as node:
        node.wait_for("leads the cluster")
        assert " leader " in newcomer.run(status)


def run_javascript(newcomer: Newcomer) -> None:
    """The program in JavaScript, with the client that the gateway serves. Skipped without Node."""
    found = node()
    if found is None:
        return
    copied = newcomer.home / "node"  # Node can be in a folder that only root can read
    shutil.copy(found, copied)
    os.chmod(copied, 0o755)
    newcomer.run("curl -fsSO http://127.0.0.1:8440/greenroom.js")
    (newcomer.home / "client.mjs").write_text(newcomer.as_here(blocks(README, "js")[0]))
    assert "pages: 10" in newcomer.run("./node client.mjs")
