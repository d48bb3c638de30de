"""The window, and the words that go through the other door: what is not understood is refused."""

from __future__ import annotations

import pytest

from quire.runtimes.wasm.assets import window
from quire.runtimes.wasm.host.python.memory import ZERO, differing
from quire.wire import messages, texts
from quire.wire.messages import BadMessage, Displayed, Printed, Run


@pytest.mark.parametrize(
    "data",
    [b"", b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0", b"\0asm\x0d\0\x01\0\x08\x05\x01", b"\0asm\x0d\0\x01\0\x0c\x01\0"],
)
def test_what_is_no_component_of_ours_gets_no_window(data: bytes) -> None:
    with pytest.raises(window.NoWindow):
        window.add_window(data, b"")


def test_pages_differ_by_their_sums_and_new_ones_by_not_being_zero() -> None:
    assert differing((1, 2, 3), (1, 5, 3)) == [1]
    assert differing((1, 2, ZERO, 4), (1, 2)) == [3]


def test_a_message_is_the_same_after_it_was_a_text() -> None:
    for message in (
        Run(run="r", code="x = 'é\n😀'", name="cell 1"),
        Printed(stream="stdout", data=bytes(range(256))),
        Displayed(kind="image", bundle={"image/png": b"\x89PNG\r\n", "text/plain": "a"}),
    ):
        assert texts.load({**messages.REQUESTS, **messages.EVENTS}, texts.dump(message)) == message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"say":"Printed","with":{"stream":"stdout","data":{"$":0}},"parts":[5]}\nab',
        '{"say":"Printed","with":{"stream":"stdout","data":{"$":0}},"parts":[-1]}\n',
        '{"say":"Printed","with":{"stream":"stdout","data":{"$":0}},"parts":[1]}\n\u20ac',
        '{"say":"Printed","with":{"stream":"other","data":{"$":0}},"parts":[1]}\na',
        '{"say":"Raised","with":{"name":"\\ud800","message":"","traceback":""},"parts":[]}',
        '{"say":"Run","with":{},"parts":[]}',
    ],
)
def test_a_text_that_is_no_message_is_refused(text: str) -> None:
    with pytest.raises(BadMessage):
        texts.load(messages.EVENTS, text)
