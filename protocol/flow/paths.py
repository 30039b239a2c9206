"""Paths: how a definition names a value in what a run has at hand.

`$params.a.b`, `$shared.items[0].name`, `$input`, `$shared["a key"]`, or a bare `key` into shared. A bare text
is first taken as a whole key, dots and all, and then as a path. Whatever a path leads to that isn't there is
null. Paths only step through objects by key and lists by index: they reach data and nothing else.

A path that may be written to is a target: making it makes the objects on the way.
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
"""How many characters a path may have."""

MAX_STEPS = 100
"""How many steps it may have: as many as values may be deep."""

RUNTIME = "_rt"
"""The key of shared, and the beginning of keys (`_rt.`), that belong to whoever walks the graph."""

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
    """What paths lead into: parameters, what the nodes share, and the input of the node at hand."""

    params: Mapping[str, Any]
    shared: Mapping[str, Any]
    input: Any = None


@attrs.frozen
class Path:
    """A path that was read. `bare` ones were written without `$` and lead into shared."""

    text: str
    root: Root
    steps: tuple[str | int, ...]
    bare: bool = False

    def get(self, scope: Scope) -> Any:
        """The value that the path leads to, itself and no copy; None if there is none."""
        found = self.find(getattr(scope, self.root))
        return None if found is _MISSING else found

    def leads_somewhere(self, scope: Scope) -> bool:
        """Whether there is a value at the path, null included."""
        return self.find(getattr(scope, self.root)) is not _MISSING

    def within(self, value: Any) -> Any:
        """What the same steps lead to in another value: a field of a result, say. None if there is none."""
        found = self.find(value)
        return None if found is _MISSING else found

    def find(self, value: Any) -> Any:
        """The same, but something that is no value at all if there is none."""
        if self.bare and isinstance(value, Mapping) and self.text in value:
            return value[self.text]
        for step in self.steps:
            value = _child(value, step)
            if value is _MISSING:
                break
        return value

    def set(self, shared: dict[str, Any], value: Any) -> None:
        """Put a value where the path leads, in place, and make the objects on the way.

        A null on the way is replaced. An index may be that after the last, but no further. Raises `Invalid`
        and changes nothing where something else stands in the way.
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
                raise self._refused(above, "the list would be empty before it")
        self._put(place, depth, value)

    def _put(self, place: Any, depth: int, value: Any) -> None:
        step = self.steps[depth]
        if isinstance(step, str):
            if not isinstance(place, dict):
                raise self._refused(depth, f"it would stand in {shown(place)}, which is no object")
            place[step] = value
        elif not isinstance(place, list):
            raise self._refused(depth, f"it would stand in {shown(place)}, which is no list")
        elif step < len(place):
            place[step] = value
        elif step == len(place):
            place.append(value)
        else:
            raise self._refused(depth, f"the list has {len(place)} items")

    def _refused(self, depth: int, why: str) -> Invalid:
        at = f"${self.root}"
        for step in self.steps[: depth + 1]:
            at = child_path(at, step)
        return Invalid(
            f"{shown(self.text)} can't be written: there can be no {at}, since {why}", path=self.text
        )


def parse_path(text: str) -> Path:
    """The path that a text is. Raises `Invalid`."""
    if not isinstance(text, str):  # whoever runs a flow gives parameters, and so may give a path of any type
        raise Invalid(f"a path must be a text, not {shown(text)}")
    return _parsed(text)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Path:
    if len(text) > MAX_PATH:
        raise Invalid(f"{shown(text)} has {len(text):,} characters: a path may have {MAX_PATH:,}")
    if not text.strip():
        raise Invalid("a path is empty: give $params.…, $shared.…, $input, or a key of shared")
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
        raise Invalid(f"{shown(text)} has {len(steps)} steps: a path may have {MAX_STEPS}")
    if steps and isinstance(steps[0], int) and root != "input":
        raise Invalid(f"{shown(text)} begins with an index, but ${root} is an object: name a key")
    return Path(text, root, tuple(steps), bare)


def parse_target(text: str) -> Path:
    """The path that a text is, if it may be written to: a place within shared. Raises `Invalid`."""
    path = parse_path(text)
    if path.root != "shared":
        raise Invalid(f"{shown(text)} can't be written: only $shared can be")
    if not path.steps:
        raise Invalid(f"{shown(text)} can't be written as a whole: name a key in it")
    for key in (path.steps[0], text if path.bare else ""):
        if key == RUNTIME or str(key).startswith(f"{RUNTIME}."):
            raise Invalid(f"{shown(text)} can't be written: keys in {RUNTIME} belong to the engine")
    return path


def is_path(text: str) -> bool:
    """Whether a text that may be a literal, too, is meant as a path: it begins like `$name`."""
    return text[:1] == "$" and (text[1:2].isalpha() or text[1:2] == "_")


@attrs.frozen
class Constant:
    """A value that was written down."""

    value: Any

    def get(self, scope: Scope) -> Any:
        """A copy of the value."""
        return copied(self.value)


@attrs.frozen
class Word:
    """A text without `$` where a path or a literal may stand: what shared has under it, else the text."""

    text: str
    path: Path | None

    def get(self, scope: Scope) -> Any:
        """The value in shared, itself and no copy; the text where there is none."""
        if self.text in scope.shared:
            return scope.shared[self.text]
        if self.path is not None and self.path.leads_somewhere(scope):
            return self.path.get(scope)
        return self.text


Source = Path | Constant | Word


def parse_source(written: Any) -> Source:
    """What stands where a path or a literal may stand. Raises `Invalid` for what is meant as a path."""
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
    there = f"did you mean ${near[0]}?" if near else "there are $params, $shared, $input"
    raise Invalid(f"unknown root {shown('$' + name)}: {there}")


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
        why = "indexes count from 0 and upwards"
    elif rest.startswith("."):
        why = "a name is missing after the dot"
    elif rest.startswith("["):
        why = 'in brackets stands an index or a quoted key, as in [0] or ["a key"]'
    else:
        why = 'names with quotes or brackets in them are written ["…"]'
    return Invalid(f"{shown(text)} is no path, from {shown(rest)} on: {why}", path=text[:200])
