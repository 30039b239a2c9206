"""Errors that cattrs finds in configuration and flow definitions, with their paths.

cattrs structures these values into attrs classes and collects errors in a tree of exceptions. `faults_in`
reads that tree. A hook that found more than one error raises `Several`.
"""

from __future__ import annotations

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
from .suggestions import suggestion
from .values import child_path

Keys = tuple[str | int, ...]
"""The place of a part of a value: the keys and indexes that lead to it."""

Fault = tuple[Keys, str]
"""The place of an error, and its text."""

MAX_MISTAKES = 100
"""The maximum number of reported errors. A check can stop when it has found more."""

_LONGEST_PATH = 200


class Several(ValueError):
    """Errors in the parts of one value, each with its place in it."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = list(faults)
        super().__init__("; ".join(f"{'.'.join(map(str, keys))} {text}" for keys, text in self.faults))


def faults_in(error: BaseException, keys: Keys = ()) -> Iterator[Fault]:
    """Yield every error in an error of cattrs, with the keys that lead to it."""
    if isinstance(error, ClassValidationError | IterableValidationError):
        for inner in error.exceptions:
            yield from faults_in(inner, (*keys, *_noted(inner)))
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
    """Return the path for a message: `nodes.pay.choice_cases[1]`; a long one is shortened."""
    path = root
    for key in keys:
        path = child_path(path, key)
    path = path.removeprefix(".")
    return path if len(path) <= _LONGEST_PATH else f"{path[:150]}…{path[-49:]}"


def _noted(error: BaseException) -> Keys:
    """Return the key at which an error occurred. The field of a keyword of Python is called `from_` there."""
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            return (note.name.removesuffix("_"),)
        if isinstance(note, IterableValidationNote):
            return (note.index,)
    return ()
