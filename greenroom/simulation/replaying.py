"""A failed simulation for a person: its event history, the broken rule, and the command that replays it."""

from __future__ import annotations

import shlex

from .scenarios.by_name import BUILT_IN, NAMED
from .simulate import Game, SimulationFailed
from .world.story import Storyteller

_LONGEST = 1_000


def describe(failed: SimulationFailed) -> tuple[str, str]:
    """The event history of the failure, a line for each entry, and the rule that was broken."""
    storyteller = Storyteller()
    history = storyteller.tell(failed.trace.entries)
    return history, cut(storyteller.named(failed.invariant))


def cut(text: str) -> str:
    """The text, at most as long as a person reads."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def replay_command(failed: SimulationFailed, game: Game, name: str) -> str:
    """The command that replays the failure of a game whose scenario has this name."""
    words = ["greenroom", "simulate", "--seed", str(failed.seed)]
    words += [] if failed.keep is None else ["--keep", ",".join(map(str, failed.keep))]
    words += [] if NAMED.get(name, name) == BUILT_IN else ["--scenario", name]
    words += [] if game.steps is None else ["--steps", str(game.steps)]
    words += [] if game.store == "memory" else ["--store", game.store]
    return shlex.join(words)
