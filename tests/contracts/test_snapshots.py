"""What a store of snapshots promises, on the one there is."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from quire.core.errors import OperationFailed
from quire.core.model import Loss, NotebookId, RunId
from quire.core.ports.snapshots import Snapshots
from quire.snapshot_format import chunks
from quire.stores.snapshots.store import FileSnapshots
from tests.support import snapshot_drafts
from tests.support.snapshot_drafts import BOOK, keep, load, noise

OTHER = NotebookId("other")
MIB = 1 << 20


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Snapshots]:
    opened: Snapshots = FileSnapshots(tmp_path)
    yield opened
    await opened.close()


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "packs").iterdir())


@pytest.mark.parametrize(
    "wholes",
    [
        [b""],
        [b"x"],
        [noise(1, chunks.MAX_CHUNK_BYTES)],
        [noise(2, 100), b"", noise(3, 5 * chunks.MAX_CHUNK_BYTES + 1)],
        [b"a" * 3 * MIB, b"a" * 3 * MIB],
    ],
    ids=["nothing", "a byte", "a chunk", "several", "repeated"],
)
@pytest.mark.parametrize("compress", [False, True])
async def test_snapshot_is_read_back(store: Snapshots, wholes: list[bytes], compress: bool) -> None:
    snapshot = await keep(store, wholes, compress=compress)
    assert snapshot.size == sum(map(len, wholes))
    assert await load(store, snapshot) == wholes


async def test_whole_of_many_nodes_is_read_back(store: Snapshots) -> None:
    whole = noise(4, 2500)  # chunks of one byte: three nodes
    assert await load(store, await keep(store, [whole], size=1)) == [whole]


async def test_snapshots_are_listed_oldest_first(store: Snapshots) -> None:
    about = {
        "variables": {"x": "ndarray of 3 by 4", "y" * 300: "int"},
        "functions": [{"name": "f", "signature": "(a)", "docstring": "Does.", "source": "def f(a): ..."}],
        "lost": [{"name": "g", "what": "a generator", "why": "is suspended", "run": "r0"}],
        "seconds": 1.5,
    }
    draft = await store.begin(BOOK, None)
    writing = snapshot_drafts.of([b"abc"])
    writing.about = about
    first = await store.publish(draft, writing.write(draft.file), run=RunId("r1"), name="")
    store.abandon(draft)
    second = await keep(store, [b"abd"], run="r2", name="mine")
    await keep(store, [b"abe"], notebook=OTHER)
    assert await store.list_for_notebook(BOOK) == [first, second]
    assert (first.run, first.name, first.python, first.size, first.seconds) == ("r1", "", "3.11.2", 3, 1.5)
    assert first.variables == {"x": "ndarray of 3 by 4", "y" * 200: "int"}
    assert first.functions[0]["source"] == "def f(a): ..."
    assert first.lost == (Loss(name="g", what="a generator", why="is suspended", run=RunId("r0")),)
    assert (second.run, second.name) == ("r2", "mine") and second.id != first.id
    assert await store.list_for_notebook(NotebookId("unknown")) == []


async def test_only_changes_since_the_base_are_added(store: Snapshots, tmp_path: Path) -> None:
    old = noise(5, 20 * MIB)
    first = await keep(store, [b"small", old])
    before = on_disk(tmp_path)
    new = old[: 7 * MIB] + b"!" + old[7 * MIB + 1 :]
    second = await keep(store, [b"small", new], base=first)
    assert first.added == before and first.added >= 20 * MIB
    assert second.added == on_disk(tmp_path) - before
    chunk_and_node = chunks.MAX_CHUNK_BYTES + 320 * chunks.DIGEST_BYTES + 1000
    assert chunks.MAX_CHUNK_BYTES < second.added < chunk_and_node
    assert await load(store, first) == [b"small", old] and await load(store, second) == [b"small", new]


async def test_known_chunks_are_not_stored_again(store: Snapshots) -> None:
    data = [noise(6, MIB), noise(7, MIB)]
    await keep(store, data)
    again = await keep(store, data)
    assert again.added == 0 and await load(store, again) == data


async def test_deleting_a_snapshot_keeps_shared_chunks(store: Snapshots, tmp_path: Path) -> None:
    shared, alone = noise(8, 2 * MIB), noise(9, 3 * MIB)
    mine = await keep(store, [shared, alone])
    theirs = await keep(store, [shared], notebook=OTHER)
    assert theirs.added < 1000
    await store.delete([mine.id])
    await store.sweep()
    assert await load(store, theirs) == [shared]
    assert await store.list_for_notebook(BOOK) == [] and 2 * MIB <= on_disk(tmp_path) < 2 * MIB + 10_000


async def test_second_snapshot_of_a_name_replaces_the_first(store: Snapshots) -> None:
    await keep(store, [b"a"], name="best")
    plain = await keep(store, [b"b"])
    theirs = await keep(store, [b"c"], name="best", notebook=OTHER)
    newest = await keep(store, [b"d"], name="best")
    assert await store.list_for_notebook(BOOK) == [plain, newest] and await store.list_for_notebook(OTHER) == [theirs]
    assert await load(store, newest) == [b"d"]


async def test_sweep_frees_bytes_of_deleted_snapshots(store: Snapshots, tmp_path: Path) -> None:
    one, two = await keep(store, [noise(10, MIB)]), await keep(store, [noise(11, 3 * MIB)])
    await store.delete([two.id, two.id])
    assert await store.list_for_notebook(BOOK) == [one]
    with pytest.raises(OperationFailed, match="no longer there"):
        await store.open_recipe(two)
    before = on_disk(tmp_path)
    dry = await store.sweep(dry=True)
    assert on_disk(tmp_path) == before and (await store.sweep(dry=True)) == dry
    swept = await store.sweep()
    assert swept == dry and swept.chunks == 49  # 48 chunks and their node
    assert swept.freed == before - on_disk(tmp_path) == two.added and swept.kept == on_disk(tmp_path) == one.added
    assert await load(store, one) == [noise(10, MIB)]
    assert (await store.sweep()).chunks == 0


async def test_sweep_of_a_store_without_snapshots_deletes_all(store: Snapshots, tmp_path: Path) -> None:
    kept = [await keep(store, [noise(seed, MIB)]) for seed in range(3)]
    await store.delete([each.id for each in kept])
    swept = await store.sweep()
    assert swept.kept == on_disk(tmp_path) == 0 and swept.freed == sum(each.added for each in kept)
    assert await load(store, await keep(store, [noise(0, MIB)])) == [noise(0, MIB)]


async def test_full_pack_is_followed_by_another(tmp_path: Path) -> None:
    store = FileSnapshots(tmp_path, pack_bytes=MIB)
    kept = [await keep(store, [noise(seed, 700_000)]) for seed in range(8)]
    files = list((tmp_path / "packs").iterdir())
    assert len(files) == 4 and all(file.stat().st_size < 2 * MIB for file in files)
    await store.delete([each.id for each in kept[1::2] + kept[4:5]])
    swept = await store.sweep()
    assert swept.kept == on_disk(tmp_path)
    assert [await load(store, kept[at]) for at in (0, 2, 6)] == [[noise(at, 700_000)] for at in (0, 2, 6)]
    await store.close()


async def test_sweep_does_not_disturb_a_snapshot_that_is_loading(store: Snapshots) -> None:
    whole = noise(12, MIB)
    kept = await keep(store, [whole])
    gone = await keep(store, [noise(13, 4 * MIB)])
    recipes = [await store.open_recipe(kept), await store.open_recipe(gone)]
    await store.delete([gone.id])
    assert (await store.sweep()).freed
    assert [snapshot_drafts.read_back(each) for each in recipes] == [[whole], [noise(13, 4 * MIB)]]
    for recipe in recipes:
        for file in (recipe.file, *recipe.packs):
            os.close(file)


async def test_recipe_has_only_shared_chunks_of_other_notebooks(store: Snapshots) -> None:
    shared, secret = noise(20, 2 * MIB), noise(21, MIB)
    await keep(store, [shared, secret], notebook=OTHER)
    mine = await keep(store, [shared, noise(22, MIB)])
    recipe = await store.open_recipe(mine)
    try:
        assert snapshot_drafts.read_back(recipe) == [shared, noise(22, MIB)]
        held = b"".join(os.pread(pack, os.fstat(pack).st_size, 0) for pack in recipe.packs)
        assert shared[:4096] in held and secret[:4096] not in held
    finally:
        for file in (recipe.file, *recipe.packs):
            os.close(file)


async def test_publishing_during_a_sweep_loses_nothing(store: Snapshots) -> None:
    """Each names what the one before has, which is dropped and swept meanwhile."""
    shared = noise(14, 2 * MIB)
    kept = [await keep(store, [shared])]

    async def sweep() -> None:
        while len(kept) < 15:
            await store.sweep()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(sweep)
            for seed in range(14):
                new = await keep(store, [shared, noise(seed, 200_000)])
                await store.delete([kept[-1].id])
                kept.append(new)
    await store.sweep()
    assert await store.list_for_notebook(BOOK) == [kept[-1]]
    assert await load(store, kept[-1]) == [shared, noise(13, 200_000)]


async def test_swept_base_is_reported(store: Snapshots) -> None:
    base = await keep(store, [noise(15, MIB)])
    draft = await store.begin(BOOK, base)
    await store.delete([base.id])
    await store.sweep()
    written = snapshot_drafts.of([noise(15, MIB)], snapshot_drafts.known_to(draft.base)).write(draft.file)
    with pytest.raises(OperationFailed, match=r"is not there\. The last snapshot stands"):
        await store.publish(draft, written, run=None, name="")
    store.abandon(draft)
    assert await load(store, await keep(store, [noise(15, MIB)], base=base)) == [noise(15, MIB)]


async def test_concurrent_drafts_are_all_published(store: Snapshots, tmp_path: Path) -> None:
    kept = {}

    async def one(seed: int) -> None:
        kept[seed] = await keep(store, [noise(99, MIB), noise(seed, MIB)], notebook=NotebookId(f"book{seed % 3}"))

    async with anyio.create_task_group() as group:
        for seed in range(9):
            group.start_soon(one, seed)
    for seed, snapshot in kept.items():
        assert await load(store, snapshot) == [noise(99, MIB), noise(seed, MIB)]
    assert sum(each.added for each in kept.values()) == on_disk(tmp_path)


async def test_draft_can_be_abandoned_twice_and_leaves_nothing(store: Snapshots, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    draft = await store.begin(BOOK, None)
    snapshot_drafts.of([noise(16, MIB)]).write(draft.file)
    store.abandon(draft)
    other = await store.begin(BOOK, None)  # has the same number
    store.abandon(draft)
    os.fstat(other.file)
    store.abandon(other)
    assert len(os.listdir("/proc/self/fd")) == before
    assert on_disk(tmp_path) == 0 and {path.name for path in tmp_path.glob("tmp*")} == set()


async def test_no_descriptor_stays_open(store: Snapshots) -> None:
    first = await keep(store, [noise(17, MIB)])
    before = len(os.listdir("/proc/self/fd"))
    for seed in range(5):
        await load(store, await keep(store, [noise(seed, MIB)], base=first))
        await store.sweep()
        with pytest.raises(OperationFailed):
            await snapshot_drafts.offer(store, snapshot_drafts.Writing(wholes=[chunks.Whole(5, (bytes(32),))]))
    assert len(os.listdir("/proc/self/fd")) == before


async def test_two_stores_on_one_folder_share_snapshots(tmp_path: Path) -> None:
    one, two = FileSnapshots(tmp_path), FileSnapshots(tmp_path)
    first = await keep(one, [noise(18, MIB)])
    second = await keep(two, [noise(18, MIB), noise(19, MIB)], base=first)
    assert await one.list_for_notebook(BOOK) == await two.list_for_notebook(BOOK) == [first, second]
    assert second.added < MIB + 10_000
    assert await load(two, first) == [noise(18, MIB)]
    await two.delete([first.id])
    await two.sweep()
    assert await load(one, second) == [noise(18, MIB), noise(19, MIB)]
    await one.delete([second.id])
    assert (await one.sweep()).kept == 0
    third = await keep(two, [noise(18, MIB)])  # what two knew of is no longer there
    assert await load(one, third) == [noise(18, MIB)]
    await one.close()
    await two.close()


async def test_two_stores_write_one_notebook_while_both_sweep(tmp_path: Path) -> None:
    stores = [FileSnapshots(tmp_path), FileSnapshots(tmp_path)]
    kept = {}

    async def write(number: int) -> None:
        for seed in range(number, 16, 2):
            kept[seed] = await keep(stores[number], [noise(99, MIB), noise(seed, MIB)])
            if seed % 4 == number:
                await stores[number].delete([kept.pop(seed).id])
                await stores[number].sweep()

    async with anyio.create_task_group() as group:
        group.start_soon(write, 0)
        group.start_soon(write, 1)
    assert len(kept) == 8 and {each.id for each in await stores[0].list_for_notebook(BOOK)} == {
        each.id for each in kept.values()
    }
    for seed, snapshot in kept.items():
        assert await load(stores[seed % 2], snapshot) == [noise(99, MIB), noise(seed, MIB)]
    for store in stores:
        await store.close()


async def test_values_for_people_are_read_back(store: Snapshots) -> None:
    assert await store.load_values(await keep(store, [b"x"])) == {}
    for values, read in (({"x": [1, {"y": None}]}, {"x": [1, {"y": None}]}), ("nonsense", {})):
        writing = snapshot_drafts.of([b"x"])
        writing.about["values"] = values
        assert await store.load_values(await snapshot_drafts.offer(store, writing)) == read


async def test_copy_for_people_is_replaced_and_stays_in_its_folder(store: Snapshots, tmp_path: Path) -> None:
    hard = ["plain", "", "..", "../../up", "a/b", "a_b", "\x00", ".hidden", "x" * 300, "ü" * 200, "half\ud800"]
    paths = [Path(await store.write_copy(book, name, "old")) for book in hard for name in hard]
    assert len(set(paths)) == len(hard) ** 2
    assert all(path.resolve().is_relative_to(tmp_path / "saved") for path in paths)
    assert paths[0].parts[-2:] == ("plain", "plain.json")
    assert await store.write_copy("plain", "plain", "new \ud800") == str(paths[0])
    assert paths[0].read_text("utf-8") == "new \\ud800" and paths[1].read_text("utf-8") == "old"


async def test_key_is_created_once_and_private(tmp_path: Path) -> None:
    one = FileSnapshots(tmp_path)
    key = (tmp_path / "key").read_bytes()
    two = FileSnapshots(tmp_path)
    assert len(key) == 32 and (tmp_path / "key").read_bytes() == key
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    await one.close()
    await two.close()
