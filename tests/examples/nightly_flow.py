"""A nightly flow whose nodes are executed by two workers: one in Python, one in JavaScript.

`nightly.yaml` is the flow, `nightly_worker.mjs` the worker in JavaScript, `nightly.sh` what cron starts.
`services` below are those of the worker in Python: `greenroom worker nightly_flow:services`. The program
starts the server and the workers, kills a worker in the middle of a call, and approves the result.
"""

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from greenroom import Services, sync

services = Services()
FOLDER = Path(__file__).resolve().parent


@services.service("shops")
def shops(date: str) -> list[str]:
    if "NEVER_ANSWERS" in os.environ:  # for the worker that is killed
        print("called for", date, flush=True)
        time.sleep(3600)
    return ["berlin", "lisbon", "oslo"]


@services.service("summary")
def summary(reports: list[dict]) -> dict:
    return {"shops": len(reports), "total": sum(report["revenue"] for report in reports)}


@services.service("send")
def send(summary: dict) -> str:
    return f"total {summary['total']} of {summary['shops']} shops"


def main() -> None:
    with ExitStack() as stack:

        def start(*command: str, until: str, **variables: str) -> tuple[subprocess.Popen, str]:
            """Start a program that runs until the end of `main`; return when it has logged `until`."""
            process = subprocess.Popen(
                command,
                env=os.environ | variables | {"PYTHONPATH": str(FOLDER)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.terminate)
            for line in process.stderr:
                if until in line:
                    return process, line
            raise RuntimeError(f"{command} has ended")

        greenroom = (sys.executable, "-m", "greenroom")
        worker = (*greenroom, "worker", "nightly_flow:services", "--id")
        server = (*greenroom, "serve", "--port", "0", "--store", "sqlite:///nightly.db")
        _, line = start(*server, until="http://")
        url = re.search(r"http://\S+", line)[0]
        os.environ |= {"GREENROOM_URL": url, "GREENROOM_WORKER_URL": "http://127.0.0.1:0"}
        publish = [*greenroom, "flow", "publish", str(FOLDER / "nightly.yaml")]
        print(subprocess.run(publish, check=True, capture_output=True, text=True).stdout.strip())

        dies, _ = start(*worker, "first", until="registered", NEVER_ANSWERS="1")
        start("node", str(FOLDER / "nightly_worker.mjs"), until="registered")
        run = nightly("2026-03-01")
        print("the same run:", nightly("2026-03-01") == run)

        print("first worker:", dies.stdout.readline().strip())
        start(*worker, "second", until="registered")
        dies.kill()

        with sync.connect(url) as client:
            for event in client.events(after=0, filter={"types": ["interrupt_opened"]}):
                print("to approve:", event.data["input"])
                client.answer(event.interrupt, True)
                break
            print("result:", client.wait(run, timeout=60).result["sent"])
            for row in client.flows.node_runs(run):
                name = row.node if row.branch is None else f"{row.node} {row.branch}"
                by = f" by {row.worker.partition('-')[0]}" if row.worker else ""
                print(f"  {name}, attempt {row.attempt}: {row.status}{by}")


def nightly(date: str) -> str:
    """Do what cron does; return the id of the run."""
    command = ["sh", str(FOLDER / "nightly.sh"), date]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    main()

# Output:
# nightly, version 1
# the same run: True
# first worker: called for 2026-03-01
# to approve: {'shops': 3, 'total': 1600}
# result: total 1600 of 3 shops
#   shops, attempt 1: error by first
#   shops, attempt 2: ok by second
#   reports 0, attempt 1: ok by javascript
#   reports 1, attempt 1: error by javascript
#   reports 2, attempt 1: ok by javascript
#   reports 1, attempt 2: ok by javascript
#   reports, attempt 1: ok
#   summary, attempt 1: ok by second
#   size, attempt 1: ok
#   release, attempt 1: ok
#   send, attempt 1: ok by second
