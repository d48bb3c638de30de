"""The way to SQLite that writes: what goes over it at once, and how long its log gets."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quire.core.errors import Failed
from quire.stores.lane import Lane

_LARGE = 5_000_000  # bytes


async def test_the_log_of_large_jobs_is_put_into_the_database_before_it_is_large_itself(tmp_path: Path) -> None:
    path = tmp_path / "quire.db"
    lane = Lane(path, writes=True)
    try:
        await lane.do(lambda db: db.execute("CREATE TABLE large (data)"))
        for _ in range(20):
            await lane.do(lambda db: db.execute("INSERT INTO large VALUES (zeroblob(?))", (_LARGE,)))
        assert path.with_name("quire.db-wal").stat().st_size < 8 * _LARGE
    finally:
        await lane.close()


class Disk:
    """A disk that takes its time, and may fail."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.goes_on = threading.Event()
        self.fails = False
        self.syncs = 0

    def sync(self, file: int) -> None:
        self.syncs += 1
        self.asked.release()
        assert self.goes_on.wait(60)
        if self.fails:
            raise OSError(5, "Input/output error")


@asynccontextmanager
async def numbers(path: Path, disk: Disk) -> AsyncIterator[Lane]:
    lane = Lane(path, writes=True, sync=disk.sync)
    try:
        await lane.do(lambda db: db.execute("CREATE TABLE numbers (number)"))
        yield lane
    finally:
        disk.goes_on.set()
        await lane.close()


def put(number: int, db: sqlite3.Connection) -> None:
    db.execute("INSERT INTO numbers VALUES (?)", (number,))


async def test_what_is_kept_is_written_at_once_and_acknowledged_when_the_disk_has_it(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "quire.db"
    async with numbers(path, disk) as lane:
        keeping = asyncio.create_task(lane.keep(lambda db: put(1, db)))
        assert await asyncio.to_thread(disk.asked.acquire, timeout=60)
        other = sqlite3.connect(path)
        assert other.execute("SELECT number FROM numbers").fetchall() == [(1,)]  # a killed process does not lose it
        other.close()
        assert not keeping.done()
        disk.goes_on.set()
        await keeping


@pytest.mark.parametrize("keeps", [True, False])
async def test_after_a_sync_that_failed_the_whole_log_is_in_the_database_before_more_is_acknowledged(
    tmp_path: Path, keeps: bool
) -> None:
    """What failed may be a hole in the log, behind which nothing is read after a power failure."""
    disk, path = Disk(), tmp_path / "quire.db"
    disk.fails = True
    disk.goes_on.set()
    async with numbers(path, disk) as lane:
        with pytest.raises(Failed, match="The disk is full or failing"):
            await lane.keep(lambda db: put(1, db))
        disk.fails = False
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        assert reader.execute("SELECT number FROM numbers").fetchall() == [(1,)]
        again = lane.keep if keeps else lane.do
        with pytest.raises(Failed, match="could not be written after one"):  # somebody reads in the log
            await again(lambda db: put(2, db))
        reader.close()
        await again(lambda db: put(3, db))
        (tmp_path / "alone").write_bytes(path.read_bytes())  # as if nothing of the log had come to the disk
    alone = sqlite3.connect(tmp_path / "alone")
    assert (1,) in alone.execute("SELECT number FROM numbers").fetchall()
    alone.close()


async def test_a_job_that_writes_nothing_does_not_stand_for_a_sync(tmp_path: Path) -> None:
    disk = Disk()
    async with numbers(tmp_path / "quire.db", disk) as lane:
        first = asyncio.create_task(lane.keep(lambda db: put(1, db)))
        assert await asyncio.to_thread(disk.asked.acquire, timeout=60)
        second = asyncio.create_task(lane.keep(lambda db: put(2, db)))
        idle = asyncio.create_task(lane.do(lambda db: db.execute("UPDATE numbers SET number = 0 WHERE number > 9")))
        await asyncio.sleep(0)
        disk.goes_on.set()
        await asyncio.gather(first, second, idle)
    assert disk.syncs == 2


async def test_those_who_wait_for_the_disk_at_the_same_time_share_one_sync(tmp_path: Path) -> None:
    disk = Disk()
    async with numbers(tmp_path / "quire.db", disk) as lane:
        first = asyncio.create_task(lane.keep(lambda db: put(0, db)))
        assert await asyncio.to_thread(disk.asked.acquire, timeout=60)
        more = [asyncio.create_task(lane.keep(lambda db, n=n: put(n, db))) for n in range(1, 20)]  # type: ignore[misc]
        await asyncio.sleep(0)  # each has written and waits
        disk.goes_on.set()
        await asyncio.gather(first, *more)
    assert disk.syncs == 2
