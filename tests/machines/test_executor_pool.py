"""Which executors can take a body, which one is chosen, and why none has room."""

from __future__ import annotations

import pytest

from greenroom.actors.scheduling.executor_pool import IN_PROCESS, Demand, ExecutorPool, choose

X = Demand("x")
GPU = Demand("x", ("gpu",))


def pool(local: tuple[str, ...] = (), **executors: int | None) -> ExecutorPool:
    """A pool of executors that have the job `x`, with their slots."""
    made = ExecutorPool(local)
    made.local.slots = 3
    for id, slots in executors.items():
        attach(made, id, slots)
    return made


def attach(
    made: ExecutorPool,
    id: str,
    slots: int | None = 1,
    jobs: str = "x",
    labels: tuple[str, ...] = (),
    draining: bool = False,
) -> None:
    made.ready(id, slots, frozenset(jobs), frozenset(labels), draining=draining)


def able(made: ExecutorPool, demand: Demand) -> list[str | None]:
    return [executor.id for executor in made.able(demand)]


def takes(made: ExecutorPool, run: str, demand: Demand = X) -> str | None:
    """The executor that a run gets."""
    executor = choose(made.able(demand))
    assert executor is not None, "an executor has room"
    made.take(run, executor)
    return executor.id


def test_a_run_can_execute_where_its_job_and_all_its_labels_are() -> None:
    made = pool(local=("x",), a=1)
    attach(made, "b", jobs="y")
    attach(made, "c", labels=("gpu", "big"))
    assert able(made, X) == ["a", "c", None]
    assert able(made, Demand("y")) == ["b"]
    assert able(made, GPU) == ["c"]
    assert able(made, Demand("x", ("gpu", "other"))) == []
    assert able(made, Demand("z")) == []


def test_the_engines_own_process_has_the_jobs_of_the_engine_and_no_labels() -> None:
    made = pool(local=("x",))
    assert able(made, X) == [None]
    assert able(made, GPU) == []
    assert able(made, Demand("y")) == []


def test_an_engine_that_uses_only_other_executors_executes_flows_itself() -> None:
    made = pool(a=1)
    assert able(made, X) == ["a"]
    assert able(made, IN_PROCESS) == [None]


def test_an_executor_that_drains_gets_no_new_bodies_but_its_own_ones_resume() -> None:
    made = pool(a=1)
    attach(made, "a", draining=True)
    assert able(made, X) == []
    assert able(made, Demand(at="a")) == ["a"]
    attach(made, "a")
    assert able(made, X) == ["a"]


def test_an_executor_that_refused_a_job_gets_it_again_after_it_has_attached_again() -> None:
    made = pool(a=1, b=1)
    attach(made, "a", jobs="xy")
    made.unfit("a", "x", "no such module")
    attach(made, "a", jobs="xy")  # it has changed, but is the same process
    assert able(made, X) == ["b"]
    assert able(made, Demand("y")) == ["a"]
    made.removed("a")
    attach(made, "a", jobs="xy")
    assert able(made, X) == ["a", "b"]


def test_what_is_reported_about_an_executor_that_is_gone_changes_nothing() -> None:
    made = pool()
    made.removed("a")
    made.unfit("a", "x", "why")
    attach(made, "a")
    assert able(made, X) == ["a"]


def test_the_executor_with_the_most_free_slots_is_chosen() -> None:
    made = pool(a=2, b=3)
    assert [takes(made, run) for run in "12345"] == ["b", "a", "b", "a", "b"]
    assert choose(made.able(X)) is None
    made.release("2")
    assert takes(made, "6") == "a"


def test_of_equals_attached_executors_precede_the_engines_own_process_and_lower_ids_higher_ones() -> None:
    made = pool(local=("x",), b=3, a=3)
    assert [takes(made, run) for run in "123456789"] == ["a", "b", None, "a", "b", None, "a", "b", None]


