"""Paths: how a definition refers to a value in a run's parameters, shared data or input.

`$params.a.b`, `$shared.items[0].name`, `$input`, `$shared["a key"]`, or a bare `key` into shared. A bare path
is first looked up as a whole key, dots included, and then as a path. A path to a missing value gives null.
Paths only step through objects by key and through lists by index, so they reach data and nothing else.

A path that can be written to is a target. Writing to it creates the missing objects in between.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import attrs

from ..errors import Invalid
from ..values import child_path, copied, shown

MAX_PATH = 1_000
"""The maximum number of characters of a path."""

MAX_STEPS = 100
"""The maximum number of steps of a path, which is the maximum nesting depth of values."""

RUNTIME = "_rt"
"""The key of shared, and the prefix of keys (`_rt.`), that are reserved for the engine."""

Root = Literal["params", "shared", "input"]

_ROOTS: tuple[Root, ...] = ("params", "shared", "input")
_ROOT = re.compile(r"\$([^.\[\]\"']*)")
_NAME = re.compile(r"[^.\[\]\"'$][^.\[\]\"']*")
_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]"']+)
    |\[(?P<index>[0-9]{1,9})\]
    |\["(?P<double>(?:[^"\\]|\\.)*)"\]
    |\['(?P<single>(?:[^'\\]|\\.)*)'\]""",
    re.VERBOSE | re.DOTALL,
)
_WHOLE_NUMBER = re.compile(r"\[-[0-9]+\]")
_MISSING: Any = object()


@attrs.frozen
class Scope:
    """The values that paths refer to: parameters, the data that nodes share, and the current node's input."""

    params: Mapping[str, Any]
    shared: Mapping[str, Any]
    input: Any = None


@attrs.frozen
class Path:
    """A parsed path. A `bare` path was written without `$` and leads into shared."""

    text: str
    root: Root
    steps: tuple[str | int, ...]
    bare: bool = False

    def get(self, scope: Scope) -> Any:
        """Return the value at the path, not a copy; `None` if there is none."""
        found = self.find(getattr(scope, self.root))
        return None if found is _MISSING else found

    def leads_somewhere(self, scope: Scope) -> bool:
        """Whether there is a value at the path, null included."""
        return self.find(getattr(scope, self.root)) is not _MISSING

    def within(self, value: Any) -> Any:
        """Return the value at the same steps in another value, such as a result; `None` if there is none."""
        found = self.find(value)
        return None if found is _MISSING else found

    def find(self, value: Any) -> Any:
        """Like `within`, but returns a sentinel if there is no value."""
        if self.bare and isinstance(value, Mapping) and self.text in value:
            return value[self.text]
        for step in self.steps:
            value = _child(value, step)
            if value is _MISSING:
                break
        return value

    def set(self, shared: dict[str, Any], value: Any) -> None:
        """Set the value at the path, in place, and create the missing objects in between.

        A null in between is replaced. An index is at most the length of its list. Otherwise raises `Invalid`
        and changes nothing.
        """
        if self.bare and self.text in shared:
            shared[self.text] = value
            return
        place: Any = shared
        depth = 0
        while depth < len(self.steps) - 1:
            child = _child(place, self.steps[depth])
            if child is _MISSING or child is None:
                break
            place, depth = child, depth + 1
        for above in range(len(self.steps) - 1, depth, -1):
            step = self.steps[above]
            if isinstance(step, str):
                value = {step: value}
            elif step == 0:
                value = [value]
            else:
                raise self._refused(above, "the list is empty")
        self._put(place, depth, value)

    def _put(self, place: Any, depth: int, value: Any) -> None:
        step = self.steps[depth]
        if isinstance(step, str):
            if not isinstance(place, dict):
                raise self._refused(depth, f"{shown(place)} is not an object")
            place[step] = value
        elif not isinstance(place, list):
            raise self._refused(depth, f"{shown(place)} is not a list")
        elif step < len(place):
            place[step] = value
        elif step == len(place):
            place.append(value)
        else:
            raise self._refused(depth, f"the list has only {len(place)} items")

    def _refused(self, depth: int, why: str) -> Invalid:
        at = f"${self.root}"
        for step in self.steps[: depth + 1]:
            at = child_path(at, step)
        return Invalid(f"cannot write to path {shown(self.text)} at {at}: {why}", path=self.text)


