"""Drafts as kernels write them. A kernel may be hostile, so each part is checked, on a copy that it cannot change."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from quire.core.model import Loss, RunId
from quire.core.ports.snapshots import Written
from quire.snapshot_format import chunks
from quire.snapshot_format.chunks import BadSnapshot, Entry, Manifest
from quire.stores.snapshots.packs import ChunkRow, PackWriter, decompress, read_exactly

MAX_MANIFEST_BYTES = 16 << 20  # reading one blocks all other threads
MAX_CHUNKS = 1 << 20  # in a draft
MAX_REFERENCES = 1 << 22  # to chunks, in the nodes of a snapshot
_MAX_GROUP_BYTES = 4 << 20
_ENTRY_BYTES = len(chunks.dump_entries([Entry(bytes(chunks.DIGEST_BYTES), 1, 1, False)]))


@dataclass(frozen=True, kw_only=True)
class ManifestInfo:
    """The part of a manifest that is for people."""

    variables: dict[str, str]
    functions: tuple[dict[str, str], ...]
    lost: tuple[Loss, ...]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class ParsedDraft:
    manifest_bytes: bytes
    manifest: Manifest
    info: ManifestInfo
    entries: Sequence[Entry]


@dataclass(frozen=True, kw_only=True)
class ChunkGroup:
    """Neighbouring chunks in a draft, which are copied together."""

    offset: int
    length: int
    entries: list[Entry]


def parse_draft(file: int, written: Written) -> ParsedDraft:
    """Raises BadSnapshot."""
    parts = (written.chunks, written.entries, written.manifest)
    if min(parts) < 0 or sum(parts) > os.fstat(file).st_size:
        raise BadSnapshot("its file is shorter than it should be")
    if written.manifest > MAX_MANIFEST_BYTES or written.entries > MAX_CHUNKS * _ENTRY_BYTES:
        raise BadSnapshot("its list of parts is too large")
    manifest_bytes = read_exactly(file, written.manifest, written.chunks + written.entries)
    manifest = chunks.parse_manifest(manifest_bytes)
    entries = chunks.parse_entries(read_exactly(file, written.entries, written.chunks))
    if sum(entry.stored for entry in entries) != written.chunks:
        raise BadSnapshot("its chunks do not add up")
    info = parse_info(manifest.about)
    return ParsedDraft(manifest_bytes=manifest_bytes, manifest=manifest, info=info, entries=entries)


def group_new_chunks(entries: Sequence[Entry], known: dict[bytes, ChunkRow]) -> Iterator[ChunkGroup]:
    """Yield the chunks that are to be copied: each once, and none that is known."""
    seen: set[bytes] = set()
    group: list[Entry] = []
    begin = at = 0
    for entry in entries:
        is_new = entry.name not in known and entry.name not in seen
        if group and (not is_new or at - begin >= _MAX_GROUP_BYTES):
            yield ChunkGroup(offset=begin, length=at - begin, entries=group)
            group = []
        if is_new:
            if not group:
                begin = at
            group.append(entry)
            seen.add(entry.name)
        at += entry.stored
    if group:
        yield ChunkGroup(offset=begin, length=at - begin, entries=group)


def copy_group(file: int, group: ChunkGroup, pack: PackWriter) -> list[ChunkRow]:
    """Append chunks to a pack. Raises BadSnapshot if the content of one does not match its name."""
    data = read_exactly(file, group.length, group.offset)
    view, at, rows = memoryview(data), 0, []
    for entry in group.entries:
        part: bytes | memoryview = view[at : at + entry.stored]
        content = decompress(part, entry.length) if entry.compressed else part
        if len(content) != entry.length or chunks.chunk_name(content) != entry.name:
            raise BadSnapshot("a chunk of it is not what its name says")
        rows.append(ChunkRow(entry.name, pack.id, pack.end + at, entry.length, entry.stored, int(entry.compressed)))
        at += entry.stored
    pack.append(data)
    return rows


def parse_info(info: dict[str, Any]) -> ManifestInfo:
    """Raises BadSnapshot."""
    seconds = info.get("seconds", 0.0)
    if type(seconds) not in (int, float) or not 0 <= seconds < 1e9:
        raise BadSnapshot("its time cannot be read")
    return ManifestInfo(
        variables={_text(name, 200): _text(kind, 200) for name, kind in _first_items(info, "variables", dict, 2000)},
        functions=tuple(_parse_function(function) for function in _first_items(info, "functions", list, 500)),
        lost=tuple(_parse_loss(loss) for loss in _first_items(info, "lost", list, 100)),
        seconds=float(seconds),
    )


def _first_items(info: dict[str, Any], key: str, kind: type[Any], limit: int) -> list[Any]:
    value = info.get(key, kind())
    if type(value) is not kind:
        raise BadSnapshot(f"its {key} cannot be read")
    return list(value.items() if isinstance(value, dict) else value)[:limit]


def _parse_function(function: Any) -> dict[str, str]:
    if type(function) is not dict:
        raise BadSnapshot("its functions cannot be read")
    limits = {"name": 200, "signature": 1000, "docstring": 5000, "source": 20_000}
    return {key: _text(function.get(key, ""), limit) for key, limit in limits.items()}


def _parse_loss(loss: Any) -> Loss:
    if type(loss) is not dict:
        raise BadSnapshot("what it lost cannot be read")
    name, what, why = (_text(loss.get(key, ""), 300) for key in ("name", "what", "why"))
    run = loss.get("run")
    return Loss(name=name, what=what, why=why, run=None if run is None else RunId(_text(run, 300)))


def _text(value: Any, limit: int) -> str:
    """Return the first characters, with `?` for lone surrogates, which cannot be encoded later."""
    if type(value) is not str:
        raise BadSnapshot("its manifest has a value that is not text")
    return value[:limit].encode("utf-8", "replace").decode()
