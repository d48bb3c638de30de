"""The decoder against torn, forged and mutated bytes: messages or a ValueError, nothing else."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from quire.wire import frames, messages
from quire.wire.frames import BadFrame, Decoder
from quire.wire.messages import (
    BadMessage,
    Displayed,
    Finished,
    Inspect,
    Inspected,
    Printed,
    Raised,
    Read,
    Ready,
    Run,
    Value,
)

SEED = 20260401
LIMITS = frames.FROM_CODE

EVENTS = [
    Ready(version=1, python="3.11.7"),
    Printed(stream="stdout", data=b""),
    Printed(stream="stderr", data=bytes(range(256)) * 5),
    Displayed(kind="image", bundle={"image/png": b"\x89PNG" * 9, "text/plain": "é\U0001f600", "x/y": b""}, result=True),
    Displayed(kind="html", bundle={"text/html": "<b>"}, metadata={"deep": [{"a": None}], "n": 1.5}),
    Raised(name="E", message="", traceback="Traceback\n"),
    Finished(run="r", outcome="success", value=[{"a": [1, 2.5, None, True, "x"]}], imports=["import os"]),
    Inspected(variables={"x": "int"}, functions=[{"name": "f", "signature": "()", "docstring": ""}]),
    Value(value=[], what="object"),
]
REQUESTS = [Run(run="r", code="print('\\x00')", name="cell 1, run 3"), Inspect(), Read(name="x")]


def frame(header: Any, body: bytes = b"", *, version: int = messages.VERSION) -> bytes:
    """A frame whose prefix is right, whatever the header holds."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return frames.PREFIX.pack(frames.MAGIC, version, 0, len(raw), len(body)) + raw + body


def said(say: Any, fields: Any, parts: Any = ()) -> bytes:
    return frame({"say": say, "with": fields, "parts": parts})


def refused(data: bytes, words: dict[str, type] = messages.EVENTS) -> ValueError:
    with pytest.raises(ValueError) as caught:
        Decoder(words).feed(data)
    assert type(caught.value) in (BadFrame, BadMessage)
    return caught.value


def test_any_split_of_a_stream_gives_the_same_messages() -> None:
    chance = random.Random(SEED)
    stream = b"".join(map(frames.encode, EVENTS))
    for cuts in [
        range(1, len(stream)),
        *(chance.sample(range(1, len(stream)), chance.randint(1, 40)) for _ in "x" * 300),
    ]:
        decoder, found, start = Decoder(messages.EVENTS), [], 0
        for cut in [*sorted(cuts), len(stream)]:
            found += decoder.feed(stream[start:cut])
            start = cut
        assert found == EVENTS


def test_requests_come_back_as_they_were_sent() -> None:
    assert Decoder(messages.REQUESTS).feed(b"".join(map(frames.encode, REQUESTS))) == REQUESTS


@pytest.mark.parametrize("metadata", [{"$": 0}, {"$": "x"}, {"a": {"$": 0}}, {}])
def test_metadata_comes_back_as_it_was_whatever_its_keys(metadata: dict[str, Any]) -> None:
    shown = Displayed(kind="html", bundle={"text/html": "x", "b/b": b"bytes"}, metadata=metadata)
    assert Decoder(messages.EVENTS).feed(frames.encode(shown)) == [shown]


@pytest.mark.parametrize("variables", [{"$": "int"}, {"$": "int", "x": "str"}])
def test_a_variable_may_have_any_name(variables: dict[str, str]) -> None:
    answer = Inspected(variables=variables, functions=[])
    assert Decoder(messages.EVENTS).feed(frames.encode(answer)) == [answer]


