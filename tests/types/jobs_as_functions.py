"""Programs that submit jobs as functions, for a type checker. Each line with an error ends with the message
of mypy; mypy reports no error for the other lines."""

import msgspec

from greenroom import BlockingRun, Client, Engine, Fail, Jobs, Retry, Run, Ticket, aio, sync
from greenroom.gateway.client import ClientTicket, RunEngine, RunTicket

jobs = Jobs()


class Mirror(msgspec.Struct):
    url: str
    pages: int = 10


class Summary(msgspec.Struct):
    pages: int


@jobs.job("mirror", resumable=True)
async def mirror(run: Run, params: Mirror) -> Summary:
    return Summary(params.pages)


@jobs.job()
async def tidy(run: Run) -> list[str]:
    return []


@jobs.job
async def greet(run: Run, params: Mirror) -> str:
    return params.url


@jobs.job(max_attempts=2)
def count(run: BlockingRun, params: dict[str, int]) -> int:
    return run.call(mirror, handle="b", params=Mirror("")).pages


@jobs.job
def sweep(run: BlockingRun) -> None:
    run.call(tidy, handle="b", params=Mirror(""))  # error: Cannot infer value


@jobs.job(loop="asyncio", max_attempts=2)
async def fetch(run: aio.Run, params: Mirror) -> Summary:
    return await run.call(mirror, handle="b", params=params)


@jobs.job("rest", loop="asyncio")
async def rest(run: aio.Run) -> int:
    await run.call(mirror, handle="b", params=3)  # error: Cannot infer value
    return await run.call(fetch, handle="b")  # error: Argument 1 to "call"


async def plain(run: Run, params: Mirror) -> Summary:
    return Summary(1)


@jobs.job("odd")  # error: Argument 1 to "__call__" of "Register"
async def odd(run: Run, params: Mirror, more: int) -> None: ...


def longer_if_busy(attempt: int, error: Exception) -> float:
    return 30.0 if isinstance(error, OSError) else float(attempt)


@jobs.job(max_attempts=2, backoff=longer_if_busy, retry_on=OSError, never_on=(PermissionError, TimeoutError))
async def picky(run: Run) -> None:
    raise Retry(after=5) if run.attempt == 1 else Fail("no further attempt")


@jobs.job(max_attempts=2, backoff=lambda attempt: 2.0 * attempt)
async def patient(run: Run) -> None: ...


@jobs.job(max_attempts=2, backoff=lambda attempt, error: 2.0 * attempt)
async def wary(run: Run) -> None: ...


@jobs.job("odder", retry_on=(KeyboardInterrupt,))  # error: Argument "retry_on" to "job"
async def odder(run: Run) -> None: ...


@jobs.job("odd", max_attempts="2")  # error: No overload variant
async def odd_option(run: Run) -> None: ...


@jobs.job(loop="asyncio")  # error: Argument 1 to "__call__" of "RegisterForAsyncio"
async def odd_loop(run: Run, params: Mirror) -> None: ...


@jobs.job()  # error: Argument 1 to "__call__" of "Register"
async def no_loop(run: aio.Run, params: Mirror) -> None: ...


@jobs.job(loop="asyncio", max_attempts="2")  # error: No overload variant
async def odd_option_of_loop(run: aio.Run) -> None: ...


async def engine_gives(engine: Engine) -> None:
    ticket = await engine.submit(mirror, handle="a", params=Mirror("https://example.org"))
    summary: Summary = await ticket.result()
    print((await ticket.result()).page)  # error: has no attribute "page"
    typed: Ticket[Summary] = ticket
    number: Ticket[int] = ticket  # error: Incompatible types in assignment
    names: list[str] = await (await engine.submit(tidy, handle="a")).result()
    words: str = await (await engine.submit(greet, handle="a")).result()
    total: int = await (await engine.submit(count, handle="a", params={"a": 1})).result()
    text: str = await (await engine.submit(count, handle="a")).result()  # error: Incompatible types
    print(summary, typed, number, names, words, total, text)


async def engine_takes(engine: Engine) -> None:
    await engine.submit(mirror, handle="a", params={"url": ""})  # error: Cannot infer value
    await engine.submit(mirror, handle="a", params=Summary(1))  # error: Cannot infer value
    await engine.submit(tidy, handle="a", params=Mirror(""))  # error: Cannot infer value
    await engine.submit(mirror, handle="a", on_conflict="fight")  # error: No overload variant
    await engine.submit(mirror, handle="a", patience=3)  # error: Unexpected keyword argument "patience"
    await engine.submit(plain, handle="a")  # error: No overload variant
    await engine.submit(mirror)  # error: No overload variant
    unknown = await engine.submit("mirror", handle="a", params={"url": ""})
    anything: bytes = await unknown.result()
    bare: Ticket = unknown
    print(anything, bare)


