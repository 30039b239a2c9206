"""What applies to every node: the source of its input, the destination of its output, and the next node."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

from tests.support import open_engine

from .definitions import goes_on
from .walking import Calls, Walked, ended, flow, local, node, start, walk

pytestmark = pytest.mark.usefixtures("each_store")


async def walked(definition: dict[str, Any], params: dict[str, Any] | None = None, **options: Any) -> Walked:
    async with open_engine(Calls().jobs, **options) as engine:
        return await walk(engine, definition, params)


# Input and output.


async def test_the_result_of_a_flow_is_its_shared_data(autojump_clock: MockClock) -> None:
    a = local("double", "$params.n", "doubled")
    done = await walked(flow("a b", a=a, b=local("double", "$shared.doubled", "again")), {"n": 3})
    assert done.result == {"doubled": 6, "again": 12}
    assert done.story == ["a ok default", "b ok default"]
    [first] = done.of("a")
    assert (first.prep, first.input, first.output) == (3, {"input": 3}, 6)


async def test_a_node_without_an_input_receives_null_and_without_an_output_writes_nothing(
    autojump_clock: MockClock,
) -> None:
    done = await walked(flow("a b", a=local("echo"), b=local("echo", "missing", "found")))
    assert done.result == {"found": None}


async def test_an_input_map_contains_paths_literals_and_words(autojump_clock: MockClock) -> None:
    gathered = {
        "param": "$params.a.b[1]",
        "shared": "$shared.first.x",
        "bare": "first.x",
        "number": 7,
        "list": [1, {"x": None}],
        "word": "hello there",
        "missing": "$params.nothing.at.all",
    }
    first = local("echo", {"x": 5}, "first")
    done = await walked(flow("a b", a=first, b=local("echo", gathered, "out")), {"a": {"b": [10, 11]}})
    assert done.result["out"] == {
        "param": 11,
        "shared": 5,
        "bare": 5,
        "number": 7,
        "list": [1, {"x": None}],
        "word": "hello there",
        "missing": None,
    }


async def test_an_input_map_overrides_an_input_key(autojump_clock: MockClock) -> None:
    both = {"kind": "local", "func": "echo", "prep": {"input_key": "$params.n", "input_map": {"n": 1}}}
    done = await walked(flow("", a={**both, "post": {"output_key": "out"}}), {"n": 2})
    assert done.result == {"out": {"n": 1}}


async def test_an_output_and_its_fields_are_written_to_nested_paths(autojump_clock: MockClock) -> None:
    a = local("echo", {"id": 5, "items": [1, 2]})
    a["post"] = {
        "output_key": "$shared.deep.down",
        "output_map": {"id": "id", "last.item": "items[1]", "no": "x"},
    }
    done = await walked(flow("", a=a))
    whole = {"id": 5, "items": [1, 2]}
    assert done.result == {"deep": {"down": whole}, "id": 5, "last": {"item": 2}, "no": None}


async def test_a_write_to_one_key_does_not_change_another(autojump_clock: MockClock) -> None:
    """Two keys contain one value, and a third node writes into one of them."""
    done = await walked(
        flow(
            "a b, b c",
            a=local("echo", {"x": 1}, "first"),
            b=node("choice", "first", "second"),
            c=local("echo", {"y": 2}, "$shared.second.x"),
        )
    )
    assert done.result == {"first": {"x": 1}, "second": {"x": {"y": 2}}}
    assert [row.output for row in done.rows] == [{"x": 1}, {"x": 1}, {"y": 2}]


async def test_shared_can_be_written_into_itself(autojump_clock: MockClock) -> None:
    done = await walked(flow("a b", a=local("echo", {"x": 1}, "a"), b=node("choice", "$shared", "all")))
    assert done.result == {"a": {"x": 1}, "all": {"a": {"x": 1}}}


async def test_an_output_that_cannot_be_stored_is_an_error_of_its_node(autojump_clock: MockClock) -> None:
    a = local("flaky", {"x": 1}, max_retries=1, on_error="sorry")
    a["post"] = {"output_map": {"s": "x", "s.deeper": "x"}}
    done = await walked(
        flow("a:default b, a:sorry c", a=a, b=local("echo", {}, "b"), c=local("echo", {}, "c"))
    )
    assert "c" in done.result
    assert "b" not in done.result
    assert done.story == ["a error", "a error sorry", "c ok default"]
    assert "bad_output" in (done.of("a")[-1].error or "")
    assert done.of("a")[-1].input == {"input": {"x": 1}}


async def test_parameters_of_a_run_override_those_of_its_nodes(autojump_clock: MockClock) -> None:
    inputs = {"a": "$params.a", "b": "$params.b", "c": "$params.c"}
    a = local("echo", inputs, "out", params={"a": "node", "b": {"of": "node"}, "c": "node"})
    done = await walked(flow("a b", a=a, b=local("echo", inputs, "next")), {"b": "run", "c": None})
    assert done.result["out"] == {"a": "node", "b": "run", "c": None}
    assert done.result["next"] == {"a": None, "b": "run", "c": None}


# Actions and edges.


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "default"),
        ({"default_action": "calm"}, "calm"),
        ({"action_key": "$shared.way"}, "from shared"),
        ({"action_key": "way", "default_action": "calm"}, "from the result"),
        ({"action_key": "nothing", "default_action": "calm"}, "calm"),
        ({"action_key": "nothing"}, "default"),
        ({"action_key": "way", "action": "static"}, "static"),
        ({"action_key": "number", "default_action": "calm"}, "calm"),
        ({"action_key": "older"}, "only in shared"),
    ],
)
async def test_the_action_is_static_or_from_the_result_or_from_shared_or_the_default(
    autojump_clock: MockClock, fields: dict[str, Any], expected: str
) -> None:
    first = local("echo", {"way": "from shared", "older": "only in shared"})
    first["post"] = {"output_map": {"way": "way", "older": "older"}}
    second = local("echo", {"way": "from the result", "number": 5, "empty": ""}, **fields)
    done = await walked(flow("a b", a=first, b=second))
    assert done.of("b")[0].action == expected


async def test_an_action_takes_its_own_edge_or_the_one_for_the_default_or_ends_the_flow(
    autojump_clock: MockClock,
) -> None:
    ends = {name: local("echo", {"x": 1}, name) for name in ("own", "other")}
    for action, end in (("mine", "own"), ("theirs", "other")):
        done = await walked(flow("a:mine own, a other", a=local("echo", action=action), **ends))
        assert list(done.result) == [end]
    done = await walked(flow("a:mine own", a=local("echo", action="theirs"), own=ends["own"]))
    assert done.result == {}
    done = await walked(flow("a:mine -, a own", a=local("echo", action="mine"), own=ends["own"]))
    assert done.result == {}


# Errors.


async def test_an_error_without_an_edge_fails_the_flow_and_names_the_node(autojump_clock: MockClock) -> None:
    done = await walked(flow("a:next b", a=local("fail", "$params.x"), b=local("echo")), {"x": 1})
    assert done.error == 'node "a": service_error: ValueError: no 1'
    assert done.story == ["a error default"]
    assert done.rows[0].output is None


async def test_an_error_takes_on_error_then_the_usual_action_and_then_an_edge(
    autojump_clock: MockClock,
) -> None:
    b = local("echo", {"x": 1}, "b")
    for fields in ({}, {"action": "calm"}, {"default_action": "calm"}):
        sorry = local("fail", on_error="sorry", **fields)
        assert (await walked(flow("a:sorry b", a=sorry, b=b))).story == ["a error sorry", "b ok default"]
    assert (await walked(flow("a b", a=local("fail", on_error="sorry"), b=b))).result
    assert (await walked(goes_on(flow("a b", a=local("fail"), b=b)))).result
    assert (await walked(goes_on(flow("a:calm b", a=local("fail", default_action="calm"), b=b)))).result
    done = await walked(flow("a:sorry -", a=local("fail", on_error="sorry")))
    assert done.result == {}
    assert done.story == ["a error sorry"]


async def test_an_action_key_is_not_read_from_a_failed_result(autojump_clock: MockClock) -> None:
    first = local("echo", {"way": "shared"})
    first["post"] = {"output_map": {"way": "way"}}
    b, c = local("fail", action_key="way"), local("echo", {}, "c")
    done = await walked(goes_on(flow("a b, b:shared c", a=first, b=b, c=c)))
    assert done.of("b")[0].action == "shared"
    assert "c" in done.result


async def test_a_timeout_takes_on_timeout_or_else_on_error(autojump_clock: MockClock) -> None:
    ends = {name: local("echo", {"x": 1}, name) for name in ("late", "sorry")}
    edges = "a:late late, a:sorry sorry"
    slow = local("hang", timeout_ms=500, on_error="sorry")
    done = await walked(flow(edges, a={**slow, "on_timeout": "late"}, **ends))
    assert list(done.result) == ["late"]
    assert done.story[0] == "a timeout late"
    assert done.of("a")[0].error == "timeout: not finished within 0.5 s"
    assert list((await walked(flow(edges, a=slow, **ends))).result) == ["sorry"]
    done = await walked(flow("", a=local("hang", timeout_ms=500)))
    assert done.error == 'node "a": timeout: not finished within 0.5 s'


async def test_the_output_of_a_failed_node_is_not_written(autojump_clock: MockClock) -> None:
    done = await walked(flow("a:error b", a=local("fail", out="x"), b=local("echo", {"y": 1}, "b")))
    assert done.result == {"b": {"y": 1}}


# Loops.


async def test_each_visit_of_a_node_is_counted(autojump_clock: MockClock) -> None:
    nodes = {
        "a": local("double", "n", "n"),
        "c": node(
            "choice", choice_cases=[{"action": "again", "expr": {"lt": ["$shared.n", "$params.most"]}}]
        ),
    }
    begin = {"start": "i", "nodes": {"i": local("echo", "$params.n", "n"), **nodes}}
    edges = [("i", "default", "a"), ("a", "default", "c"), ("c", "again", "a")]
    definition = begin | {"edges": [{"from": f, "action": by, "to": to} for f, by, to in edges]}
    done = await walked(definition, {"n": 1, "most": 16})
    assert done.result == {"n": 16}
    assert [(row.visit, row.attempt, row.output) for row in done.of("a")] == [
        (1, 1, 2),
        (2, 1, 4),
        (3, 1, 8),
        (4, 1, 16),
    ]
    assert [row.action for row in done.of("c")] == ["again"] * 3 + ["default"]


async def test_an_endless_loop_is_stopped(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greenroom.actors.flow.walk.MAX_STEPS", 20)
    done = await walked(flow("a a", a=local("echo")))
    assert done.error.startswith("too_many_steps:")
    assert len(done.rows) == 20


async def test_steps_in_subflows_count_too(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greenroom.actors.flow.walk.MAX_STEPS", 20)
    done = await walked(flow("", a=node("subflow", subflow=flow("b b", b=local("echo")))))
    assert done.error.startswith("too_many_steps:")
    assert len(done.rows) == 20


# Sizes.


async def test_a_flow_with_too_much_shared_data_fails_and_names_the_node(
    autojump_clock: MockClock,
) -> None:
    long = local("echo", {"text": "x" * 300}, "text")
    more = local("echo", {"text": "y" * 300}, "more")
    done = await walked(flow("a b", a=long, b=more), max_value_bytes=600)
    assert "too_large" in done.error
    assert '"b"' in done.error
    assert done.story[0] == "a ok default"
    assert done.story[1] == "b error"


async def test_a_result_that_is_too_large_is_an_error_of_its_node(autojump_clock: MockClock) -> None:
    done = await walked(
        flow("a b", a=local("double", "$params.x"), b=local("echo", {}, "b")), {"x": "x" * 80}
    )
    assert done.of("a")[0].status == "ok"
    done = await walked(
        flow("a:error b", a=local("double", "$params.x"), b=local("echo", {}, "b")),
        {"x": "x" * 300},
        max_value_bytes=500,
    )
    assert done.story == ["a error error", "b ok default"]
    assert (done.of("a")[0].error or "").startswith("bad_answer:")


async def test_a_wait_whose_state_is_too_large_fails_with_too_large(autojump_clock: MockClock) -> None:
    wait = node("wait_event", params={"signal_key": "go"})
    async with open_engine(Calls().jobs, max_value_bytes=1000) as engine:
        ticket = await start(engine, flow("", w=wait))
        for key in ("a", "b", "c", "go"):
            await engine.signal(ticket.id, key, None if key == "go" else "x" * 400)
        done = await ended(engine, ticket)
        assert done.error.startswith('node "w": too_large: the flow\'s shared data has')
        assert done.story == ["w error"]
        inner = flow("", t=node("timer", params={"delay_ms": 1000}))
        sub = node("subflow", {"a": "$params.a", "b": "$params.a"}, subflow=inner)
        done = await walk(engine, flow("", s=sub), {"a": "x" * 600})
        assert done.error.startswith('node "s/t": too_large: ')
        assert done.story == ["s/t error"]
