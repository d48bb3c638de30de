"""Events to outputs: what a run showed, in order, under a cap. Pure."""

from __future__ import annotations

from collections import deque
from typing import Any

from quire.core import images
from quire.core.model import Data, Output, OutputType
from quire.wire.messages import Displayed, Event, Finished, Printed, Raised

_OVERHEAD = 64  # what an entry costs besides its bytes, so that a flood of empty ones is bounded too


class Transcript:
    """Folds a run's events. Past `cap` bytes it keeps the beginning and the end and counts the rest."""

    def __init__(self, cap: int) -> None:
        self._half = cap // 2
        self._head: list[_Entry] = []
        self._head_size = 0
        self._tail: deque[_Entry] = deque()
        self._tail_size = 0
        self._dropped = 0
        self.finished: Finished | None = None

    def add(self, event: Event) -> None:
        match event:
            case Printed(stream=name, data=data):
                self._printed(name, data)
            case Displayed() | Raised():
                self._shown(event)
            case Finished():
                self.finished = event
            case _:
                pass  # an answer to a question is not an output

    def outputs(self) -> tuple[Output, ...]:
        """What there is so far."""
        entries = [*self._head, *self._tail]
        if self._dropped:
            note = f"\n[... {self._dropped:,} bytes of output dropped here: over the cap of {2 * self._half:,} ...]\n"
            entries.insert(len(self._head), _Entry("stdout", bytearray(note.encode())))
        return tuple(entry.output() for entry in _joined(entries))

    def last_line(self) -> str:
        """The last line printed, for a progress message."""
        for entry in [*reversed(self._tail), *reversed(self._head)]:
            if isinstance(entry.what, bytearray):
                lines = bytes(entry.what[-2000:]).decode("utf-8", "replace").replace("\r", "\n").split("\n")
                return next((line.strip() for line in reversed(lines) if line.strip()), "")[:200]
        return ""

    def _printed(self, name: str, data: bytes) -> None:
        if not self._tail and self._head_size < self._half:
            room = _before_character(data, self._half - self._head_size)
            self._head_size += _append(self._head, name, data[:room])
            data = data[room:]
        if data:
            self._tail_size += _append(self._tail, name, data)
            self._trim()

    def _shown(self, event: Displayed | Raised) -> None:
        entry = _Entry("", event)
        if not self._tail and self._head_size + entry.size <= self._half:
            self._head.append(entry)
            self._head_size += entry.size
        else:
            self._tail.append(entry)
            self._tail_size += entry.size
            self._trim()

    def _trim(self) -> None:
        while self._tail_size > self._half:
            first = self._tail[0]
            over = self._tail_size - self._half
            if isinstance(first.what, bytearray) and len(first.what) > over:
                over = _after_character(first.what, over)
                del first.what[:over]
                self._tail_size -= over
                self._dropped += over
            elif len(self._tail) == 1:
                return  # a single display over the cap is kept whole; frames bound its size
            else:
                self._tail.popleft()
                self._tail_size -= first.size
                self._dropped += first.size - _OVERHEAD


class _Entry:
    """A stretch of one stream, or one thing shown."""

    def __init__(self, name: str, what: bytearray | Displayed | Raised) -> None:
        self.name = name
        self.what = what

    @property
    def size(self) -> int:
        match self.what:
            case bytearray():
                return _OVERHEAD + len(self.what)
            case Displayed(bundle=bundle):
                return _OVERHEAD + sum(len(data) for data in bundle.values())
            case Raised(traceback=traceback):
                return _OVERHEAD + len(traceback)

    def output(self) -> Output:
        match self.what:
            case bytearray():
                return _stream(self.name, self.what)
            case Displayed():
                return _display(self.what)
            case Raised(name=name, message=message, traceback=traceback):
                return error(clean(name), clean(message), clean(traceback))


def _joined(entries: list[_Entry]) -> list[_Entry]:
    """The same with adjacent stretches of one stream as one, so that no character is torn between two."""
    joined: list[_Entry] = []
    for entry in entries:
        last = joined[-1] if joined else None
        if last is not None and last.name == entry.name and isinstance(entry.what, bytearray):
            assert isinstance(last.what, bytearray)
            joined[-1] = _Entry(entry.name, last.what + entry.what)
        else:
            joined.append(entry)
    return joined


def _before_character(data: bytes, cut: int) -> int:
    """The cut, moved back where it would tear a UTF-8 character."""
    for back in range(min(4, cut)):
        if cut >= len(data) or data[cut - back] & 0xC0 != 0x80:
            return cut - back
    return cut


def _after_character(data: bytearray, cut: int) -> int:
    """The cut, moved on where it would tear a UTF-8 character."""
    for on in range(4):
        if cut + on >= len(data) or data[cut + on] & 0xC0 != 0x80:
            return min(cut + on, len(data))
    return cut


def _append(entries: list[_Entry] | deque[_Entry], name: str, data: bytes) -> int:
    """Lengthen the last stretch of the same stream, or begin one; how many bytes that took."""
    if entries and entries[-1].name == name and isinstance(entries[-1].what, bytearray):
        entries[-1].what += data
        return len(data)
    entries.append(_Entry(name, bytearray(data)))
    return len(data) + _OVERHEAD


def error(name: str, message: str, traceback: str = "") -> Output:
    """An ERROR output; without a traceback the name and message stand for it."""
    return Output(
        type=OutputType.ERROR,
        name=name,
        bundle={"text/plain": traceback or f"{name}: {message}"},
        metadata={"message": message},
    )


def clean(text: str) -> str:
    """Text that UTF-8 can say, whatever a worker sent."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _stream(name: str, data: bytearray) -> Output:
    """Text for reading; where the bytes are not UTF-8, the bytes themselves beside it."""
    text = data.decode("utf-8", "replace")
    bundle: dict[str, Data] = {"text/plain": text}
    if "\ufffd" in text and text.encode("utf-8") != data:
        bundle["application/octet-stream"] = bytes(data)
    return Output(type=OutputType.STREAM, name=name, bundle=bundle)


def _display(event: Displayed) -> Output:
    bundle: dict[str, Data] = {
        clean(mime): clean(data) if isinstance(data, str) else data for mime, data in event.bundle.items()
    }
    metadata: dict[str, Any] = dict(event.metadata)
    for mime in images.FORMATS:
        if mime in bundle:
            data = bundle[mime]
            whole = data.encode() if isinstance(data, str) else data
            assert isinstance(whole, bytes)
            metadata["width"], metadata["height"] = images.dimensions(whole, mime)
            break
    return Output(type=OutputType(event.kind), bundle=bundle, metadata=metadata, result=event.result)
