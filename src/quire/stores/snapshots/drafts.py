"""A draft as a kernel left it: everything in it is checked, once, on bytes of our own. The kernel may be hostile."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from quire.core.model import Loss, RunId
from quire.core.ports.snapshots import Written
from quire.snapshot_format import chunks
from quire.snapshot_format.chunks import BadSnapshot, Entry, Manifest
from quire.stores.snapshots.packs import Row, Tail, read_exactly, unpacked

MANIFEST = 16 << 20  # bytes of a manifest at the most: reading one keeps everything else waiting
ENTRIES = 1 << 20  # chunks in a draft at the most
PLACES = 1 << 22  # chunks that the wholes of a snapshot list at the most
_PIECE = 4 << 20  # bytes copied at once
_ENTRY = len(chunks.dump_entries([Entry(bytes(chunks.DIGEST_BYTES), 1, 1, False)]))


@dataclass(frozen=True, kw_only=True)
class About:
    """What a manifest says for people."""

    variables: dict[str, str]
    functions: tuple[dict[str, str], ...]
    lost: tuple[Loss, ...]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Drafted:
    said: bytes  # the manifest as it was written
    manifest: Manifest
    about: About
    entries: Sequence[Entry]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Chunks that lie side by side in a draft."""

    offset: int
    length: int
    entries: list[Entry]


def read(file: int, written: Written) -> Drafted:
    """What a draft says of itself; raises BadSnapshot."""
    parts = (written.chunks, written.entries, written.manifest)
    if min(parts) < 0 or sum(parts) > os.fstat(file).st_size:
        raise BadSnapshot("its file is shorter than it should be")
    if written.manifest > MANIFEST or written.entries > ENTRIES * _ENTRY:
        raise BadSnapshot("its list of parts is too large")
    said = read_exactly(file, written.manifest, written.chunks + written.entries)
    manifest = chunks.parse_manifest(said)
    entries = chunks.parse_entries(read_exactly(file, written.entries, written.chunks))
    if sum(each.stored for each in entries) != written.chunks:
        raise BadSnapshot("its chunks do not add up")
    return Drafted(said=said, manifest=manifest, about=about(manifest.about), entries=entries)


def pieces(entries: Sequence[Entry], known: dict[bytes, Row]) -> Iterator[Piece]:
    """What is to be copied: each chunk once, and none that is known."""
    seen: set[bytes] = set()
    run: list[Entry] = []
    begin = at = 0
    for entry in entries:
        wanted = entry.name not in known and entry.name not in seen
        if run and (not wanted or at - begin >= _PIECE):
            yield Piece(offset=begin, length=at - begin, entries=run)
            run = []
        if wanted:
            if not run:
                begin = at
            run.append(entry)
            seen.add(entry.name)
        at += entry.stored
    if run:
        yield Piece(offset=begin, length=at - begin, entries=run)


def copy(file: int, piece: Piece, tail: Tail) -> list[Row]:
    """Into the pack, if every chunk is what its name says; raises BadSnapshot."""
    data = read_exactly(file, piece.length, piece.offset)
    view, at, rows = memoryview(data), 0, []
    for entry in piece.entries:
        part: bytes | memoryview = view[at : at + entry.stored]
        content = unpacked(part, entry.length) if entry.compressed else part
        if len(content) != entry.length or chunks.chunk_name(content) != entry.name:
            raise BadSnapshot("a chunk of it is not what its name says")
        rows.append(Row(entry.name, tail.id, tail.end + at, entry.length, entry.stored, int(entry.compressed)))
        at += entry.stored
    tail.append(data)
    return rows


def about(said: dict[str, Any]) -> About:
    seconds = said.get("seconds", 0.0)
    if type(seconds) not in (int, float) or not 0 <= seconds < 1e9:
        raise BadSnapshot("it says no time")
    return About(
        variables={_text(name, 200): _text(kind, 200) for name, kind in _some(said, "variables", dict, 2000)},
        functions=tuple(_function(each) for each in _some(said, "functions", list, 500)),
        lost=tuple(_loss(each) for each in _some(said, "lost", list, 100)),
        seconds=float(seconds),
    )


def _some(said: dict[str, Any], key: str, kind: type[Any], most: int) -> list[Any]:
    value = said.get(key, kind())
    if type(value) is not kind:
        raise BadSnapshot(f"its {key} cannot be read")
    return list(value.items() if isinstance(value, dict) else value)[:most]


def _function(said: Any) -> dict[str, str]:
    if type(said) is not dict:
        raise BadSnapshot("its functions cannot be read")
    most = {"name": 200, "signature": 1000, "docstring": 5000, "source": 20_000}
    return {key: _text(said.get(key, ""), length) for key, length in most.items()}


def _loss(said: Any) -> Loss:
    if type(said) is not dict:
        raise BadSnapshot("what it lost cannot be read")
    name, what, why = (_text(said.get(key, ""), 300) for key in ("name", "what", "why"))
    run = said.get("run")
    return Loss(name=name, what=what, why=why, run=None if run is None else RunId(_text(run, 300)))


def _text(value: Any, most: int) -> str:
    """Half a character would be refused by whoever gets it next."""
    if type(value) is not str:
        raise BadSnapshot("its manifest has something else where text should be")
    return value[:most].encode("utf-8", "replace").decode()
