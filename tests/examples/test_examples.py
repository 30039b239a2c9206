"""Each example runs, and prints the output at its end."""

import asyncio
import contextlib
import inspect
import io
import json
import logging
import os
import runpy
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import trio
import trio.testing
from opentelemetry import trace
from opentelemetry.util._once import Once

from greenroom import Jobs, Run, open_engine
from greenroom.gateway import GatewayConfig, open_gateway
from tests.clients.javascript import node

FILES = {
    file.stem: file
    for file in Path(__file__).parent.glob("*.py")
    if file.stem != "__init__" and not file.stem.startswith("test_")
}
NOTEBOOK = Path(__file__).parent / "notebook.ipynb"
LOGGER = logging.getLogger("greenroom")
# Processes, sockets and threads ignore a mock clock.
REAL_TIME = ("crawler", "mirror", "threads", "typed_jobs")
NODE = ("nightly_flow",)  # they start Node and the command line


def programs() -> list[str]:
    """The folders of `greenroom` and `node`."""
    found = node()
    if found is None:
        pytest.skip("Node is not installed")
    return [str(Path(sys.executable).parent), str(Path(found).parent)]


@pytest.fixture(autouse=True)
def _restore_process():
    """A program can change the level of a logger, the environment and the tracer provider; later tests must
    not see that."""
    level = LOGGER.level
    provider = patch.multiple(trace, _TRACER_PROVIDER=None, _TRACER_PROVIDER_SET_ONCE=Once())
    with patch.dict(os.environ), provider:
        yield
    LOGGER.setLevel(level)


@pytest.mark.parametrize("name", sorted(FILES))
def test_an_example_prints_its_output(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)  # some leave files
    if name in NODE:
        monkeypatch.setenv("PATH", os.pathsep.join([*programs(), os.environ["PATH"]]))
    main = runpy.run_path(str(FILES[name]))["main"]
    if inspect.iscoroutinefunction(main):
        clock = None if name in REAL_TIME else trio.testing.MockClock(autojump_threshold=0)
        trio.run(main, clock=clock)
    else:
        main()  # it runs trio itself
    assert capsys.readouterr().out == output(FILES[name])


def test_a_notebook_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch):
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    jobs = Jobs()

    @jobs.job
    async def square(run: Run, params: dict[str, int]) -> int:
        return params["n"] ** 2

    def run_cells() -> None:
        asyncio.run(execute())

    async def execute() -> None:
        """As in a kernel: each cell is executed where an asyncio loop is running."""
        names: dict[str, object] = {}
        for cell in cells:
            if cell["cell_type"] == "code":
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    exec("".join(cell["source"]), names)
                assert printed.getvalue() == "".join(
                    line for shown in cell["outputs"] for line in shown["text"]
                )

    async def main() -> None:
        async with (
            open_engine(jobs, "memory:") as engine,
            open_gateway(engine, GatewayConfig(port=0)) as gateway,
        ):
            monkeypatch.setenv("GREENROOM_URL", gateway.url)
            await trio.to_thread.run_sync(run_cells)

    trio.run(main)


def output(file: Path) -> str:
    """The text below `# Output:` at the end of an example."""
    _, found, lines = file.read_text(encoding="utf-8").partition("\n# Output:\n")
    assert found, f"{file.name} has no output at its end"
    return "".join(line.removeprefix("#").removeprefix(" ") + "\n" for line in lines.splitlines())
