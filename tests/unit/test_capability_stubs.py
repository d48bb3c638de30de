"""Capabilities as a cell sees them, with a server of the test's own at the other end of the wire."""

from __future__ import annotations

import asyncio
import base64
import builtins
import copy
import inspect
import io
import pickle
import pydoc
import typing
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import pytest

from quire.wire.relay import Called
from quire.worker.capabilities.errors import CapabilityGone, ToolError
from quire.worker.execution import namespace as namespaces
from tests.support.relay_server import MAIL, SAY, SEARCH, Book


def text(said: str, **more: Any) -> Callable[[Called], Any]:
    return lambda called: {"content": [{"type": "text", "text": said, **more}]}


def structured(value: Any, *content: Any) -> Callable[[Called], Any]:
    return lambda called: {"content": list(content), "structured": value}


# Calling


def test_arguments_go_by_position_or_name_under_the_tools_own_names_and_defaults_stay_home(book: Book) -> None:
    book.answers["search"] = structured({"hits": [{"id": 1}]})
    found = book.mail.search("bob", 20, in_folder="inbox", _timeout=3)
    assert found.hits[0].id == 1 and found == {"hits": [{"id": 1}]}
    called = book.asked[0]
    assert (called.capability, called.method, called.timeout) == ("mail", "search", 3)
    assert called.given == {"query": "bob", "max": 20, "in-folder": "inbox"}
    book.mail.search(query="x", labels=None, **{"in-folder": "sent"})
    assert book.asked[1].given == {"query": "x", "in-folder": "sent"}


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda mail: mail.search(), TypeError, "lacks 'query'"),
        (lambda mail: mail.search("a", quary=1), TypeError, "no argument 'quary'; did you mean 'query'?"),
        (lambda mail: mail.search("a", query="b"), TypeError, "got 'query' twice"),
        (lambda mail: mail.search(1, 2, 3, 4, 5), TypeError, "takes 4 arguments, not 5"),
        (lambda mail: mail.search("a", labels={"b"}), TypeError, "argument labels is of type set"),
        (lambda mail: mail.search("a", _timeout="x"), ValueError, "_timeout= takes seconds"),
        (lambda mail: mail.say(1), TypeError, "takes no arguments, not 1"),
    ],
)
def test_wrong_arguments_are_refused_before_the_wire(book: Book, call: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as caught:
        call(book.mail)
    assert said in str(caught.value) and not book.asked
    assert "_timeout" in said or "Its signature: s" in str(caught.value)


@pytest.mark.parametrize(("kind", "builtin"), [("wrong_type", TypeError), ("wrong_value", ValueError)])
async def test_arguments_the_server_refuses_are_pythons_own_errors(
    book: Book, kind: str, builtin: type[Exception]
) -> None:
    book.answers["search"] = lambda called: (kind, "argument max must be at least 1, not 0. Its signature: search(...)")
    with pytest.raises(builtin) as caught:
        book.mail.search("a", 0)
    with pytest.raises(builtin) as awaited:
        await book.mail.search.aio("a", 0)
    for error in (caught.value, awaited.value):
        assert type(error) is builtin
        assert str(error) == "mail.search: argument max must be at least 1, not 0. Its signature: search(...)"


async def test_aio_is_the_same_and_many_go_at_once(book: Book) -> None:
    book.answers["get-sum"] = lambda called: {"content": [], "structured": {"result": called.given["a"] + 1}}
    async with asyncio.timeout(30):
        found = await asyncio.gather(*(book.mail.get_sum.aio(at, 1) for at in range(300)))
    assert found == [at + 1 for at in range(300)]


def test_a_failure_says_what_was_called_with_what(book: Book) -> None:
    book.answers["search"] = lambda called: ("tool", "Quota used up.")
    with pytest.raises(ToolError) as caught:
        book.mail.search("x")
    assert str(caught.value) == "mail.search: Quota used up."
    assert (caught.value.tool, caught.value.args_given) == ("mail.search", {"query": "x"})


# What a stub says of itself


def test_a_method_has_a_signature_a_name_a_doc_and_is_shown_by_help(book: Book) -> None:
    search = book.mail.search
    signature = inspect.signature(search)
    assert list(signature.parameters) == ["query", "max", "in_folder", "labels"]
    assert signature.parameters["max"].default == 10 and signature.parameters["max"].annotation is int
    assert signature.parameters["in_folder"].annotation == Literal["inbox", "sent"]
    assert search.__name__ == "search" and "With a query as in the search box." in search.__doc__
    said = io.StringIO()
    with redirect_stdout(said):
        pydoc.doc(search, output=said)
    assert "search(query: str, max: int = 10" in said.getvalue() and "What to look for" in said.getvalue()
    pydoc.doc(book.mail, output=said)
    assert "get_sum(a: float, b: float) -> float" in said.getvalue()


def test_what_a_tool_returns_is_a_typed_dict(book: Book) -> None:
    hits = book.mail.search.returns
    assert typing.is_typeddict(hits) and hits.__name__ == "Hits"
    [hit] = typing.get_args(typing.get_type_hints(hits)["hits"])
    assert typing.is_typeddict(hit) and typing.get_type_hints(hit) == {"id": int} and hit.__required_keys__ == {"id"}
    assert inspect.signature(book.mail.search).return_annotation is hits
    assert book.mail.get_sum.returns is float and book.mail.say.returns.__name__ == "Text"


def test_dir_repr_and_describe_show_methods_and_a_tool_that_collides_gets_an_underscore(book: Book) -> None:
    assert {"search", "get_sum", "say", "read_", "read", "resources", "prompts", "describe"} <= set(dir(book.mail))
    assert repr(book.mail).splitlines()[0] == "mail: Mail of the user"
    assert "  search(query: str, max: int = 10" in repr(book.mail)
    assert "A tool of that name." in book.mail.describe("read_") and "Its own name is 'read'." in book.mail.describe(
        "read_"
    )
    assert "{'query'" not in book.mail.describe()


def test_a_method_that_is_not_there_is_asked_for_once_more_and_then_the_nearest_are_named(book: Book) -> None:
    book.answers["catalog"] = lambda called: {"catalog": [MAIL]}
    with pytest.raises(AttributeError, match=r"mail has no method 'serch'. The nearest: search. dir\(mail\)"):
        _ = book.mail.serch
    assert [each.do for each in book.asked] == ["catalog"]
    with pytest.raises(AttributeError):
        _ = book.mail._repr_html_
    assert len(book.asked) == 1
    new = {**MAIL, "tools": [*MAIL["tools"], {"name": "archive", "description": "", "input": {}}]}
    book.answers["catalog"] = lambda called: {"catalog": [new]}
    before = book.mail
    assert book.mail.archive() is None and book.mail is before


def test_a_catalog_of_a_hundred_tools_is_applied_without_looking_at_each(book: Book) -> None:
    tools = [{**SEARCH, "name": f"tool-{at}"} for at in range(100)]
    looked: list[Any] = []

    class Watched(dict[str, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            looked.append(key)
            return super().get(key, default)

    book.known.apply([{"name": "many", "about": "", "tools": [Watched(each) for each in tools]}])
    assert not looked and book.caps.many.tool_99.__name__ == "tool_99"


# The names


def test_names_are_in_builtins_and_never_in_place_of_anything_else(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    space = vars(builtins)
    monkeypatch.setitem(space, "mine", 5)
    book.known.apply([MAIL, {"name": "mine", "tools": []}, {"name": "len", "tools": []}])
    assert space["mine"] == 5 and space["len"] is len and space["mail"] is book.caps["mail"]
    assert book.caps["len"] is book.caps.len and space["ToolError"] is ToolError
    mail = book.mail
    book.known.apply([])
    assert "mail" not in space and space["mine"] == 5 and space["caps"] is book.caps
    with pytest.raises(CapabilityGone, match=r"mail is not installed.*caps.install\('mail'"):
        mail.search("x")
    book.known.apply([MAIL])
    assert book.mail is mail


def test_caps_lists_searches_and_describes_without_schemas(book: Book) -> None:
    assert repr(book.caps) == "mail (4 methods)  # Mail of the user"
    assert list(book.caps) == ["mail"] and "mail" in book.caps and len(book.caps) == 1
    found = book.caps.search("finding a message")
    assert found[0].startswith("mail.search(query: str") and repr(found).startswith("mail.search(")
    assert "search(query: str" in book.caps.describe() and "Find messages." in book.caps.describe("mail.search")
    with pytest.raises(AttributeError, match=r"no capability 'male'; the nearest: mail"):
        _ = book.caps.male
    with pytest.raises(KeyError):
        book.caps["other"]
    book.known.apply([])
    assert repr(book.caps).startswith("No capabilities are installed.")


def test_installing_and_uninstalling_ask_the_server_and_apply_what_it_answers(book: Book) -> None:
    book.answers["install"] = lambda called: {"catalog": [MAIL, {"name": "files", "about": "", "tools": [SAY]}]}
    files = book.caps.install("files", ["run", "it"], env={"KEY": "env:KEY"}, approve="never")
    assert book.asked[0].capability == "files"
    assert book.asked[0].given == {"command": ["run", "it"], "env": {"KEY": "env:KEY"}, "approve": "never"}
    assert files is vars(builtins)["files"] and files.say() is None
    book.answers["uninstall"] = lambda called: {"catalog": [MAIL]}
    book.caps.uninstall("files")
    assert "files" not in book.caps and "files" not in vars(builtins)


def test_capabilities_and_methods_are_pickled_by_name(book: Book) -> None:
    assert pickle.loads(pickle.dumps(book.mail)) is book.mail and copy.deepcopy(book.mail) is book.mail
    assert pickle.loads(pickle.dumps(book.mail.search)) is book.mail.search
    assert pickle.loads(pickle.dumps(book.caps)) is book.caps
    data = pickle.dumps([book.mail, book.mail.search])
    book.known.capabilities.clear()
    mail, search = pickle.loads(data)
    for call in (lambda: mail.search("x"), lambda: search("x")):
        with pytest.raises(CapabilityGone, match="not installed"):
            call()
    book.known.apply([MAIL])
    assert mail is book.mail and search("x") is None


# Results

PNG = b"\x89PNG\r\n\x1a\n123"


def test_text_is_text_and_reads_itself_as_json(book: Book) -> None:
    book.answers["say"] = text('{"a": [{"b": 1}]}')
    found = book.mail.say()
    assert found == '{"a": [{"b": 1}]}' and found.json().a[0].b == 1 and not found.truncated
    assert pickle.loads(pickle.dumps(found)) == found
    book.answers["say"] = lambda called: {"content": [{"type": "text", "text": each} for each in "ab"]}
    assert book.mail.say() == "a\nb"


def test_a_text_that_was_cut_reads_the_rest_in_parts(book: Book) -> None:
    whole = "".join(map(str, range(100)))
    book.answers["say"] = lambda called: {
        "content": [
            {"type": "text", "text": "first"},
            {"type": "text", "text": whole[:50], "rest": "k", "size": len(whole)},
        ]
    }

    def rest(called: Called) -> Any:
        start = called.given["start"]
        return {"text": whole[start : start + 60], "more": start + 60 < len(whole)}

    book.answers["rest"] = rest
    found = book.mail.say()
    assert found == f"first\n{whole[:50]}" and found.truncated and found.size == len(whole) + 6
    assert found.read() == f"first\n{whole}"
    assert [each.given for each in book.asked[1:]] == [{"key": "k", "start": at} for at in (50, 110, 170)]
    again = pickle.loads(pickle.dumps(found))
    assert again.truncated and again.read() == f"first\n{whole}"


def test_pictures_and_sounds_hold_their_bytes_and_show_themselves(book: Book, tmp_path: Path) -> None:
    data = base64.b64encode(PNG).decode()
    image = {"type": "image", "data": data, "mimeType": "image/png"}
    book.answers["say"] = lambda called: {"content": [image]}
    picture = book.mail.say()
    assert picture.data == PNG and picture._repr_mimebundle_() == {"image/png": data} and picture._repr_png_() == PNG
    picture.save(tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes() == PNG and repr(picture) == "<Picture image/png, 11 bytes>"
    assert pickle.loads(pickle.dumps(picture)) == picture
    book.answers["say"] = lambda called: {"content": [{"type": "text", "text": "see"}, image]}
    both = book.mail.say()
    assert both == ["see", picture] and type(both).__name__ == "Contents"
    book.answers["say"] = structured({"a": 1}, image)
    assert book.mail.say()._content == [picture]
    book.answers["say"] = lambda called: {"content": [{"type": "audio", "data": data, "mimeType": "audio/wav"}]}
    assert book.mail.say().data == PNG and "audio/wav" in book.mail.say()._repr_html_()


def test_contents_show_each_piece_as_what_it_is(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(builtins, "display", lambda value, **words: shown.append(value), raising=False)
    book.caps.Contents([book.caps.Text("a"), book.caps.Picture(PNG, "image/png")])._ipython_display_()
    assert shown == [{"text/plain": "a"}, book.caps.Picture(PNG, "image/png")]


def test_resources_are_read_where_they_are_linked_and_at_once_where_they_are_embedded(book: Book) -> None:
    link = {"type": "resource_link", "uri": "mail://1", "name": "one", "mimeType": "text/plain"}
    book.answers["say"] = lambda called: {"content": [link]}
    book.answers["read"] = lambda called: {"contents": [{"uri": "mail://1", "text": f"of {called.given['uri']}"}]}
    found = book.mail.say()
    assert (found.uri, found.name, found.mime, found.read()) == ("mail://1", "one", "text/plain", "of mail://1")
    assert book.mail.read("mail://2") == "of mail://2" and pickle.loads(pickle.dumps(found)).read() == "of mail://1"
    held = {"type": "resource", "resource": {"uri": "x://", "blob": base64.b64encode(b"\0").decode()}}
    book.answers["say"] = lambda called: {"content": [held]}
    assert book.mail.say().read() == b"\0"
    book.answers["read"] = lambda called: {"contents": [{"text": "a"}, {"blob": "AA=="}]}
    assert book.mail.read("y://") == ["a", b"\0"]
    book.answers["resources"] = lambda called: {
        "resources": [{"uri": "a://", "name": "a"}],
        "templates": [{"uriTemplate": "b://{x}"}],
    }
    first, second = book.mail.resources()
    assert first.uri == "a://" and second.uriTemplate == "b://{x}"


def test_prompts_are_listed_and_filled_in(book: Book) -> None:
    book.answers["prompts"] = lambda called: {"prompts": [{"name": "greet", "arguments": [{"name": "who"}]}]}
    assert book.mail.prompts()[0].arguments[0].name == "who"
    content = {"type": "text", "text": "Hello"}
    book.answers["greet"] = lambda called: {"messages": [{"role": "user", "content": content}]}
    [message] = book.mail.prompt("greet", who=5)
    assert (message.role, message.content, book.asked[-1].given) == ("user", "Hello", {"who": "5"})


def test_a_record_says_which_keys_it_has_and_goes_out_again_as_an_argument(book: Book) -> None:
    book.answers["search"] = structured({"hits": [], "items": 3})
    found = book.mail.search("x")
    assert found["items"] == 3 and "hits" in dir(found)
    with pytest.raises(AttributeError, match="There is no 'hit' in this record; there are hits, items"):
        _ = found.hit
    found.more = 1
    assert found["more"] == 1 and pickle.loads(pickle.dumps(found)) == found
    assert namespaces.as_json(found) == [{"hits": [], "items": 3, "more": 1}]


def test_plain_things_that_are_not_json_are_made_so(book: Book, science: None) -> None:
    import numpy as np

    book.mail.search(PurePosixPath("a/b"), np.int64(7), labels=("x", book.caps.Text("y")))
    assert book.asked[0].given == {"query": "a/b", "max": 7, "labels": ["x", "y"]}
    book.mail.get_sum(np.float64(1.5), np.float32(2))
    assert book.asked[1].given == {"a": 1.5, "b": 2.0}
    with pytest.raises(ValueError, match="which JSON cannot say"):
        book.mail.get_sum(float("nan"), 1)
