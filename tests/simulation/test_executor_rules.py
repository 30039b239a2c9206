"""The rules about executors, called directly."""

from greenroom.simulation.model.state import ModelState
from greenroom.simulation.rules.executors import ExecutorRules, Process


def test_an_early_sign_of_life_that_arrives_late_makes_no_executor_silent():
    now, faults = 0.0, []
    rules = ExecutorRules(ModelState(), lambda: now, lambda handle: set(), faults.append)
    rules.begin_life(10.0, alone=False)
    process = Process("e1", "start")
    now = 30.0
    rules.heard("start", 29.0)
    rules.heard("start", 5.0)  # a paused leader receives it
    assert not rules._is_lost(process)
    now = 29.0 + 10.0
    assert rules._is_lost(process)
