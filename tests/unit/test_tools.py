"""Tools as Python sees them: names, parameters, signatures, documents, search; whatever a server declares."""

from __future__ import annotations

import contextlib
import inspect
import keyword
import typing
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quire.capabilities.arguments import ArgumentChecks
from quire.core.capabilities.model import Offered, Tool
from quire.core.errors import WrongArguments
from quire.tool_descriptions import schemas, tools
from quire.worker.capabilities import typed
from quire.worker.capabilities.plain_values import NotJson, to_json

OBJECT = {"type": "object"}


def takes(**properties: Any) -> dict[str, Any]:
    needed = [name for name, each in properties.items() if each.pop("needed", False)]
    return {"type": "object", "properties": properties, "required": needed}


def check(value: Any, schema: Any) -> None:
    ArgumentChecks(Offered(tools=(Tool(name="tool", input=schema),))).check("tool", value)


@pytest.mark.parametrize(
    ("name", "python"),
    [
        ("get-sum", "get_sum"),
        ("search", "search"),
        ("class", "class_"),
        ("2fa", "_2fa"),
        ("a.b/c d", "a_b_c_d"),
        ("", "_"),
        ("__init__", "_init__"),
        ("größe", "größe"),
        ("ﬁle", "file"),
        ("x²", "x2"),
        ("日本", "日本"),
        ("☃", "_"),
    ],
)
def test_a_name_that_python_can_say(name: str, python: str) -> None:
    assert tools.python_name(name) == python


def test_names_that_collide_are_counted_and_one_that_needs_no_change_keeps_its_own() -> None:
    names = ["get-sum", "get.sum", "get_sum", "get_sum_2", "read"]
    assert tools.python_names(names, tools.RESERVED) == {
        "get-sum": "get_sum_3",
        "get.sum": "get_sum_4",
        "get_sum": "get_sum",
        "get_sum_2": "get_sum_2",
        "read": "read_",
    }


@given(st.lists(st.text(max_size=12), max_size=12))
@example([":\N{MEROITIC CURSIVE NUMBER ONE HUNDRED}"])
def test_names_are_always_python_names_and_no_two_alike(names: list[str]) -> None:
    found = tools.python_names(names, tools.RESERVED)
    assert set(found) == set(names) and len(set(found.values())) == len(found)
    for each in found.values():
        assert each.isidentifier() and not keyword.iskeyword(each) and each not in tools.RESERVED
        assert not each.startswith("__")


@pytest.mark.parametrize(
    ("schema", "annotation"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": ["integer", "number"]}, "float"),
        ({"type": "array", "items": {"type": "string"}}, "list[str]"),
        ({"type": "array"}, "list"),
        ({"enum": ["a", "b"]}, "Literal['a', 'b']"),
        ({"const": 3}, "Literal[3]"),
        ({"enum": [f"value number {at}" for at in range(30)]}, "str"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"type": "string", "nullable": True}, "str | None"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "int | None"),
        ({"oneOf": [{"type": "string"}, {"type": "string"}]}, "str"),
        ({"allOf": [{"description": "x"}, {"type": "boolean"}]}, "bool"),
        ({"$ref": "#/$defs/Kind"}, "Literal['x']"),
        ({"$ref": "#/$defs/Loop"}, "Any"),
        ({"$ref": "https://elsewhere"}, "Any"),
        ({"type": "object", "properties": {"a": {}}}, "dict"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "dict[str, int]"),
        ({"properties": {"a": {}}}, "dict"),
        ({}, "Any"),
        (True, "Any"),
        (None, "Any"),
    ],
)
def test_a_schema_as_an_annotation(schema: Any, annotation: str) -> None:
    root = {"$defs": {"Kind": {"enum": ["x"]}, "Loop": {"$ref": "#/$defs/Loop"}}}
    assert tools.annotation(schemas.shape(schema, root)) == annotation


def test_required_parameters_come_first_else_in_order() -> None:
    found = tools.parameters(
        takes(max={"type": "integer", "default": 10}, q={"type": "string", "needed": True}, to={"type": "string"})
    )
    assert [(each.name, each.required, each.default) for each in found] == [
        ("q", True, None),
        ("max", False, 10),
        ("to", False, None),
    ]


def test_a_signature_says_what_it_takes_and_returns() -> None:
    tool = {
        "name": "search",
        "input": takes(query={"type": "string", "needed": True}, max={"type": "integer", "default": 10}),
    }
    assert tools.signature(tool) == "search(query: str, max: int = 10) -> Text"
    titled = {**tool, "output": {"type": "object", "title": "Hits", "properties": {"a": {}}}}
    assert tools.signature(titled).endswith("-> Hits")
    untitled = {**tool, "name": "find-all", "output": {"type": "object", "properties": {"a": {}}}}
    assert tools.signature(untitled).startswith("find_all(") and tools.signature(untitled).endswith("-> FindAllResult")
    inner = {"type": "array", "items": {"$ref": "#/$defs/Row"}}
    defs = {"Row": {"type": "object", "title": "Row", "properties": {"id": {"type": "integer"}}}}
    wrapped = {"type": "object", "properties": {"result": inner}, "x-fastmcp-wrap-result": True, "$defs": defs}
    assert tools.signature({**tool, "output": wrapped}).endswith("-> list[Row]")
    assert (
        tools.signature({"name": "any", "input": {"type": "object", "additionalProperties": True}})
        == "any(**more) -> Text"
    )


