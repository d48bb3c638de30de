"""Leases while the database cannot be written: notebooks can still be read and run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from quire.core.errors import OperationFailed
from quire.core.model import NotebookId
from quire.stores.leases import SqlLeases
from quire.stores.writer import SqliteWriter

pytestmark = pytest.mark.anyio


class FullDisk:
    async def run(self, job: Any) -> Any:
        raise OperationFailed("No space is left.")


async def test_lease_is_held_without_an_epoch_on_a_full_disk(tmp_path: Path) -> None:
    ours, other = (SqlLeases(cast(SqliteWriter, FullDisk()), tmp_path) for _ in range(2))
    notebook = NotebookId("n")
    assert await ours.hold(notebook) == 0 == await ours.hold(notebook)
    assert await other.hold(notebook) is None
    await ours.close()
    assert await other.hold(notebook) == 0
    await other.close()
