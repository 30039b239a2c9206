"""A job is submitted as its function, so parameters and result keep their types.

`mypy` knows that `summary` is a `Summary`, and refuses parameters of another type. A name works as well:
then parameters and result are plain JSON values.
"""

import msgspec
import trio

from greenroom import BlockingRun, Jobs, Run, open_engine

jobs = Jobs()


class Mirror(msgspec.Struct):
    url: str
    pages: int = 10


class Summary(msgspec.Struct):
    url: str
    bytes: int


@jobs.job(max_attempts=3)  # the job is named after the function
async def mirror(run: Run, params: Mirror) -> Summary:
    return Summary(params.url, bytes=params.pages * 1024)


@jobs.job
def report(run: BlockingRun, params: list[str]) -> dict[str, int]:
    found = [run.call(mirror, handle=url, params=Mirror(url)) for url in params]
    return {summary.url: summary.bytes for summary in found}


async def main() -> None:
    async with open_engine(jobs, store="memory:") as engine:
        ticket = await engine.submit(mirror, handle="a", params=Mirror("https://example.org", pages=3))
        summary = await ticket.result()
        print(summary)
        ticket = await engine.submit("mirror", handle="a", params={"url": "https://example.net"})
        print(await ticket.result())
        print(await (await engine.submit(report, handle="b", params=["https://example.com"])).result())


if __name__ == "__main__":
    trio.run(main)

# Output:
# Summary(url='https://example.org', bytes=3072)
# {'url': 'https://example.net', 'bytes': 10240}
# {'https://example.com': 10240}
