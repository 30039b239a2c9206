"""The object that a job's function receives has the calls for its author, and no internals of the engine."""

from __future__ import annotations

from greenroom import BlockingRun, Jobs, Run
from tests.support import open_engine

FOR_AUTHORS = set(
    (
        "attempt call checkpoint cancel_requested compacting confirm end_interactive handle id interrupt "
        "fence kind lane log messages next_message open_file params progress save_checkpoint sleep streaming"
    ).split()
)


def public_names(run: Run | BlockingRun) -> list[str]:
    return [name for name in dir(run) if not name.startswith("_")]


async def test_a_run_shows_the_calls_of_its_author_only():
    jobs = Jobs()

    @jobs.job("waits")
    async def waits(run: Run) -> list[str]:
        return public_names(run)

    @jobs.job("blocks")
    def blocks(run: BlockingRun) -> list[str]:
        return public_names(run)

    async with open_engine(jobs, store="memory:") as engine:
        for job in ("waits", "blocks"):
            ticket = await engine.submit(job, handle=job)
            assert set(await ticket.result()) == FOR_AUTHORS
