"""`store.kind = "memory"`: the temporary folder is deleted at the server's end; after a kill, by the next server."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client

from quire.stores.temporary import TemporaryFolder, remove_abandoned_folders
from tests.support.notebooks import Book
from tests.support.processes import servers_of
from tests.support.servers import NO_SANDBOX, QUICK, stdio_client
from tests.support.waiting import reached


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def server(data_dir: Path, parent: Path) -> Client[Any]:
    return stdio_client(data_dir, store="memory", environment={"TMPDIR": str(parent)}, **QUICK, **NO_SANDBOX)


def databases(parent: Path) -> list[Path]:
    return sorted(parent.glob("quire-memory-*/data/quire.db"))


async def test_folder_is_private_and_deleted_with_its_server(data_dir: Path, parent: Path) -> None:
    async with server(data_dir, parent) as client:
        assert await Book(client=client).value("x = 1; x") == 1
        (database,) = databases(parent)
        assert database.parents[1].stat().st_mode & 0o777 == 0o700
        assert not list(data_dir.glob("quire.db*"))
    await reached(lambda: not list(parent.glob("quire-memory-*")), "the temporary folder is deleted")


async def test_next_server_deletes_what_a_killed_one_left(data_dir: Path, parent: Path) -> None:
    async with server(data_dir, parent) as client:
        assert await Book(client=client).value("x = 1; x") == 1
        (left,) = databases(parent)
        for pid in servers_of(left.parent):
            os.kill(pid, signal.SIGKILL)
    assert left.exists()
    async with server(data_dir, parent) as client, server(data_dir, parent) as other:
        assert await Book(client=client).value("x = 2; x") == 2
        assert await Book(client=other).value("x = 3; x") == 3
        assert not left.exists() and len(databases(parent)) == 2  # each server has its own, and leaves the other alone


def test_half_made_and_half_deleted_folders_are_deleted(parent: Path) -> None:
    (parent / "quire-memory-empty").mkdir()
    half = parent / "quire-memory-half"
    half.mkdir()
    (half / "lock").touch()
    remove_abandoned_folders(parent)
    assert list(parent.iterdir()) == []


def test_links_and_other_folders_are_left_alone(parent: Path, tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "data").mkdir()
    (parent / "quire-memory-link").symlink_to(tmp_path)
    (parent / "quire-memory-file").touch()
    (parent / "quire-memory-full").mkdir()
    (parent / "quire-memory-full" / "another").touch()
    remove_abandoned_folders(parent)
    assert len(list(parent.iterdir())) == 3 and (tmp_path / "data").exists()


def test_folder_in_use_is_left_alone(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(parent))
    first, second = TemporaryFolder(), TemporaryFolder()
    assert first.path.exists() and second.path.exists()
    first.remove()
    second.remove()
    assert list(parent.iterdir()) == []
