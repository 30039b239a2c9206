"""Each example runs, and prints what it says that it prints."""

import inspect
import logging
import runpy
from pathlib import Path

import pytest
import trio
import trio.testing

FILES = {
    file.stem: file
    for file in Path(__file__).parent.glob("*.py")
    if file.stem != "__init__" and not file.stem.startswith("test_")
}
LOGGER = logging.getLogger("greenroom")
REAL_TIME = ("mirror", "threads", "typed_jobs")  # sockets and threads know nothing of a mock clock


@pytest.fixture(autouse=True)
def _restore_logging():
    level = LOGGER.level
    yield
    LOGGER.setLevel(level)


@pytest.mark.parametrize("name", sorted(FILES))
def test_an_example_prints_what_it_says(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)  # some leave files
    main = runpy.run_path(str(FILES[name]))["main"]
    if inspect.iscoroutinefunction(main):
        clock = None if name in REAL_TIME else trio.testing.MockClock(autojump_threshold=0)
        trio.run(main, clock=clock)
    else:
        main()  # it runs trio itself
    assert capsys.readouterr().out == said(FILES[name])


def said(file: Path) -> str:
    """What stands below `# Output:` at the end of an example."""
    _, found, lines = file.read_text(encoding="utf-8").partition("\n# Output:\n")
    assert found, f"{file.name} doesn't say what it prints"
    return "".join(line.removeprefix("#").removeprefix(" ") + "\n" for line in lines.splitlines())