def parse_path(text: str) -> Path:
    """Parse a path. Raises `Invalid`."""
    if not isinstance(text, str):  # a run's parameters can contain a path, and so a value of any type
        raise Invalid(f"path must be a string (got {shown(text)})")
    return _parsed(text)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Path:
    if len(text) > MAX_PATH:
        raise Invalid(f"path {shown(text)} has {len(text):,} characters: at most {MAX_PATH:,} are allowed")
    if not text.strip():
        raise Invalid("path is empty: use $params.…, $shared.…, $input, or a key of shared")
    steps: list[str | int] = []
    bare = not text.startswith("$")
    if bare:
        root: Root = "shared"
        begin = _NAME.match(text)
        if begin is not None:
            steps.append(begin.group())
        elif text[0] != "[":
            raise _unreadable(text, 0)
    else:
        begin = _ROOT.match(text)
        root = _root(begin.group(1) if begin else "")
    at = begin.end() if begin is not None else 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise _unreadable(text, at)
        steps.append(_step(step))
        at = step.end()
    if len(steps) > MAX_STEPS:
        raise Invalid(f"path {shown(text)} has {len(steps)} steps: at most {MAX_STEPS} are allowed")
    if steps and isinstance(steps[0], int) and root != "input":
        raise Invalid(f"path {shown(text)} begins with an index, but ${root} is an object: name a key")
    return Path(text, root, tuple(steps), bare)


def parse_target(text: str) -> Path:
    """Parse a path that can be written to: one within shared. Raises `Invalid`."""
    path = parse_path(text)
    if path.root != "shared":
        raise Invalid(f"path {shown(text)} is not writable: only $shared is")
    if not path.steps:
        raise Invalid(f"path {shown(text)} is not writable as a whole: name a key in it")
    for key in (path.steps[0], text if path.bare else ""):
        if key == RUNTIME or str(key).startswith(f"{RUNTIME}."):
            raise Invalid(
                f"path {shown(text)} is not writable: keys in {RUNTIME} are reserved for the engine"
            )
    return path


def is_path(text: str) -> bool:
    """Whether a string that can be a path or a literal is a path: it begins with `$` and a letter or `_`."""
    return text[:1] == "$" and (text[1:2].isalpha() or text[1:2] == "_")


@attrs.frozen
class Constant:
    """A literal value."""

    value: Any

    def get(self, scope: Scope) -> Any:
        """Return a copy of the value."""
        return copied(self.value)


@attrs.frozen
class Word:
    """A string without `$` that can be a path or a literal: the value in shared, else the string itself."""

    text: str
    path: Path | None

    def get(self, scope: Scope) -> Any:
        """Return the value in shared, not a copy; the string itself if there is none."""
        if self.text in scope.shared:
            return scope.shared[self.text]
        if self.path is not None and self.path.leads_somewhere(scope):
            return self.path.get(scope)
        return self.text


Source = Path | Constant | Word


def parse_source(written: Any) -> Source:
    """Parse a value that can be a path or a literal. Raises `Invalid` for a bad path."""
    if not isinstance(written, str):
        return Constant(written)
    if is_path(written):
        return parse_path(written)
    try:
        return Word(written, parse_path(written))
    except Invalid:
        return Word(written, None)


def _child(value: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return value.get(step, _MISSING) if isinstance(value, Mapping) else _MISSING
    return value[step] if isinstance(value, list | tuple) and step < len(value) else _MISSING


def _root(name: str) -> Root:
    for root in _ROOTS:
        if name == root:
            return root
    near = difflib.get_close_matches(name[:60], _ROOTS, n=1)
    hint = f"did you mean ${near[0]}?" if near else "expected $params, $shared or $input"
    raise Invalid(f"unknown root {shown('$' + name)}: {hint}")


def _step(found: re.Match[str]) -> str | int:
    name, index, double, single = found.group("name", "index", "double", "single")
    if name is not None:
        return str(name)
    if index is not None:
        return int(index)
    return re.sub(r"\\(.)", r"\1", double if double is not None else single, flags=re.DOTALL)


def _unreadable(text: str, at: int) -> Invalid:
    rest = text[at:]
    if _WHOLE_NUMBER.match(rest):
        why = "an index must be 0 or more"
    elif rest.startswith("."):
        why = "expected a name after the dot"
    elif rest.startswith("["):
        why = 'brackets must contain an index or a quoted key, as in [0] or ["a key"]'
    else:
        why = 'write a name with quotes or brackets as ["…"]'
    return Invalid(f"{shown(text)} is not a valid path at {shown(rest)}: {why}", path=text[:200])
