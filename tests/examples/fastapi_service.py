"""A FastAPI service on an engine: it submits runs, streams their events to its page, and forwards answers.

The engine lives as long as the application (`lifespan`). Its jobs are written for asyncio. Errors of the
engine become responses with their own HTTP status. Serve it with `uvicorn fastapi_service:app`, and open
the page in a browser; `main` below does what the page does, and prints what it receives.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import msgspec
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse

import greenroom.aio
from greenroom import GreenroomError, Jobs

jobs = Jobs()


@jobs.job("order", loop="asyncio")
async def order(run: greenroom.aio.Run, params: dict) -> str:
    await run.progress(done=1, total=2)
    await asyncio.sleep(0.01)  # in place of a call of an asyncio library
    if not await run.confirm(f"Buy {params['item']}?", timeout=600, release_slot=True):
        return "not bought"
    await run.progress(done=2, total=2)
    return "bought"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict]:
    async with greenroom.aio.open_engine(jobs, store="memory:") as engine:
        yield {"engine": engine}


app = FastAPI(lifespan=lifespan)


@app.exception_handler(GreenroomError)
async def refuse(request: Request, error: GreenroomError) -> JSONResponse:
    return JSONResponse({"code": error.code, "message": error.message}, status_code=error.http_status)


@app.get("/")
async def page() -> HTMLResponse:
    return HTMLResponse(PAGE)


@app.post("/customers/{customer}/orders", status_code=202)
async def submit(request: Request, customer: str, params: dict) -> dict:
    ticket = await request.state.engine.submit("order", handle=customer, params=params)
    return {"run": ticket.id}


@app.post("/runs/{run}/cancel")
async def cancel(request: Request, run: str) -> dict:
    return {"status": (await request.state.engine.cancel(run)).status}


@app.post("/interrupts/{interrupt}/answer")
async def answer(request: Request, interrupt: str, approved: bool) -> dict:
    return {"outcome": await request.state.engine.answer(interrupt, {"approved": approved})}


@app.get("/customers/{customer}/events")
async def follow(request: Request, customer: str) -> StreamingResponse:
    """The events of a customer's runs, from now on or after the last that this page has seen."""
    seen = request.headers.get("Last-Event-ID")
    events = request.state.engine.events(
        after=None if seen is None else int(seen), filter={"handles": [customer]}
    )
    return StreamingResponse(as_sse(events), media_type="text/event-stream")


async def as_sse(events: AsyncIterator) -> AsyncIterator[str]:
    while True:
        try:
            event = await asyncio.wait_for(anext(events), 15)  # a timeout loses no event
        except TimeoutError:
            yield ": still here\n\n"  # fails if the page is gone
        except StopAsyncIteration:
            return  # the engine is shutting down
        else:
            yield f"id: {event.seq}\ndata: {msgspec.json.encode(event).decode()}\n\n"


PAGE = """<!doctype html><title>Orders</title>
<button onclick="post('/customers/alice/orders', {item: 'coffee'})">Order coffee</button>
<ul id="events"></ul>
<script>
const post = (url, body) => fetch(url, {method: 'POST', body: JSON.stringify(body),
  headers: {'Content-Type': 'application/json'}});
new EventSource('/customers/alice/events').onmessage = message => {
  const event = JSON.parse(message.data), line = document.createElement('li');
  line.textContent = event.type + ' ' + (event.to ?? event.data ?? '');
  if (event.type === 'interrupt_opened')
    for (const yes of [true, false]) {
      const button = line.appendChild(document.createElement('button'));
      button.textContent = yes ? 'Yes' : 'No';
      button.onclick = () => post(`/interrupts/${event.interrupt}/answer?approved=${yes}`);
    }
  document.getElementById('events').append(line);
};
</script>"""


async def act_as_the_page(url: str) -> None:
    async with (
        httpx.AsyncClient(base_url=url) as http,
        http.stream("GET", "/customers/alice/events") as stream,
    ):
        run = (await http.post("/customers/alice/orders", json={"item": "coffee"})).json()["run"]
        again = await http.post("/customers/alice/orders", json={"item": "tea"})
        print("a second order meanwhile:", again.status_code, again.json()["code"])
        async for line in stream.aiter_lines():
            if not line.startswith("data: "):
                continue
            event = json.loads(line.removeprefix("data: "))
            match event["type"]:
                case "run_progress":
                    print(f"progress: {event['done']}/{event['total']}")
                case "interrupt_opened":
                    print("asked:", event["data"])
                    url = f"/interrupts/{event['interrupt']}/answer?approved=true"
                    print("answer:", (await http.post(url)).json()["outcome"])
                case "run_state_changed" if event["to"] == "succeeded":
                    print("result:", event["result"])
                    break
        late = await http.post(f"/runs/{run}/cancel")
        print("cancel an ended run:", late.status_code, late.json()["code"])


async def serve() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await act_as_the_page(f"http://127.0.0.1:{listener.getsockname()[1]}")
    server.should_exit = True
    await serving


def main() -> None:
    asyncio.run(serve())


if __name__ == "__main__":
    main()

# Output:
# a second order meanwhile: 409 conflict
# progress: 1/2
# asked: Buy coffee?
# answer: resolved
# progress: 2/2
# result: bought
# cancel an ended run: 409 conflict
