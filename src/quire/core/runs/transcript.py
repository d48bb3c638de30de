"""Events to outputs: what a run showed, in order, under a cap. Pure."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import replace
from typing import Any

from quire.core.model import Data, Output, OutputType
from quire.core.notebooks import images
from quire.wire.messages import Cleared, Displayed, Event, Finished, Printed, Raised

_ENTRY_OVERHEAD_BYTES = 64  # what an entry costs besides its bytes, so that a flood of empty ones is bounded too
_MAX_PIECE_BYTES = 1 << 14  # bytes of a stream in one entry: what is new since is little, however much there is
_MAX_NEW_BYTES = 1 << 18  # bytes of news at once
_MAX_UPDATES = 256  # display ids whose updates are kept for other cells


class Transcript:
    """Folds a run's events. Past `cap` bytes it keeps the beginning and the end and counts the rest."""

    def __init__(self, cap: int) -> None:
        self._half = cap // 2
        self._head: list[_Entry] = []
        self._head_size = 0
        self._tail: deque[_Entry] = deque()
        self._tail_size = 0
        self._dropped = 0
        self._place_count = 0  # given so far
        self._cleared_places = range(0)  # places of what was taken back, until that is told
        self._clear_next = False
        self._gap_place = -1  # the place between head and tail, where it is said what was dropped
        self._new: dict[int, _Entry] = {}  # by place, what changed since the news were asked for
        self.updates: dict[str, Displayed] = {}  # by display id, the last one: other cells may show it too
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
                pass  # an answer to a question is not an output

    def outputs(self) -> tuple[Output, ...]:
        """What there is so far."""
        note = [self._dropped_note()] if self._dropped else []
        return tuple(entry.output() for entry in _merge_streams([*self._head, *note, *self._tail]))

    def take_new(self) -> tuple[dict[int, Output], range]:
        """What is new since this was last asked, or the first part of it: outputs by their place among all, which may
        be in place of earlier ones, and of which places the outputs were dropped."""
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
        """These are news still."""
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
        """In place of what was shown under its id; where that was in another cell is for others to find."""
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
                    entry.content = old  # many small ones that grow: the cap holds for them too
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
        """Lengthen the last stretch of the same stream, or begin one; how many bytes that took."""
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
                return  # a single display over the cap is kept whole; frames bound its size
            else:
                self._new.pop(self._tail.popleft().place, None)
                self._tail_size -= first.size
                self._dropped += first.size - _ENTRY_OVERHEAD_BYTES


class _Entry:
    """A piece of one stream, or one thing shown, and its place among them."""

    def __init__(self, name: str, content: bytearray | Displayed | Raised, place: int = -1) -> None:
        self.name = name
        self.content = content
        self.place = place

    @property
    def has_room(self) -> bool:
        """A piece never ends within a UTF-8 character that goes on."""
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
    """Bytes of what was shown, with what is said about it."""
    data = sum(map(len, event.bundle.values()))
    return data + (len(json.dumps(event.metadata)) if event.metadata else 0) + sum(map(len, event.about.values()))


def _merge_streams(entries: list[_Entry]) -> list[_Entry]:
    """The same with adjacent pieces of one stream as one, so that no character is torn between two."""
    joined: list[_Entry] = []
    for entry in entries:
        last = joined[-1] if joined else None
        if not isinstance(entry.content, bytearray):
            joined.append(entry)
        elif last is not None and last.name == entry.name:
            assert isinstance(last.content, bytearray)
            last.content += entry.content
        else:
            joined.append(_Entry(entry.name, bytearray(entry.content)))  # a copy, to be lengthened
    return joined


def _shorten(text: str, limit: int) -> str:
    """The text; of one over the limit its beginning and its end."""
    if len(text) <= limit:
        return text
    note = f"\n[... {len(text) - limit:,} characters left out here ...]\n"
    return text[: limit // 2] + note + text[len(text) - limit // 2 :]


def _character_boundary_before(data: bytes, cut: int) -> int:
    """The cut, moved back where it would tear a UTF-8 character."""
    for back in range(min(4, cut)):
        if cut >= len(data) or data[cut - back] & 0xC0 != 0x80:
            return cut - back
    return cut


def _character_boundary_after(data: bytearray, cut: int) -> int:
    """The cut, moved on where it would tear a UTF-8 character."""
    for on in range(4):
        if cut + on >= len(data) or data[cut + on] & 0xC0 != 0x80:
            return min(cut + on, len(data))
    return cut


def error_output(name: str, message: str, traceback: str = "") -> Output:
    """An ERROR output; without a traceback the name and message stand for it."""
    return Output(
        type=OutputType.ERROR,
        name=name,
        bundle={"text/plain": traceback or f"{name}: {message}"},
        about={"message": message},
    )


def to_utf8_text(text: str) -> str:
    """Text that UTF-8 can say, whatever a worker sent."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _stream(name: str, data: bytearray) -> Output:
    """Text for reading; where the bytes are not UTF-8, the bytes themselves beside it."""
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
