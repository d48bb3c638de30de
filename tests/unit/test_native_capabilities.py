"""Capabilities of the notebook's own code."""

from __future__ import annotations

import asyncio
import builtins
import pickle
from typing import Any, Literal, Optional

import pytest

from quire.worker.capabilities import signatures
from quire.worker.capabilities.errors import ApprovalDenied
from tests.support.relay_server import Book

KEPT = "__capabilities__"


class Notes:
    name = "notes"

    def __init__(self) -> None:
        self.kept: list[str] = []

    def describe(self) -> str:
        return "Keeps notes.\nFor a while."

    def add(self, text: str, times: int = 1) -> int:
        """Keep a note."""
        self.kept += [text] * times
        return len(self.kept)

    async def later(self, text: str) -> int:
        return self.add(text)

    @property
    def last(self) -> str:
        raise AssertionError("it is not asked for")

    def _hidden(self) -> None: ...


def test_an_object_is_offered_by_its_name_with_its_public_methods(book: Book) -> None:
    notes = Notes()
    given = book.caps.register_capability(notes, expose=True)
    found = vars(builtins)["notes"]
    assert found.add("a") == 1 and book.caps.notes.add("b", times=2) == 3 and given.kept == ["a", "b", "b"]
    news = book.known.news()
    assert news is not None and book.known.news() is None
    [told] = news.capabilities
    assert (told["name"], told["about"], told["approve"], told["expose"]) == (
        "notes",
        "Keeps notes.\nFor a while.",
        "never",
        True,
    )
    assert [each["name"] for each in told["methods"]] == ["add", "later"]
    assert told["methods"][0]["signature"] == "add(text: str, times: int = 1) -> int"
    assert told["methods"][0]["description"] == "Keep a note."
    assert told["methods"][0]["input"] == {
        "type": "object",
        "properties": {"text": {"type": "string"}, "times": {"type": "integer", "default": 1}},
        "required": ["text"],
    }
    assert book.namespace[KEPT]["notes"]["value"] is notes
    found.kept = []
    assert notes.kept == []
    assert "notes (2 methods, of this notebook)  # Keeps notes" in repr(book.caps)
    assert book.caps.search("keep a note")[0].startswith("notes.add(text")
    assert "Keeps notes" in book.caps.describe("notes") and "add(text" in repr(found) and "add" in dir(found)


def test_what_is_missing_is_said_with_an_example(book: Book) -> None:
    with pytest.raises(TypeError) as caught:
        book.caps.register_capability(object())
    said = str(caught.value)
    assert "lacks an attribute `name` and a method `describe()`" in said and "register_capability(Notes())" in said
    with pytest.raises(TypeError, match=r"Notes is a class: give Notes\(\)"):
        book.caps.register_capability(Notes)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("my notes", "'my_notes' would be one"),
        ("class", "cannot be a capability's name"),
        ("len", "a name of Python's own"),
        ("caps", "a name of Python's own"),
        ("mail", "is an installed capability"),
        ("_x", "cannot be"),
        (5, "is a Python name"),
    ],
)
def test_a_name_that_cannot_be_one_is_refused(book: Book, name: Any, said: str) -> None:
    notes = Notes()
    notes.name = name
    with pytest.raises(ValueError, match=said):
        book.caps.register_capability(notes)
    assert KEPT not in book.namespace and book.known.news() is None


def test_a_describe_that_fails_is_said_when_it_is_registered(book: Book) -> None:
    notes: Any = Notes()
    notes.describe = lambda: 1 / 0
    with pytest.raises(TypeError, match=r"describe\(\) of notes raised ZeroDivisionError"):
        book.caps.register_capability(notes)
    notes.describe = lambda: None
    with pytest.raises(TypeError, match="returned NoneType"):
        book.caps.register_capability(notes)
    with pytest.raises(ValueError, match="approve= is one of 'never', 'ask', 'always'"):
        book.caps.register_capability(Notes(), approve="sometimes")


