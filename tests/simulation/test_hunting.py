"""A hunt plays seed after seed, here or in several processes, and stops at the first that fails."""

import logging
import re
import sys

import attrs
import pytest

from greenroom.simulation import SimulationFailed, World, hunt, simulate
from greenroom.simulation.scenarios.by_name import NoScenario, find, name_of
from greenroom.simulation.search import hunting
from greenroom.simulation.search.hunting import Hunt, NotRepeatable, Played, search
from greenroom.simulation.simulate import Game
from tests.simulation import shop

TWICE = "nobody_is_charged_twice"


@pytest.mark.parametrize("processes", [1, 2])
def test_a_hunt_names_a_seed_that_fails(processes: int):
    found = search(Game(shop.careless), seconds=60, processes=processes)

    assert found.failed is not None
    assert TWICE in found.failed.invariant
    with pytest.raises(SimulationFailed, match=TWICE):
        simulate(found.failed.seed, shop.careless)


def test_in_one_process_it_is_the_first_seed_that_fails():
    found = search(Game(shop.careless), seconds=60, processes=1, first_seed=100)
    assert found.failed is not None
    for seed in range(100, found.failed.seed):
        simulate(seed, shop.careless)
    assert found.seeds == found.failed.seed - 99


def test_the_failure_that_a_hunt_raises_is_small_and_can_be_replayed():
    with pytest.raises(SimulationFailed, match=TWICE) as info:
        hunt(shop.careless, seconds=60, processes=1)

    assert info.value.keep is not None
    assert len(info.value.keep) <= 6  # of 20
    with pytest.raises(SimulationFailed) as again:
        simulate(info.value.seed, shop.careless, keep=info.value.keep)
    assert again.value.trace.text() == info.value.trace.text()


@pytest.mark.parametrize("processes", [1, 2])
def test_a_hunt_without_a_failure_reports_how_much_was_played(processes: int):
    reports: list[int] = []
    found = hunt(
        shop.careful,
        seconds=1.5,
        steps=5,
        processes=processes,
        report=lambda so_far: reports.append(so_far.seeds),
    )

    assert found.processes == processes
    assert found.failed is None
    assert found.figures.steps == 5 * found.seeds > 0
    assert found.figures.commands > 0
    assert len(reports) >= 2
    assert reports == sorted(reports)


def test_what_a_scenario_prints_does_not_disturb_the_hunt(capfd: pytest.CaptureFixture[str]):
    count = hunt(shop.talkative, seconds=1, processes=2).seeds
    captured = capfd.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == count > 0


def test_no_seed_is_played_twice(capfd: pytest.CaptureFixture[str]):
    hunt(shop.talkative, seconds=1, processes=2, first_seed=40)
    said = capfd.readouterr().err  # two processes write at the same time, so lines can be mixed
    seeds = [int(seed) for seed in re.findall(r"seed (\d+)", said)]
    assert len(set(seeds)) == len(seeds)
    assert {40, 41} <= set(seeds)


def test_a_seed_that_never_ends_times_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hunting, "PATIENCE", 2.0)
    found = search(Game(shop.endless), seconds=1, processes=2, first_seed=7)
    assert found.failed is not None
    assert found.failed.endless
    assert found.failed.seed in (7, 8)
    with pytest.raises(NotRepeatable, match="timed out: still running 2 s after"):
        hunt(shop.endless, seconds=1, processes=2)


def test_a_failure_that_cannot_be_replayed_is_reported_as_such():
    shop.played.clear()
    with pytest.raises(NotRepeatable, match="passes when it is replayed"):
        hunt(shop.forgetful, seconds=60, processes=1)


def test_a_scenario_that_other_processes_cannot_import_is_played_in_this_process():
    seeds: list[int] = []

    async def scenario(world: World) -> None:
        seeds.append(world.seed)

    found = search(Game(scenario), seconds=0.2, processes=4, first_seed=10)
    assert found.processes == 1
    assert seeds == list(range(10, 10 + found.seeds))


def test_the_engines_log_is_silent_while_it_hunts(caplog: pytest.LogCaptureFixture):
    async def scenario(world: World) -> None:
        logging.getLogger("greenroom").error("as provoked")

    assert hunt(scenario, seconds=0.1).seeds > 0
    assert not caplog.records
    logging.getLogger("greenroom").error("afterwards")
    assert caplog.messages == ["afterwards"]


def test_a_hunt_adds_the_figures_of_all_its_seeds():
    one, two = simulate(1, shop.careful).figures, simulate(2, shop.careful).figures
    together = Hunt(1)
    together.take(Played(1, attrs.asdict(one)))
    together.take(Played(2, attrs.asdict(two)))
    assert together.seeds == 2
    assert together.figures.commands == one.commands + two.commands
    assert together.figures.simulated_seconds == one.simulated_seconds + two.simulated_seconds


# Names.


def test_a_scenario_is_found_by_its_name():
    name = name_of(shop.careful)
    assert name == "tests.simulation.shop:careful"
    assert find(name) is shop.careful


def test_a_scenario_that_another_process_cannot_import_has_no_name(monkeypatch: pytest.MonkeyPatch):
    async def local(world: World) -> None: ...

    assert name_of(local) is None
    monkeypatch.setattr(shop.careful, "__module__", "__main__")
    assert name_of(shop.careful) is None
    monkeypatch.setattr(shop.careful, "__module__", "never.imported")
    assert name_of(shop.careful) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("shop", "use module:function"),
        (":shop", "use module:function"),
        ("no_such_module:shop", "module 'no_such_module' of scenario .* not found"),
        ("tests.no_such_module:shop", "module 'tests.no_such_module' of scenario .* not found"),
        ("tests.simulation.shop:nothing", "has no function 'nothing'"),
        ("tests.simulation.shop:played", "must be a function .got list."),
    ],
)
def test_an_unknown_scenario_is_refused(name: str, why: str):
    with pytest.raises(NoScenario, match=why):
        find(name)


def test_a_module_whose_import_fails_is_not_reported_as_not_found(tmp_path, monkeypatch):
    (tmp_path / "lacking_scenario.py").write_text("import no_such_module_either\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_either"):
        find("lacking_scenario:shop")
    sys.modules.pop("lacking_scenario", None)
