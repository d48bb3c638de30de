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

from quire.clients.jupyter.documents.text_diff import find_replacements
from quire.clients.jupyter.documents.versions import SourceVersions
from quire.clients.jupyter.kernels.executions import MessageRouter, RunningExecution
from quire.clients.jupyter.kernels.messages import V1, KernelMessage, create_message, decode, encode
from quire.clients.jupyter.ports import JupyterError, KernelDied, Message, NbCell
from quire.clients.jupyter.rooms import protocol
from quire.clients.jupyter.rooms.reconciliation import OwnChanges, client_ids, has_common_history, reapply
from quire.clients.jupyter.rooms.shared_notebook import SharedNotebook
from quire.clients.jupyter.server.paths import normalize_path
from quire.runtimes.jupyter.event_translator import EventTranslator
from quire.wire.messages import Asked, Raised


@pytest.mark.parametrize(
    ("path", "named"),
    [("a.ipynb", "a.ipynb"), ("/a//b/./c.ipynb", "a/b/c.ipynb"), ("a/../b.ipynb", "b.ipynb"), ("", ""), ("..x", "..x")],
)
def test_paths_are_normalized(path: str, named: str) -> None:
    assert normalize_path(path) == named


@pytest.mark.parametrize("path", ["..", "../a", "a/../../b", "/..", "a\0b", "a\\b"])
def test_a_path_outside_the_root_is_refused(path: str) -> None:
    with pytest.raises(JupyterError):
        normalize_path(path)


@settings(max_examples=300)
@given(old=st.text("ab\né😀", max_size=40), new=st.text("ab\né😀", max_size=40))
def test_replacements_turn_the_old_text_into_the_new(old: str, new: str) -> None:
    text = old.encode()
    for each in find_replacements(old, new):
        text = text[: each.start] + each.text.encode() + text[each.end :]
    assert text.decode() == new


def test_only_what_differs_is_replaced() -> None:
    old = "import os\n\ndef f():\n    return 1\n"
    [change] = find_replacements(old, old.replace("return 1", "return 12"))
    assert (old.encode()[: change.start].decode()[-8:], change.end - change.start, change.text) == ("return 1", 0, "2")
    assert [each.text for each in find_replacements("a\nb\nc\n", "A\nb\nC\n")] == ["C", "A"]
    assert find_replacements("same", "same") == []


@pytest.mark.parametrize("subprotocol", [V1, ""])
def test_kernel_message_survives_encoding(subprotocol: str) -> None:
    message = create_message("shell", "execute_request", {"code": "é😀"}, "session", {"msg_id": "p"})
    read = decode(encode(message, subprotocol), subprotocol)
    assert (read.channel, read.kind, read.id, read.parent_id) == ("shell", "execute_request", message.id, "p")
    assert read.content == {"code": "é😀"}


def test_buffers_are_read_in_both_protocols() -> None:
    message = KernelMessage(channel="iopub", header={"msg_type": "x"}, buffers=(b"\0\xff", b""))
    assert decode(encode(message, V1), V1).buffers == (b"\0\xff", b"")
    body = b'{"header": {"msg_type": "x"}, "channel": "iopub"}'
    older = struct.pack("!III", 2, 12, 12 + len(body)) + body + b"\0\xff"
    assert decode(older, "").buffers == (b"\0\xff",)


def test_invalid_kernel_messages_are_refused() -> None:
    dice = random.Random(5)
    right = encode(create_message("shell", "x", {}, "s"), V1)
    assert isinstance(right, bytes)
    for _ in range(2000):
        spoiled = bytearray(right)
        for _ in range(dice.randrange(1, 5)):
            spoiled[dice.randrange(len(spoiled))] = dice.randrange(256)
        for data in (bytes(spoiled[: dice.randrange(len(spoiled))]), bytes(spoiled)):
            for subprotocol in (V1, ""):
                with contextlib.suppress(ValueError):
                    decode(data, subprotocol)
    for text in ("", "[]", "null", '{"header": 1}', "{"):
        with pytest.raises(ValueError):
            decode(text, V1)


def test_invalid_y_messages_are_refused() -> None:
    for data in (b"", b"\x00", b"\x00\x09\x00", b"\x02\x05hello", b"\xff\xff\xff", b"\x00\xff"):
        with pytest.raises(ValueError):
            protocol.parse(data)
    assert protocol.parse(b"\x7d\x01") is None  # a kind of others


