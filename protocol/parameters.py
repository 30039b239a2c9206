"""Check and convert the parameters and results of jobs, and report all errors together.

A job declares the type of its parameters by the annotation of its second parameter, here called `kind`: a
msgspec Struct, an attrs class, a dataclass, a TypedDict, a dict, `Any`, or `None` for a job without
parameters. The engine keeps and shows parameters as plain JSON values. So there are three steps:
`plain_params` makes a caller's parameters plain, `check_params` checks them before they are accepted, and
`convert_params` converts them for a body. Results have two steps: `plain_result` makes plain what a body
returns, and `convert_result` converts it for a caller that knows the type.

msgspec checks the values, strictly (a str is not accepted as an int). It stops at the first error and
ignores unknown keys, most of which are misspelt. So an invalid value is walked through here, part by part.
"""

from __future__ import annotations

import typing
from collections import abc
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache
from itertools import chain, islice
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.inspect import DataclassType, StructType, TypedDictType, type_info

from .codec import place_and_reason
from .errors import Invalid
from .values import child_path, copied, json_value, shown

_MAX_MISTAKES = 100
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
_SEQUENCES = (list, tuple, abc.Sequence, abc.MutableSequence, abc.Collection)
_SETS = (set, frozenset, abc.Set, abc.MutableSet)
_ARRAYS = (*_SEQUENCES, *_SETS)
_NO_VALUE = object()
"""A value that no type accepts, so that msgspec's error names the expected type."""


def check_params(value: Any, kind: Any) -> list[str]:
    """Return the errors of `value`, a JSON value, as parameters of type `kind`; each with its path.

    Of more than a hundred errors, only the first hundred are returned, and a note about the rest.
    """
    if kind is None or kind is NoneType:
        found = _not_accepted(value)
    else:
        given = {} if value is None else value
        found = chain(_misfits(given, kind, "params"), _unknown_keys(given, kind, "params"))
    mistakes = list(islice(found, _MAX_MISTAKES + 1))
    if len(mistakes) > _MAX_MISTAKES:
        mistakes[_MAX_MISTAKES] = "params: further errors are not listed"
    return mistakes


def params_schema(params_type: Any) -> dict[str, Any]:
    """The JSON Schema of a job's parameters; one that accepts any object if the type has none."""
    try:
        return msgspec.json.schema(params_type)
    except (TypeError, ValueError, NameError):  # a field of a type that msgspec cannot describe
        return {"type": "object"}


def convert_params(value: Any, kind: Any) -> Any:
    """Return `value` as an instance of `kind`, which shares no data with it. Raises `Invalid`."""
    if kind is None or kind is NoneType:
        return None
    copy = json_value({} if value is None else value, "params", None)
    try:
        return _convert(copy, kind)
    except Exception as error:  # a class can raise anything from its constructor
        mistakes = check_params(value, kind) or [f"params: {error}"]
        raise Invalid("; ".join(mistakes), mistakes=mistakes) from None


def plain_params(value: Any, kind: Any) -> Any:
    """Return a caller's parameters, for example an instance of `kind`, as plain values.

    Dicts and `None` are returned unchanged.
    """
    if value is None or isinstance(value, dict):
        return value
    try:
        return _plain(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"params: must be an object (got {shown(value)}): {error}", path="params") from None


def plain_result(value: Any) -> Any:
    """Return a body's result with instances of Structs, attrs classes and dataclasses converted to dicts.

    Other values are returned unchanged.
    """
    if type(value) in (dict, list, tuple):
        if isinstance(value, dict):
            return {key: plain_result(item) for key, item in value.items()}
        return [plain_result(item) for item in value]
    if isinstance(value, type) or _shape(type(value)) is None:
        return value
    try:
        return _plain(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"result: {shown(value)} is not a JSON value ({error})", path="result") from None


def convert_result(value: Any, kind: Any) -> Any:
    """Return a run's result, a JSON value, as an instance of `kind`. Raises `Invalid`."""
    copy = copied(value)
    try:
        return _convert(copy, kind)
    except Exception as error:  # a class can raise anything from its constructor
        mistakes = list(islice(_misfits(value, kind, "result"), _MAX_MISTAKES)) or [f"result: {error}"]
        raise Invalid("; ".join(mistakes), mistakes=mistakes) from None


