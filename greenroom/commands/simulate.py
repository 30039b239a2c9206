"""`greenroom simulate`: simulate a seed, or search for one that fails; shrink the failure and print it."""

from __future__ import annotations

import sys
from typing import Any, Literal

import click

from ..modulepath import search_current_folder
from ..simulation.replaying import cut, describe, replay_command
from ..simulation.scenarios.by_name import NAMED, NoScenario, find
from ..simulation.search.hunting import Hunt, NotRepeatable, again, quiet, search
from ..simulation.search.shrinking import shrink
from ..simulation.simulate import Game, SimulationFailed
from ..simulation.world.world import Figures, Scenario
from .param_type import ParamType

_REPORT_EVERY = 5.0
"""Seconds between two lines about the progress of a search."""


class Steps(ParamType[frozenset[int]]):
    """Numbers of steps."""

    name = "steps"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[int]:
        numbers = [number.strip() for number in str(value).split(",") if number.strip()]
        if not all(number.isdecimal() for number in numbers):
            self.fail(f"{value!r} is not a list of step numbers: use 3,7,12, or '' for none", param, ctx)
        return frozenset(map(int, numbers))


@click.command()
@click.option("--seed", type=int, metavar="N", help="The seed, or the first seed of a search (default 1).")
@click.option("--steps", type=click.IntRange(0), metavar="K", help="The number of steps of the scenario.")
@click.option("--keep", type=Steps(), metavar="3,7,12", help="Only these steps.")
@click.option(
    "--scenario",
    "name",
    metavar="NAME",
    default="commands",
    show_default=True,
    help=f"The scenario: {', '.join(NAMED)}; or module:function, also in the current folder.",
)
@click.option(
    "--store",
    type=click.Choice(["memory", "sqlite"]),
    default="memory",
    show_default=True,
    help="The store on the simulated disk.",
)
@click.option(
    "--hunt",
    "seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Simulate seeds on all cores for this time, until one fails.",
)
def simulate(
    seed: int | None,
    steps: int | None,
    keep: frozenset[int] | None,
    name: str,
    store: Literal["memory", "sqlite"],
    seconds: float | None,
) -> None:
    """Run a deterministic simulation of an engine from a seed.

    The same seed gives the same events. Exits with code 0 if no rule was violated, otherwise with code 1. A
    failure is shrunk for at most half a minute: steps that it does not need are removed. Then its trace is
    printed. With --keep the failure is not shrunk.

    \b
    Examples:
      greenroom simulate --seed 7
      greenroom simulate --hunt 60
      greenroom simulate --hunt 600 --seed 100000 --store sqlite
      greenroom simulate --seed 1187 --keep 3,7,12
      greenroom simulate --hunt 60 --scenario shop:two_customers
      greenroom simulate --hunt 60 --scenario flows
    """
    if seed is None and seconds is None:
        raise click.UsageError("--seed N or --hunt SECONDS is required")
    if keep is not None and seconds is not None:
        raise click.UsageError("--keep cannot be combined with --hunt")
    game = Game(_find(name), steps, store)
    with quiet():
        if seconds is not None:
            failed = _hunt(game, seconds, 1 if seed is None else seed)
        else:
            assert seed is not None, "checked above"
            failed = _play(game, seed, keep)
        if failed is None:
            return
        click.echo(f"Seed {failed.seed} fails: {cut(failed.invariant)}")
        if keep is None:
            failed = _shrink(game, failed)
    history, violated = describe(failed)
    click.echo(f"\n{history}")
    click.echo(f"Violated: {violated}")
    click.echo(f"Replay:   {replay_command(failed, game, name)}")
    sys.exit(1)


def _find(name: str) -> Scenario:
    search_current_folder()
    try:
        return find(name)
    except NoScenario as error:
        raise click.UsageError(str(error)) from error
    except Exception as error:
        raise click.UsageError(f"cannot import {name}: {type(error).__name__}: {error}") from error


def _play(game: Game, seed: int, keep: frozenset[int] | None) -> SimulationFailed | None:
    """Simulate one seed. Returns its failure."""
    try:
        played = game.play(seed, keep)
    except SimulationFailed as failed:
        return failed
    click.echo(f"Seed {seed} passes: {_summary(played.figures)}.")
    return None


def _hunt(game: Game, seconds: float, first_seed: int) -> SimulationFailed | None:
    """Search for a seed that fails, and repeat it. Returns its failure."""
    reported = 0.0

    def report(hunt: Hunt) -> None:
        nonlocal reported
        if hunt.seconds - reported >= _REPORT_EVERY:
            reported = hunt.seconds
            click.echo(f"{hunt.seconds:6.0f} s: {hunt.seeds} seeds, {_summary(hunt.figures)}")

    hunt = search(game, seconds=seconds, first_seed=first_seed, report=report)
    processes = "one process" if hunt.processes == 1 else f"{hunt.processes} processes"
    click.echo(f"{hunt.seeds} seeds in {hunt.seconds:.0f} s and {processes}: {_summary(hunt.figures)}.")
    if hunt.failed is None:
        click.echo("No rule was violated.")
        return None
    try:
        return again(hunt.failed, game)
    except NotRepeatable as error:
        raise click.ClickException(str(error)) from error


def _shrink(game: Game, failed: SimulationFailed) -> SimulationFailed:
    small = shrink(failed, game)
    needed = small.figures.steps if small.keep is None else len(small.keep)
    click.echo(f"The failure needs {needed} of its {failed.figures.steps} steps. Trace:")
    return small


def _summary(figures: Figures) -> str:
    return (
        f"{figures.steps:,} steps, {figures.commands:,} commands ({_speed(figures):,.0f} per second), "
        f"{figures.events:,} events, {figures.lives:,} starts, {figures.crashes:,} crashes, "
        f"{figures.faults:,} faults, {_duration(figures.simulated_seconds)}"
    )


def _duration(seconds: float) -> str:
    hours = f"{seconds / 3600:,.1f} simulated hours"
    return hours if seconds >= 3600 else f"{seconds:,.0f} simulated seconds"


def _speed(figures: Figures) -> float:
    """Commands per second of real time and process."""
    return figures.commands / figures.real_seconds if figures.real_seconds else 0.0
