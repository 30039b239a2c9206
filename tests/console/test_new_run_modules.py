"""The modules of the form for a new run that only compute, in Node: the fields of a schema, and tags."""

from __future__ import annotations

import enum
import json
from typing import Annotated, Any, Literal

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.strategies import json_values

from ..clients.javascript import needs_node, run_node
from .test_modules import load

pytestmark = needs_node

SCHEMA, TAGS = "views/new/schema.js", "views/new/tags.js"


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Site(msgspec.Struct):
    host: str


class Order(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(description="of the customer")]
    count: int = 1
    price: float | None = None
    paid: bool = False
    color: Color = Color.RED
    size: Literal["s", 5, None] = None
    pages: list[int] = []
    site: Site | None = None
    either: int | str = 0
    anything: Any = None


ORDER = msgspec.json.schema(Order)


async def fields_of(schema: Any) -> Any:
    return await run_node(load(SCHEMA) + "answer(fieldsOf(argument));", schema)


async def test_a_schema_gives_a_field_for_each_parameter():
    fields = {field.pop("name"): field for field in await fields_of(ORDER)}
    assert {name: field["kind"] for name, field in fields.items()} == {
        "name": "text",
        "count": "whole number",
        "price": "number",
        "paid": "choice",
        "color": "choice",
        "size": "choice",
        "pages": "list",
        "site": "object",
        "either": "any",
        "anything": "any",
    }
    assert fields["name"] == {"kind": "text", "required": True, "choices": [], "about": "of the customer"}
    assert fields["color"]["choices"] == ["blue", "red"]
    assert (fields["count"]["required"], fields["count"]["usual"]) == (False, 1)


async def test_a_schema_that_names_no_parameters_gives_no_fields():
    loop = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}
    for schema in (None, {}, {"type": "object"}, loop, {"$ref": "#/$defs/B"}, {"properties": 5}, [1], "a"):
        assert await fields_of(schema) is None
    assert await fields_of({"type": "object", "properties": {}}) == []
    odd = {"properties": {"a": 5, "constructor": {"$ref": "#/$defs/toString"}, "b": {"anyOf": [7]}}}
    assert [field["kind"] for field in await fields_of(odd)] == ["any", "any", "any"]


async def test_a_text_is_read_as_its_field_expects():
    program = (
        load(SCHEMA)
        + """
        const { writeExact } = greenroom;
        const fields = fieldsOf(argument.schema);
        const of = (name) => fields.find((one) => one.name === name);
        const found = argument.typed.map(([name, text]) => readField(of(name), text));
        answer(found.map(({ value, problem }) => problem || writeExact(value)));
        """
    )
    typed = {
        ("name", "12"): '"12"',
        ("name", "{"): '"{"',
        ("count", "12345678901234567890"): "12345678901234567890",
        ("count", "1.0"): "must be a whole number",
        ("count", "007"): "must be a whole number",
        ("price", "1.50"): "1.50",
        ("price", "much"): "must be a number",
        ("pages", "[1, 2]"): "[1,2]",
        ("pages", "1, 2"): "must be a JSON list",
        ("site", '{"host": "h"}'): '{"host":"h"}',
        ("site", "[]"): "must be a JSON object",
        ("either", "12"): "12",
        ("either", "a b"): '"a b"',
        ("color", '"red"'): '"red"',
    }
    found = await run_node(program, {"schema": ORDER, "typed": list(typed)})
    assert dict(zip(typed, found, strict=True)) == typed


def examples(strategy: st.SearchStrategy[Any]) -> list[Any]:
    """Values for one program, which takes long to start."""
    values = []

    @settings(max_examples=300, deadline=None, database=None)
    @given(strategy)
    def collect(value: Any) -> None:
        values.append(value)

    collect()
    return values


ODD = ["", "a\nb", "true", '"a"', "{", " 1 ", 1.0, 10, "red", "s", 5, True]
SMALL = st.one_of(json_values, st.sampled_from(ODD))
PARAMS = st.dictionaries(st.sampled_from(Order.__struct_fields__), SMALL, max_size=3)


async def test_the_fields_show_parameters_exactly_or_not_at_all():
    params = [*examples(PARAMS | json_values), {"count": 10, "paid": True}, {"name": "true", "either": "1"}]
    program = (
        load(SCHEMA)
        + """
        const { parseExact, writeExact } = greenroom;
        const fields = fieldsOf(argument.schema);
        const shown = (text) => {
            const texts = textsOf(fields, parseExact(text));
            if (texts === null) return null;
            const fits = (one) => one !== "" && !/[\\r\\n]/.test(one);
            if (!Object.values(texts).every(fits)) return "does not fit into a field";
            const of = (name) => fields.find((field) => field.name === name);
            const read = ([name, one]) => [name, readField(of(name), one)];
            const found = Object.entries(texts).map(read);
            if (found.some(([, { problem }]) => problem)) return "refused";
            return writeExact(Object.fromEntries(found.map(([name, { value }]) => [name, value])));
        };
        answer(argument.texts.map(shown));
        """
    )
    texts = [json.dumps(one) for one in params]
    found = await run_node(program, {"schema": ORDER, "texts": texts})
    for value, text, back in zip(params, texts, found, strict=True):
        assert back is None or json.dumps(json.loads(back)) == text, value
    assert found[-2:] == ['{"count":10,"paid":true}', '{"name":"true","either":"1"}']


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="="), min_size=1).filter(str.strip)


async def test_tags_are_read_as_they_are_written():
    tags = examples(st.dictionaries(NAMES | st.just("{a"), st.text() | st.just("a=b\nc"), max_size=3))
    program = load(TAGS) + "answer(argument.map((one) => tagsIn(textOfTags(one))));"
    assert await run_node(program, tags) == tags


async def test_a_line_that_is_no_tag_is_named():
    program = load(TAGS) + "try { tagsIn(argument); } catch (error) { answer(error.message); }"
    assert await run_node(program, "a=b\n\nteam") == 'a tag is a line name=value (got "team")'
    assert "the tags are not valid JSON" in await run_node(program, '{"a"')
