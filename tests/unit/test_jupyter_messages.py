"""What Jupyter's protocols are made of, without a server: paths, differences, kernel messages, histories."""

from __future__ import annotations

import contextlib
import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycrdt import Array, Doc

from quire.clients.jupyter.documents.text_diff import replacements
from quire.clients.jupyter.documents.versions import Versions
from quire.clients.jupyter.kernels.executions import RunningExecution, Switchboard
from quire.clients.jupyter.kernels.messages import V1, KernelMessage, decoded, encoded, message
from quire.clients.jupyter.ports import JupyterError, KernelDied, Message, NbCell
from quire.clients.jupyter.rooms import protocol
from quire.clients.jupyter.rooms.reconciliation import Own, authors, carry_over, same_history
from quire.clients.jupyter.rooms.shared_notebook import SharedNotebook
from quire.clients.jupyter.server.paths import below_root
from quire.runtimes.jupyter.event_translator import Translation
from quire.wire.messages import Asked, Raised


@pytest.mark.parametrize(
    ("path", "named"),
    [("a.ipynb", "a.ipynb"), ("/a//b/./c.ipynb", "a/b/c.ipynb"), ("a/../b.ipynb", "b.ipynb"), ("", ""), ("..x", "..x")],
)
def test_a_path_is_named_as_the_server_names_it(path: str, named: str) -> None:
    assert below_root(path) == named


@pytest.mark.parametrize("path", ["..", "../a", "a/../../b", "/..", "a\0b", "a\\b"])
def test_a_path_outside_the_root_is_refused(path: str) -> None:
    with pytest.raises(JupyterError):
        below_root(path)


@settings(max_examples=300)
@given(old=st.text("ab\né😀", max_size=40), new=st.text("ab\né😀", max_size=40))
def test_the_replacements_make_the_one_text_the_other(old: str, new: str) -> None:
    text = old.encode()
    for each in replacements(old, new):
        text = text[: each.start] + each.text.encode() + text[each.end :]
    assert text.decode() == new


def test_only_what_differs_is_replaced() -> None:
    old = "import os\n\ndef f():\n    return 1\n"
    [one] = replacements(old, old.replace("return 1", "return 12"))
    assert (old.encode()[: one.start].decode()[-8:], one.end - one.start, one.text) == ("return 1", 0, "2")
    assert [each.text for each in replacements("a\nb\nc\n", "A\nb\nC\n")] == ["C", "A"]
    assert replacements("same", "same") == []


@pytest.mark.parametrize("subprotocol", [V1, ""])
def test_a_message_is_read_as_it_was_written(subprotocol: str) -> None:
    one = message("shell", "execute_request", {"code": "é😀"}, "session", {"msg_id": "p"})
    read = decoded(encoded(one, subprotocol), subprotocol)
    assert (read.channel, read.kind, read.id, read.answers) == ("shell", "execute_request", one.id, "p")
    assert read.content == {"code": "é😀"}


def test_buffers_are_read_in_both_protocols() -> None:
    one = KernelMessage(channel="iopub", header={"msg_type": "x"}, buffers=(b"\0\xff", b""))
    assert decoded(encoded(one, V1), V1).buffers == (b"\0\xff", b"")
    body = b'{"header": {"msg_type": "x"}, "channel": "iopub"}'
    older = struct.pack("!III", 2, 12, 12 + len(body)) + body + b"\0\xff"
    assert decoded(older, "").buffers == (b"\0\xff",)


def test_bytes_that_are_no_message_are_refused() -> None:
    dice = random.Random(5)
    right = encoded(message("shell", "x", {}, "s"), V1)
    assert isinstance(right, bytes)
    for _ in range(2000):
        spoiled = bytearray(right)
        for _ in range(dice.randrange(1, 5)):
            spoiled[dice.randrange(len(spoiled))] = dice.randrange(256)
        for data in (bytes(spoiled[: dice.randrange(len(spoiled))]), bytes(spoiled)):
            for subprotocol in (V1, ""):
                with contextlib.suppress(ValueError):
                    decoded(data, subprotocol)
    for text in ("", "[]", "null", '{"header": 1}', "{"):
        with pytest.raises(ValueError):
            decoded(text, V1)


def test_bytes_that_are_no_y_message_are_refused() -> None:
    for data in (b"", b"\x00", b"\x00\x09\x00", b"\x02\x05hello", b"\xff\xff\xff", b"\x00\xff"):
        with pytest.raises(ValueError):
            protocol.read(data)
    assert protocol.read(b"\x7d\x01") is None  # a kind of others


