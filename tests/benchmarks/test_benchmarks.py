"""The benchmarks still run, in small; what they measure is nobody's business here."""

import logging

import msgspec
import pytest

from . import memory
from .figures import as_json, as_lines


@pytest.fixture
def _in_small(monkeypatch: pytest.MonkeyPatch):
    sizes = {"HANDLES": 10, "RUNS": 20, "ROUNDS": 1, "SHORT": 20, "LONG": 200, "TRACED": 20, "IDLE_RUNS": 5}
    for name, size in {**sizes, "SHORT_TIMES": 1}.items():
        monkeypatch.setattr(memory, name, size)
    logger = logging.getLogger("greenroom")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.mark.usefixtures("_in_small")
def test_the_memory_benchmark_tells_the_same_to_people_and_to_programs():
    figures = list(memory.measure())
    told = msgspec.json.decode(as_json("memory", figures))
    assert [figure["name"] for figure in told["figures"]] == [figure.name for figure in figures]
    table = "\n".join(as_lines(figures))
    assert all(figure.name in table for figure in figures)
    assert sum(figure.passed is not None for figure in figures) == 5
