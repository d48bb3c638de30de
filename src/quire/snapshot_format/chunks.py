"""Chunks, manifests, drafts and recipes. The worker writes them, the store keeps them, a worker reads them.

A *whole* (the stream of variables, or one large buffer) is cut into chunks, each named by its SHA-256. A node is a
chunk that lists names of chunks. A whole is a list of nodes, so a small change in a large one needs few new bytes.
The manifest lists the wholes.

A draft is a file with the chunks that the store may not have, their entries, and the manifest.
A recipe is a file with a manifest and the place in the store of every chunk of every whole.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
FORMAT = 1  # of manifests; all older ones can be read
MAX_CHUNK_BYTES = 1 << 16  # larger data is cut
NODE_NAMES = 1024  # maximum number of names in a node
DIGEST_BYTES = 32  # size of a name
_MAX_LENGTH = 1 << 50  # bytes of a whole or segment
_MAX_MANIFEST_BYTES = 256 << 20  # larger ones are refused

_ENTRY = struct.Struct("<32sIIB")
_PLACE = struct.Struct("<32sHQIIB")
_HEAD = struct.Struct("<II")


class BadSnapshot(ValueError):
    """The data is not a readable snapshot; the message says what is wrong."""


def chunk_name(data: Any) -> bytes:
    return hashlib.sha256(data).digest()


@dataclass(frozen=True, slots=True)
class Entry:
    """One chunk of a draft: name, length, and length as stored, which may be compressed."""

    name: bytes
    length: int
    stored: int
    compressed: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a chunk is stored: pack number, offset and lengths."""

    name: bytes
    pack: int
    offset: int
    length: int
    stored: int
    compressed: bool


@dataclass(frozen=True)
class Whole:
    length: int
    nodes: tuple[bytes, ...]
    key: str = ""  # by which the writer recognizes it
    read_only: bool = False


@dataclass(frozen=True)
class Manifest:
    """The content of a snapshot. `segments` are the names and lengths of the parts of the stream, in order."""

    python: str
    segments: tuple[tuple[str, int], ...]
    stream: Whole
    buffers: tuple[Whole, ...]
    about: dict[str, Any] = field(default_factory=dict)  # shown to people: variables, functions, losses
    format: int = FORMAT

    @property
    def wholes(self) -> tuple[Whole, ...]:
        return (self.stream, *self.buffers)

    def dump(self) -> bytes:
        fields = {
            "format": self.format,
            "python": self.python,
            "segments": self.segments,
            "stream": _whole_as_json(self.stream),
            "buffers": [_whole_as_json(whole) for whole in self.buffers],
            "about": self.about,
        }
        return json.dumps(fields, separators=(",", ":")).encode()


def parse_manifest(data: bytes) -> Manifest:
    """A manifest with every part checked, since the worker may be hostile. Raises BadSnapshot."""
    if len(data) > _MAX_MANIFEST_BYTES:
        raise BadSnapshot("its manifest is too large")
    try:
        fields = json.loads(data)
        format_ = fields["format"]
        if type(format_) is not int or format_ < 1:
            raise BadSnapshot("it names no format")
        if format_ > FORMAT:
            raise BadSnapshot(f"it has format {format_}, written by a newer Quire (this one knows {FORMAT}): upgrade")
        segments = tuple((_checked(name, str), _length(length)) for name, length in fields["segments"])
        manifest = Manifest(
            format=format_,
            python=_checked(fields["python"], str)[:100],
            segments=segments,
            stream=_whole(fields["stream"]),
            buffers=tuple(_whole(whole) for whole in fields["buffers"]),
            about=_checked(fields["about"], dict),
        )
    except BadSnapshot:
        raise
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadSnapshot("its manifest cannot be read") from error
    if sum(length for _, length in segments) != manifest.stream.length:
        raise BadSnapshot("its parts do not add up")
    return manifest


def _whole_as_json(whole: Whole) -> list[Any]:
    return [whole.length, [node.hex() for node in whole.nodes], whole.key, whole.read_only]


def _whole(fields: Any) -> Whole:
    length, nodes, key, read_only = fields
    names = tuple(bytes.fromhex(_checked(node, str)) for node in _checked(nodes, list))
    if any(len(name) != DIGEST_BYTES for name in names):
        raise BadSnapshot("it names something that is no chunk")
    return Whole(_length(length), names, _checked(key, str)[:200], _checked(read_only, bool))


def _length(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MAX_LENGTH:
        raise BadSnapshot("it has a part without a length")
    return value


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise BadSnapshot("its manifest cannot be read")
    return value


def dump_entries(entries: Iterable[Entry]) -> bytes:
    return b"".join(_ENTRY.pack(entry.name, entry.length, entry.stored, entry.compressed) for entry in entries)


def parse_entries(data: bytes) -> list[Entry]:
    if len(data) % _ENTRY.size:
        raise BadSnapshot("its list of chunks is cut off")
    found = [Entry(name, length, stored, bool(packed)) for name, length, stored, packed in _ENTRY.iter_unpack(data)]
    if any(not 0 < entry.length <= MAX_CHUNK_BYTES or not 0 < entry.stored <= MAX_CHUNK_BYTES for entry in found):
        raise BadSnapshot("it has a chunk of an impossible size")
    return found


def parse_node(node: bytes) -> list[bytes]:
    """The names in a node. Raises BadSnapshot."""
    if len(node) % DIGEST_BYTES or not 0 < len(node) <= NODE_NAMES * DIGEST_BYTES:
        raise BadSnapshot("a node of it is damaged")
    return [node[at : at + DIGEST_BYTES] for at in range(0, len(node), DIGEST_BYTES)]


def dump_places(places: Iterable[tuple[bytes, int, int, int, int, int]]) -> bytes:
    """Places, as tuples with the fields of Place."""
    return b"".join([_PLACE.pack(*place) for place in places])


def dump_recipe(manifest: bytes, counts: list[int], places: bytes) -> bytes:
    """A recipe from a dumped manifest, the number of places of each whole, and the dumped places."""
    counts_json = json.dumps(counts).encode()
    return b"".join((_HEAD.pack(len(manifest), len(counts_json)), manifest, counts_json, places))


def parse_recipe(data: bytes) -> tuple[Manifest, list[list[Place]]]:
    manifest, counts, at = _split_recipe(data)
    places = [
        Place(name, pack, offset, length, stored, bool(packed))
        for name, pack, offset, length, stored, packed in _PLACE.iter_unpack(data[at:])
    ]
    return manifest, _group(places, counts)


def parse_recipe_names(data: bytes) -> tuple[Manifest, list[list[bytes]]]:
    """The manifest and the names of chunks only: ten times faster than `parse_recipe`."""
    manifest, counts, at = _split_recipe(data)
    names = [data[begin : begin + DIGEST_BYTES] for begin in range(at, len(data), _PLACE.size)]
    return manifest, _group(names, counts)


def _split_recipe(data: bytes) -> tuple[Manifest, list[int], int]:
    first, second = _HEAD.unpack_from(data)
    at = _HEAD.size + first
    return parse_manifest(data[_HEAD.size : at]), json.loads(data[at : at + second]), at + second


def _group(items: list[T], counts: list[int]) -> list[list[T]]:
    wholes, begin = [], 0
    for count in counts:
        wholes.append(items[begin : begin + count])
        begin += count
    return wholes