async def test_a_reply_waits_for_the_kernel_to_be_idle_and_a_death_ends_all() -> None:
    async def answer(question: KernelMessage, text: str) -> None: ...

    board = Switchboard("k")
    one = RunningExecution(message("shell", "execute_request", {}, "s"), answer)
    board.add(one)
    heard(board, one, "shell", "execute_reply", {"status": "ok"})
    heard(board, one, "iopub", "stream", {"text": "late"})
    heard(board, one, "iopub", "status", {"execution_state": "idle"})
    assert [(await one.next()).kind for _ in range(3)] == ["stream", "status", "execute_reply"]
    assert not board.busy
    two = RunningExecution(message("shell", "execute_request", {}, "s"), answer)
    board.add(two)
    heard(board, two, "iopub", "stream", {"text": "before"})
    board.hear(KernelMessage(channel="iopub", header={"msg_type": "status"}, content={"execution_state": "restarting"}))
    assert (await two.next()).content["text"] == "before"
    with pytest.raises(KernelDied):
        await two.next()


def heard(board: Switchboard, of: RunningExecution, channel: str, kind: str, content: dict[str, Any]) -> None:
    board.hear(KernelMessage(channel=channel, header={"msg_type": kind}, parent=of.request.header, content=content))


def notebook(*cells: tuple[str, str], doc: Doc[Any] | None = None) -> SharedNotebook:
    made = SharedNotebook(doc or Doc(), Versions(), lambda: None)
    with made.edit():
        made.insert(0, [cell(name, source) for name, source in cells])
    return made


def cell(name: str, source: str) -> NbCell:
    return {
        "cell_type": "code",
        "id": name,
        "source": source,
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }


def copy_of(one: SharedNotebook) -> SharedNotebook:
    doc: Doc[Any] = Doc()
    doc.apply_update(one.doc.get_update())
    return SharedNotebook(doc, Versions(), lambda: None)


def test_a_continuation_is_told_from_a_document_made_anew() -> None:
    ours = notebook(("a", "1"), ("b", "2"), doc=Doc(client_id=0))
    theirs = copy_of(ours)
    with theirs.edit():
        theirs.set_source("a", "theirs")
    with ours.edit():
        ours.insert(2, [cell("c", "3")])
    assert same_history(ours.doc, theirs.doc)
    anew = notebook(("a", "1"), ("b", "2"))
    assert not same_history(ours.doc, anew.doc)
    with_the_same_numbers = notebook(("a", "changed"), ("b", "2"), ("d", "4"), doc=Doc(client_id=0))
    assert not same_history(ours.doc, with_the_same_numbers.doc)
    assert not same_history(notebook(("x", "10"), doc=Doc(client_id=0)).doc, notebook(doc=Doc()).doc)


def test_the_authors_of_a_state_are_read() -> None:
    one = notebook(("a", "1"), doc=Doc(client_id=300))
    other: Doc[Any] = Doc(client_id=7)
    other.apply_update(one.doc.get_update())
    other.get("cells", type=Array).append(1)
    assert authors(other.get_state()) == {300, 7}
    assert authors(Doc().get_state()) == set()


def test_what_only_we_had_is_carried_over_and_what_others_changed_is_left() -> None:
    old = notebook(("a", "ours"), ("b", "ours"), ("new", "n"), ("e", "5"))
    own = Own(
        sources={"a": {"before", "ours"}, "b": {"before", "ours"}, "new": {"n"}, "gone": {"x"}, "gone2": {"x"}},
        inserted={"new"},
        deleted={"gone", "gone2"},
    )
    new = notebook(("a", "before"), ("b", "theirs"), ("e", "5"), ("gone", "x"), ("gone2", "changed"))
    with new.edit():
        carry_over(own, old.cells(), new)
    assert [(each["id"], each["source"]) for each in new.cells()] == [
        ("a", "ours"),
        ("b", "theirs"),
        ("new", "n"),
        ("e", "5"),
        ("gone2", "changed"),
    ]


def test_code_that_is_interrupted_because_nobody_answers_says_so_where_its_kernel_does_not() -> None:
    translation = Translation("r1", python=False)
    assert isinstance(translation.event(Message(kind="input_request", content={"prompt": "Who? "})), Asked)
    translation.unanswered = "nobody can be asked here"
    raised = translation.event(Message(kind="execute_reply", content={"status": "abort", "execution_count": 3}))
    assert isinstance(raised, Raised) and (raised.name, raised.message) == ("EOFError", "nobody can be asked here")
    assert translation.left is not None and (translation.left.outcome, translation.left.count) == ("error", 3)


def test_an_error_without_a_name_is_still_told() -> None:
    content = {"ename": "", "evalue": "3", "traceback": []}
    raised = Translation("r1", python=False).event(Message(kind="error", content=content))
    assert isinstance(raised, Raised) and raised.traceback == "Error: 3"
