"""Every error in parameters and in definitions of flows is reported with its path, in JSON's terms."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, TypedDict

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from greenroom.protocol.flow.check import check
from greenroom.protocol.parameters import check_params
from greenroom.protocol.structuring import written_path
from tests.texts import WRONG, paths_of, python_in, replaced


class Mode(StrEnum):
    FAST = "fast"
    SLOW = "slow"


class AsStruct(msgspec.Struct):
    street: str
    number: Annotated[int, Meta(ge=1, le=9)]


@attrs.define
class AsAttrs:
    street: str
    number: Annotated[int, Meta(ge=1, le=9)]


@dataclass
class AsDataclass:
    street: str
    number: Annotated[int, Meta(ge=1, le=9)]


class AsTypedDict(TypedDict):
    street: str
    number: Annotated[int, Meta(ge=1, le=9)]


class All(msgspec.Struct):
    text: Annotated[str, Meta(min_length=2, max_length=100)]
    ratio: float
    flag: bool
    maybe: int | None
    either: int | list[str]
    pair: tuple[int, str]
    by_name: dict[str, bool]
    mode: Mode
    choice: Literal["a", "b"]
    at: datetime
    struct: AsStruct
    optional: AsAttrs | None
    attrs_: list[AsAttrs] = msgspec.field(name="attributes")
    dataclass: dict[str, AsDataclass]
    typed_dict: AsTypedDict


ADDRESS = {"street": "s", "number": 2}
PARAMS = {
    "text": "words",
    "ratio": 0.5,
    "flag": True,
    "maybe": 3,
    "either": ["a"],
    "pair": [1, "x"],
    "by_name": {"a": True, "b c": False},
    "mode": "fast",
    "choice": "a",
    "at": "2026-01-01T00:00:00Z",
    "struct": ADDRESS,
    "optional": ADDRESS,
    "attributes": [ADDRESS, ADDRESS],
    "dataclass": {"home": ADDRESS},
    "typed_dict": ADDRESS,
}
DEFINITION = {
    "start": "first",
    "unhandled_errors": "fail",
    "nodes": {
        "first": {
            "kind": "executor",
            "exec_type": "http",
            "service": "s",
            "prep": {"input_map": {"a": "$params.a"}},
            "post": {"output_key": "$shared.b", "action_static": "default"},
            "timeout_ms": 10,
            "max_retries": 1,
            "attempt_delay_ms": 1,
            "params": {"p": 1},
        },
        "program": {"kind": "executor", "exec_type": "local_script", "script": {"cmd": "c", "args": ["x"]}},
        "choose": {
            "kind": "choice",
            "choice_cases": [{"action": "default", "expr": {"eq": ["$shared.b", 1]}}],
            "default_action": "default",
        },
        "rest": {"kind": "timer", "params": {"delay_ms": 5}},
        "signal": {"kind": "wait_event", "params": {"signal_key": "$shared.c", "timeout_ms": 1}},
        "each": {
            "kind": "foreach",
            "exec_type": "local",
            "func": "f",
            "prep": {"input_key": "$shared.b"},
            "foreach_execs": [{"index": 0, "exec_type": "http", "service": "s"}],
        },
        "inner": {
            "kind": "subflow",
            "subflow": {"start": "n", "nodes": {"n": {"kind": "local", "func": "f"}}},
        },
        "other": {"kind": "flow_ref", "flow": "f", "version": 1},
    },
    "edges": [
        {"from": "first", "action": "default", "to": "program"},
        {"from": "program", "action": "default", "to": "choose"},
    ],
}


def aims(value: Any) -> st.SearchStrategy[tuple[Any, Any]]:
    return st.tuples(st.sampled_from(list(paths_of(value))), st.sampled_from(WRONG))


def faults(mistakes: list[str], path: str, sent: Any) -> list[str]:
    """Return the errors for another path, and those that contain terms of Python."""
    about = (f"{path}:", f"{path}.", f"{path}[")
    return [text for text in mistakes if not text.startswith(about) or python_in(text, sent)]


def test_the_unmodified_values_are_valid():
    assert check_params(PARAMS, All) == check(DEFINITION, allow_scripts=True).errors == []


@settings(max_examples=500)
@given(aims(PARAMS))
def test_errors_in_parameters(aim: tuple[Any, Any]):
    path, wrong = aim
    mistakes = check_params(replaced(PARAMS, path, wrong), All)
    assert not faults(mistakes, written_path(path, "params"), wrong)


@pytest.mark.parametrize("name", PARAMS)
def test_missing_parameters(name: str):
    mistakes = check_params({key: value for key, value in PARAMS.items() if key != name}, All)
    assert len(mistakes) == 1
    assert not faults(mistakes, f"params.{name}", None)


@given(st.sampled_from(WRONG))
def test_parameters_for_a_job_without_parameters(wrong: Any):
    assert not faults(check_params(wrong, None), "params", wrong)


@settings(max_examples=500)
@given(aims(DEFINITION))
def test_errors_in_definitions(aim: tuple[Any, Any]):
    path, wrong = aim
    errors = check(replaced(DEFINITION, path, wrong), allow_scripts=True).errors
    assert not [text for text in errors if python_in(text, wrong)]
    first = written_path(path)
    assert not errors or any(not faults([text], first, wrong) for text in errors) or path[-1] in LEADS


LEADS = {"start", "kind", "exec_type", "func", "service", "action", "from", "to", "nodes", "script", "params"}
"""Fields on which the validity of other fields depends, and where the error is reported."""