def convertible(kind: Any) -> bool:
    """Whether msgspec supports conversion to `kind`."""
    try:
        _convert(None, kind)
    except msgspec.ValidationError:
        return True
    except Exception:  # msgspec does not support this type
        return False
    return True


def _convert(value: Any, kind: Any) -> Any:
    return msgspec.convert(value, kind, strict=True, str_keys=True)


def _misfit(value: Any, kind: Any) -> str | None:
    """Return the first error that msgspec or a class reports for `value`, without the path of `value`."""
    try:
        _convert(value, kind)
    except msgspec.ValidationError as error:
        place, text = place_and_reason(error)
        return f"{place}: {text if place else _with_value(text, value, kind)}"
    except Exception as error:
        return f": {type(error).__name__}: {error}"
    return None


def _with_value(text: str, value: Any, kind: Any) -> str:
    """Add the value to msgspec's reason, which contains at most its type or its length."""
    if text.startswith("invalid enum value"):
        choices = ", ".join(map(shown, _choices(_aim(kind, value))))
        return f"must be one of {choices} (got {shown(value)})" if choices else text
    if not text.startswith(("expected ", "invalid ")):
        return text
    if ", got " not in text:
        return f"{text}, got {shown(value)}"
    return text if text[-1].isdigit() or value is None else f"{text} {shown(value)}"


def _choices(kind: Any) -> list[Any]:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [member.value for member in kind]
    return list(get_args(kind)) if get_origin(kind) is Literal else []


# The walk.


def _not_accepted(value: Any) -> Iterator[str]:
    """Yield the errors of parameters for a job that takes none."""
    if isinstance(value, dict):
        for key in value:
            yield f"{child_path('params', key)}: unknown field; this job takes no parameters"
    elif value is not None:
        yield f"params: this job takes no parameters (got {shown(value)})"


def _misfits(value: Any, kind: Any, path: str) -> Iterator[str]:
    """Yield what is missing or has the wrong type, with the deepest path that can be determined."""
    reason = _misfit(value, kind)
    if reason is None:
        return
    explained = "object contains unknown field" in reason and any(_unknown_keys(value, kind, path))
    for key, field in _fields(value, kind).items():
        if field.required and key not in value:
            explained = True
            yield f"{child_path(path, key)}: missing ({_in_words(field.kind)} is required)"
    for key, part, its_kind in _parts(value, kind):
        for mistake in _misfits(part, its_kind, child_path(path, key)):
            explained = True
            yield mistake
    if not explained:
        yield path + reason


def _unknown_keys(value: Any, kind: Any, path: str) -> Iterator[str]:
    """Yield the keys that are not fields of their class."""
    if any(isinstance(part, dict | list) for part in _items(value)):
        for key, part, its_kind in _parts(value, kind):
            if isinstance(part, dict | list):
                yield from _unknown_keys(part, its_kind, child_path(path, key))
    shape = _shape_of(value, kind)
    if shape is not None:
        known = ", ".join(shape.fields) or "none"
        for key in value:
            if key not in shape.fields and key != shape.tag_field:
                yield f"{child_path(path, key)}: unknown field; known fields: {known}"


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()


