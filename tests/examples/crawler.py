"""A crawler: an account is a handle, a site is a lane with a limit, and a private account needs an approval.

Each post is a file, followed by a checkpoint. A cancel keeps the files, and after a crash of the process
the runs continue. To show this, the program starts itself as a child, kills that with SIGKILL in the
middle, and opens the store again. The sites are simulated.
"""

import contextlib
import math
import subprocess
import sys
from collections.abc import AsyncIterator

import msgspec
import trio

from greenroom import Engine, Jobs, Run, Ticket, open_engine
from greenroom.errors import RunCancelled

jobs = Jobs()
POSTS = 4


class Account(msgspec.Struct):
    name: str
    site: str
    private: bool = False


@jobs.job("crawl", resumable=True, max_attempts=3, run_timeout=math.inf)
async def crawl(run: Run, account: Account) -> dict:
    if account.private and run.checkpoint is None:  # a run with a checkpoint was approved
        data = {"question": f"Crawl the private account {account.name}?"}
        if not await run.confirm(data, timeout=86400, key="private", release_slot=True):
            return {"posts": 0, "approved": False}
    first = run.checkpoint or 0
    await run.log(f"begins with post {first}")
    for post in range(first, POSTS):
        content = await fetch(account, post)
        async with run.open_file(f"{post}.html", overwrite=True) as file:
            await file.write(content)
        await run.save_checkpoint(post + 1)
        await run.progress(done=post + 1, total=POSTS)
    return {"posts": POSTS}


async def fetch(account: Account, post: int) -> bytes:
    """Fetch a post. In the child and for carol, the third one never arrives: that is where they are ended."""
    if post == 2 and ("child" in sys.argv or account.name == "carol"):
        await trio.sleep_forever()
    return f"post {post} of {account.name}".encode()


@contextlib.asynccontextmanager
async def open_crawler() -> AsyncIterator[Engine]:
    async with open_engine(jobs, "sqlite:///crawler.db", data_dir="files", max_concurrent=10) as engine:
        await engine.set_concurrency("photos.example", 2)  # at most two accounts of this site at a time
        await engine.set_concurrency("slow.example", 1)
        yield engine


async def submit(engine: Engine, account: Account, day: str = "2026-03-01") -> Ticket[dict]:
    """Crawl an account, once a day: the same submission again returns the same run."""
    handle = f"{account.name}@{account.site}"
    return await engine.submit(
        crawl, handle=handle, lane=account.site, params=account, request_id=f"crawl {day} {handle}"
    )


ALICE = Account("alice", "photos.example")
BOB = Account("bob", "photos.example", private=True)
CAROL = Account("carol", "slow.example")


async def child() -> None:
    """Crawl until killed."""
    async with open_crawler() as engine:
        for account in (ALICE, BOB):
            await submit(engine, account)
        async for event in engine.events(after=0):
            if event.type == "run_progress" and event.done == 2:
                print("alice has 2 posts", flush=True)
            elif event.type == "interrupt_opened":
                print("bob waits for an approval", flush=True)


def kill_a_crawler() -> None:
    command = [sys.executable, __file__, "child"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in sorted([process.stdout.readline(), process.stdout.readline()]):
            print("before the crash:", line.strip())
        process.kill()


async def main() -> None:
    await trio.to_thread.run_sync(kill_a_crawler)

    async with open_crawler() as engine:
        alice = await submit(engine, ALICE)
        print("the run from before the crash:", alice.joined)
        print("alice:", await alice.result())
        for event in await engine.history(alice.id):
            if event.type == "run_log":
                print("  her log:", event.text)

        print("the approval:", await engine.answer("bob@photos.example", True, key="private"))
        print("bob:", await (await submit(engine, BOB)).result())

        progress = engine.events(filter={"handles": ["carol@slow.example"], "types": ["run_progress"]})
        carol = await submit(engine, CAROL)
        while (await anext(progress)).done < 2:
            pass
        await carol.cancel(files="keep")
        try:
            await carol.result()
        except RunCancelled as error:
            print("carol:", error.run.status)
    print("her files:", sorted(path.name for path in await trio.Path("files/carol@slow.example").iterdir()))


if __name__ == "__main__":
    trio.run(child if "child" in sys.argv else main)

# Output:
# before the crash: alice has 2 posts
# before the crash: bob waits for an approval
# the run from before the crash: True
# alice: {'posts': 4}
#   her log: begins with post 0
#   her log: begins with post 2
# the approval: resolved
# bob: {'posts': 4}
# carol: cancelled
# her files: ['0.html', '1.html']