def test_a_line_is_short_whatever_the_tool_is() -> None:
    many = {f"parameter_{at}": {"type": "string"} for at in range(40)}
    tool = {
        "name": "wide",
        "description": "Does it all. " * 50,
        "input": takes(a={"type": "string", "needed": True}, **many),
    }
    assert tools.summary_line(tool).startswith(
        "wide(a: str, parameter_0: str = None"
    ) and ", ...) -> Text  # Does it all" in tools.summary_line(tool)
    assert len(tools.summary_line(tool)) < 300
    assert tools.first_line("Reads a file. It may be large.") == "Reads a file"
    assert tools.first_line("\n\n  One\n line \n\nMore") == "One line"
    assert len(tools.first_line("word " * 100)) == 100


def test_a_document_has_all_that_is_known() -> None:
    tool = {
        "name": "send-mail",
        "description": "Sends.",
        "input": takes(
            to={"type": "string", "description": "To whom", "format": "email", "needed": True},
            how={"enum": [f"way number {at}" for at in range(30)]},
            more={"type": "object", "properties": {"cc": {"type": "array", "items": {"type": "string"}}}},
        ),
        "output": {"type": "object", "title": "Sent", "properties": {"id": {"type": "string"}}, "required": ["id"]},
        "hints": {"destructiveHint": True},
    }
    said = tools.documentation("mail", tool)
    for part in (
        "mail.send_mail(to: str, how: str = None, more: dict = None) -> Sent",
        "to: str (format email)\n        To whom",
        "one of 'way number 0'",
        "{'cc': list[str]?}",
        "class Sent(TypedDict):\n    id: str",
        "It may destroy",
        "Its own name is 'send-mail'.",
    ):
        assert part in said


ENTRIES = [
    {
        "name": "gmail",
        "about": "Mail.",
        "tools": [
            {"name": "send_message", "description": "Send a message to someone.", "input": takes(to={}, body={})},
            {"name": "search", "description": "Search messages.", "input": takes(query={})},
            {"name": "list-labels", "description": "All labels of the mailbox.", "input": {}},
        ],
    },
    {
        "name": "files",
        "tools": [
            {"name": "read_file", "description": "Read the contents of a file.", "input": takes(path={})},
            {"name": "search_files", "description": "Find files by pattern.", "input": takes(pattern={})},
        ],
    },
]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("send mail", ("gmail", "send_message")),
        ("sending messages", ("gmail", "send_message")),
        ("labels", ("gmail", "list-labels")),
        ("reading a file", ("files", "read_file")),
        ("find files", ("files", "search_files")),
        ("pattern", ("files", "search_files")),
    ],
)
def test_search_finds_what_is_meant_over_all_capabilities(query: str, first: tuple[str, str]) -> None:
    found = tools.search(ENTRIES, query)
    assert (found[0][0], found[0][1]["name"]) == first


def test_search_finds_nothing_where_nothing_fits_and_keeps_to_its_limit() -> None:
    assert tools.search(ENTRIES, "zebra") == [] == tools.search(ENTRIES, "") == tools.search([None, 5], "a")
    assert len(tools.search(ENTRIES, "search", 1)) == 1


# Hostile schemas

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False)
WORDS = st.sampled_from(
    [
        "type",
        "properties",
        "required",
        "items",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "$defs",
        "enum",
        "const",
        "default",
        "description",
        "title",
        "pattern",
        "minimum",
        "maxLength",
        "additionalProperties",
        "nullable",
        "x-fastmcp-wrap-result",
        "result",
        "prefixItems",
        "minItems",
        "multipleOf",
    ]
)
VALUES = st.sampled_from(
    ["string", "object", "array", "integer", "#", "#/$defs/a", "#/properties/a", "null", "(", True, False]
)
SCHEMAS = st.recursive(
    SCALARS | VALUES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=3), inner, max_size=5),
    max_leaves=25,
)


@settings(max_examples=300)
@given(SCHEMAS, SCHEMAS, SCHEMAS)
def test_no_schema_makes_anything_raise_or_loop(schema: Any, output: Any, value: Any) -> None:
    tool = {"name": "t", "description": schema, "input": schema, "output": output, "hints": value}
    assert tools.summary_line(tool) and tools.documentation("c", tool)
    assert tools.overview({"name": "c", "about": value, "tools": [tool, value]})
    tools.search([{"name": "c", "tools": [tool]}], "string a")
    shape = tools.result_shape(tool)
    if shape is not None:
        typed.python_type(shape, "Result")
    found = schemas.properties(schema, schema)
    listed = [
        inspect.Parameter(each.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=each.default)
        for each in tools.parameters(schema)
    ]
    assert len(listed) == len(found)
    with contextlib.suppress(NotJson, WrongArguments):
        check(to_json(value), schema)


def test_schemas_that_hold_themselves_end() -> None:
    loop: dict[str, Any] = {
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "any": {"anyOf": [{"$ref": "#"}] * 8}},
    }
    loop["allOf"] = [{"$ref": "#"}] * 8
    tool = {"name": "t", "input": loop, "output": loop}
    assert tools.signature(tool) == "t(next: dict = None, any: dict = None) -> TResult"
    assert len(tools.documentation("c", tool)) < 30_000
    assert typing.is_typeddict(typed.python_type(tools.result_shape(tool), "Result"))  # type: ignore[arg-type]
    check({"next": {"next": {}}, "any": {"any": {}}}, loop)
    wide = {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(100_000)}}
    assert len(tools.summary_line({"name": "w", "input": wide})) < 400
