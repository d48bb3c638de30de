"""The arguments of a call against the schema of its tool, which a hostile backend may have written."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from quire.capabilities.arguments import ArgumentChecks, matching_steps
from quire.core.capabilities.model import Offered, Tool
from quire.core.errors import WrongArguments


def checks(schema: Any) -> ArgumentChecks:
    return ArgumentChecks(Offered(tools=(Tool(name="tool", input=schema),)))


def check(value: Any, schema: Any) -> None:
    checks(schema).check("tool", value)


def wrong(value: Any, schema: Any) -> WrongArguments:
    with pytest.raises(WrongArguments) as caught:
        check(value, schema)
    return caught.value


# Values against schemas


@pytest.mark.parametrize(
    ("schema", "good", "bad", "said"),
    [
        ({"type": "string"}, ["", "a"], [1, None, []], "must be a string"),
        ({"type": "integer"}, [1, 2.0], [1.5, True, "1"], "must be an integer"),
        ({"type": "number"}, [1, 1.5], [False, "1"], "must be a number"),
        ({"type": "boolean"}, [True], [0, "true"], "must be a boolean"),
        ({"type": ["string", "null"]}, ["a", None], [1], "must be a string or null"),
        ({"type": "string", "nullable": True}, [None, "a"], [1], "must be a string"),
        ({"enum": ["a", 1]}, ["a", 1], ["b", True], "must be one of 'a', 1"),
        ({"const": 5}, [5], [6], "must be 5"),
        ({"minimum": 1, "maximum": 3}, [1, 3], [0, 4], "must be at"),
        ({"exclusiveMinimum": 1}, [2], [1], "must be more than 1"),
        ({"multipleOf": 5}, [10], [7], "multiple of 5"),
        ({"minLength": 2, "maxLength": 3}, ["ab"], ["a", "abcd"], "must have at"),
        ({"pattern": "^a"}, ["ab"], ["b"], "must match the pattern"),
        ({"pattern": "("}, ["ab"], [], ""),
        ({"items": {"type": "integer"}, "maxItems": 2}, [[1, 2]], [[1, "a"], [1, 2, 3]], "must"),
        ({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, [["a", 1]], [[1, 1]], "must be a string"),
        ({"required": ["a"], "properties": {"a": {"type": "integer"}}}, [{"a": 1, "b": 2}], [{}, {"a": "x"}], ""),
        (
            {"properties": {"a": {}}, "additionalProperties": False},
            [{"a": 1}],
            [{"b": 1}],
            "is not known; there are 'a'",
        ),
        ({"additionalProperties": {"type": "integer"}}, [{"x": 1}], [{"x": "1"}], "must be an integer"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, [1, None], ["a"], "must be an integer or null, not 'a'"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, [1, 1.5], ["a"], "must be an integer or a number"),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1], [0, 3], "must be at"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, ["a"], [1], "must be a string"),
        ({"format": "email", "unknown": 1}, ["not an address", 5], [], ""),
        (True, [1], [], ""),
        (False, [], [1], "is not allowed"),
    ],
)
def test_values_against_the_common_words_of_json_schema(
    schema: Any, good: list[Any], bad: list[Any], said: str
) -> None:
    for value in good:
        check(value, schema)
    for value in bad:
        with pytest.raises(WrongArguments) as caught:
            check(value, schema)
        assert said in caught.value.what


def test_the_path_leads_to_the_wrong_value() -> None:
    schema = {"properties": {"a": {"items": {"properties": {"b": {"type": "integer"}}}}}}
    found = wrong({"a": [{"b": 1}, {"b": "x"}]}, schema)
    assert (found.path, found.is_type) == (("a", 1, "b"), True)
    assert wrong({"a": 1, "b": 2}, {"required": ["c", "a", "d"]}).what == "lacks 'c', 'd'"
    assert wrong({"z": 1}, {"additionalProperties": False}).path == ("z",)


def test_alternatives_tell_of_the_one_that_fits_best() -> None:
    text, named = {"type": "string"}, {"type": "object", "properties": {"n": {"minimum": 1}}, "required": ["n"]}
    schema = {"properties": {"a": {"anyOf": [text, named]}}}
    assert wrong({"a": {"n": 0}}, schema).path == ("a", "n")
    assert wrong({"a": {}}, schema).what == "lacks 'n'"
    assert wrong({"a": 5}, schema).what == "must be a string or an object, not 5"


def test_a_large_value_is_cut_in_the_message() -> None:
    assert len(wrong({"a": ["x" * 10_000]}, {"properties": {"a": {"type": "string"}}}).what) < 100
    many = {"properties": {"a": {"enum": [f"value {at}" for at in range(50)]}}}
    assert wrong({"a": "b"}, many).what.endswith("'value 19', ..., not 'b'")


def test_a_malformed_keyword_is_ignored_and_the_others_count() -> None:
    schema = {
        "properties": {"a": {"type": "strin", "minimum": "1", "enum": 5, "required": True, "maximum": 3}, "b": 7},
        "required": "a",
        "items": "x",
        "anyOf": {},
        "multipleOf": 0,
    }
    check({"a": "text", "b": 1}, schema)
    assert wrong({"a": 4}, schema).what == "must be at most 3, not 4"


def test_a_property_may_have_the_name_of_a_keyword() -> None:
    schema = {"properties": {"$ref": {"type": "string"}, "enum": {"type": "integer"}, "$schema": {"type": "null"}}}
    check({"$ref": "x", "enum": 1, "$schema": None}, schema)
    assert wrong({"enum": "x"}, schema).path == ("enum",)


def test_a_reference_may_lead_anywhere_in_the_schema() -> None:
    schema = {
        "components": {"a/b": {"type": "integer"}},
        "properties": {"one": {"$ref": "#/components/a~1b"}, "tree": {"$ref": "#/$defs/tree"}},
        "$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}}},
    }
    check({"one": 1, "tree": {"left": {"left": {}}}}, schema)
    assert wrong({"one": "1"}, schema).what == "must be an integer, not '1'"
    assert wrong({"tree": {"left": {"left": 5}}}, schema).path == ("tree", "left", "left")


# Hostile schemas


class Documents:
    """A web server that counts who asks it."""

    def __init__(self) -> None:
        asked = self.asked = []  # type: list[str]

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'{"type": "string"}')

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/schema.json"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def documents() -> Any:
    server = Documents()
    yield server
    server.close()


@pytest.mark.parametrize(
    "schema",
    [
        lambda url: {"$ref": url},
        lambda url: {"$ref": f"{url}#/$defs/a"},
        lambda url: {"$id": url, "$ref": "other.json"},
        lambda url: {"$schema": url, "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": url}}},
        lambda url: {"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": url}}},
        lambda url: {"$dynamicRef": url, "$recursiveRef": url},
        lambda url: {"properties": {"a": {"$id": url, "$dynamicRef": "#a"}}},
    ],
)
def test_no_other_document_is_fetched(schema: Callable[[str], Any], documents: Documents) -> None:
    check({"a": 1}, schema(documents.url))
    assert documents.asked == []


CATASTROPHIC = "(a+)+$"
AS = "a" * 40 + "b"


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": CATASTROPHIC},
        {"pattern": r"(a|a)*$"},
        {"pattern": r"(?:a{1,9}){1,9}$"},
        {"pattern": "a*" * 10 + "c"},
        {"pattern": "a?" * 40 + "a" * 41},
        {"pattern": "(a|a)" * 41 + "c"},
        {"pattern": r"(a*)\1*c"},
        {"pattern": "(?=(a*))(?=(a*))c"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": CATASTROPHIC},
        {"$id": "https://json-schema.org/draft/2020-12/schema", "pattern": CATASTROPHIC},
        {"allOf": [{"$schema": "https://json-schema.org/draft/2019-09/schema", "pattern": CATASTROPHIC}]},
        {"$ref": "#/properties/pattern", "properties": {"pattern": {"pattern": CATASTROPHIC}}},
        {"const": AS, "$ref": "#/enum/0", "enum": [AS, {"$schema": "x", "pattern": CATASTROPHIC}]},
        {"oneOf": [{"format": "regex", "pattern": CATASTROPHIC}]},
        {"not": {"pattern": CATASTROPHIC}},
        {"if": {"pattern": CATASTROPHIC}},
        {"contains": {"pattern": CATASTROPHIC}},
    ],
)
def test_a_pattern_that_could_take_for_ever_is_left_to_the_backend(schema: Any) -> None:
    check({"a": AS}, {"properties": {"a": schema}, "patternProperties": {CATASTROPHIC: True}})
    check(AS, schema)


def test_names_are_never_matched_with_patterns() -> None:
    for more in ({"type": "integer"}, False):
        check({AS: "x"}, {"patternProperties": {CATASTROPHIC: True}, "additionalProperties": more})
    check({AS: "x"}, {"propertyNames": {"pattern": CATASTROPHIC}})


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        (r"^[a-z0-9-]+$", "a-slug", "A slug"),
        (r"^\d{4}-\d{2}-\d{2}$", "2026-01-31", "31.1.2026"),
        (r"^(inbox|sent)$", "sent", "trash"),
        (r"^[^@\s]+@[^@\s]+\.[^@\s]+$", "a@example.com", "a at example.com"),
        (r"^https?://", "https://example.com", "ftp://example.com"),
        (r"^[A-Z]{2,3}-[0-9]{1,6}$", "AB-123", "AB-"),
        (r"^[]a[)*]+$", "[)*]", "b"),
        (r"^a\+\*$", "a+*", "aa"),
    ],
)
def test_common_patterns_are_checked(pattern: str, fits: str, does_not: str) -> None:
    check({"a": fits}, {"properties": {"a": {"pattern": pattern}}})
    assert "must match the pattern" in wrong({"a": does_not}, {"properties": {"a": {"pattern": pattern}}}).what


def test_steps_of_a_pattern_are_never_fewer_than_it_takes() -> None:
    """The worst patterns that are used take about as many steps as they are said to."""
    for pattern in ("a*a*b", "a?a?a?a?a?a?a?a?b", "(a|a)(a|a)(a|a)b", "a{0,9}a{0,9}b", "[ab]+[ab]+c"):
        assert 0 < matching_steps(pattern, 40) <= 1_000_000
        re.compile(pattern).search("a" * 40)
    assert matching_steps("a*a*a*a*b", 40) == 0 == matching_steps("a*a*b", 10_000)


def doubling(levels: int, word: str, last: Any) -> dict[str, Any]:
    """A schema of a few lines that asks for 2 ** levels checks."""
    defs = {f"d{at}": {word: [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(levels)}
    return {"$defs": {**defs, f"d{levels}": last}, "$ref": "#/$defs/d0"}


def nested(levels: int, keyword: str) -> Any:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {keyword: schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (doubling(45, "allOf", True), {}),
        (doubling(45, "anyOf", {"type": "string"}), {}),
        (doubling(45, "oneOf", {"type": "string"}), {}),
        ({"allOf": [{"$ref": "#"}] * 8}, {}),
        ({"anyOf": [{"$ref": "#"}] * 8}, {}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, {}),
        (nested(5_000, "items"), []),
        (nested(5_000, "additionalProperties"), {}),
        ({"$defs": {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(5_000)}, "$ref": "#/$defs/d0"}, {}),
        ({"properties": {f"p{at}": {"type": "string"} for at in range(100_000)}}, {"p5": 5}),
        ({"properties": {"a": {"items": {"const": [["x"] * 100] * 90}}}}, {"a": [[["x"] * 100] * 90] * 5_000}),
        ({"properties": {"a": {"items": {"enum": ["x" * 1_000_000]}}}}, {"a": ["x" * 999_999 + "y"] * 5_000}),
        ({"properties": {"a": {"items": {"pattern": "a+a+b"}}}}, {"a": ["a" * 90] * 100_000}),
        ({"properties": {"a": {"anyOf": [{"type": "string"}] * 4_000}}}, {"a": [["x" * 100] * 100] * 100}),
    ],
)
def test_work_is_bounded_and_the_rest_is_left_to_the_backend(schema: Any, value: Any) -> None:
    check(value, schema)


def test_a_check_that_was_given_up_leaves_the_next_one_whole() -> None:
    many = checks({"properties": {"a": {"items": {"type": "integer"}}}})
    many.check("tool", {"a": [1] * 1_000_000})
    with pytest.raises(WrongArguments):
        many.check("tool", {"a": [1, "x"]})


def test_a_tool_that_is_not_declared_is_not_checked() -> None:
    checks({"type": "string"}).check("another", {})
