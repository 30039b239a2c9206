"""The first program to read: a job, its parameters, an engine, a run and its result.

`mirror` fetches a site page by page, here from a small HTTP server that the example starts itself. It saves
a checkpoint after each page, so a run that is interrupted, even by a power cut, continues there. The
engine's state is in `greenroom.db`, in the folder where the program starts.
"""

from functools import partial

import msgspec
import trio

from greenroom import Jobs, Run, open_engine

jobs = Jobs()


class Mirror(msgspec.Struct):
    url: str
    pages: int = 10


@jobs.job("mirror", resumable=True)
async def mirror(run: Run, params: Mirror) -> dict:
    for page in range(run.checkpoint or 0, params.pages):
        await fetch(params.url, page)
        await run.save_checkpoint(page + 1)
        await run.progress(done=page + 1, total=params.pages)
    return {"pages": params.pages}


async def fetch(url: str, page: int) -> bytes:
    host, port = url.removeprefix("http://").split(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(f"GET /{page} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        answer = b"".join([chunk async for chunk in stream])
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.splitlines()[0]:
        raise OSError(f"{url}/{page}: {head.decode()}")
    return body


async def serve(stream: trio.SocketStream) -> None:
    """The site: any page, one per connection."""
    request = b""
    while b"\r\n\r\n" not in request:
        request += await stream.receive_some()
    await stream.send_all(b"HTTP/1.0 200 OK\r\n\r\nThis is " + request.split()[1])


async def main() -> None:
    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"

        async with open_engine(jobs, store="sqlite:///greenroom.db", max_concurrent=3) as engine:
            ticket = await engine.submit("mirror", handle="alice", params={"url": url, "pages": 3})
            print("result:", await ticket.result())
            run = await engine.get_run(ticket.id)
            print("progress:", run.progress)

        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)

# Output:
# result: {'pages': 3}
# progress: {'done': 3, 'total': 3}
