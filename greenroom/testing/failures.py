"""What the report of a test shows of a failed simulation."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from ..simulation.replaying import describe, replay_command
from ..simulation.scenarios.by_name import name_of
from ..simulation.simulate import SimulationFailed

_LINES = 200


def failures_in(error: BaseException) -> list[SimulationFailed]:
    """The failed simulations among an error, what it was raised from, and the members of groups."""
    found: list[SimulationFailed] = []
    seen: set[int] = set()
    open = [error]
    while open:
        error = open.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        if isinstance(error, SimulationFailed):
            found.append(error)
            continue
        if isinstance(error, BaseExceptionGroup):
            open.extend(error.exceptions)
        cause = error.__cause__ if error.__suppress_context__ else error.__cause__ or error.__context__
        if cause is not None:
            open.append(cause)
    return found


def history(failed: SimulationFailed, *, complete: bool) -> str:
    """The event history and the broken rule; of a long history, only the end unless it is to be complete."""
    text, rule = describe(failed)
    lines = text.splitlines()
    if not complete and len(lines) > _LINES:
        left_out = f"… {len(lines) - _LINES:,} earlier lines: pytest -vv shows them"
        lines = [left_out, *lines[-_LINES:]]
    return "\n".join([*lines, "", f"Violated: {rule}"])


def replay(failed: SimulationFailed, folder: Path) -> str:
    """How the failure is replayed: the command, as it can be typed in the folder, or a call."""
    keep = "" if failed.keep is None else f", keep={list(failed.keep)}"
    if failed.game is None:
        return "Replay: not by seed, because the simulation was given a chooser."
    name = name_of(failed.game.scenario)
    if name is None:
        return (
            f"Replay: simulate({failed.seed}, {_called(failed.game.scenario)}{keep}). "
            "`greenroom simulate` can replay a scenario that is a function of a module."
        )
    command = replay_command(failed, failed.game, name)
    home = _home(name.partition(":")[0])
    if home is None or home == folder:
        return f"Replay: {command}"
    return f"Replay: cd {shlex.quote(_relative(home, folder))} && {command}"


def _called(scenario: Callable[..., object]) -> str:
    return getattr(scenario, "__name__", repr(scenario))


def _home(module: str) -> Path | None:
    """The folder in which a command finds the module; `None` if the module is Greenroom's own."""
    file = sys.modules[module].__file__
    if module.partition(".")[0] == "greenroom" or file is None:
        return None
    path = Path(file).resolve()
    above = module.count(".") + (path.stem == "__init__")
    return path.parents[above]


def _relative(home: Path, folder: Path) -> str:
    try:
        return str(home.relative_to(folder.resolve()))
    except ValueError:
        return str(home)
