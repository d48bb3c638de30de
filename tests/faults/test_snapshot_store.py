"""Snapshots on a disk that is damaged or full, from a kernel that lies, by a server that is killed: what was kept stays
whole, and what is not whole is never kept."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from quire.core.errors import OperationFailed
from quire.core.model import Snapshot
from quire.core.ports.snapshots import Snapshots, Written
from quire.snapshot_format import chunks
from quire.snapshot_format.chunks import BadSnapshot, Whole
from quire.stores.snapshots.packs import decompress
from quire.stores.snapshots.signing import signature
from quire.stores.snapshots.store import FileSnapshots
from tests.support import snapshot_drafts
from tests.support.disks import with_mount
from tests.support.snapshot_drafts import BOOK, Writing, keep, load, noise, offer
from tests.support.waiting import DEADLINE

MIB = 1 << 20
SMALL = [b"first", noise(1, 300_000)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileSnapshots]:
    opened = FileSnapshots(tmp_path)
    yield opened
    await opened.close()


def pack_in(folder: Path) -> Path:
    (pack,) = (folder / "packs").iterdir()
    return pack


def change(folder: Path, query: str, *values: object) -> None:
    with sqlite3.connect(folder / "index.db") as database:
        assert database.execute(query, values).rowcount == 1


# A disk that is damaged


async def test_changed_byte_of_a_pack_is_noticed(store: FileSnapshots, tmp_path: Path) -> None:
    kept = await keep(store, SMALL)
    pack, choose = pack_in(tmp_path), random.Random(2)
    whole = pack.read_bytes()
    for _ in range(40):
        at = choose.randrange(len(whole))
        pack.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << choose.randrange(8)]) + whole[at + 1 :])
        with pytest.raises((OperationFailed, BadSnapshot)):  # by the store, or by the loader
            await load(store, kept)
    pack.write_bytes(whole)
    assert await load(store, kept) == SMALL


async def test_changed_byte_of_a_signed_manifest_is_noticed(store: FileSnapshots, tmp_path: Path) -> None:
    kept = await keep(store, SMALL)
    choose = random.Random(3)
    for column in ("manifest", "signature"):
        with sqlite3.connect(tmp_path / "index.db") as database:
            (whole,) = database.execute(f"SELECT {column} FROM snapshots").fetchone()
        for at in choose.sample(range(len(whole)), min(30, len(whole))):
            changed = whole[:at] + bytes([whole[at] ^ 1 << choose.randrange(8)]) + whole[at + 1 :]
            change(tmp_path, f"UPDATE snapshots SET {column} = ?", changed)
            with pytest.raises(
                OperationFailed, match=rf"{kept.id} (is not signed by this|cannot be loaded: its manifest)"
            ):
                await store.open_recipe(kept)
        change(tmp_path, f"UPDATE snapshots SET {column} = ?", whole)
    assert await load(store, kept) == SMALL


@pytest.mark.parametrize("column", ["id", "notebook", "run"])
async def test_snapshot_moved_to_another_notebook_is_not_loaded(
    store: FileSnapshots, tmp_path: Path, column: str
) -> None:
    kept = await keep(store, SMALL, run="r1")
    change(tmp_path, f"UPDATE snapshots SET {column} = 'another'")
    given = replace(kept, id="another") if column == "id" else kept  # type: ignore[arg-type]
    with pytest.raises(OperationFailed, match=r"altered, or copied from elsewhere\. It was not loaded"):
        await store.open_recipe(given)


async def test_snapshot_with_a_foreign_signature_is_not_loaded(store: FileSnapshots, tmp_path: Path) -> None:
    kept = await keep(store, SMALL)
    (tmp_path / "key").unlink()
    other = FileSnapshots(tmp_path)
    with pytest.raises(OperationFailed, match="is not signed by this data directory"):
        await other.open_recipe(kept)
    draft = await other.begin(BOOK, kept)
    assert draft.base == -1
    assert await load(other, await keep(other, SMALL)) == SMALL
    await other.close()


def test_damaged_key_is_reported(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(OperationFailed, match="key of the snapshots is damaged"):
        FileSnapshots(tmp_path)


def remove(pack: Path) -> None:
    pack.unlink()


def cut(pack: Path) -> None:
    os.truncate(pack, pack.stat().st_size - 1)


def empty(pack: Path) -> None:
    os.truncate(pack, 0)


@pytest.mark.parametrize("damage", [remove, cut, empty])
async def test_incomplete_pack_is_reported_and_is_no_base(
    store: FileSnapshots, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    kept = await keep(store, SMALL)
    warm = await store.begin(BOOK, kept)
    assert warm.base >= 0
    damage(pack_in(tmp_path))
    with pytest.raises(OperationFailed, match=rf"{kept.id} is damaged: \d+ of its chunks are missing"):
        await store.open_recipe(kept)
    draft = await store.begin(BOOK, kept)
    assert draft.base == -1
    again = await keep(store, SMALL, base=kept)
    assert await load(store, again) == SMALL
    assert await load(store, kept) == SMALL  # its chunks are the same
    await store.sweep()
    assert await load(store, again) == SMALL


async def test_chunks_cut_off_a_pack_stay_missing_after_new_writes(store: FileSnapshots, tmp_path: Path) -> None:
    kept = await keep(store, SMALL)
    cut(pack_in(tmp_path))
    other = await keep(store, [noise(50, 100_000)])
    with pytest.raises(OperationFailed, match="chunks are missing"):
        await store.open_recipe(kept)
    assert await load(store, other) == [noise(50, 100_000)]


async def test_leftovers_of_a_crash_are_overwritten_or_swept(store: FileSnapshots, tmp_path: Path) -> None:
    first = await keep(store, SMALL)
    with pack_in(tmp_path).open("ab") as pack:
        pack.write(noise(51, 50_000))  # appended and never written down
    second = await keep(store, [noise(52, 10_000)])
    assert pack_in(tmp_path).stat().st_size == first.added + second.added
    (tmp_path / "packs" / "stray.pack").write_bytes(bytes(7000))
    assert (await store.sweep()).freed == 7000
    assert pack_in(tmp_path).stat().st_size == first.added + second.added
    assert await load(store, second) == [noise(52, 10_000)]


async def test_missing_pack_is_named(store: FileSnapshots, tmp_path: Path) -> None:
    kept = await keep(store, SMALL)
    pack_in(tmp_path).unlink()
    with pytest.raises(OperationFailed, match=r"\(the pack \w+\.pack is gone\)\. It was not loaded"):
        await store.open_recipe(kept)


async def test_sweep_of_a_damaged_store_keeps_complete_snapshots(store: FileSnapshots, tmp_path: Path) -> None:
    lost = await keep(store, [noise(5, MIB)])
    first = pack_in(tmp_path)
    first.unlink()
    kept = await keep(store, [noise(6, MIB)])
    gone = await keep(store, [noise(7, 3 * MIB)])
    change(tmp_path, "UPDATE snapshots SET manifest = x'00' WHERE id = ?", gone.id)
    swept = await store.sweep()
    assert swept.freed >= 3 * MIB and await load(store, kept) == [noise(6, MIB)]
    for each in (lost, gone):
        with pytest.raises(OperationFailed):
            await store.open_recipe(each)


async def test_sweep_drops_a_damaged_chunk_and_it_is_stored_again(store: FileSnapshots, tmp_path: Path) -> None:
    kept = await keep(store, [noise(8, MIB)])
    gone = await keep(store, [noise(9, 3 * MIB)])
    assert (await store.begin(BOOK, kept)).base >= 0  # and remembered
    with pack_in(tmp_path).open("r+b") as pack:
        pack.seek(100)
        pack.write(b"rotten")
    await store.delete([gone.id])
    assert (await store.sweep()).freed >= 3 * MIB
    with pytest.raises(OperationFailed, match="1 of its chunks are missing"):
        await store.open_recipe(kept)
    assert (await store.begin(BOOK, kept)).base == -1
    assert await load(store, await keep(store, [noise(8, MIB)], base=kept)) == [noise(8, MIB)]
    assert await load(store, kept) == [noise(8, MIB)]


async def test_newer_format_asks_for_an_upgrade_and_is_not_swept(store: FileSnapshots, tmp_path: Path) -> None:
    kept = await keep(store, SMALL)
    newer = json.dumps({"format": chunks.FORMAT + 1, "whatever": []}).encode()
    signed = signature((tmp_path / "key").read_bytes(), kept.id, BOOK, None, newer)
    change(
        tmp_path,
        "UPDATE snapshots SET manifest = ?, signature = ?, format = ?",
        *(zlib.compress(newer), signed, chunks.FORMAT + 1),
    )
    with pytest.raises(OperationFailed, match=r"newer Quire .*upgrade"):
        await store.open_recipe(kept)
    with pytest.raises(OperationFailed, match=r"newer Quire .* Upgrade"):
        await store.sweep()
    assert (await store.begin(BOOK, kept)).base == -1


def test_index_of_a_newer_quire_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "index.db") as database:
        database.execute("PRAGMA user_version = 999")
    with pytest.raises(OperationFailed, match="newer Quire"):
        FileSnapshots(tmp_path)


# A kernel that lies


def wrong_name(writing: Writing) -> None:
    writing.entries[0] = replace(writing.entries[0], name=bytes(32))


def swapped(writing: Writing) -> None:
    writing.data[0], writing.data[1] = writing.data[1], writing.data[0]


def other_bytes(writing: Writing) -> None:
    writing.data[-2] = writing.data[-2][:-1] + bytes([writing.data[-2][-1] ^ 1])


def longer_than_it_is(writing: Writing) -> None:
    """In the list and in the manifest alike."""
    at = next(at for at, entry in enumerate(writing.entries) if entry.length == 1000)
    writing.entries[at] = replace(writing.entries[at], length=2000)
    writing.wholes[0] = replace(writing.wholes[0], length=2000)


def wrong_length(writing: Writing) -> None:
    writing.entries[0] = replace(writing.entries[0], length=writing.entries[0].length - 1)


def no_length(writing: Writing) -> None:
    writing.entries[0] = replace(writing.entries[0], length=0)


def huge_length(writing: Writing) -> None:
    writing.entries[0] = replace(writing.entries[0], length=2**32 - 1)


def huge_stored(writing: Writing) -> None:
    writing.entries[0] = replace(writing.entries[0], stored=chunks.MAX_CHUNK_BYTES)


def bomb(writing: Writing) -> None:
    """64 MB of nothing in less than a chunk's bytes."""
    packed = zlib.compress(bytes(64 * MIB), 9)[: chunks.MAX_CHUNK_BYTES]
    writing.raw(chunks.chunk_name(bytes(64 * MIB)), chunks.MAX_CHUNK_BYTES, packed, True)


