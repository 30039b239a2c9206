"""`greenroom simulate`: play a seed, or hunt for one that fails; make that small, and tell its story."""

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
"""Seconds between two lines about a hunt."""


class Steps(ParamType[frozenset[int]]):
    """Numbers of steps."""

    name = "steps"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[int]:
        numbers = [number.strip() for number in str(value).split(",") if number.strip()]
        if not all(number.isdecimal() for number in numbers):
            self.fail(f"{value!r} are no numbers of steps: write 3,7,12, or '' for none", param, ctx)
        return frozenset(map(int, numbers))


@click.command()
@click.option("--seed", type=int, metavar="N", help="The seed to play, or the first one of a hunt (1).")
@click.option("--steps", type=click.IntRange(0), metavar="K", help="How many steps the scenario takes.")
@click.option("--keep", type=Steps(), metavar="3,7,12", help="Take these of its steps only.")
@click.option(
    "--scenario",
    "name",
    metavar="NAME",
    default="commands",
    show_default=True,
    help=f"What is played: {', '.join(NAMED)}; or module:function, also of this folder.",
)
@click.option(
    "--store",
    type=click.Choice(["memory", "sqlite"]),
    default="memory",
    show_default=True,
    help="Which store the simulated disk holds.",
)
@click.option(
    "--hunt",
    "seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Play seed after seed for so long, on every core, until one fails.",
)
def simulate(
    seed: int | None,
    steps: int | None,
    keep: frozenset[int] | None,
    name: str,
    store: Literal["memory", "sqlite"],
    seconds: float | None,
) -> None:
    """Play an engine in a simulated world, from a seed: the same seed gives the same story.

    Exits with 0 if every rule held, with 1 if one was broken; then steps that the failure doesn't need are
    left out for as long as half a minute, and the story of what is left is told. With --keep it is played
    as it is.

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
        raise click.UsageError(
            "say which seed to play with --seed N, or how long to hunt with --hunt SECONDS"
        )
    if keep is not None and seconds is not None:
        raise click.UsageError("--keep is for one seed: leave --hunt out")
    game = Game(_find(name), steps, store)
    with quiet():
        if seconds is not None:
            failed = _hunt(game, seconds, 1 if seed is None else seed)
        else:
            assert seed is not None, "one of the two was given"
            failed = _play(game, seed, keep)
        if failed is None:
            return
        click.echo(f"Seed {failed.seed} fails: {cut(failed.invariant)}")
        if keep is None:
            failed = _shrink(game, failed)
    history, broken = describe(failed)
    click.echo(f"\n{history}")
    click.echo(f"Broken: {broken}")
    click.echo(f"Again:  {replay_command(failed, game, name)}")
    sys.exit(1)


def _find(name: str) -> Scenario:
    search_current_folder()
    try:
        return find(name)
    except NoScenario as error:
        raise click.UsageError(str(error)) from error
    except Exception as error:
        raise click.UsageError(f"{name} can't be imported: {type(error).__name__}: {error}") from error


def _play(game: Game, seed: int, keep: frozenset[int] | None) -> SimulationFailed | None:
    """Play one seed; returns its failure."""
    try:
        played = game.play(seed, keep)
    except SimulationFailed as failed:
        return failed
    click.echo(f"Seed {seed} survives: {_told(played.figures)}.")
    return None


def _hunt(game: Game, seconds: float, first_seed: int) -> SimulationFailed | None:
    """Hunt, and play the seed again that has failed."""
    said = 0.0

    def report(hunt: Hunt) -> None:
        nonlocal said
        if hunt.seconds - said >= _REPORT_EVERY:
            said = hunt.seconds
            click.echo(f"{hunt.seconds:6.0f} s: {hunt.seeds} seeds, {_told(hunt.figures)}")

    hunt = search(game, seconds=seconds, first_seed=first_seed, report=report)
    processes = "one process" if hunt.processes == 1 else f"{hunt.processes} processes"
    click.echo(f"{hunt.seeds} seeds in {hunt.seconds:.0f} s and {processes}: {_told(hunt.figures)}.")
    if hunt.failed is None:
        click.echo("Every rule held.")
        return None
    try:
        return again(hunt.failed, game)
    except NotRepeatable as error:
        raise click.ClickException(str(error)) from error


def _shrink(game: Game, failed: SimulationFailed) -> SimulationFailed:
    small = shrink(failed, game)
    needed = small.figures.steps if small.keep is None else len(small.keep)
    click.echo(
        f"Of the {failed.figures.steps} steps that it took until then, {needed} are needed. The story:"
    )
    return small


def _told(figures: Figures) -> str:
    return (
        f"{figures.steps:,} steps, {figures.commands:,} commands ({_speed(figures):,.0f} per second), "
        f"{figures.events:,} events, {figures.lives:,} starts, {figures.crashes:,} crashes, "
        f"{figures.faults:,} faults, {_duration(figures.simulated_seconds)}"
    )


def _duration(seconds: float) -> str:
    hours = f"{seconds / 3600:,.1f} simulated hours"
    return hours if seconds >= 3600 else f"{seconds:,.0f} simulated seconds"


def _speed(figures: Figures) -> float:
    """Commands per second of real time, of each process."""
    return figures.commands / figures.real_seconds if figures.real_seconds else 0.0
