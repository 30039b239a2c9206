"""What cattrs has against a value that someone wrote by hand, as mistakes with their paths.

cattrs structures configuration and flow definitions into attrs classes, and collects what doesn't fit in a
tree of exceptions. `told` reads that tree; `Several` is what a hook raises that found more than one mistake.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

import attrs
from cattrs.errors import (
    AttributeValidationNote,
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
    IterableValidationNote,
)

from .errors import GreenroomError
from .values import child_path, shown

Keys = tuple[str | int, ...]
"""Where a part of a value stands: the keys and indexes that lead to it."""

Fault = tuple[Keys, str]
"""Where something is wrong, and what."""

MAX_MISTAKES = 100
"""How many mistakes are worth telling. Whoever looks for them may stop when there are more."""

_LONGEST_PATH = 200
_LONGEST_COMPARED = 60  # characters; comparing takes time that grows with their square
_MOST_COMPARED = 1_000
_MOST_NAMED = 40


class Several(ValueError):
    """Mistakes in the parts of one value: where in it each stands, and what is wrong there."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = list(faults)
        super().__init__("; ".join(f"{'.'.join(map(str, keys))} {text}" for keys, text in self.faults))


def told(error: BaseException, keys: Keys = ()) -> Iterator[Fault]:
    """Every mistake under an error of cattrs, with the keys that lead to it."""
    if isinstance(error, ClassValidationError | IterableValidationError):
        for inner in error.exceptions:
            yield from told(inner, (*keys, *_noted(inner)))
    elif isinstance(error, ForbiddenExtraKeysError):
        known = [field.name for field in attrs.fields(error.cl)]
        for key in sorted(error.extra_fields):
            yield (*keys, key), f"is unknown{suggestion(key, known)}"
    elif isinstance(error, KeyError):
        yield keys, "is missing"
    elif isinstance(error, Several):
        for inner_keys, text in error.faults:
            yield (*keys, *inner_keys), text
    else:
        yield keys, error.message if isinstance(error, GreenroomError) else str(error)


def written_path(keys: Keys, root: str = "") -> str:
    """The keys as a message has them: `nodes.pay.choice_cases[1]`; not all of them if there are many."""
    path = root
    for key in keys:
        path = child_path(path, key)
    path = path.removeprefix(".")
    return path if len(path) <= _LONGEST_PATH else f"{path[:150]}…{path[-49:]}"


def suggestion(name: str, known: Iterable[str]) -> str:
    """What to say after an unknown name: the nearest of those there are, or all of them if none is near."""
    names = list(known)
    if len(names) <= _MOST_COMPARED and len(name) <= _LONGEST_COMPARED:
        near = difflib.get_close_matches(name, [it for it in names if len(it) <= _LONGEST_COMPARED], n=1)
        if near:
            return f": did you mean {shown(near[0])}?"
    return f": there are {', '.join(names)}" if len(names) <= _MOST_NAMED else ""


def _noted(error: BaseException) -> Keys:
    """The key under which an error was found. A field named by a word of Python is written `from_` there."""
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            return (note.name.removesuffix("_"),)
        if isinstance(note, IterableValidationNote):
            return (note.index,)
    return ()