def _parts(value: Any, kind: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the parts of `value` whose type is known: key or index, part, type."""
    aim = _aim(kind, value)
    items = get_args(aim)
    if isinstance(value, dict):
        fields = _fields(value, kind)
        for key, part in value.items():
            if key in fields:
                yield key, part, fields[key].kind
            elif get_origin(aim) in _MAPPINGS:
                yield key, part, items[1]
    elif isinstance(value, list | tuple) and get_origin(aim) in _ARRAYS and items:
        of_one_type = get_origin(aim) is not tuple or items[-1] is Ellipsis
        for index, part in enumerate(value):
            if of_one_type or index < len(items):
                yield index, part, items[0 if of_one_type else index]


# The structure of types.


class _Field(NamedTuple):
    """A field of a class: its attribute, its type, and whether it is required."""

    attribute: str
    kind: Any
    required: bool


class _Shape(NamedTuple):
    """A class that JSON represents as an object: its fields by key, and its tag if it has one."""

    fields: dict[str, _Field]
    tag_field: str | None
    tag: str | int | None


def _shape(kind: Any) -> _Shape | None:
    """Return the shape of a class, or `None` if JSON does not represent it as an object."""
    cls = get_origin(kind) or kind
    return _shape_of_class(cls) if isinstance(cls, type) else None


@lru_cache(maxsize=1024)
def _shape_of_class(cls: Any) -> _Shape | None:
    try:
        info = type_info(cls)
        hints = get_type_hints(cls, include_extras=True)
    except Exception:  # msgspec does not support this class; converting to it raises an error
        return None
    if not isinstance(info, StructType | DataclassType | TypedDictType):
        return None
    tag_field = tag = None
    if isinstance(info, StructType):
        if info.array_like:
            return None
        tag_field, tag = info.tag_field, info.tag
    by_name = {field.name: field for field in info.fields}
    fields = {
        by_name[name].encode_name: _Field(name, _unwrapped(hint), by_name[name].required)
        for name, hint in hints.items()
        if name in by_name
    }
    return _Shape(fields, tag_field, tag)


def _shape_of(value: Any, kind: Any) -> _Shape | None:
    return _shape(_aim(kind, value)) if isinstance(value, dict) else None


def _fields(value: Any, kind: Any) -> dict[str, _Field]:
    shape = _shape_of(value, kind)
    return shape.fields if shape is not None else {}


def _unwrapped(kind: Any) -> Any:
    """Return the type of a TypedDict's key without `Required` or `NotRequired`."""
    while get_origin(kind) in (typing.Required, typing.NotRequired):
        kind = get_args(kind)[0]
    return kind


def _aim(kind: Any, value: Any) -> Any:
    """Return the type meant for `value`: `kind` unwrapped; of a union, the member that fits `value`."""
    if isinstance(kind, type):
        return kind  # most are classes
    while True:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        elif hasattr(kind, "__supertype__"):  # a NewType
            kind = kind.__supertype__
        elif hasattr(kind, "__value__"):  # an alias by a `type` statement
            kind = kind.__value__
        else:
            break
    if get_origin(kind) not in (Union, UnionType):
        return kind
    members = [member for member in (_aim(m, value) for m in get_args(kind)) if _has_form(member, value)]
    if len(members) > 1 and isinstance(value, dict):
        members = [m for m in members if (s := _shape(m)) and value.get(s.tag_field) == s.tag]
    return members[0] if len(members) == 1 else kind


def _has_form(kind: Any, value: Any) -> bool:
    """Whether JSON represents `kind` in the form that `value` has: an object, an array, or another value."""
    origin = get_origin(kind) or kind
    if isinstance(value, dict):
        return origin in _MAPPINGS or _shape(kind) is not None
    if isinstance(value, list | tuple):
        return origin in _ARRAYS
    return bool(_choices(kind))


def _in_words(kind: Any) -> str:
    """Return `kind` in JSON's terms: `a string`, `an integer | null`, `one of "a", "b"`."""
    choices = _choices(_aim(kind, _NO_VALUE))
    if choices:
        return f"one of {', '.join(map(shown, choices))}"
    try:
        _convert(_NO_VALUE, kind)
    except msgspec.ValidationError as error:
        name = place_and_reason(error)[1].removeprefix("expected ").partition(",")[0]
        return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    return "any value"


def _plain(value: Any) -> Any:
    """Like msgspec.to_builtins, which omits the private fields of attrs classes."""
    if isinstance(value, dict):
        return {_plain_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    shape = _shape(type(value))
    if shape is None:
        return msgspec.to_builtins(value, str_keys=True)
    plain = {
        key: _plain(item)
        for key, field in shape.fields.items()
        if (item := getattr(value, field.attribute)) is not msgspec.UNSET
    }
    if shape.tag_field is not None:
        plain[shape.tag_field] = shape.tag
    return plain


def _plain_key(key: Any) -> Any:
    [plain] = msgspec.to_builtins({key: None}, str_keys=True)
    return plain
