"""The supervisor's actor passes messages to its machine and carries out the effects."""

from __future__ import annotations

from typing import Any

import trio

from greenroom.actors.channel import Reply
from greenroom.actors.messages import WaitForActive
from greenroom.actors.scheduling.supervisor import Supervisor
from greenroom.persistence.store import Stored

from .making import jobs, submission, submit
from .supervising import describe


class Directory:
    """Records all messages and their receivers."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, Any]] = []

    def tell(self, kind: str, name: str, message: Any) -> bool:
        self.told.append((kind, name, message))
        return True

    def changes(self) -> list[str]:
        told, self.told = self.told, []
        return [describe(message) for kind, _, message in told if kind == "journal"]


def actor(limit: int) -> tuple[Supervisor, Directory, list[Any]]:
    directory, spawned = Directory(), []
    supervisor = Supervisor(
        max_pending=9,
        directory=directory,  # type: ignore[arg-type]
        spawn=spawned.append,
        local_jobs=jobs,
        clock=lambda: 0.0,
        recall=lambda stored: submission(),
    )
    supervisor.machine.order.limit = limit
    return supervisor, directory, spawned


async def test_the_effects_of_a_turn_are_carried_out_at_its_end(autojump_clock) -> None:
    supervisor, directory, _ = actor(limit=1)
    made = submission(id="a", warn_after=2.0)
    await supervisor.on_batch([submit(made), submit(submission("bob", "b", warn_after=2.0))])
    assert directory.changes() == ["create a, start a", "create b"]
    assert supervisor.submission("a") is made
    assert supervisor.submission("z") is None
    assert supervisor.deadline == 2.0


async def test_a_long_wait_is_reported_at_the_deadline(autojump_clock) -> None:
    supervisor, directory, spawned = actor(limit=0)
    made = submission(id="a", warn_after=2.0, on_wait=lambda *_: None)
    await supervisor.on_batch([submit(made)])
    directory.changes()
    made.committed = True
    await trio.sleep(2)
    await supervisor.on_deadline()
    assert directory.changes() == ["run_waiting a"]
    assert len(spawned) == 1
    assert supervisor.deadline == float("inf")


async def test_stored_runs_are_restored_and_started(autojump_clock) -> None:
    supervisor, directory, _ = actor(limit=1)
    made = submission(id="a", place=1)
    supervisor.restore(Stored("e", 0, 9, 3, False, {}, {}, {}, [], [], []), [made], {}, 0.0)
    assert directory.changes() == ["start a"]


async def test_it_reports_its_state_and_that_of_its_handles_and_lanes(autojump_clock) -> None:
    supervisor, _, _ = actor(limit=1)
    await supervisor.on_batch([submit(submission(id="a")), submit(submission("bob", "b"))])
    await supervisor.on_batch([WaitForActive(Reply())])
    assert supervisor.report() == {
        "kind": "supervisor",
        "name": "",
        "mailbox": 0,
        "pending": 2,
        "delayed": 0,
        "executing": ["a"],
        "limit": 1,
        "draining": False,
        "suspects": 0,
        "waiters": 1,
    }
    reports = supervisor.reports()
    assert reports[0] == supervisor.report()
    assert [(report["kind"], report["name"]) for report in reports[1:]] == [
        ("handle", "alice"),
        ("handle", "bob"),
        ("lane", "main"),
    ]