def test_a_torn_frame_says_nothing_until_it_is_whole() -> None:
    for event in EVENTS:
        whole = frames.encode(event)
        decoder = Decoder(messages.EVENTS)
        for octet in whole[:-1]:
            assert decoder.feed(bytes([octet])) == []
        assert decoder.feed(whole[-1:]) == [event]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"HTTP/1.1 200 OK\r\n", "not a frame"),
        (b"\0" * 12, "not a frame"),
        (frames.PREFIX.pack(b"QW", messages.VERSION, 1, 2, 0) + b"{}", "not a frame"),
        (frame({}, version=messages.VERSION + 1), f"protocol version {messages.VERSION + 1}"),
        (frame({}, version=0), "protocol version 0"),
        (frames.PREFIX.pack(b"QW", messages.VERSION, 0, 2**32 - 1, 0), "over the limit"),
        (frames.PREFIX.pack(b"QW", messages.VERSION, 0, 0, 2**32 - 1), "over the limit"),
        (frame(b""), "cannot be read"),
        (frame(b"\xff\xfe\xfd"), "cannot be read"),
        (frame(b"[1, 2]"), "cannot be read"),
        (frame(b'"text"'), "cannot be read"),
        (frame(b"{}"), "cannot be read"),
        (frame(b'{"parts": [-1]}'), "cannot be read"),
        (frame(b'{"parts": [true]}', b"x"), "cannot be read"),
        (frame(b'{"parts": [1e3]}'), "cannot be read"),
        (frame(b'{"parts": {"0": 1}}'), "cannot be read"),
        (frame(b'{"parts": ' + b"9" * 10_000 + b"}"), "cannot be read"),
        (frame(b"[" * 100_000), "cannot be read"),
        (frame(b'{"a":' * 100_000), "cannot be read"),
        (frame({"say": "Inspect", "with": {}, "parts": [3]}, b"xx"), "do not add up"),
        (frame({"say": "Inspect", "with": {}, "parts": []}, b"xx"), "do not add up"),
        (said("Run", {"run": "r", "code": "1", "name": "n"}), "not a message"),
        (said("__class__", {}), "not a message"),
        (said(["Ready"], {}), "not a message"),
        (said("Ready", None), "not a message"),
        (said("Ready", {"version": 1}), "incomplete"),
        (said("Ready", {"version": True, "python": "3"}), "Ready.version"),
        (said("Ready", {"version": 1, "python": "3", "more": 1}), "has no 'more'"),
        (said("Printed", {"stream": "stdin", "data": {"$": 0}}, []), "Printed.stream"),
        (said("Printed", {"stream": "stdout", "data": "text"}), "Printed.data"),
        (said("Printed", {"stream": "stdout", "data": {"$": 7}}), "not there"),
        (said("Printed", {"stream": "stdout", "data": {"$": "0"}}), "not there"),
        (said("Displayed", {"kind": "error", "bundle": {}}), "Displayed.kind"),
        (said("Displayed", {"kind": "html", "bundle": {"a": 1}}), "Displayed.bundle"),
        (said("Finished", {"run": "r", "outcome": "crashed"}), "Finished.outcome"),
        (said("Finished", {"run": "r", "outcome": "success", "imports": [1]}), "Finished.imports"),
    ],
)
def test_a_forged_frame_is_refused_with_what_is_wrong(data: bytes, words: str) -> None:
    assert words in str(refused(data))


def test_a_worker_cannot_say_a_request() -> None:
    for request in REQUESTS:
        refused(frames.encode(request))
    for event in EVENTS:
        refused(frames.encode(event), messages.REQUESTS)


@pytest.mark.parametrize("place", ["metadata", "value"])
def test_nesting_too_deep_to_be_kept_is_refused_at_the_edge(place: str) -> None:
    deep = b"[" * 900 + b"]" * 900
    texts = {
        "metadata": b'{"say":"Displayed","with":{"kind":"html","bundle":{},"metadata":{"a":%s}},"parts":[]}',
        "value": b'{"say":"Finished","with":{"run":"r","outcome":"success","value":[%s]},"parts":[]}',
    }
    refused(frame(texts[place] % deep))


