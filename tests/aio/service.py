"""A FastAPI service for uvicorn, which the test stops during its work. The environment names the file of the
store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

import greenroom.aio
from greenroom import GreenroomError, Jobs, RunCancelled

jobs = Jobs()


@jobs.job("wait", loop="asyncio")
async def wait(run: greenroom.aio.Run) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    store = f"sqlite:///{os.environ['SERVICE_STORE']}"
    async with greenroom.aio.open_engine(jobs, store, max_concurrent=100, shutdown_timeout=0.1) as engine:
        yield {"engine": engine, "tickets": {}}
    print("the engine has been left", flush=True)


app = FastAPI(lifespan=lifespan)


@app.exception_handler(GreenroomError)
async def refuse(request: Request, error: GreenroomError) -> JSONResponse:
    return JSONResponse({"code": error.code}, status_code=error.http_status)


@app.post("/{handle}")
async def submit(request: Request, handle: str) -> str:
    ticket = await request.state.engine.submit("wait", handle=handle)
    request.state.tickets[ticket.id] = ticket
    return str(ticket.id)


@app.delete("/{run}")
async def cancel(request: Request, run: str) -> str:
    ticket = request.state.tickets[run]
    await ticket.cancel()
    try:
        await ticket.result()
    except RunCancelled:
        return "cancelled"
    return "succeeded"
