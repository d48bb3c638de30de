"""One suite for every Shares."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quire.core.errors import OperationFailed
from quire.core.model import Notebook, NotebookId, Principal
from quire.core.notebooks.access import Access
from quire.core.ports.store import Shares, Store
from quire.stores.sql import SqlStore

ALICE, BOB, CAROL = Principal("alice"), Principal("bob"), Principal("carol")


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[tuple[Store, Shares]]:
    store = SqlStore(tmp_path)
    yield store, store.shares
    await store.close()


async def made(store: Store, name: str, at: float = 1.0) -> Notebook:
    book = Notebook(id=NotebookId(f"id-{name}"), name=name, owner=ALICE, runtime="python", created_at=at)
    return await store.create_notebook(book)


async def test_a_share_is_there_until_it_is_changed_or_ended(kept: tuple[Store, Shares]) -> None:
    store, shares = kept
    book = await made(store, "diary")
    assert await shares.of(book.id) == {}
    await shares.put(book.id, CAROL, Access.WRITE)
    await shares.put(book.id, BOB, Access.READ)
    assert await shares.of(book.id) == {BOB: Access.READ, CAROL: Access.WRITE}
    assert list(await shares.of(book.id)) == [BOB, CAROL]
    await shares.put(book.id, BOB, Access.WRITE)
    assert (await shares.of(book.id))[BOB] is Access.WRITE
    await shares.put(book.id, BOB, None)
    await shares.put(book.id, BOB, None)
    assert await shares.of(book.id) == {CAROL: Access.WRITE}


async def test_notebooks_shared_with_a_user_are_listed_oldest_first(kept: tuple[Store, Shares]) -> None:
    store, shares = kept
    late, early, other = (
        await made(store, "late", 2.0),
        await made(store, "early", 1.0),
        await made(store, "other", 3.0),
    )
    await shares.put(late.id, BOB, Access.READ)
    await shares.put(early.id, BOB, Access.WRITE)
    await shares.put(other.id, CAROL, Access.READ)
    assert await shares.shared_with(BOB) == [(early, Access.WRITE), (late, Access.READ)]
    assert await shares.shared_with(ALICE) == []


async def test_shares_outlive_the_server_and_a_notebook_that_is_cleared(tmp_path: Path) -> None:
    store = SqlStore(tmp_path)
    book = await made(store, "diary")
    await store.shares.put(book.id, BOB, Access.READ)
    await store.clear_notebook(book.id)
    await store.close()
    again = SqlStore(tmp_path)
    assert await again.shares.shared_with(BOB) == [(book, Access.READ)]
    with pytest.raises(OperationFailed):
        await again.shares.put(NotebookId("nothing"), BOB, Access.READ)
    await again.close()