def test_executors_without_a_limit_have_the_most_free_slots_and_of_these_the_least_used_is_chosen() -> None:
    made = pool(a=9, b=None, c=None)
    assert [takes(made, run) for run in "1234"] == ["b", "c", "b", "c"]
    made.release("2")
    assert takes(made, "5") == "c"


def test_executors_that_must_be_avoided_are_not_chosen() -> None:
    made = pool(a=9, b=1)
    executor = choose(made.able(X), {"a"})
    assert executor is not None
    assert executor.id == "b"
    assert choose(made.able(X), {"a", "b"}) is None


def test_a_body_resumes_only_at_its_executor_until_it_is_gone() -> None:
    made = pool(a=1, b=9)
    attach(made, "b", 0)
    takes(made, "run")
    made.release("run")
    assert made.body_of("run") == "a"
    assert able(made, Demand(at="a")) == ["a"]
    made.removed("a")
    assert able(made, Demand(at="a")) == []
    made.lose_body("run")
    assert made.body_of("run") is None


def test_a_slot_is_used_until_it_is_released_also_if_its_executor_attaches_again() -> None:
    made = pool(a=1)
    takes(made, "run")
    made.removed("a")
    assert able(made, X) == []
    attach(made, "a")
    assert choose(made.able(X)) is None
    made.release("run")
    assert takes(made, "other") == "a"


def test_an_executor_that_is_gone_is_forgotten_when_its_last_slot_is_released() -> None:
    made = pool(a=1)
    takes(made, "run")
    made.removed("a")
    made.release("run")
    assert made._executors == {}
    made.lose_body("run")
    attach(made, "b")
    made.removed("b")
    assert made._executors == {}
    attach(made, "a")
    assert takes(made, "other") == "a"


def test_a_body_from_before_a_restart_uses_its_slot_before_and_after_its_executor_attaches() -> None:
    made = pool()
    made.restore("run", "a", has_slot=True)
    made.restore("other", "a", has_slot=False)
    assert able(made, X) == []
    assert able(made, Demand(at="a")) == []
    attach(made, "a")
    assert choose(made.able(X)) is None
    assert (made.body_of("run"), made.body_of("other")) == ("a", "a")
    made.release("run")
    assert takes(made, "next") == "a"


@pytest.mark.parametrize(
    ("demand", "why"),
    [
        (Demand("render"), "no executor has the job 'render'"),
        (Demand("render", ("gpu",)), "no executor has the job 'render' with label gpu"),
        (Demand("x", ("big", "gpu")), "no executor has the job 'x' with labels big, gpu"),
        (GPU, "executors b that have job 'x' with label gpu have no free slot"),
        (
            X,
            "executors a, b that have job 'x' have no free slot; executors d that have job 'x' accept no new "
            "bodies; executor c refused job 'x': no such module",
        ),
        (Demand(at="a"), "executor a, which has its body, has no free slot"),
        (Demand(at="z"), "executor z, which has its body, is not attached"),
    ],
)
def test_the_reason_names_what_is_missing(demand: Demand, why: str) -> None:
    made = pool(a=0)
    attach(made, "b", 0, labels=("gpu",))
    attach(made, "c")
    made.unfit("c", "x", "no such module")
    attach(made, "d", draining=True)
    assert made.why_blocked(demand) == why


def test_bodies_in_the_engines_own_process_and_its_children_end_with_the_engine() -> None:
    made = pool(local=("x",))
    takes(made, "here")
    attach(made, "local-1", None)
    takes(made, "child")
    attach(made, "local-1", 0)
    attach(made, "a", None)
    takes(made, "elsewhere")
    assert [made.outlives(run) for run in ("here", "child", "elsewhere")] == [False, False, True]


def test_the_users_of_executors_are_the_runs_that_have_slots_there() -> None:
    made = pool(local=("x",), a=9)
    takes(made, "1")
    attach(made, "a", 0)
    takes(made, "2")
    assert made.users(made.able(X)) == ["1"]
