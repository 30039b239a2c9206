"""The jobs of the executors, in three versions. All bodies write marks, see `marks.py`."""

from __future__ import annotations

import ctypes
import os
import signal
import time

import msgspec
import trio

from greenroom import BlockingRun, Jobs, Run
from greenroom.errors import RunCancelled, RunFailed

from .marks import mark, marked


class Steps(msgspec.Struct):
    """How many steps, and the seconds of each."""

    count: int
    pace: float = 0.05


class MoreSteps(Steps, kw_only=True):
    """The parameters in another version of the jobs: one more is required."""

    extra: int


async def walk(run: Run, params: Steps) -> int:
    """Steps with a checkpoint, a log line, and a sleep without slot."""
    async with marked(run):
        for step in range(run.checkpoint or 0, params.count):
            mark(run, "step", step)
            await run.progress(step, params.count, fence=run.fence)
            match step % 4:
                case 1:
                    await run.save_checkpoint(step)
                    mark(run, "saved", step)
                case 2:
                    await run.log(str(run.fence))
                    mark(run, "logged")
                case 3:
                    await run.sleep(params.pace)
            await trio.sleep(params.pace)
        return params.count


async def once(run: Run, params: Steps) -> int:
    return await walk(run, params)


async def parent(run: Run, params: Steps) -> list[object]:
    """Two child runs, one after the other."""
    async with marked(run):
        results = list(run.checkpoint or [])
        for number in range(len(results), 2):
            child = {"count": params.count // 2, "pace": params.pace}
            try:
                results.append(await run.call("twice", handle=f"{run.handle}-{number}", params=child))
            except (RunCancelled, RunFailed):  # cancelled: its executor was drained
                results.append("failed")
            mark(run, "called", number)
            await run.save_checkpoint(results)
        return results


async def talks(run: Run, params: Steps) -> str:
    """Wait without slot for a message."""
    async with marked(run):
        for step in range(params.count):
            if await run.messages():
                break
            await run.progress(step, fence=run.fence)
            await trio.sleep(params.pace)
        return str(await run.next_message(release_slot=True))


async def asks(run: Run, params: Steps) -> object:
    """Wait without slot for an answer."""
    async with marked(run):
        answers = list(run.checkpoint or [])
        while len(answers) < 2:
            question = len(answers)
            answers.append(await run.interrupt({"question": question}, timeout=600, release_slot=not answers))
            mark(run, "answered", [question, answers[-1]])
            await trio.sleep(params.pace)  # a body that ends now leaves the answer to the next one
            await run.save_checkpoint(answers)
        return answers


def threaded(run: BlockingRun, params: Steps) -> int:
    """Steps in a thread."""
    mark(run, "begin", run.checkpoint)
    how = "stopped"
    try:
        for step in range(run.checkpoint or 0, params.count):
            mark(run, "step", step)
            run.progress(step, params.count, fence=run.fence)
            run.sleep(params.pace, release_slot=False)
            if step % 4 == 1:
                run.save_checkpoint(step)
                mark(run, "saved", step)
        how = "returned"
    finally:
        mark(run, "end", how)
    return params.count


async def poison(run: Run, how: str) -> None:
    """End the process."""
    mark(run, "begin")
    match how:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(0)
    await trio.sleep_forever()


async def blocks(run: Run) -> None:
    """Block the event loop."""
    mark(run, "begin")
    time.sleep(3600)  # noqa: ASYNC251  # it must block the event loop


def version(*without: str) -> Jobs:
    """All jobs except for these."""
    made = Jobs()
    resumable = {"walk": walk, "parent": parent, "talks": talks, "asks": asks, "threaded": threaded}
    for name, function in resumable.items():
        if name not in without:
            made.job(name, resumable=True)(function)  # type: ignore[type-var]
    made.job("once")(once)
    made.job("blocks")(blocks)
    made.job("poison", resumable=True)(poison)
    made.job("poison_retried", max_attempts=9, backoff=0.1)(poison)
    made.job("twice", max_attempts=2, backoff=0.1)(once)
    return made


jobs = version()
fewer = version("walk", "asks")
changed = version("walk")


@changed.job("walk", resumable=True)
async def changed_walk(run: Run, params: MoreSteps) -> int:
    return await walk(run, params)