@pytest.mark.parametrize("place", ["name", "metadata", "value", "variables"])
def test_text_that_utf8_cannot_say_does_not_come_through(place: str) -> None:
    lone = "\ud800"
    forged = {
        "name": said("Raised", {"name": lone, "message": "", "traceback": ""}),
        "metadata": said("Displayed", {"kind": "html", "bundle": {}, "metadata": {"a": lone}}),
        "value": said("Finished", {"run": "r", "outcome": "success", "value": [lone]}),
        "variables": said("Inspected", {"variables": {lone: "int"}, "functions": []}),
    }
    try:
        found = Decoder(messages.EVENTS).feed(forged[place])
    except (BadFrame, BadMessage):
        return
    json.dumps([messages.dump(message)[0] for message in found], ensure_ascii=False).encode("utf-8")


def test_random_bytes_give_value_errors_only() -> None:
    chance = random.Random(SEED)
    for _ in range(3_000):
        body = chance.randbytes(chance.randint(0, 200))
        attempt(chance.choice([body, b"QW" + body, frame(body), b"QW\x01\x00" + body]), chance)


def test_mutated_frames_give_value_errors_only() -> None:
    chance = random.Random(SEED)
    whole = [frames.encode(event) for event in EVENTS]
    for _ in range(5_000):
        data = bytearray(b"".join(chance.sample(whole, chance.randint(1, 3))))
        for _ in range(chance.randint(1, 6)):
            mutate(data, chance)
        attempt(bytes(data), chance)


def test_messages_with_wrong_fields_give_value_errors_only() -> None:
    chance = random.Random(SEED)
    for _ in range(5_000):
        header, parts = messages.dump(chance.choice(EVENTS))
        header["parts"] = [len(part) for part in parts]
        for _ in range(chance.randint(1, 3)):
            spoil(header, chance)
        attempt(frame(header, b"".join(parts)), chance)


def test_a_forged_length_costs_no_memory() -> None:
    tracemalloc.start()
    try:
        for header, body in [(2**32 - 1, 0), (0, 2**32 - 1), (LIMITS.header, LIMITS.parts)]:
            decoder = Decoder(messages.EVENTS, LIMITS)
            with pytest.raises(BadFrame) if max(header, body) == 2**32 - 1 else nothing():
                decoder.feed(frames.PREFIX.pack(b"QW", messages.VERSION, 0, header, body))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_long_stream_of_frames_is_not_kept() -> None:
    one = frames.encode(Printed(stream="stdout", data=b"x" * 10_000))
    decoder = Decoder(messages.EVENTS)
    decoder.feed(one)
    tracemalloc.start()
    try:
        for _ in range(2_000):
            decoder.feed(one[:5_000])
            decoder.feed(one[5_000:])
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_message_too_large_is_refused_before_it_is_sent() -> None:
    with pytest.raises(frames.TooLarge, match=f"{LIMITS.parts:,} of text"):
        frames.encode(Raised(name="E", message="", traceback="x" * (LIMITS.parts + 1)))
    with pytest.raises(frames.TooLarge, match=f"{LIMITS.values:,} values"):
        frames.encode(Value(value=[[[]] * LIMITS.values], what=""))


def test_long_texts_come_back_wherever_they_were() -> None:
    long = "é\U0001f600," * frames.LONG_TEXT * 20
    messages_with_long_texts: list[Any] = [
        Raised(name="E", message=long, traceback=long + "2"),
        Displayed(kind="html", bundle={"text/html": long, "image/png": b"png"}, metadata={"a": [{"$": long}, long]}),
        Finished(run="r", outcome="success", value=[{"texts": [[long]], "0": "short"}]),
    ]
    for event in messages_with_long_texts:
        whole = frames.encode(event)
        assert frames.PREFIX.unpack_from(whole)[3] < 1_000, "the header is short"
        assert Decoder(messages.EVENTS, LIMITS).feed(whole) == [event]


@pytest.mark.parametrize(
    "texts",
    [7, "x", {"a": 1}, [[]], [[0]], [7], [["0", "traceback"]], [[9, "traceback"]], [[0, "traceback", "deep"]],
     [[0, "traceback"], [0, "message"]], [[True, "traceback"]], [[0, *["a"] * 100]], [[0, {}]],
     [[0, "metadata", 10**30]]],
)  # fmt: skip
def test_long_text_in_a_forged_place_is_refused(texts: Any) -> None:
    fields = {"name": "E", "message": "", "traceback": "", "metadata": []}
    header = {"say": "Raised", "with": fields, "parts": [1], "texts": texts}
    refused(frame(header, b"x"))


