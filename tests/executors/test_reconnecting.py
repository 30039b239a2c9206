"""Executors do not stay connected to an engine that does not answer."""

from __future__ import annotations

import random

import trio

from greenroom import Jobs
from greenroom.executor.executor import Executor, Identity
from greenroom.persistence.files import DiskFiles
from greenroom.persistence.leasekeeping import Failed

from .engine import ScriptedEngine


class _Unanswered:
    """Beats that no engine answers."""

    def renew(self, sent: float) -> Failed:
        return Failed("no answer")

    def release(self) -> None:
        pass

    def abort(self) -> None:
        pass


async def test_an_executor_whose_beats_are_not_answered_opens_another_connection(tmp_path):
    engine = ScriptedEngine(ttl=0.6)
    identity, files = Identity(node="e1", start="s1"), DiskFiles(tmp_path, in_threads=False)
    executor = Executor(
        Jobs(), engine.connect, identity, files, random=random.Random(1), beats=lambda _: _Unanswered()
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(executor.run)
        await engine.attach(nursery)
        with trio.fail_after(60):
            await engine.attach(nursery)  # although the first connection is still open
        nursery.cancel_scope.cancel()


async def test_an_executor_connects_again_while_a_silent_engine_does_not_answer_attach(
    autojump_clock, tmp_path
):
    engine = ScriptedEngine()
    identity, files = Identity(node="e1", start="s1"), DiskFiles(tmp_path, in_threads=False)
    executor = Executor(Jobs(), engine.connect, identity, files, random=random.Random(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(executor.run)
        await trio.sleep(1)  # nothing answers `attach`
        began = trio.current_time()
        executor.reconnect()
        await engine._arrivals[1].receive()
        await engine.attach(nursery)
        assert trio.current_time() - began < 1
        nursery.cancel_scope.cancel()
