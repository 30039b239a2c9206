"""The sources of settings: a file, environment variables, flags.

They are combined into one tree that remembers the origin of each value, so that a message can name its line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

FILE_NAME = "greenroom.toml"
PREFIX = "GREENROOM_"

Path_ = tuple[str, ...]
"""The path of a setting: `("gateway", "limits", "rate")`."""

Origin = str
"""The origin of a value: `greenroom.toml:12`, `GREENROOM_STORE`, `--port`."""


class Unreadable(Exception):
    """The file is not valid TOML, or cannot be read."""


@attrs.define
class Written:
    """The values of all sources, later ones overriding earlier ones, and their origins."""

    values: dict[str, Any] = attrs.field(factory=dict)
    origins: dict[Path_, Origin] = attrs.field(factory=dict)

    def put(
        self,
        path: Path_,
        value: Any,
        origin: Origin,
        merge: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        """Set a value: it replaces an earlier one, or `merge` combines both tables."""
        table = self.values
        for key in path[:-1]:
            inner = table.get(key)
            if not isinstance(inner, dict):
                inner = table[key] = {}
            table = inner
        if merge is not None and path[-1] in table:
            table[path[-1]] = merge(table[path[-1]], value)
            self._merge_origins(path, value, origin)
            return
        table[path[-1]] = value
        for known in [known for known in self.origins if known[: len(path)] == path]:
            del self.origins[known]
        self.origins[path] = origin

    def _merge_origins(self, path: Path_, value: Any, origin: Origin) -> None:
        earlier = self.origin(path)
        for name in value if isinstance(value, Mapping) else ():
            self.origins[*path, name] = origin
        if origin not in earlier.split(", "):
            self.origins[path] = f"{earlier}, {origin}"

    def origin(self, path: Path_) -> Origin:
        """Return the origin of the value at a path, or of the nearest table around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return ""


def find_file(named: str | None) -> Path | None:
    """Return the file to read: the named one, else `greenroom.toml` in this folder if it exists."""
    if named is not None:
        return Path(named)
    here = Path(FILE_NAME)
    return here if here.exists() else None


def read_file(file: Path) -> Written:
    """Read a file. Raises `Unreadable`."""
    written = Written()
    try:
        text = file.read_text(encoding="utf-8")
        written.values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(f"{file} is not valid TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"it is not UTF-8 ({error.reason})"
        raise Unreadable(f"cannot read {file}: {reason}") from None
    lines = dict(_lines(text))
    for path in _paths(written.values):
        if path in lines:
            written.origins[path] = f"{file}:{lines[path]}"
        elif len(path) == 1:
            written.origins[path] = str(file)
    return written


def variables(names: Mapping[str, Path_], environ: Mapping[str, str]) -> Iterator[tuple[Path_, str, str]]:
    """Yield the settings among the environment variables, as (path, text, variable)."""
    for variable, path in names.items():
        if variable in environ:
            yield path, environ[variable], variable


def variable_name(path: Path_) -> str:
    """Return the variable of a setting: its table and its name; for the engine's settings only the name."""
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
    """Yield the line of each key, for messages. A simple scan, which can miss unusual syntax."""
    table: Path_ = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.match(line):
            table = _parts(header[1])
            yield table, number
        elif key := _KEY.match(line):
            yield (*table, *_parts(key[1])), number


def _parts(key: str) -> Path_:
    return tuple(part.strip("\"'") for part in _PART.findall(key))