def cut_compressed(writing: Writing) -> None:
    content = b"abc" * 1000
    writing.raw(chunks.chunk_name(content), len(content), zlib.compress(content)[:-3], True)


def more_behind_compressed(writing: Writing) -> None:
    content = b"abc" * 1000
    writing.raw(chunks.chunk_name(content), len(content), zlib.compress(content) + b"more", True)


def not_compressed(writing: Writing) -> None:
    writing.raw(bytes(32), 100, b"x" * 100, True)


def missing_node(writing: Writing) -> None:
    writing.wholes[0] = Whole(writing.wholes[0].length, (bytes(32),))


def missing_chunk(writing: Writing) -> None:
    node = writing.chunk(bytes(32) * 3)
    writing.wholes.append(Whole(30, (node,)))


def malformed_node(writing: Writing) -> None:
    writing.wholes.append(Whole(3, (writing.chunk(b"not a list of names"),)))


def node_of_too_many(writing: Writing) -> None:
    leaf = writing.chunk(b"x")
    writing.wholes.append(Whole(chunks.NODE_NAMES + 1, (writing.chunk(leaf * (chunks.NODE_NAMES + 1)),)))


def node_of_nodes(writing: Writing) -> None:
    """Would be endless if nodes were followed."""
    node = writing.wholes[1].nodes[0]
    writing.wholes.append(Whole(writing.wholes[1].length, (writing.chunk(node),)))


