"""With `notify`, the events of a run are delivered to a URL, signed with the engine's secret.

A real engine sends HTTP requests. Here a receiver in the same program takes their place, so that the example
needs no network: it fails once, and the delivery is repeated.
"""

import hmac
import json
from hashlib import sha256

import trio

from greenroom import Jobs, Run, open_engine

SECRET = "read this from the environment"

jobs = Jobs()


@jobs.job("add")
async def add(run: Run, params: dict) -> int:
    return params["a"] + params["b"]


class Receiver:
    def __init__(self) -> None:
        self.fails = True
        self.ended = trio.Event()

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        signed = headers["Greenroom-Timestamp"].encode() + b"." + body
        expected = "v1=" + hmac.new(SECRET.encode(), signed, sha256).hexdigest()
        if not hmac.compare_digest(headers["Greenroom-Signature"], expected):
            return 403, b""
        if self.fails:
            self.fails = False
            print("fails")
            return 503, b""
        event = json.loads(body)
        print(url, "got", event["to"])
        if event["to"] == "succeeded":
            self.ended.set()
        return 204, b""


async def main() -> None:
    receiver = Receiver()
    async with open_engine(jobs, store="memory:", webhook_secret=SECRET, push=receiver) as engine:
        await engine.submit("add", handle="a", params={"a": 1, "b": 2}, notify="https://example.org/hooks")
        await receiver.ended.wait()
        await trio.sleep(1)
        print("dead:", await engine.webhooks.dead())


if __name__ == "__main__":
    trio.run(main)

# Output:
# fails
# https://example.org/hooks got queued
# https://example.org/hooks got running
# https://example.org/hooks got succeeded
# dead: []
