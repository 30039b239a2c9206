"""Apply the configuration again while a server runs (SIGHUP): limits, schedules, tokens, origins and logs."""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs
import trio
from msgspec import UNSET

from .actors.engine.api import Engine
from .actors.jobs import Jobs
from .config.mistakes import ConfigMistakes, Mistake
from .config.reading import Read, check_together
from .config.settings import ClusterConfig, Config, EngineConfig
from .gateway.server import Gateway
from .logs import begin_logs
from .protocol.errors import GreenroomError
from .protocol.lane_settings import read_lane

logger = logging.getLogger("greenroom.serve")

_LIVE = frozenset({"max_concurrent", "lanes"})
_AT_START = {
    "engine": [field.name for field in attrs.fields(EngineConfig) if field.name not in _LIVE],
    "gateway": ["host", "port", "tls_certificate", "tls_key"],
    "cluster": [field.name for field in attrs.fields(ClusterConfig)],
}
"""The settings that require a restart."""


class Reloading:
    """`read` is the configuration with which the server has started, `reread` reads it again, and `jobs` are
    those that the server has loaded."""

    def __init__(self, read: Read, reread: Callable[[], Read], jobs: Jobs) -> None:
        self._config = read.config
        self._file = read.file
        self._reread = reread
        self._jobs = jobs
        self._requested: tuple[Gateway, Engine | None] | None = None
        self._active = False

    async def reload(self, gateway: Gateway, engine: Engine | None) -> None:
        """Apply the configuration, except settings that require a restart; without an engine, also except
        limits of lanes and schedules. An error in the configuration changes nothing.

        While another call reloads, that call reloads once more when it has finished, and this one returns
        immediately: so the last state of the file counts, however many signals arrive.
        """
        self._requested = gateway, engine
        if self._active:
            return
        self._active = True
        try:
            while self._requested is not None:
                (gateway, engine), self._requested = self._requested, None
                await self._reload(gateway, engine)
        finally:
            self._active = False

    async def _reload(self, gateway: Gateway, engine: Engine | None) -> None:
        try:
            # In a thread, because large files take seconds, and a pipe or a network share can block.
            read = await trio.to_thread.run_sync(self._read, abandon_on_cancel=True)
            config = in_effect(self._config, read.config)
            gateway.reconfigure(config.gateway)
        except ConfigMistakes as error:
            for mistake in error.mistakes:
                logger.error("configuration not reloaded: %s", mistake)
            return
        except GreenroomError as error:
            logger.error("configuration not reloaded: %s", error.message)
            return
        self._file = read.file
        begin_logs(config.logs)
        try:
            if engine is not None:
                await _set_limits(engine, config.engine)
                await engine.schedules.configure(config.schedules, by="SIGHUP")
        except GreenroomError as error:  # the store is down, or the engine stops
            logger.error("configuration reloaded in part, send SIGHUP again: %s", error.message)
            return
        for setting in needs_restart(self._config, read.config):
            logger.warning("%s has changed: restart the server to apply it", setting)
        logger.info("configuration reloaded")

    def _read(self) -> Read:
        """Read and check everything. Raises `ConfigMistakes`."""
        read = self._reread()
        if self._file is not None and read.file is None:
            text = f"{self._file} is missing: restore it, or restart the server to run without it"
            raise ConfigMistakes([Mistake("", "", text)])
        check_together(read, self._jobs)
        self._check_in_effect(read)
        return read

    def _check_in_effect(self, read: Read) -> None:
        """Check the settings together with those with which the server has started, and which remain."""
        later = needs_restart(self._config, read.config)
        if not later:
            return
        try:
            check_together(attrs.evolve(read, config=in_effect(self._config, read.config)), self._jobs)
        except ConfigMistakes as error:
            remedy = f" (or restart the server, to apply {', '.join(later)})"
            mistakes = [attrs.evolve(mistake, text=mistake.text + remedy) for mistake in error.mistakes]
            raise ConfigMistakes(mistakes) from None


async def _set_limits(engine: Engine, config: EngineConfig) -> None:
    if config.max_concurrent is not None:
        await engine.set_max_concurrent(config.max_concurrent, by="SIGHUP")
    for lane, settings in config.lanes.items():
        config_of_lane = read_lane(lane, settings)
        if config_of_lane.limit is not UNSET:
            await engine.set_concurrency(lane, config_of_lane.limit, by="SIGHUP")
        if config_of_lane.changes:
            await engine.set_lane(lane, by="SIGHUP", **config_of_lane.changes)


def in_effect(before: Config, after: Config) -> Config:
    """The changed configuration, with the settings that require a restart as they were."""
    sections = {
        section: attrs.evolve(
            getattr(after, section), **{name: getattr(getattr(before, section), name) for name in names}
        )
        for section, names in _AT_START.items()
    }
    return attrs.evolve(after, **sections)


def needs_restart(before: Config, after: Config) -> list[str]:
    """The changed settings that require a restart."""
    return [
        f"{section}.{name}"
        for section, names in _AT_START.items()
        for name in names
        if getattr(getattr(before, section), name) != getattr(getattr(after, section), name)
    ]
