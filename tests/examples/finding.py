"""Runs have tags, by which they are found; operations work on all runs that match a filter.

Four imports for two customers; a broken network fails some of them. A list shows which, and `retry_many`
submits them again once the network works. A dry run counts first. With a request id, a repeated call submits
no run twice.
"""

import trio

from greenroom import Jobs, Run, open_engine

jobs = Jobs()
network = {"works": False}


@jobs.job("import")
async def import_orders(run: Run, params: dict) -> str:
    if not network["works"] and params["shop"] != "local":
        raise ConnectionError(f"no route to {params['shop']}")
    return "done"


async def main() -> None:
    async with open_engine(jobs, store="memory:") as engine:
        for customer, shop in (("41", "local"), ("42", "north"), ("42", "south"), ("41", "north")):
            ticket = await engine.submit(
                "import", handle=f"{customer}/{shop}", params={"shop": shop}, tags={"customer": customer}
            )
            await ticket.wait()

        for run in await engine.list_runs(tags={"customer": "42"}, status="failed"):
            print(run.handle, run.tags, run.error)
        north = await engine.list_runs(error="route to north")
        print("to north:", [run.handle for run in north])

        counted = await engine.retry_many(job="import", dry_run=True)
        print("would retry:", counted.matched)
        network["works"] = True
        for _ in range(2):
            done = await engine.retry_many(job="import", request_id="after the outage")
            print("retried:", done.done, "refused:", done.refused)
        runs = await engine.list_runs(job="import")
        for run in runs:
            await engine.wait(run.id)
        print("runs:", len(runs), "failed:", len(await engine.list_runs(status="failed")))

        again = await engine.rerun(north[0].id)
        print("again:", await again.result(), (await engine.get_run(again.id)).tags)


if __name__ == "__main__":
    trio.run(main)

# Output:
# 42/south {'customer': '42'} ConnectionError: no route to south
# 42/north {'customer': '42'} ConnectionError: no route to north
# to north: ['41/north', '42/north']
# would retry: 3
# retried: 3 refused: 0
# retried: 3 refused: 0
# runs: 7 failed: 3
# again: done {'customer': '41'}
