"""The configuration: `greenroom.toml`, then variables `GREENROOM_…`, then flags, each over the one before.

`settings` says what there is, `kinds` what each value must look like, `sources` where it is written, and
`reading` puts them together and tells every mistake at once.
"""

from .reading import (
    SETTINGS,
    VARIABLES,
    ConfigMistakes,
    Flag,
    Mistake,
    Read,
    check_together,
    load_jobs,
    read_config,
)
from .settings import Config, EngineConfig, LogsConfig

__all__ = [
    "SETTINGS",
    "VARIABLES",
    "Config",
    "ConfigMistakes",
    "EngineConfig",
    "Flag",
    "LogsConfig",
    "Mistake",
    "Read",
    "check_together",
    "load_jobs",
    "read_config",
]
