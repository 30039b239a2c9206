"""Where settings are written: a file, variables of the environment, flags. Here they become one tree, and
it is remembered where each value came from, so that a mistake can be traced to its line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

FILE_NAME = "greenroom.toml"
PREFIX = "GREENROOM_"

Path_ = tuple[str, ...]
"""A setting's place: `("gateway", "limits", "rate")`."""

Origin = str
"""Where a value was written: `greenroom.toml:12`, `GREENROOM_STORE`, `--port`."""


class Unreadable(Exception):
    """The file is no TOML, or can't be read."""


@attrs.define
class Written:
    """Everything that was written anywhere; what came later has won."""

    values: dict[str, Any] = attrs.field(factory=dict)
    origins: dict[Path_, Origin] = attrs.field(factory=dict)

    def put(self, path: Path_, value: Any, origin: Origin) -> None:
        """Set a value, over whatever stood there."""
        table = self.values
        for key in path[:-1]:
            inner = table.get(key)
            if not isinstance(inner, dict):
                inner = table[key] = {}
            table = inner
        table[path[-1]] = value
        for known in [known for known in self.origins if known[: len(path)] == path]:
            del self.origins[known]
        self.origins[path] = origin

    def origin(self, path: Path_) -> Origin:
        """Where the value at a path came from, or the nearest thing around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return ""


def find_file(named: str | None) -> Path | None:
    """The file to read: the one that is named, or `greenroom.toml` in this folder if there is one."""
    if named is not None:
        return Path(named)
    here = Path(FILE_NAME)
    return here if here.exists() else None


def read_file(file: Path) -> Written:
    """What a file says. Raises `Unreadable`."""
    written = Written()
    try:
        text = file.read_text(encoding="utf-8")
        written.values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(f"{file}: this is no TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Unreadable(f"{file}: it can't be read: {reason}") from None
    lines = dict(_lines(text))
    for path in _paths(written.values):
        if path in lines:
            written.origins[path] = f"{file}:{lines[path]}"
        elif len(path) == 1:
            written.origins[path] = str(file)
    return written


def variables(names: Mapping[str, Path_], environ: Mapping[str, str]) -> Iterator[tuple[Path_, str, str]]:
    """The settings among the variables of the environment, as (path, text, variable)."""
    for variable, path in names.items():
        if variable in environ:
            yield path, environ[variable], variable


def variable_name(path: Path_) -> str:
    """The variable that a setting has: its table and its name; those of the engine go without the table."""
    shortened = path[1:] if path[0] == "engine" else path
    return PREFIX + "_".join(shortened).upper()


def _paths(table: Mapping[str, Any], above: Path_ = ()) -> Iterator[Path_]:
    for key, value in table.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from _paths(value, (*above, key))


_TABLE = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?$")
_KEY = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_PART = re.compile(r"[\w-]+|\"[^\"]*\"|'[^']*'")


def _lines(text: str) -> Iterator[tuple[Path_, int]]:
    """The line on which each key stands, as far as a quick look tells. It is only for messages."""
    table: Path_ = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.match(line):
            table = _parts(header[1])
            yield table, number
        elif key := _KEY.match(line):
            yield (*table, *_parts(key[1])), number


def _parts(key: str) -> Path_:
    return tuple(part.strip("\"'") for part in _PART.findall(key))