def whole_too_long(writing: Writing) -> None:
    writing.wholes[1] = replace(writing.wholes[1], length=writing.wholes[1].length + 1)


def whole_too_short(writing: Writing) -> None:
    writing.wholes[1] = replace(writing.wholes[1], length=0)


def too_many_parts(writing: Writing) -> None:
    """A list that names another's thousand chunks a thousand times, and that a thousand times."""
    leaf = writing.chunk(b"x")
    node = writing.chunk(leaf * chunks.NODE_NAMES)
    writing.wholes.append(Whole(chunks.NODE_NAMES * 5000, (node,) * 5000))


def not_text(writing: Writing) -> None:
    writing.about["variables"] = {"x": 1}


def functions_of_nothing(writing: Writing) -> None:
    writing.about["functions"] = [None]


def lost_of_numbers(writing: Writing) -> None:
    writing.about["lost"] = [{"name": 3}]


def endless(writing: Writing) -> None:
    writing.about["seconds"] = float("inf")


def no_number(writing: Writing) -> None:
    writing.about["seconds"] = float("nan")


def newer(writing: Writing) -> None:
    writing.manifest = json.dumps({"format": 2}).encode()


def nonsense(writing: Writing) -> None:
    writing.manifest = b"\xff\xfe nonsense"


def deep(writing: Writing) -> None:
    writing.manifest = b"[" * 100_000


