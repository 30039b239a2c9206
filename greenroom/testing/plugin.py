"""The pytest plugin: two fixtures that open engines, and reports of failed simulations.

pytest imports this module in every session of an environment that has Greenroom, so it imports nothing but
pytest. The engine is imported when a test requests a fixture, and the simulation only by tests themselves.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .engines import AioEngines, Engines

_SIMULATION = "greenroom.simulation.simulate"


@pytest.fixture
def _greenroom_trio_test(request: pytest.FixtureRequest) -> None:
    """Refuse a test of another kind than `greenroom_engine` serves, before pytest gives it an iterator."""
    if not request.config.pluginmanager.hasplugin("trio"):
        pytest.fail(
            "fixture 'greenroom_engine' requires pytest-trio, which is not installed or not active: run "
            "`pip install pytest-trio`. An asyncio test uses the fixture 'greenroom_aio_engine'.",
            pytrace=False,
        )
    if request.node.get_closest_marker("trio") is None:
        pytest.fail(
            f"fixture 'greenroom_engine' requires a trio test, and {request.node.name!r} is none: mark it "
            "with @pytest.mark.trio, or set `trio_mode = true` in the configuration of pytest. An asyncio "
            "test uses the fixture 'greenroom_aio_engine'.",
            pytrace=False,
        )


@pytest.fixture
async def greenroom_engine(_greenroom_trio_test: None, tmp_path: Path) -> AsyncIterator[Engines]:
    """Open engines in a trio test: `engine = await greenroom_engine(jobs)`. The test's end closes them."""
    from .engines import opening_engines

    async with opening_engines(tmp_path) as engines:
        yield engines


@pytest.fixture
def greenroom_aio_engine(tmp_path: Path) -> AioEngines:
    """Open engines in an asyncio test: `async with greenroom_aio_engine(jobs) as engine`."""
    from .engines import AioEngines

    return AioEngines(tmp_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the event history of a failed simulation to the report, and the command that replays it."""
    if call.excinfo is None or _SIMULATION not in sys.modules:
        return (yield)
    from .failures import failures_in, history, replay

    failures = failures_in(call.excinfo.value)
    for failed in failures:
        note = replay(failed, Path.cwd())
        if note not in getattr(failed, "__notes__", ()):  # a fixture that failed fails each of its tests
            failed.add_note(note)
    report = yield
    for failed in failures:
        complete = item.config.get_verbosity() >= 2
        report.sections.append((f"simulation of seed {failed.seed}", history(failed, complete=complete)))
    return report
