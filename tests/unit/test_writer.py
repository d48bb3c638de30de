"""The SQLite writer: group commit, what is on the disk when a caller goes on, and how long its log gets."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from quire.core.errors import OperationFailed
from quire.os_sandbox import seccomp
from quire.stores.sqlite import connect
from quire.stores.writer import SqliteWriter
from tests.support.waiting import DEADLINE

_LARGE = 5_000_000  # bytes


class Disk:
    """Connections whose commits can be counted, held up and made to fail as a failed sync does."""

    def __init__(self) -> None:
        self.commits = 0
        self.begun = threading.Semaphore(0)
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.fails = False

    def open(self, path: Path) -> sqlite3.Connection:
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                if sql == "COMMIT":
                    disk.commit()
                return super().execute(sql, *parameters)

        database = sqlite3.connect(path, 0.1, isolation_level=None, check_same_thread=False, factory=Connection)
        database.execute("PRAGMA journal_mode = WAL")
        return database

    def commit(self) -> None:
        self.commits += 1
        self.begun.release()
        assert self.goes_on.wait(DEADLINE)
        if self.fails:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error

    async def commit_has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=DEADLINE)


@asynccontextmanager
async def numbers(path: Path, disk: Disk) -> AsyncIterator[SqliteWriter]:
    writer = SqliteWriter(path, disk.open)
    try:
        await writer.run_durable(lambda db: db.execute("CREATE TABLE numbers (number)"))
        await disk.commit_has_begun()
        disk.commits = 0
        yield writer
    finally:
        disk.goes_on.set()
        await writer.close()


def put(number: int) -> Any:
    return lambda db: db.execute("INSERT INTO numbers VALUES (?)", (number,)) and None


def stored(path: Path) -> list[int]:
    database = sqlite3.connect(path)
    found = [number for (number,) in database.execute("SELECT number FROM numbers ORDER BY number")]
    database.close()
    return found


async def test_log_of_large_changes_is_checkpointed_in_time(tmp_path: Path) -> None:
    path = tmp_path / "quire.db"
    writer = SqliteWriter(path)
    try:
        await writer.run_durable(lambda db: db.execute("CREATE TABLE large (data)"))
        for _ in range(20):
            await writer.run_durable(lambda db: db.execute("INSERT INTO large VALUES (zeroblob(?))", (_LARGE,)))
        assert path.with_name("quire.db-wal").stat().st_size < 8 * _LARGE
    finally:
        await writer.close()


async def test_waiting_work_shares_one_commit(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "quire.db"
    async with numbers(path, disk) as writer:
        disk.goes_on.clear()
        first = asyncio.create_task(writer.run_durable(put(0)))
        await disk.commit_has_begun()
        more = [asyncio.create_task(writer.run_durable(put(n))) for n in range(1, 20)]
        await asyncio.sleep(0)  # each task has handed over its work
        assert not first.done()
        disk.goes_on.set()
        await asyncio.gather(first, *more)
        assert disk.commits == 2 and stored(path) == list(range(20))


async def test_failed_work_keeps_the_rest_of_its_group(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "quire.db"

    def fail(db: sqlite3.Connection) -> None:
        put(99)(db)
        raise ValueError("no")

    async with numbers(path, disk) as writer:
        disk.goes_on.clear()
        first = asyncio.create_task(writer.run(put(0)))
        await disk.commit_has_begun()
        group = [asyncio.create_task(writer.run_durable(work)) for work in (put(1), fail, put(2))]
        await asyncio.sleep(0)
        disk.goes_on.set()
        outcomes = await asyncio.gather(first, *group, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), type(None), ValueError, type(None)]
        assert stored(path) == [0, 1, 2]


async def test_work_of_a_cancelled_caller_is_done(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "quire.db"
    async with numbers(path, disk) as writer:
        disk.goes_on.clear()
        caller = asyncio.create_task(writer.run_durable(put(1)))
        await disk.commit_has_begun()
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        disk.goes_on.set()
        await writer.run_durable(put(2))
    assert stored(path) == [1, 2]


async def test_log_is_copied_after_a_failed_sync(tmp_path: Path) -> None:
    """The unsynced commit before it may be a hole in the log, behind which recovery after a power failure stops."""
    disk, path = Disk(), tmp_path / "quire.db"
    async with numbers(path, disk) as writer:
        await writer.run(put(1))
        disk.fails = True
        with pytest.raises(OperationFailed, match="The disk is full or failing"):
            await writer.run_durable(put(2))
        disk.fails = False
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        assert reader.execute("SELECT number FROM numbers").fetchall() == [(1,)]
        with pytest.raises(
            OperationFailed, match="could not be copied after a failed sync"
        ):  # the reader is in the log
            await writer.run_durable(put(3))
        reader.close()
        await writer.run_durable(put(4))
        (tmp_path / "alone").write_bytes(path.read_bytes())  # as if nothing of the log had reached the disk
        assert stored(path) == [1, 4]
    assert 1 in stored(tmp_path / "alone")


WITHOUT_SYNC = """
import asyncio, platform, sqlite3, struct, sys
from pathlib import Path

from quire.core.errors import OperationFailed
from quire.stores.writer import SqliteWriter
from quire.os_sandbox import libc, seccomp

FSYNC, FDATASYNC = (74, 75) if platform.machine() == "x86_64" else (82, 83)
FILTER = [
    (0x20, 0, 0, 0),  # load the number of the system call
    (0x15, 1, 0, FSYNC),
    (0x15, 0, 1, FDATASYNC),
    (0x06, 0, 0, 0x00050000 | 5),  # fails with EIO
    (0x06, 0, 0, 0x7FFF0000),  # allowed
]


async def main(path):
    writer = SqliteWriter(path)
    await writer.run_durable(lambda db: db.execute("CREATE TABLE numbers (number)"))
    libc.prctl(38, 1)  # no_new_privs
    seccomp.install(b"".join(struct.pack("=HBBI", *each) for each in FILTER))
    await writer.run(lambda db: db.execute("INSERT INTO numbers VALUES (1)"))
    for _ in range(2):
        try:
            await writer.run_durable(lambda db: db.execute("INSERT INTO numbers VALUES (2)"))
        except OperationFailed as failed:
            print("refused" if "disk is full or failing" in str(failed) else failed)
    print(sqlite3.connect(path).execute("SELECT number FROM numbers").fetchall(), flush=True)
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)


asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.skipif(bool(seccomp.unavailable_reason()), reason="needs seccomp filters")
def test_durable_work_fails_if_the_disk_cannot_sync(tmp_path: Path) -> None:
    path = tmp_path / "quire.db"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SYNC, str(path)], capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.stdout == "refused\nrefused\n[(1,)]\n", done.stderr
    assert 1 in stored(path)  # the refused change may be there too: SQLite wrote it to the log before the sync failed


def test_connection_syncs_its_commits(tmp_path: Path) -> None:
    database = connect(tmp_path / "quire.db")
    full = 2
    assert database.execute("PRAGMA synchronous").fetchone() == (full,)
    database.close()
