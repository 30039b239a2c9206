"""The results of a benchmark: figures, and their output as a table and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
import trio


class Figure(msgspec.Struct, frozen=True):
    """One measurement. `required` is its bound: at least or at most, as `bound` states."""

    name: str
    value: float
    unit: str
    bound: Literal[">=", "<="] | None = None
    required: float | None = None
    note: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether the value is within the bound; `None` without a bound."""
        if self.required is None:
            return None
        return self.value >= self.required if self.bound == ">=" else self.value <= self.required


def as_lines(figures: Iterable[Figure]) -> Iterator[str]:
    """A table, each line as soon as its figure is available."""
    yield f"{'what':<62} {'measured':>16} {'required':>16}"
    for figure in figures:
        required = f"{figure.bound} {_number(figure.required)}" if figure.required is not None else ""
        verdict = {True: "pass", False: "FAIL", None: ""}[figure.passed]
        measured = f"{_number(figure.value)} {figure.unit}".rstrip()
        yield f"{figure.name:<62} {measured:>16} {required:>16}  {verdict}".rstrip()
        if figure.note:
            yield f"    {figure.note}"


def as_json(benchmark: str, figures: Iterable[Figure]) -> str:
    """The same as JSON."""
    results = [msgspec.to_builtins(figure) | {"passed": figure.passed} for figure in figures]
    told: dict[str, Any] = {"benchmark": benchmark, "machine": machine(), "figures": results}
    return msgspec.json.format(msgspec.json.encode(told), indent=2).decode()


def machine() -> dict[str, Any]:
    """The machine on which it was measured."""
    return {
        "python": platform.python_version(),
        "trio": trio.__version__,
        "msgspec": msgspec.__version__,
        "system": platform.platform(),
        "cpus": os.cpu_count(),
    }


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
