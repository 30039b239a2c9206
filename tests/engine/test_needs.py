"""The labels that a run needs: those of its job and those of its submission."""

from __future__ import annotations

import msgspec
import pytest

from greenroom import Jobs, Run
from greenroom.actors.executors.checks import submit_options
from greenroom.actors.jobs import announced_job
from greenroom.errors import Invalid
from greenroom.executor.announcing import announced
from greenroom.persistence.memory import MemoryStore
from greenroom.protocol.executors import CallChild
from greenroom.protocol.submission import SubmitOptions, to_wire

from ..support import open_engine

FLOW = {"start": "a", "nodes": {"a": {"kind": "choice"}}, "edges": []}


def make_jobs() -> Jobs:
    jobs = Jobs()

    @jobs.job("anywhere")
    async def anywhere(run: Run) -> None: ...

    @jobs.job("train", needs=["gpu", "big"])
    async def train(run: Run) -> None: ...

    return jobs


async def stored_needs(store: MemoryStore) -> dict[str, tuple[str, ...]]:
    """The needs of the pending runs, by handle."""
    stored = await store.open("", 1, 0)
    await store.close()
    return {run.record.handle: run.record.needs for run in stored.pending}


async def test_a_run_needs_the_labels_of_its_job_and_of_its_submission(autojump_clock):
    store = MemoryStore()
    async with open_engine(make_jobs(), store, max_concurrent=0) as engine:
        await engine.submit("anywhere", handle="none")
        await engine.submit("anywhere", handle="own", needs=("linux",))
        await engine.submit("train", handle="of job")
        await engine.submit("train", handle="both", needs=["linux", "gpu"])
    assert await stored_needs(store) == {
        "none": (),
        "own": ("linux",),
        "of job": ("big", "gpu"),
        "both": ("big", "gpu", "linux"),
    }


def test_the_needs_of_a_job_are_announced() -> None:
    announcements = {terms.name: terms for terms in announced(make_jobs())}
    assert announcements["train"].needs == announced_job(announcements["train"]).needs == ("big", "gpu")
    assert announcements["anywhere"].needs == announced_job(announcements["anywhere"]).needs == ()


def test_the_needs_of_a_child_run_arrive_over_a_link() -> None:
    options = SubmitOptions(job="train", handle="child", needs=["linux"])
    fields = to_wire(options)
    sent = CallChild(1, options.job, fields.pop("handle"), None, fields)
    received = submit_options(msgspec.json.decode(msgspec.json.encode(sent), type=CallChild), None)
    assert (received.job, list(received.needs)) == ("train", ["linux"])


def test_the_delay_of_a_child_run_arrives_over_a_link() -> None:
    options = SubmitOptions(job="train", handle="child", delay=5, reserve=True)
    fields = {name: value for name, value in to_wire(options).items() if value is not None}
    received = submit_options(CallChild(1, options.job, fields.pop("handle"), None, fields), None)
    assert (received.delay, received.start_at, received.reserve) == (5, None, True)


async def test_invalid_needs_are_refused(autojump_clock):
    async with open_engine(make_jobs()) as engine:
        with pytest.raises(Invalid, match="needs must be a list of labels"):
            await engine.submit("anywhere", handle="a", needs="gpu")  # type: ignore[arg-type]
        assert not (await engine.snapshot()).runs
    with pytest.raises(Invalid, match="needs must contain each label once"):
        Jobs().job("a", needs=["gpu", "gpu"])(lambda run: None)


async def test_a_run_of_a_flow_cannot_need_labels(autojump_clock):
    async with open_engine(make_jobs()) as engine:
        await engine.flows.publish("flow", FLOW)
        with pytest.raises(Invalid, match=r'needs must be empty for a flow, .*\["gpu"\]\): remove needs'):
            await engine.flows.start("flow", needs=["gpu"])
        assert not (await engine.snapshot()).runs
        await engine.flows.start("flow", needs=[])