@pytest.mark.parametrize(
    "header",
    [
        b'{"say":"Value","with":{"value":[' + b"{}," * LIMITS.values + b'{}],"what":""},"parts":[]}',
        b'{"say":"Value","with":{"value":[' + b"1," * LIMITS.values + b'1],"what":""},"parts":[]}',
        b'{"say":"Value","with":{"value":["' + b"x" * LIMITS.header + b'"],"what":""},"parts":[]}',
    ],
)
def test_slow_header_is_refused_before_it_is_parsed(header: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def loads(text: str) -> Any:
        raise AssertionError("the header was parsed")

    monkeypatch.setattr(json, "loads", loads)
    with pytest.raises(BadFrame, match="over the limit"):
        Decoder(messages.EVENTS, LIMITS).feed(frame(header))


def test_decoder_counts_what_a_message_takes() -> None:
    decoder = Decoder(messages.EVENTS, LIMITS)
    sizes = []
    for event in (
        Value(value=[], what=""),
        Raised(name="E", message="", traceback="x" * 10**6),
        Value(value=[[{}] * 10**4], what=""),
    ):
        decoder.add(frames.encode(event))
        taken = decoder.take()
        assert taken is not None and taken[0] == event
        sizes.append(taken[1])
    assert sizes[0] < 1_000 and sizes[1] > 10**6 and sizes[2] > 10**6


def test_nesting_is_measured_to_the_limit() -> None:
    def nested(levels: int) -> Any:
        return [nested(levels - 1)] if levels else 1

    assert messages.is_shallow(nested(50)) and not messages.is_shallow(nested(51))
    assert messages.is_shallow({"a": [1, {"b": (2,)}]}, 4) and not messages.is_shallow({"a": [1, {"b": (2,)}]}, 3)
    endless: list[Any] = []
    endless += [endless, endless]
    assert not messages.is_shallow(endless)


def attempt(data: bytes, chance: random.Random) -> None:
    """Feed in two portions; whatever comes out is a message that can be said again."""
    decoder, cut = Decoder(messages.EVENTS), chance.randint(0, len(data))
    found: list[Any] = []
    try:
        found += decoder.feed(data[:cut])
        found += decoder.feed(data[cut:])
    except ValueError as error:
        assert type(error) in (BadFrame, BadMessage), repr(error)
    for message in found:
        assert type(message) in messages.EVENTS.values()
        frames.encode(message)


def mutate(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data)) if data else 0
    match chance.randrange(5):
        case 0 if data:
            data[at] = chance.randrange(256)
        case 1 if data:
            data[at] ^= 1 << chance.randrange(8)
        case 2:
            del data[at : at + chance.randint(1, 20)]
        case 3:
            data[at:at] = chance.randbytes(chance.randint(1, 20))
        case _:
            data[at:at] = data[chance.randrange(len(data) or 1) :][: chance.randint(1, 40)]


def spoil(header: dict[str, Any], chance: random.Random) -> None:
    strange = chance.choice(list(STRANGE()))
    fields = header.get("with")
    if isinstance(fields, dict) and fields and chance.random() < 0.8:
        fields[chance.choice([*fields, "bundle", "data", "x"])] = strange
    else:
        header[chance.choice(["say", "with", "parts", "x"])] = strange


def STRANGE() -> Iterator[Any]:
    """JSON that no field expects, made new each time."""
    yield from (None, True, 0, -1, 10**400, 1e308, float("nan"), float("inf"), "", "\ud800", "x" * 1_000, "stdout")
    yield from ([], {}, [[]], [{}], {"$": 0}, {"$": -1}, {"$": True}, {"$": None}, {"$": 10**30}, {"$": [0]}, [0, 0])
    yield from ({"a": {"$": 0}}, {"text/plain": {"$": 1}}, {"": None}, ["x", 1], [["a", 1]], [[[[[[[]]]]]]])


class nothing:
    """A block nothing is expected of."""

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...