def test_a_function_stays_callable_and_is_offered(book: Book) -> None:
    @book.caps.capability
    def publish(report: dict[str, Any]) -> str:
        """Put it out."""
        return f"{report} is out"

    assert publish({"a": 1}) == "{'a': 1} is out" == publish.publish({"a": 1}) == book.caps["publish"]({"a": 1})
    assert publish.describe().startswith("publish(report") and "Put it out." in publish.describe()
    assert vars(builtins)["publish"] is publish and publish.__name__ == "publish"
    [told] = book.known.news().capabilities  # type: ignore[union-attr]
    assert told["methods"][0]["input"]["properties"] == {"report": {"type": "object"}}

    @book.caps.capability(name="other", expose=True)
    async def wait(seconds: float = 1.0) -> float:
        return seconds

    assert asyncio.run(wait(2)) == 2 and "other" in book.caps and "wait" not in book.caps


def test_calls_that_need_approval_ask_first_and_a_denial_is_raised(book: Book) -> None:
    ran: list[Any] = []

    @book.caps.capability(approve="ask_or_deny")
    def publish(report: Any, to: str = "all") -> None:
        ran.append(report)

    book.answers["publish"] = lambda called: {}
    publish({"a": (1, 2)}, to="me")
    assert book.asked[0].do == "approve" and (book.asked[0].capability, book.asked[0].method) == ("publish", "publish")
    assert book.asked[0].given == {"report": {"a": [1, 2]}, "to": "me"} and ran == [{"a": (1, 2)}]
    publish(object)
    assert book.asked[1].given == {"report": "<class 'object'>"}
    book.answers["publish"] = lambda called: ("denied", "Ada said no.")
    with pytest.raises(ApprovalDenied, match=r"^publish: Ada said no."):
        publish(1)
    assert len(ran) == 2


def test_an_objects_calls_by_its_name_are_approved_and_its_own_are_not(book: Book) -> None:
    notes = Notes()
    by_name = book.caps.register_capability(notes, approve="ask")
    book.answers["add"] = lambda called: ("denied", "No.")
    with pytest.raises(ApprovalDenied):
        by_name.add("a")
    assert notes.add("a") == 1 and by_name.kept == ["a"]
    book.answers["later"] = lambda called: {}
    assert asyncio.run(by_name.later("b")) == 2 and book.asked[-1].given == {"text": "b"}
    with pytest.raises(AttributeError, match="notes has no method 'remove'; it has add, later"):
        by_name.remove()


def test_the_same_name_again_replaces_and_unregistering_removes(book: Book) -> None:
    first, second = Notes(), Notes()
    book.caps.register_capability(first)
    by_name = book.caps.register_capability(second, approve="ask")
    assert book.namespace[KEPT]["notes"]["value"] is second
    book.caps.uninstall("notes")
    assert KEPT not in book.namespace and "notes" not in vars(builtins) and not book.asked
    assert book.known.news().capabilities == []  # type: ignore[union-attr]
    with pytest.raises(AttributeError, match="not registered any more"):
        by_name.add("x")
    with pytest.raises(KeyError):
        book.caps.unregister("notes")


def test_cleared_variables_have_them_again_and_loaded_ones_are_adopted(book: Book) -> None:
    book.caps.register_capability(Notes())
    book.known.news()
    book.namespace.clear()
    assert book.known.news() is None and "notes" in book.namespace[KEPT]
    kept = book.namespace.pop(KEPT)
    told = book.known.loaded()
    assert told is not None and told.capabilities == [] and "notes" not in book.caps
    book.namespace[KEPT] = {**kept, "broken": {"value": 1}, 5: {}}
    told = book.known.loaded()
    assert told is not None and [each["name"] for each in told.capabilities] == ["notes"]
    assert vars(builtins)["notes"].add("x") == 1
    assert book.known.all_news() == told and book.known.news() is None


def test_one_by_name_is_pickled_by_name(book: Book) -> None:
    by_name = book.caps.register_capability(Notes())
    again = pickle.loads(pickle.dumps(by_name))
    assert again.add("a") == 1 and by_name.kept == ["a"]


def test_a_native_one_may_call_a_relayed_one(book: Book) -> None:
    book.answers["get-sum"] = lambda called: {"content": [], "structured": {"result": sum(called.given.values())}}

    @book.caps.capability
    def twice(n: int) -> Any:
        return book.mail.get_sum(n, n)

    assert twice(4) == 8


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (list, {"type": "array"}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (dict, {"type": "object"}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Any, {}),
        (object, {}),
    ],
)
def test_an_annotation_as_a_json_schema(kind: Any, schema: dict[str, Any]) -> None:
    assert signatures.type_schema(kind) == schema
