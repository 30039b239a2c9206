"""Apply the configuration again while a server runs (SIGHUP): limits, schedules, tokens, origins and logs."""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs
from msgspec import UNSET

from .actors.engine.api import Engine
from .config.mistakes import ConfigMistakes
from .config.reading import Read
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
    """`config` is that with which the server has started, and `reread` reads it again."""

    def __init__(self, config: Config, reread: Callable[[], Read]) -> None:
        self._config = config
        self._reread = reread

    async def reload(self, gateway: Gateway, engine: Engine | None) -> None:
        """Apply the configuration, except settings that require a restart; without an engine, also except
        limits of lanes and schedules."""
        try:
            config = self._reread().config
            gateway.reconfigure(config.gateway)
            begin_logs(config.logs)
            if engine is not None:
                await _set_limits(engine, config.engine)
                await engine.schedules.configure(config.schedules, by="SIGHUP")
        except ConfigMistakes as error:
            for mistake in error.mistakes:
                logger.error("configuration not reloaded: %s", mistake)
        except GreenroomError as error:
            logger.error("configuration not reloaded: %s", error.message)
        else:
            for setting in needs_restart(self._config, config):
                logger.warning("%s has changed: restart the server to apply it", setting)
            logger.info("configuration reloaded")


async def _set_limits(engine: Engine, config: EngineConfig) -> None:
    if config.max_concurrent is not None:
        await engine.set_max_concurrent(config.max_concurrent, by="SIGHUP")
    for lane, settings in config.lanes.items():
        config_of_lane = read_lane(lane, settings)
        if config_of_lane.limit is not UNSET:
            await engine.set_concurrency(lane, config_of_lane.limit, by="SIGHUP")
        if config_of_lane.changes:
            await engine.set_lane(lane, by="SIGHUP", **config_of_lane.changes)


def needs_restart(before: Config, after: Config) -> list[str]:
    """The changed settings that require a restart."""
    return [
        f"{section}.{name}"
        for section, names in _AT_START.items()
        for name in names
        if getattr(getattr(before, section), name) != getattr(getattr(after, section), name)
    ]