LIES: list[Callable[[Writing], None]] = [
    *(wrong_name, swapped, other_bytes, longer_than_it_is, wrong_length, no_length, huge_length, huge_stored),
    *(bomb, cut_compressed, more_behind_compressed, not_compressed),
    *(missing_node, missing_chunk, malformed_node, node_of_too_many, node_of_nodes),
    *(whole_too_long, whole_too_short, too_many_parts),
    *(not_text, functions_of_nothing, lost_of_numbers, endless, no_number, newer, nonsense, deep),
]


def test_decompression_bomb_is_refused() -> None:
    packed = zlib.compress(bytes(32 * MIB), 9)
    assert len(packed) < chunks.MAX_CHUNK_BYTES
    tracemalloc.start()
    try:
        with pytest.raises(BadSnapshot, match="another length"):
            decompress(packed, chunks.MAX_CHUNK_BYTES)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


async def unchanged(store: Snapshots, folder: Path, kept: Snapshot, size: int) -> None:
    assert await store.list_for_notebook(BOOK) == [kept]
    assert await load(store, kept) == SMALL
    assert pack_in(folder).stat().st_size == size


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
async def test_inconsistent_draft_is_refused_completely(
    store: FileSnapshots, tmp_path: Path, lie: Callable[[Writing], None]
) -> None:
    kept = await keep(store, SMALL)
    size = pack_in(tmp_path).stat().st_size
    writing = snapshot_drafts.of([noise(20, 1000), noise(21, 200_000)])
    lie(writing)
    with pytest.raises(OperationFailed, match=r"^The snapshot was not kept: .*\. The last snapshot stands\.$"):
        await offer(store, writing)
    await unchanged(store, tmp_path, kept, size)
    assert (await store.sweep(dry=True)).chunks == 0


@pytest.mark.parametrize(
    "written",
    [
        Written(chunks=-1, entries=41, manifest=100),
        Written(chunks=0, entries=-41, manifest=100),
        Written(chunks=0, entries=0, manifest=0),
        Written(chunks=0, entries=0, manifest=-1),
        Written(chunks=2**62, entries=41, manifest=100),
        Written(chunks=0, entries=41 * 2**50, manifest=100),
        Written(chunks=0, entries=0, manifest=2**40),
        Written(chunks=100, entries=40, manifest=10),
    ],
    ids=str,
)
async def test_wrong_sizes_of_a_draft_are_refused(store: FileSnapshots, tmp_path: Path, written: Written) -> None:
    kept = await keep(store, SMALL)
    size = pack_in(tmp_path).stat().st_size
    with pytest.raises(OperationFailed, match="The snapshot was not kept"):
        await offer(store, snapshot_drafts.of([noise(20, 1000)]), written=written)
    await unchanged(store, tmp_path, kept, size)


