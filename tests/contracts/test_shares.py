"""One suite for every Shares."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quire.core.errors import OperationFailed
from quire.core.model import Notebook, NotebookId, Principal
from quire.core.notebooks.access import Access
from quire.core.ports.store import Shares
from quire.stores.sql import SqlStore

ALICE, BOB, CAROL = Principal("alice"), Principal("bob"), Principal("carol")


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[tuple[SqlStore, Shares]]:
    store = SqlStore(tmp_path)
    yield store, store.shares
    await store.close()


async def made(store: SqlStore, name: str, at: float = 1.0) -> Notebook:
    book = Notebook(id=NotebookId(f"id-{name}"), name=name, owner=ALICE, runtime="python", created_at=at)
    return await store.notebooks.create_notebook(book)


async def test_share_lasts_until_it_is_changed_or_ended(kept: tuple[SqlStore, Shares]) -> None:
    store, shares = kept
    book = await made(store, "diary")
    assert await shares.list_access(book.id) == {}
    await shares.set_access(book.id, CAROL, Access.WRITE)
    await shares.set_access(book.id, BOB, Access.READ)
    assert await shares.list_access(book.id) == {BOB: Access.READ, CAROL: Access.WRITE}
    assert list(await shares.list_access(book.id)) == [BOB, CAROL]
    await shares.set_access(book.id, BOB, Access.WRITE)
    assert (await shares.list_access(book.id))[BOB] is Access.WRITE
    await shares.set_access(book.id, BOB, None)
    await shares.set_access(book.id, BOB, None)
    assert await shares.list_access(book.id) == {CAROL: Access.WRITE}


async def test_shared_notebooks_are_listed_oldest_first(kept: tuple[SqlStore, Shares]) -> None:
    store, shares = kept
    late, early, other = (
        await made(store, "late", 2.0),
        await made(store, "early", 1.0),
        await made(store, "other", 3.0),
    )
    await shares.set_access(late.id, BOB, Access.READ)
    await shares.set_access(early.id, BOB, Access.WRITE)
    await shares.set_access(other.id, CAROL, Access.READ)
    assert await shares.list_shared_with(BOB) == [(early, Access.WRITE), (late, Access.READ)]
    assert await shares.list_shared_with(ALICE) == []


async def test_shares_survive_restart_and_clearing_of_the_notebook(tmp_path: Path) -> None:
    store = SqlStore(tmp_path)
    book = await made(store, "diary")
    await store.shares.set_access(book.id, BOB, Access.READ)
    await store.notebooks.clear_notebook(book.id)
    await store.close()
    again = SqlStore(tmp_path)
    assert await again.shares.list_shared_with(BOB) == [(book, Access.READ)]
    with pytest.raises(OperationFailed):
        await again.shares.set_access(NotebookId("nothing"), BOB, Access.READ)
    await again.close()
