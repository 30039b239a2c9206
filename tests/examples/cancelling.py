"""Cancelling ends a queued run immediately; the body of an executing run gets time to clean up.

The caller decides whether the files that the body completed are kept or deleted; incomplete files are
always deleted. A run past `end_interactive` is in post-processing, and can no longer be cancelled.
"""

import tempfile

import trio

from greenroom import Jobs, Run, Ticket, open_engine
from greenroom.errors import NotInteractive, RunCancelled

jobs = Jobs()


@jobs.job("download")
async def download(run: Run) -> None:
    async with run.open_file("first.bin") as file:
        await file.write(b"all of it")
    async with run.open_file("second.bin") as file:
        await file.write(b"half of")
        await run.progress(done=1, total=2)
        await trio.sleep_forever()


@jobs.job("polite", cancel="cooperative")
async def polite(run: Run) -> None:
    for page in range(1000):
        if run.cancel_requested:
            print("polite: stops between two pages")
            return
        await run.progress(done=page)
        await trio.sleep(0.01)


@jobs.job("invoice")
async def invoice(run: Run) -> str:
    await run.end_interactive()
    await run.progress(done=0)
    await trio.sleep(0.05)
    return "sent"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_engine(jobs, store="memory:", data_dir=folder) as engine:

            async def start(job: str, handle: str) -> Ticket:
                """Submit a run and wait until its body reports."""
                events = engine.events(filter={"types": ["run_progress"]})
                ticket = await engine.submit(job, handle=handle)
                await anext(events)
                return ticket

            for files in ("keep", "delete"):
                ticket = await start("download", handle=files)
                print(f"{files}:", (await ticket.cancel(files)).status)
                try:
                    await ticket.result()
                except RunCancelled as error:
                    print("  then", error.run.status)
                print("  left:", [file.name for file in await trio.Path(folder, files).iterdir()])

            ticket = await start("polite", handle="visitor")
            await ticket.cancel()
            await ticket.wait()

            ticket = await start("invoice", handle="shop")
            try:
                await ticket.cancel()
            except NotInteractive:
                print("invoice: cannot be cancelled now:", await ticket.result())


if __name__ == "__main__":
    trio.run(main)

# Output:
# keep: cancelling
#   then cancelled
#   left: ['first.bin']
# delete: cancelling
#   then cancelled
#   left: []
# polite: stops between two pages
# invoice: cannot be cancelled now: sent
