"""SIGHUP: everything is checked first, and reloads follow each other."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from click.testing import Result

from greenroom import Jobs, Run, Schedule, open_engine
from greenroom.actors.engine.api import Engine
from greenroom.actors.schedules import api
from greenroom.cli import main
from greenroom.config.mistakes import ConfigMistakes
from greenroom.config.reading import check_together, read_config
from greenroom.errors import Invalid
from greenroom.gateway import Role, add_token
from greenroom.gateway.server import Gateway, open_gateway
from greenroom.reloading import Reloading
from tests.cli.runner import runner

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the system has no SIGHUP")

START = "[engine]\nmax_concurrent = 4\nlanes = { a = 2 }\n[gateway]\nport = 0\nlimits.burst = 100\n"
LATER = "[engine]\nmax_concurrent = 5\nlanes = { a = 3 }\n[gateway]\nport = 0\nlimits.burst = 200\n"
TABLE = "[schedules.s]\njob = 'report'\nevery = 3600\n"

jobs = Jobs()


@jobs.job
async def report(run: Run, params: dict[str, int]) -> None: ...


@jobs.job(schedule=Schedule(every=3600))
async def in_code(run: Run) -> None: ...


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def write(text: str | None) -> None:
    """Write the configuration file; `None` removes it."""
    if text is None:
        Path("greenroom.toml").unlink()
    else:
        Path("greenroom.toml").write_text(text)


@attrs.frozen
class Place:
    """An engine and a gateway with the configuration of a file, and how they reload."""

    engine: Engine
    gateway: Gateway
    reloading: Reloading

    async def reload(self, text: str) -> None:
        write(text)
        await self.reloading.reload(self.gateway, self.engine)

    async def state(self) -> tuple[Any, ...]:
        snapshot = await self.engine.snapshot()
        lanes = {name: (lane.limit, lane.rules) for name, lane in snapshot.lanes.items()}
        burst = self.gateway._shared.config.limits.burst
        return snapshot.engine.max_concurrent, lanes, snapshot.schedules, burst, logging.getLogger().level


@asynccontextmanager
async def started(text: str, jobs: Jobs = jobs) -> AsyncIterator[Place]:
    write(text)
    reread = partial(read_config, None, (), {})
    read = reread()
    engine_config = read.config.engine
    async with (
        open_engine(
            jobs,
            "memory:",
            max_concurrent=engine_config.max_concurrent,
            lanes=engine_config.lanes,
            schedules=read.config.schedules,
            webhook_secret=engine_config.webhook_secret,
        ) as engine,
        open_gateway(engine, read.config.gateway) as gateway,
    ):
        yield Place(engine, gateway, Reloading(read, reread, jobs))


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The log, which a reload does not replace by the server's."""
    levels: list[str] = []
    monkeypatch.setattr("greenroom.reloading.begin_logs", lambda config: levels.append(config.level))
    caplog.set_level(logging.INFO)
    return caplog


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (TABLE.replace("report", "gone"), 'job "gone" not found'),
        (TABLE + "params = { x = 'text' }\n", 'parameters of job "report"'),
        (TABLE + "params = { x = 2026-01-01 }\n", "is not a JSON value"),
        (TABLE + "params = { x = nan }\n", "NaN is not a JSON value"),
        (TABLE + f"params = {{ x = {2**70} }}\n", "is outside"),
        (TABLE + f"lane = '{'l' * 300}'\n", "at most 256"),
        (TABLE.replace("schedules.s", "schedules.in_code"), "is declared twice"),
        ("[engine.lanes.b]\nnotify = 'https://example.org/'\n", "requires a secret"),
        ("[engine.lanes.b]\nnotify = 'http://10.0.0.1/'\n", "is not public"),
    ],
)
async def test_an_error_changes_nothing(wrong: str, told: str, logged: pytest.LogCaptureFixture):
    later = LATER.replace("lanes = { a = 3 }", "lanes.a = 3") if "engine.lanes" in wrong else LATER
    async with started(START + TABLE) as place:
        before = await place.state()
        await place.reload(f"{later}[logs]\nlevel = 'debug'\n{wrong}")
        [error] = errors(logged)
        assert error.startswith("configuration not reloaded: greenroom.toml:")
        assert told in error
        assert await place.state() == before


