"""One suite for every Leases."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from quire.core.model import NotebookId
from quire.stores.sql import SqlStore
from tests.support.stored_notebooks import new_notebook

N = NotebookId("n")


async def test_lease_is_held_by_one_server_at_a_time(open_store: Callable[[], SqlStore]) -> None:
    one, two = open_store(), open_store()
    assert await one.leases.hold(N) and await one.leases.hold(N)
    assert await two.leases.hold(N) is None
    await one.leases.release(N)
    assert await two.leases.hold(N)
    await one.close()
    await two.close()


async def test_epoch_grows_each_time_the_lease_is_taken(open_store: Callable[[], SqlStore]) -> None:
    one, two = open_store(), open_store()
    first = await one.leases.hold(N)
    assert first is not None and await one.leases.hold(N) == first
    await one.leases.release(N)
    second = await two.leases.hold(N)
    assert second is not None and second > first
    await two.close()
    third = await one.leases.hold(N)
    assert third is not None and third > second
    await one.close()
    three = open_store()
    fourth = await three.leases.hold(N)
    assert fourth is not None and fourth > third
    assert await three.leases.hold(NotebookId("other")) == 1
    await three.close()


async def test_concurrent_callers_of_one_server_get_the_same_epoch(store: SqlStore) -> None:
    epochs: list[int | None] = []

    async def hold() -> None:
        epochs.append(await store.leases.hold(N))

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(hold)
    assert epochs == [1] * 20


async def test_cancelled_caller_does_not_keep_the_lease(open_store: Callable[[], SqlStore]) -> None:
    one, two = open_store(), open_store()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await one.leases.hold(N)
    assert scope.cancelled_caught
    assert await two.leases.hold(N)
    await one.close()
    await two.close()


async def test_deleted_notebook_releases_its_lease(open_store: Callable[[], SqlStore]) -> None:
    one, two = open_store(), open_store()
    notebook = await one.notebooks.create_notebook(new_notebook())
    assert await one.leases.hold(notebook.id)
    await one.notebooks.delete_notebook(notebook.id)
    assert await two.leases.hold(notebook.id)
    await one.leases.release(notebook.id)  # nothing to release
    await one.close()
    await two.close()