async def test_changed_byte_of_a_draft_is_refused_or_harmless(store: FileSnapshots, tmp_path: Path) -> None:
    kept = await keep(store, SMALL)
    wholes = [noise(30, 500), b"z" * 100_000]
    file = os.memfd_create("a draft")
    sizes = snapshot_drafts.of(wholes, compress=True).write(file)
    whole, choose, refused = os.pread(file, 1 << 20, 0), random.Random(4), 0
    os.close(file)
    for _ in range(300):
        spoiled = bytearray(whole)
        for _ in range(choose.choice((1, 1, 1, 5))):
            spoiled[choose.randrange(len(whole))] = choose.randrange(256)
        draft = await store.begin(BOOK, None)
        os.pwrite(draft.file, spoiled, 0)
        try:
            taken = await store.publish(draft, sizes, run=None, name="")
        except OperationFailed as error:
            assert "The last snapshot stands" in str(error)
            refused += 1
        else:  # a letter of a type's name, or the like
            assert await load(store, taken) == wholes
            await store.delete([taken.id])
            await store.sweep()
        finally:
            store.abandon(draft)
    assert refused > 200 and await store.list_for_notebook(BOOK) == [kept] and await load(store, kept) == SMALL


async def test_manifest_texts_for_people_are_limited_and_encodable(store: FileSnapshots) -> None:
    writing = snapshot_drafts.of([b"x"])
    writing.about = {
        "variables": {f"v{n}\ud800": "t" * 500 for n in range(3000)},
        "functions": [{"name": "f", "source": "s" * 21_000}] * 600,
        "lost": [{"name": "n" * 1000, "what": "w", "why": "y" * 1000, "run": None}] * 200,
        "seconds": 1,
    }
    kept = await offer(store, writing)
    assert [kept] == await store.list_for_notebook(BOOK)
    assert len(kept.variables) == 2000 and kept.variables["v0?"] == "t" * 200
    assert len(kept.functions) == 500 and len(kept.functions[0]["source"]) == 20_000
    assert len(kept.lost) == 100 and len(kept.lost[0].name) == len(kept.lost[0].why) == 300


