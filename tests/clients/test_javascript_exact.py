"""Numbers that JavaScript cannot hold, in the JavaScript client with `exact: true`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ..protocol.strategies import json_values
from .javascript import needs_node, run_node
from .test_javascript import serving

pytestmark = needs_node

LARGE = 2**53 + 1


async def test_large_integers_of_events_and_replies_are_exact_and_are_sent_exactly():
    program = """
        const client = await connect(argument, { exact: true });
        const draft = client.state.handle("alice").params;
        await client.setParams("bob", { ...draft, note: "b" });
        const ticket = await client.submit("add", { handle: "carol", params: { a: draft.order, b: 1 } });
        const result = await ticket.result();
        answer([draft.order.constructor.name, `${draft.order}`, draft.ratio, `${result}`]);
        client.close();
    """
    async with serving() as (engine, _, url):
        await engine.set_params("alice", {"order": LARGE, "ratio": 0.1 + 0.2, "float": 1e20})
        assert await run_node(program, url) == ["ExactNumber", str(LARGE), 0.1 + 0.2, str(LARGE + 1)]
        params: Any = (await engine.snapshot()).handles["bob"].params
    assert params == {"order": LARGE, "ratio": 0.1 + 0.2, "float": 1e20, "note": "b"}
    assert isinstance(params["float"], float)


async def test_numbers_are_those_of_javascript_unless_they_are_to_be_exact():
    program = """
        const client = await connect(argument);
        answer(typeof client.state.handle("alice").params);
        client.close();
    """
    async with serving() as (engine, _, url):
        await engine.set_params("alice", LARGE)
        assert await run_node(program, url) == "number"


async def test_a_text_is_written_as_it_was_read():
    values: list[Any] = [
        [1.0, -0.0, 1e16, 2**63, -(2**63), 5e-324, 1.7976931348623157e308],
        {'"1234567890123456789"': "\\", "1": "[1234567890123456789,", "__proto__": LARGE, "a\\": {"": "\n"}},
    ]

    @settings(max_examples=200, deadline=None, database=None)
    @given(json_values | st.integers() | st.floats(allow_nan=False, allow_infinity=False))
    def collect(value: Any) -> None:
        values.append(value)

    collect()
    texts = [json.dumps(value, sort_keys=True) for value in values]
    program = "answer(argument.map((text) => greenroom.writeExact(greenroom.parseExact(text))));"
    found = await run_node(program, texts)
    assert [json.dumps(json.loads(text), sort_keys=True) for text in found] == texts


async def test_a_text_that_is_not_json_is_refused_as_by_json_parse():
    program = """
        const messages = argument.map((text) =>
          [JSON.parse, greenroom.parseExact].map((parse) => {
            try {
              return parse(text);
            } catch (error) {
              return error.message;
            }
          }));
        answer(messages);
    """
    texts = ['{"a": 12345678901234567890', "12345678901234567890 1", "01", "1.", "", '"\\q"', "--1"]
    for usual, exact in await run_node(program, texts):
        assert isinstance(usual, str)
        assert usual == exact


@pytest.mark.parametrize("text", ["", "x", "1_000", "0x1", "NaN", "Infinity", "01", '1"', "1 "])
async def test_only_a_json_number_is_an_exact_number(text):
    program = """
        try {
          new greenroom.ExactNumber(argument);
        } catch (error) {
          answer(error.message);
        }
    """
    assert "is not a JSON number" in await run_node(program, text)


async def test_an_exact_number_is_made_of_a_big_integer_and_has_the_nearest_number():
    program = """
        const number = new greenroom.ExactNumber(9007199254740993n);
        answer([number.source, number.valueOf(), number > 1, greenroom.writeExact({ a: [number] }, 1)]);
    """
    expected = [str(LARGE), 2**53, True, json.dumps({"a": [LARGE]}, indent=1)]
    assert await run_node(program, None) == expected


async def test_a_number_that_is_not_finite_is_still_refused():
    program = """
        const client = await connect(argument, { exact: true });
        const errors = [];
        for (const value of [Infinity, 5n]) {
          try {
            await client.setParams("alice", { value });
          } catch (error) {
            errors.push(error.message);
          }
        }
        answer(errors);
        client.close();
    """
    async with serving() as (_, _, url):
        for message in await run_node(program, url):
            assert "is not a JSON value" in message
