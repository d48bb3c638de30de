"""Transcript: turns the events of a run into outputs, in order, up to a size limit. No input or output."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import replace
from typing import Any

from quire.core.model import Data, Output, OutputType
from quire.core.notebooks import images
from quire.wire.messages import Cleared, Displayed, Event, Finished, Printed, Raised

_ENTRY_OVERHEAD_BYTES = 64  # added to the size of each entry, to limit empty ones too
_MAX_PIECE_BYTES = 1 << 14  # bytes of a stream in one entry, so that little is written again
_MAX_NEW_BYTES = 1 << 18  # of new output in one write
_MAX_UPDATES = 256  # display ids with updates for other cells


class Transcript:
    """Collects a run's events. Above `cap` bytes it keeps the beginning and the end, and counts the rest."""

    def __init__(self, cap: int) -> None:
        self._half = cap // 2
        self._head: list[_Entry] = []
        self._head_size = 0
        self._tail: deque[_Entry] = deque()
        self._tail_size = 0
        self._dropped = 0
        self._place_count = 0  # assigned so far
        self._cleared_places = range(0)  # places that were cleared, until the next `take_new`
        self._clear_next = False
        self._gap_place = -1  # between head and tail, for the note about dropped output
        self._new: dict[int, _Entry] = {}  # by place, changed since the last `take_new`
        self.updates: dict[str, Displayed] = {}  # the last one by display id; earlier cells may show it
        self._updates_size = 0  # bytes of them
        self.finished: Finished | None = None

    def add(self, event: Event) -> None:
        if self._clear_next and isinstance(event, (Printed, Displayed, Raised)):
            self._clear()
        match event:
            case Printed(stream=name, data=data):
                self._add_text(name, data)
            case Displayed(update=True):
                if event.display_id:
                    self._update(event)
            case Displayed():
                self._add_entry(event)
            case Raised(name=name, message=message, traceback=traceback):
                texts = (_shorten(text, self._half // 2) for text in (name, message, traceback))
                self._add_entry(Raised(**dict(zip(("name", "message", "traceback"), texts, strict=True))))
            case Cleared(wait=True):
                self._clear_next = True
            case Cleared():
                self._clear()
            case Finished():
                self.finished = event
            case _:
                pass  # answers to inspections are not outputs

    def outputs(self) -> tuple[Output, ...]:
        """The outputs so far."""
        note = [self._dropped_note()] if self._dropped else []
        return tuple(entry.output() for entry in _merge_streams([*self._head, *note, *self._tail]))

    def take_new(self) -> tuple[dict[int, Output], range]:
        """New and changed outputs by their place since the last call, up to a size limit, and the range of places whose
        outputs were dropped."""
        news: dict[int, Output] = {}
        size = 0
        while self._new and size < _MAX_NEW_BYTES:
            place, entry = next(iter(self._new.items()))
            del self._new[place]
            news[place] = entry.output()
            size += entry.size
        if self._dropped:
            news[self._gap_place] = self._dropped_note().output()
        if self._cleared_places:
            cleared, self._cleared_places = self._cleared_places, range(0)
            return news, cleared
        return news, range(self._gap_place + 1, self._tail[0].place) if self._tail else range(0)

    @property
    def has_new(self) -> bool:
        return bool(self._new)

    def put_back(self, news: dict[int, Output], dropped: range) -> None:
        """Return these outputs to the next `take_new`."""
        if dropped.start == 0 and dropped:
            self._cleared_places = dropped
        self._new.update({entry.place: entry for entry in (*self._head, *self._tail) if entry.place in news})

    def _dropped_note(self) -> _Entry:
        note = f"\n[... {self._dropped:,} bytes of output dropped here: over the cap of {2 * self._half:,} ...]\n"
        return _Entry("stdout", bytearray(note.encode()), self._gap_place)

    def last_line(self) -> str:
        """The last line printed, for a progress message."""
        for entry in [*reversed(self._tail), *reversed(self._head)]:
            if isinstance(entry.content, bytearray):
                lines = bytes(entry.content[-2000:]).decode("utf-8", "replace").replace("\r", "\n").split("\n")
                return next((line.strip() for line in reversed(lines) if line.strip()), "")[:200]
        return ""

    def _add_text(self, name: str, data: bytes) -> None:
        if not self._tail and self._head_size < self._half:
            room = _character_boundary_before(data, self._half - self._head_size)
            self._head_size += self._append(self._head, name, data[:room])
            data = data[room:]
        if data:
            self._tail_size += self._append(self._tail, name, data)
            self._trim()

    def _add_entry(self, event: Displayed | Raised) -> None:
        entry = _Entry("", event)
        if not self._tail and self._head_size + entry.size <= self._half:
            self._place(self._head, entry)
            self._head_size += entry.size
        else:
            self._place(self._tail, entry)
            self._tail_size += entry.size
            self._trim()

    def _update(self, event: Displayed) -> None:
        """Replace what was shown under the display id. The recorder updates other cells."""
        if (last := self.updates.pop(event.display_id, None)) is not None:
            self._updates_size -= _size(last)
        if len(self.updates) < _MAX_UPDATES and self._updates_size + _size(event) <= 2 * self._half:
            self.updates[event.display_id] = event
            self._updates_size += _size(event)
        for entry in (*self._head, *self._tail):
            if isinstance(entry.content, Displayed) and entry.content.display_id == event.display_id:
                before = entry.size
                old, entry.content = entry.content, replace(event, result=entry.content.result, update=False)
                grown = entry.size - before
                if grown > 0 and self._head_size + self._tail_size + grown > 4 * self._half:
                    entry.content = old  # the limit holds for many small ones that grow, too
                    self._dropped += grown
                    continue
                if entry in self._head:
                    self._head_size += grown
                else:
                    self._tail_size += grown
                self._new[entry.place] = entry

    def _clear(self) -> None:
        self._clear_next = False
        self._head, self._tail = [], deque()
        self._head_size = self._tail_size = self._dropped = 0
        self._gap_place = -1
        self._new = {}
        self._cleared_places = range(self._place_count)

    def _append(self, entries: list[_Entry] | deque[_Entry], name: str, data: bytes) -> int:
        """Append to the last entry of the same stream or begin one. Returns the bytes that it added."""
        last = entries[-1] if entries else None
        if last is not None and last.name == name and last.has_room:
            assert isinstance(last.content, bytearray)
            last.content += data
            self._new[last.place] = last
            return len(data)
        self._place(entries, _Entry(name, bytearray(data)))
        return len(data) + _ENTRY_OVERHEAD_BYTES

    def _place(self, entries: list[_Entry] | deque[_Entry], entry: _Entry) -> None:
        if entries is self._tail and self._gap_place < 0:
            self._gap_place = self._next_place()
        entry.place = self._next_place()
        entries.append(entry)
        self._new[entry.place] = entry

    def _next_place(self) -> int:
        self._place_count += 1
        return self._place_count - 1

    def _trim(self) -> None:
        while self._tail_size > self._half:
            first = self._tail[0]
            over = self._tail_size - self._half
            if isinstance(first.content, bytearray) and len(first.content) > over:
                over = _character_boundary_after(first.content, over)
                del first.content[:over]
                self._new[first.place] = first
                self._tail_size -= over
                self._dropped += over
            elif len(self._tail) == 1:
                return  # one display over the limit is kept whole; the frame size limits it
            else:
                self._new.pop(self._tail.popleft().place, None)
                self._tail_size -= first.size
                self._dropped += first.size - _ENTRY_OVERHEAD_BYTES


class _Entry:
    """A piece of a stream or one display, with its place in the transcript."""

    def __init__(self, name: str, content: bytearray | Displayed | Raised, place: int = -1) -> None:
        self.name = name
        self.content = content
        self.place = place

    @property
    def has_room(self) -> bool:
        """Whether more text fits. A piece never ends within a UTF-8 character."""
        return isinstance(self.content, bytearray) and (
            len(self.content) < _MAX_PIECE_BYTES or self.content[-1] >= 0x80
        )

    @property
    def size(self) -> int:
        match self.content:
            case bytearray():
                return _ENTRY_OVERHEAD_BYTES + len(self.content)
            case Displayed():
                return _ENTRY_OVERHEAD_BYTES + _size(self.content)
            case Raised(name=name, message=message, traceback=traceback):
                return _ENTRY_OVERHEAD_BYTES + len(name) + len(message) + len(traceback)

    def output(self) -> Output:
        match self.content:
            case bytearray():
                return _stream(self.name, self.content)
            case Displayed():
                return display_output(self.content)
            case Raised(name=name, message=message, traceback=traceback):
                return error_output(to_utf8_text(name), to_utf8_text(message), to_utf8_text(traceback))


def _size(event: Displayed) -> int:
    """The bytes of a display with its metadata."""
    data = sum(map(len, event.bundle.values()))
    return data + (len(json.dumps(event.metadata)) if event.metadata else 0) + sum(map(len, event.about.values()))


def _merge_streams(entries: list[_Entry]) -> list[_Entry]:
    """Merge adjacent pieces of one stream, so that no character is split between two."""
    joined: list[_Entry] = []
    for entry in entries:
        last = joined[-1] if joined else None
        if not isinstance(entry.content, bytearray):
            joined.append(entry)
        elif last is not None and last.name == entry.name:
            assert isinstance(last.content, bytearray)
            last.content += entry.content
        else:
            joined.append(_Entry(entry.name, bytearray(entry.content)))  # a copy, since more is appended
    return joined


def _shorten(text: str, limit: int) -> str:
    """The text, or the beginning and the end of a text over the limit."""
    if len(text) <= limit:
        return text
    note = f"\n[... {len(text) - limit:,} characters left out here ...]\n"
    return text[: limit // 2] + note + text[len(text) - limit // 2 :]


def _character_boundary_before(data: bytes, cut: int) -> int:
    """The cut, moved back if it would split a UTF-8 character."""
    for back in range(min(4, cut)):
        if cut >= len(data) or data[cut - back] & 0xC0 != 0x80:
            return cut - back
    return cut


def _character_boundary_after(data: bytearray, cut: int) -> int:
    """The cut, moved forward if it would split a UTF-8 character."""
    for on in range(4):
        if cut + on >= len(data) or data[cut + on] & 0xC0 != 0x80:
            return min(cut + on, len(data))
    return cut


def error_output(name: str, message: str, traceback: str = "") -> Output:
    """An ERROR output; its text is the traceback, or the name and message without a traceback."""
    return Output(
        type=OutputType.ERROR,
        name=name,
        bundle={"text/plain": traceback or f"{name}: {message}"},
        about={"message": message},
    )


def to_utf8_text(text: str) -> str:
    """The text with lone surrogates escaped, so that UTF-8 can encode it."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _stream(name: str, data: bytearray) -> Output:
    """A stream as text, and also as bytes if they are not UTF-8."""
    text = data.decode("utf-8", "replace")
    bundle: dict[str, Data] = {"text/plain": text}
    if "\ufffd" in text and text.encode("utf-8") != data:
        bundle["application/octet-stream"] = bytes(data)
    return Output(type=OutputType.STREAM, name=name, bundle=bundle)


def display_output(event: Displayed) -> Output:
    bundle: dict[str, Data] = {
        to_utf8_text(mime): to_utf8_text(data) if isinstance(data, str) else data for mime, data in event.bundle.items()
    }
    about: dict[str, Any] = {to_utf8_text(key): to_utf8_text(said) for key, said in event.about.items()}
    for mime in (*images.FORMATS, images.PREVIEW):
        if mime in bundle:
            data = bundle[mime]
            whole = data.encode() if isinstance(data, str) else data
            assert isinstance(whole, bytes)
            kind = "image/png" if mime == images.PREVIEW else mime
            about["width"], about["height"] = images.dimensions(whole, kind)
            break
    return Output(
        type=OutputType(event.kind),
        bundle=bundle,
        metadata=event.metadata,
        about=about,
        result=event.result,
        display_id=to_utf8_text(event.display_id),
    )
