"""How long a server waits for a body after a signal, on a mock clock."""

import gc
import logging
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGTERM, raise_signal
from typing import Any

import pytest
import trio

from greenroom import Engine, Jobs, Run, open_engine
from greenroom.config.reading import Flag, read_config
from greenroom.serving import Server

SHUTDOWN_TIMEOUT = 30


@pytest.mark.parametrize(
    ("grace", "takes", "ends_at", "left_behind"),
    [
        pytest.param(600, 500, 500, False, id="as long as its grace says, however long that is"),
        pytest.param(20, math.inf, SHUTDOWN_TIMEOUT + 20, True, id="no longer than its grace"),
        pytest.param(math.inf, 80, 80, False, id="a minute, if its grace is endless"),
        pytest.param(math.inf, math.inf, SHUTDOWN_TIMEOUT + 60, True, id="no longer than a minute then"),
    ],
)
async def test_a_body_is_waited_for(
    autojump_clock,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    grace: float,
    takes: float,
    ends_at: float,
    left_behind: bool,
):
    process_ends = trio.Event()
    jobs = Jobs()

    @jobs.job("slow", grace=grace)
    async def slow(run: Run) -> None:
        raise_signal(SIGTERM)
        with trio.CancelScope(shield=True), trio.move_on_after(takes):
            await process_ends.wait()

    @asynccontextmanager
    async def open_with_a_run(*arguments: Any, **options: Any) -> AsyncIterator[Engine]:
        async with open_engine(*arguments, **options) as engine:
            await engine.submit("slow", handle="a")
            yield engine

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("greenroom.serving.open_engine", open_with_a_run)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    monkeypatch.setattr(os, "_exit", lambda code: process_ends.set())
    flags = [
        Flag("--store", "engine.store", "memory:"),
        Flag("--shutdown-timeout", "engine.shutdown_timeout", SHUTDOWN_TIMEOUT),
        Flag("--port", "gateway.port", 0),
    ]
    read = read_config(flags=flags, environ={})

    assert await Server(jobs, read, lambda: read).run() == 0
    assert ends_at <= trio.current_time() <= ends_at + 2
    assert process_ends.is_set() is left_behind


async def test_its_own_process_has_its_collector_tuned(
    autojump_clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    seen: list[tuple[bool, bool, int]] = []
    jobs = Jobs()

    def look() -> None:
        seen.append((gc.isenabled(), gc.get_freeze_count() > 0, gc.get_threshold()[0]))

    @jobs.job("look")
    async def body(run: Run) -> None:
        await trio.sleep(1)
        look()
        raise_signal(SIGTERM)

    @asynccontextmanager
    async def open_with_a_run(*arguments: Any, **options: Any) -> AsyncIterator[Engine]:
        look()
        async with open_engine(*arguments, **options) as engine:
            await engine.submit("look", handle="a")
            yield engine

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("greenroom.serving.open_engine", open_with_a_run)
    flags = [Flag("--store", "engine.store", "memory:"), Flag("--port", "gateway.port", 0)]
    read = read_config(flags=flags, environ={})
    look()
    await Server(jobs, read, lambda: read).run()
    look()
    usual = gc.get_threshold()[0]
    assert seen == [(True, False, usual), (False, False, usual), (True, True, 10_000), (True, False, usual)]