def test_config_check_finds_the_errors_that_a_reload_finds(tmp_path: Path):
    declared = "@jobs.job(schedule={'every': 60})\ndef nightly(run): ...\n"
    (tmp_path / "checked_app.py").write_text(f"from greenroom import Jobs\njobs = Jobs()\n{declared}")
    schedule = "[schedules.nightly]\njob = 'nightly'\nevery = 5\n"
    write(f"[engine]\njobs = 'checked_app:jobs'\n{schedule}")
    result: Result = runner().invoke(main, ["config", "check"])
    assert result.exit_code == 2
    assert 'schedule "nightly" is declared twice' in result.stderr


async def test_what_a_restart_would_apply_is_not_in_effect(logged: pytest.LogCaptureFixture):
    async with started(START) as place:
        before = await place.state()
        secret = "webhook_secret = 'a secret of this test'\nlanes.a.notify = 'https://example.org/'\n"
        await place.reload(LATER.replace("lanes = { a = 3 }\n", secret))
        [error] = errors(logged)
        assert "requires a secret" in error
        assert error.endswith("(or restart the server, to apply engine.webhook_secret)")
        assert await place.state() == before


async def test_tokens_stay_while_the_gateway_listens_on_a_public_address(
    tmp_path: Path, logged: pytest.LogCaptureFixture
):
    add_token(tmp_path / "tokens", "me", Role.ADMIN)
    public = START + "host = '0.0.0.0'\ntoken_file = 'tokens'\n"
    async with started(public) as place:
        await place.reload(START + "host = '127.0.0.1'\n")
        assert "so a token_file is required" in errors(logged)[0]
        assert place.gateway._shared.access.asks_for_tokens


async def test_the_last_file_counts_however_many_signals_arrive(logged: pytest.LogCaptureFixture):
    many = "".join(f"[schedules.s{number}]\njob = 'report'\nevery = 3600\n" for number in range(150))
    async with started(START) as place:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(place.reload, LATER + many)
            while len(await place.engine.schedules.list()) < 10:
                await trio.lowlevel.checkpoint()
            for _ in range(5):
                nursery.start_soon(place.reload, START + TABLE)
        assert [it.name for it in await place.engine.schedules.list()] == ["in_code", "s"]
        assert (await place.state())[0] == 4
    assert logged.messages.count("configuration reloaded") == 2


async def test_a_file_that_has_disappeared_changes_nothing(logged: pytest.LogCaptureFixture):
    async with started(START + TABLE) as place:
        before = await place.state()
        write(None)
        await place.reloading.reload(place.gateway, place.engine)
        assert errors(logged) == [
            "configuration not reloaded: greenroom.toml is missing: restore it, or restart the server to run "
            "without it"
        ]
        assert await place.state() == before
        await place.reload(LATER)
        assert (await place.state())[0] == 5


async def test_a_server_that_has_started_without_a_file_reloads_without_one(logged: pytest.LogCaptureFixture):
    reread = partial(read_config, None, (), {"GREENROOM_GATEWAY_PORT": "0"})
    async with started(START) as place:
        write(None)
        await Reloading(reread(), reread, jobs).reload(place.gateway, place.engine)
        assert logged.messages[-1] == "configuration reloaded"


async def test_the_limit_of_schedules_is_the_same_everywhere(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("greenroom.actors.schedules.configured.MAX_SCHEDULES", 2)
    tables: dict[str, Any] = {name: {"job": "report", "every": 60} for name in "abc"}
    told = "schedules must have at most 2 tables"
    write("".join(TABLE.replace(".s]", f".{name}]") for name in "abc"))
    with pytest.raises(ConfigMistakes, match=told):
        check_together(read_config())
    with pytest.raises(Invalid, match=told):
        async with open_engine(jobs, "memory:", schedules=tables):
            pass
    async with open_engine(jobs, "memory:") as engine:
        with pytest.raises(Invalid, match=told):
            await engine.schedules.configure(tables)


async def test_a_reload_of_many_schedules_lets_other_tasks_continue(monkeypatch: pytest.MonkeyPatch):
    sizes: list[int] = []
    turns: list[int] = []
    turn = 0

    def configured(tables: Any, jobs: Jobs) -> Any:
        sizes.append(len(tables))
        turns.append(turn)
        return []

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await trio.lowlevel.checkpoint()

    monkeypatch.setattr(api, "configured", configured)
    async with open_engine(jobs, "memory:") as engine, trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await engine.schedules.configure({str(i): {"job": "report", "every": 60} for i in range(1000)})
        nursery.cancel_scope.cancel()
    assert max(sizes) <= 100
    assert len(sizes) == 10
    assert len(set(turns)) >= 5