async def test_reply_follows_the_idle_status_and_a_restart_fails_executions() -> None:
    async def answer(question: KernelMessage, text: str) -> None: ...

    router = MessageRouter("k")
    execution = RunningExecution(create_message("shell", "execute_request", {}, "s"), answer)
    router.add(execution)
    heard(router, execution, "shell", "execute_reply", {"status": "ok"})
    heard(router, execution, "iopub", "stream", {"text": "late"})
    heard(router, execution, "iopub", "status", {"execution_state": "idle"})
    assert [(await execution.next_message()).kind for _ in range(3)] == ["stream", "status", "execute_reply"]
    assert not router.busy
    two = RunningExecution(create_message("shell", "execute_request", {}, "s"), answer)
    router.add(two)
    heard(router, two, "iopub", "stream", {"text": "before"})
    router.receive(
        KernelMessage(channel="iopub", header={"msg_type": "status"}, content={"execution_state": "restarting"})
    )
    assert (await two.next_message()).content["text"] == "before"
    with pytest.raises(KernelDied):
        await two.next_message()


def heard(router: MessageRouter, of: RunningExecution, channel: str, kind: str, content: dict[str, Any]) -> None:
    router.receive(KernelMessage(channel=channel, header={"msg_type": kind}, parent=of.request.header, content=content))


def notebook(*cells: tuple[str, str], doc: Doc[Any] | None = None) -> SharedNotebook:
    made = SharedNotebook(doc or Doc(), SourceVersions(), lambda: None)
    with made.edit():
        made.insert(0, [cell(cell_id, source) for cell_id, source in cells])
    return made


def cell(cell_id: str, source: str) -> NbCell:
    return {
        "cell_type": "code",
        "id": cell_id,
        "source": source,
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }


def copy_of(notebook: SharedNotebook) -> SharedNotebook:
    doc: Doc[Any] = Doc()
    doc.apply_update(notebook.doc.get_update())
    return SharedNotebook(doc, SourceVersions(), lambda: None)


def test_continued_document_differs_from_a_rebuilt_one() -> None:
    ours = notebook(("a", "1"), ("b", "2"), doc=Doc(client_id=0))
    theirs = copy_of(ours)
    with theirs.edit():
        theirs.set_source("a", "theirs")
    with ours.edit():
        ours.insert(2, [cell("c", "3")])
    assert has_common_history(ours.doc, theirs.doc)
    rebuilt = notebook(("a", "1"), ("b", "2"))
    assert not has_common_history(ours.doc, rebuilt.doc)
    with_the_same_numbers = notebook(("a", "changed"), ("b", "2"), ("d", "4"), doc=Doc(client_id=0))
    assert not has_common_history(ours.doc, with_the_same_numbers.doc)
    assert not has_common_history(notebook(("x", "10"), doc=Doc(client_id=0)).doc, notebook(doc=Doc()).doc)


def test_client_ids_are_read_from_a_state_vector() -> None:
    one = notebook(("a", "1"), doc=Doc(client_id=300))
    other: Doc[Any] = Doc(client_id=7)
    other.apply_update(one.doc.get_update())
    other.get("cells", type=Array).append(1)
    assert client_ids(other.get_state()) == {300, 7}
    assert client_ids(Doc().get_state()) == set()


def test_own_changes_are_reapplied_unless_others_changed_the_cell() -> None:
    old = notebook(("a", "ours"), ("b", "ours"), ("new", "n"), ("e", "5"))
    own = OwnChanges(
        sources={"a": {"before", "ours"}, "b": {"before", "ours"}, "new": {"n"}, "gone": {"x"}, "gone2": {"x"}},
        inserted={"new"},
        deleted={"gone", "gone2"},
    )
    new = notebook(("a", "before"), ("b", "theirs"), ("e", "5"), ("gone", "x"), ("gone2", "changed"))
    with new.edit():
        reapply(own, old.cells(), new)
    assert [(each["id"], each["source"]) for each in new.cells()] == [
        ("a", "ours"),
        ("b", "theirs"),
        ("new", "n"),
        ("e", "5"),
        ("gone2", "changed"),
    ]


def test_unanswered_input_is_the_error_if_the_kernel_reports_none() -> None:
    translator = EventTranslator("r1", python=False)
    assert isinstance(translator.event(Message(kind="input_request", content={"prompt": "Who? "})), Asked)
    translator.unanswered = "no person can be asked here"
    raised = translator.event(Message(kind="execute_reply", content={"status": "abort", "execution_count": 3}))
    assert isinstance(raised, Raised) and (raised.name, raised.message) == ("EOFError", "no person can be asked here")
    finished = translator.pending_event
    assert finished is not None and (finished.outcome, finished.count) == ("error", 3)


def test_error_without_a_name_is_shown() -> None:
    content = {"ename": "", "evalue": "3", "traceback": []}
    raised = EventTranslator("r1", python=False).event(Message(kind="error", content=content))
    assert isinstance(raised, Raised) and raised.traceback == "Error: 3"
