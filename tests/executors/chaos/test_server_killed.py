"""A server with child processes that is killed: its children end, and the next server takes over."""

from __future__ import annotations

import time
from pathlib import Path

import trio

from greenroom import connect

from .marks import Mark, read
from .world import World, until, world

_SLOW = 1.0
"""Seconds more than the promised one that a busy machine may take."""


def _marks(made: World) -> list[Mark]:
    return [mark for handle in read(made.marks) for mark in handle]


def _executes(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_children_end_with_a_killed_server_and_bodies_do_not_overlap(tmp_path: Path):
    async with world(tmp_path, places=0, ttl=30, executors=2) as made:
        async with connect(made.url) as client:
            for number in range(4):
                await client.submit("walk", handle=f"h{number}", params={"count": 25, "pace": 0.05})
            blocks = await client.submit("blocks", handle="blocks")
            await until(lambda: len({mark.run for mark in _marks(made)}) == 5, "all have begun")
            pids = {mark.pid for mark in _marks(made)}
            assert len(pids) == 2
            await trio.sleep(0.5)
            await made.kill_server()
            killed = time.monotonic()
            await until(lambda: not any(map(_executes, pids)), "the children end")
            assert time.monotonic() - killed < 1 + _SLOW
        made.start_server()
        await made.ready()
        async with connect(made.url) as client:
            for run in list(client.state.runs.values()):
                ended = await client.wait(run.id, timeout=60)
                if run.id == blocks.id:
                    assert ended.reason == "crashed"
                else:
                    assert (ended.result, ended.attempt) == (25, 1)
        for marks in read(made.marks):
            fences = [mark.fence for mark in marks]
            assert fences == sorted(fences), "the bodies of a handle overlap"
        assert not pids & {mark.pid for mark in _marks(made) if mark.at > killed + 1 + _SLOW}