async def batches_give(engine: Engine, client: Client, loop: aio.Client, blocking: sync.Client) -> None:
    tickets = await engine.submit_many([{"job": mirror, "handle": "a", "params": Mirror("")}])
    anything: bytes = await tickets[0].result()
    await engine.submit_many([{"job": mirror}])  # error: Missing key "handle"
    await engine.submit_many([{"job": "a", "handle": "a", "patience": 3}])  # error: Extra key "patience"
    outcomes = await client.submit_many([{"job": "a", "handle": "a"}], all_or_nothing=False)
    await outcomes[0].result()  # error: Item "GreenroomError"
    [first], [second] = await loop.submit_many([]), blocking.submit_many([], all_or_nothing=True)
    print(anything, first.id, second.id)


async def client_gives(client: Client, either: RunEngine) -> None:
    ticket: ClientTicket[Summary] = await client.submit(mirror, handle="a", params=Mirror(""))
    wrong: int = await ticket.result()  # error: Incompatible types in assignment
    await client.submit(mirror, handle="a", params=3)  # error: Cannot infer value
    any_ticket: RunTicket[Summary] = await either.submit(mirror, handle="a", params=Mirror(""))
    await either.submit(tidy, handle="a", params=3)  # error: Cannot infer value
    print(wrong, any_ticket)


def synchronous_client_gives(client: sync.Client) -> None:
    ticket: sync.Ticket[Summary] = client.submit(mirror, handle="a", params=Mirror(""))
    wrong: int = ticket.result(timeout=3)  # error: Incompatible types in assignment
    client.submit(mirror, handle="a", params=3)  # error: Cannot infer value
    client.submit("mirror", handle="a", patience=3)  # error: Unexpected keyword argument "patience"
    client.cancel("a", files="burn")  # error: Argument "files" has
    client.get_run(5)  # error: Argument 1
    client.list_runs(page=3)  # error: Unexpected keyword argument "page"
    print(client.list_runs(job=mirror), client.retry_many(job=mirror))
    client.flows.start("order", patience=3)  # error: Unexpected keyword argument "patience"
    client.flows.start("order", needs=["gpu"])  # error: Unexpected keyword argument "needs"
    client.flows.start("order", on_conflict="coalesce")  # error: Argument "on_conflict"
    client.schedules.put("nightly", job=mirror, every=60, warn_after=5, on_conflict="coalesce")
    client.schedules.put("x", job="y", every=6, delay=5)  # error: Unexpected keyword argument "delay"
    client.submit(mirror, handle="a", params=Mirror(""), delay=5, on_conflict="coalesce", needs=["gpu"])
    runs: list[int] = client.list_runs(handle="a", limit=3)  # error: Incompatible types in assignment
    anything: bytes = client.flows.start("order", handle="a", lane="x").result()
    [first] = sync.as_completed([ticket])
    print(wrong, runs, anything, first.result().pages)


async def asyncio_gives(engine: aio.Engine, client: aio.Client) -> None:
    ticket: aio.Ticket[Summary] = await engine.submit(fetch, handle="a", params=Mirror(""), by="me")
    wrong: int = await ticket.result()  # error: Incompatible types in assignment
    other: aio.ClientTicket[Summary] = await client.submit(mirror, handle="a", params=Mirror(""))
    number: str = await (await client.submit(rest, handle="a")).result()  # error: Incompatible types
    await engine.submit(fetch, handle="a", params=3)  # error: Cannot infer value
    await client.submit(fetch, handle="a", patience=3)  # error: Unexpected keyword argument "patience"
    await client.submit("fetch", handle="a", by="me")  # error: Unexpected keyword argument "by"
    await engine.answer("a", True, key=5)  # error: Argument "key"
    print((await client.wait("a", timeout=3)).page)  # error: has no attribute "page"
    anything: bytes = await (await engine.flows.start("order", handle="a")).result()
    print(wrong, other, number, anything)


async def body_calls(run: Run) -> None:
    pages: int = (await run.call(mirror, handle="b", params=Mirror(""))).pages
    await run.call(mirror, handle="b", params="b")  # error: Cannot infer value
    words: bytes = await run.call(greet, handle="b")  # error: Argument 1 to "call"
    print(pages, words)


async def called_as_a_function(run: Run, blocking: BlockingRun) -> None:
    summary: Summary = await mirror(run, Mirror(""))
    number: int = count(blocking, {})
    await mirror(run, "a")  # error: Argument 2
    await tidy(run, Mirror(""))  # error: Too many arguments
    print(summary, number)