async def test_draft_cut_during_reading_is_refused(store: FileSnapshots) -> None:
    """The kernel has the file still."""
    draft = await store.begin(BOOK, None)
    written = snapshot_drafts.of([noise(40, MIB)]).write(draft.file)
    total = os.fstat(draft.file).st_size
    os.ftruncate(draft.file, written.chunks // 2)
    os.ftruncate(draft.file, total)  # zeros where the list and the manifest were
    with pytest.raises(OperationFailed, match="The snapshot was not kept"):
        await store.publish(draft, written, run=None, name="")
    store.abandon(draft)


# A server that is killed

CHILD = """
import asyncio, sys
from pathlib import Path
from quire.stores.snapshots.store import FileSnapshots
from tests.support.snapshot_drafts import keep, noise

async def main(folder, seed):
    store = FileSnapshots(Path(folder), pack_bytes=1 << 20)
    old = (await store.list_for_notebook("book"))[-1:]
    print("ready", flush=True)
    while True:
        seed += 1
        wholes = [b"%d" % seed, noise(seed, 900_000), noise(0, 400_000)]
        kept = await keep(store, wholes, base=old[0] if old else None, run=str(seed), name="n" if seed % 3 else "")
        print(seed, kept.id, flush=True)
        if seed % 4 == 0:
            await store.delete([each.id for each in (await store.list_for_notebook("book"))[:-3]])
            await store.sweep()
        old = [kept]

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def test_kill_at_any_moment_keeps_published_snapshots(tmp_path: Path) -> None:
    choose, seed = random.Random(), 0
    for _ in range(12):
        command = [sys.executable, "-c", CHILD, str(tmp_path), str(seed)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        if choose.random() < 0.5:
            child.stdout.readline()
        time.sleep(choose.random() * 0.15)  # any moment will do
        child.kill()
        said = [line.split() for line in child.stdout.read().splitlines() if line]
        child.wait(DEADLINE)
        child.stdout.close()
        store = FileSnapshots(tmp_path, pack_bytes=MIB)
        there = await store.list_for_notebook(BOOK)
        for kept in there:
            number = int(kept.run or 0)
            assert await load(store, kept) == [b"%d" % number, noise(number, 900_000), noise(0, 400_000)]
        if said:
            assert int(there[-1].run or 0) >= int(said[-1][0])  # what was said to be published is there
        seed = 1000 + max([seed, *(int(kept.run or 0) for kept in there)])
        wholes = [b"%d" % seed, noise(seed, 900_000), noise(0, 400_000)]
        new = await keep(store, wholes, base=there[-1] if there else None, run=str(seed))
        assert await load(store, new) == wholes
        await store.close()
    store = FileSnapshots(tmp_path, pack_bytes=MIB)
    await store.delete([each.id for each in await store.list_for_notebook(BOOK)])
    assert (await store.sweep()).kept == 0 and list((tmp_path / "packs").iterdir()) == []
    assert {each.name for each in tmp_path.iterdir()} >= {"index.db", "key", "packs"}
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("tmp")] == []
    await store.close()


STEPS = """
import asyncio, os, signal, sqlite3, sys
from pathlib import Path
from quire.stores.snapshots.store import FileSnapshots
from tests.support.snapshot_drafts import keep, load, noise

SAME = noise(0, 200_000)

def wholes(run):
    return [b"%d" % run, noise(run, 150_000), SAME]

def die_at(step):
    left = step
    def tick():
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    def ticking(work):
        def before(*given, **more):
            tick()
            return work(*given, **more)
        return before
    for name in ("pwrite", "fsync", "ftruncate", "link", "unlink"):
        setattr(os, name, ticking(getattr(os, name)))
    connect = sqlite3.connect
    def traced(*given, **more):
        database = connect(*given, **more)
        database.set_trace_callback(lambda said: said in ("BEGIN IMMEDIATE", "COMMIT") and tick())
        return database
    sqlite3.connect = traced

async def change(folder, run):
    store = FileSnapshots(folder, pack_bytes=300_000)
    old = await store.list_for_notebook("book")
    new = await keep(store, wholes(run), base=old[-1] if old else None, run=str(run))
    os.write(said, b"!")
    await store.delete([each.id for each in (await store.list_for_notebook("book"))[:-2]])
    await store.sweep()
    await store.close()

async def check(folder, run, published):
    store = FileSnapshots(folder, pack_bytes=300_000)
    there = await store.list_for_notebook("book")
    for each in there:
        assert await load(store, each) == wholes(int(each.run)), (run, each)
    assert [each.run for each in there if int(each.run) < run][-1:] == ([str(run - 1)] if run else [])
    if published:
        assert there[-1].run == str(run)
    elif not there or there[-1].run != str(run):
        await keep(store, wholes(run), base=there[-1] if there else None, run=str(run))
    await store.close()

def forked(work):
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

folder = Path(sys.argv[1])
run, code = 0, -signal.SIGKILL
while code == -signal.SIGKILL:
    told, said = os.pipe()
    code = forked(lambda: (die_at(run), asyncio.run(change(folder, run))))
    os.close(said)
    published = os.read(told, 1) == b"!"
    os.close(told)
    assert forked(lambda: asyncio.run(check(folder, run, published))) == 0, run
    run += 1
assert code == 0
print(run)
"""


def test_kill_before_each_step_loses_nothing(tmp_path: Path) -> None:
    """A step is a call that changes a file, or the beginning or end of a transaction."""
    done = subprocess.run(
        [sys.executable, "-c", STEPS, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


# A disk that is full

FULL = """
import asyncio, os, sys
from pathlib import Path
from quire.core.errors import OperationFailed
from quire.stores.snapshots.store import FileSnapshots
from tests.support.snapshot_drafts import BOOK, Writing, keep, known_to, load, noise, of
from quire.stores.snapshots import packs

packs.Packs.check_space = lambda self, size: None  # the disk itself says when it is full


async def main(folder):
    store = FileSnapshots(folder)
    first = await keep(store, [noise(1, 300_000)])
    fill = open(folder / "fill", "wb", buffering=0)
    draft = await store.begin(BOOK, first)
    written = of([noise(2, 1_000_000)], known_to(draft.base)).write(draft.file)
    try:
        while True:
            fill.write(bytes(4096))
    except OSError:
        pass
    for room in (0, 300_000):  # no space for anything; some, but not enough
        os.truncate(folder / "fill", os.path.getsize(folder / "fill") - room)
        before = sum(each.stat().st_size for each in (folder / "packs").iterdir())
        try:
            await store.publish(draft, written, run=None, name="")
        except OperationFailed as error:
            print(error)
        assert sum(each.stat().st_size for each in (folder / "packs").iterdir()) == before
        assert await store.list_for_notebook(BOOK) == [first] and await load(store, first) == [noise(1, 300_000)]
    os.truncate(folder / "fill", 0)
    second = await store.publish(draft, written, run=None, name="")
    store.abandon(draft)
    assert await load(store, second) == [noise(2, 1_000_000)]
    await store.delete([first.id, second.id])
    print((await store.sweep()).kept)
    await store.close()

asyncio.run(main(Path(sys.argv[1])))
"""


def test_full_disk_stores_nothing_until_there_is_space(namespaces: None, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    command = with_mount(
        'mount -t tmpfs -o size=4m,mode=700 quire "$0"', folder, sys.executable, "-c", FULL, str(folder)
    )
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, cwd=Path(__file__).parents[2], check=False
    )
    assert done.returncode == 0, done.stderr
    *said, kept = done.stdout.splitlines()
    assert len(said) == 2 and kept == "0"
    for line in said:
        assert "No space left" in line and "The last snapshot stands. Free some space" in line


NARROW = """
import asyncio, sys
from pathlib import Path
from quire.core.errors import OperationFailed
from quire.stores.snapshots.store import FileSnapshots
from tests.support.snapshot_drafts import BOOK, keep, load, noise

async def main(folder):
    store = FileSnapshots(folder)
    (folder / "fill").write_bytes(bytes(200_000))
    kept = []
    for seed in range(500):
        try:
            kept.append(await keep(store, [noise(seed, 5_000)]))
        except (OperationFailed, OSError) as error:
            print(error)
            break
    assert await store.list_for_notebook(BOOK) == kept
    for seed, each in enumerate(kept):
        assert await load(store, each) == [noise(seed, 5_000)]
    print(len(kept))
    (folder / "fill").unlink()
    await store.delete([each.id for each in kept[1:]])
    await store.sweep()
    assert await load(store, kept[0]) == [noise(0, 5_000)]
    assert await load(store, await keep(store, [noise(1, 5_000)])) == [noise(1, 5_000)]

asyncio.run(main(Path(sys.argv[1])))
"""


def test_published_snapshots_stay_when_small_ones_fill_the_disk(namespaces: None, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    command = with_mount(
        'mount -t tmpfs -o size=1m,mode=700 quire "$0"', folder, sys.executable, "-c", NARROW, str(folder)
    )
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, cwd=Path(__file__).parents[2], check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said, kept = done.stdout.splitlines()
    assert "disk is nearly full" in said
    assert 5 < int(kept) < 500


async def test_moved_folder_loads(tmp_path: Path) -> None:
    store = FileSnapshots(tmp_path / "here")
    kept = await keep(store, SMALL)
    await store.close()
    (tmp_path / "here").rename(tmp_path / "there")
    store = FileSnapshots(tmp_path / "there")
    assert await load(store, kept) == SMALL
    await store.close()
