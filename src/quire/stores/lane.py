"""Ways to SQLite: lanes, each a connection on a thread of its own, and what takes microseconds on the caller's.

The writing lane puts jobs that wait at the same moment into one transaction, each in a savepoint of
its own, so that fifty busy notebooks share one fsync; an answer is given only after the commit.

What is small and comes with every run is written at once, on the caller's thread, without fsync, checkpoint or
waiting for a lock: handing it to the lane costs five times as much. It survives the end of any process at once. A run's
beginning, which nobody is told of yet, survives a power failure as soon as something after it is acknowledged; its end
is acknowledged once the lane has had the log written to the disk, and the caller's thread does other things meanwhile.
Both go over the lane's own connection: each finds in its cache what the other wrote. One row is read on the caller's
thread, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from quire import systems
from quire.core.errors import Failed

T = TypeVar("T")


_Work = Callable[[sqlite3.Connection], Any]


@dataclass(frozen=True, slots=True)
class _Job:
    work: _Work | None  # None: what was written at once is to be on disk
    answer: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


_Done = tuple[_Job, Any, BaseException | None]  # with its value, or why it failed
_TOGETHER = 200  # jobs in one transaction at the most
_BUSY = 10.0  # seconds to wait for another process's transaction
_LOG = 64  # jobs written, after which the log is put into the database; with so many pages in it, by the job itself
_PATIENT = (
    "PRAGMA synchronous = FULL",
    f"PRAGMA busy_timeout = {_BUSY * 1000:.0f}",
    "PRAGMA wal_autocheckpoint = 4000",
)
_HASTY = ("PRAGMA synchronous = NORMAL", "PRAGMA busy_timeout = 0", "PRAGMA wal_autocheckpoint = 0")
_SYNC: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # the first is not everywhere


def connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")  # a commit is on disk, not only in the system's memory
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("SELECT 1 FROM sqlite_schema").fetchone()  # opened now, not at the first use
    return database


class Express:
    """Reads on the caller's thread."""

    def __init__(self, path: Path) -> None:
        self._database = connect(path)

    def read(self, query: str, *values: Any) -> list[sqlite3.Row]:
        try:
            return rows(self._database, query, *values)
        except sqlite3.Error as error:
            raise translated(error) from error

    def close(self) -> None:
        self._database.close()


class Busy(Exception):
    """It would have to wait: take the lane."""


def rows(database: sqlite3.Connection, query: str, *values: Any) -> list[sqlite3.Row]:
    cursor = database.cursor()
    cursor.row_factory = sqlite3.Row
    return cursor.execute(query, values).fetchall()


class Lane:
    def __init__(self, path: Path, *, writes: bool, sync: Callable[[int], None] = _SYNC) -> None:
        """`sync` has what was written to a file on the disk itself."""
        self._database = connect(path)
        self._sync = sync
        self._writes = writes
        self._writing = threading.Lock()
        self._manner: tuple[str, ...] = ()
        self._logged = 0  # jobs
        self._holed = False  # a sync of the log has failed
        self._log = -1
        if writes:
            self._behave(_PATIENT)
            self._log = os.open(f"{path}-wal", os.O_RDWR | systems.BYTES)  # no lock of SQLite's is on this file
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"quire-sql-{'w' if writes else 'r'}", daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        value: T = await self._asked(work)
        return value

    def _asked(self, work: _Work | None) -> asyncio.Future[Any]:
        """A caller that is cancelled leaves; the job is done all the same."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._jobs.put(_Job(work, answer, loop))
        return answer

    async def keep(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """As `do`, for what is small: written now and on this thread, where nobody else writes; back when it is on
        disk."""
        try:
            value = self.at_once(work)
        except Busy:
            return await self.do(work)
        await self._asked(None)
        return value

    def at_once(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """All of `work` or nothing, now and on this thread; raises Busy where another transaction is under way."""
        if not self._writing.acquire(blocking=False):
            raise Busy
        try:
            self._behave(_HASTY)
            return self._transaction(work)
        finally:
            self._writing.release()

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            self._database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise (Busy() if "locked" in str(error) else translated(error)) from error
        try:
            value = work(self._database)
            self._database.execute("COMMIT")
        except BaseException as error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise translated(error) from error
        return value

    def _behave(self, manner: tuple[str, ...]) -> None:
        if self._manner is not manner:
            for pragma in manner:
                self._database.execute(pragma)
            self._manner = manner

    async def close(self) -> None:
        self._jobs.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _work(self) -> None:
        while True:
            jobs, last = self._take()
            if jobs:
                self._write(jobs) if self._writes else self._read(jobs)
            if last:
                if self._writes:
                    os.close(self._log)  # before SQLite removes the file
                self._database.close()
                return

    def _take(self) -> tuple[list[_Job], bool]:
        """The next job, and those that wait behind it; whether the lane is to close."""
        jobs: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) >= _TOGETHER or self._jobs.empty():
                return jobs, False
            job = self._jobs.get()
        return jobs, True

    def _read(self, jobs: list[_Job]) -> None:
        for job in jobs:
            assert job.work is not None
            try:
                _settle(job, job.work(self._database), None)
            except BaseException as error:
                _settle(job, None, translated(error))

    def _write(self, jobs: list[_Job]) -> None:
        syncs = [job for job in jobs if job.work is None]
        works = [(job, job.work) for job in jobs if job.work is not None]
        if syncs:
            _settle_all(self._on_disk(syncs))
        if works:
            _settle_all(self._written(works))
        self._logged += len(jobs)
        if self._logged >= _LOG:
            self._logged = 0
            with (
                self._writing,
                contextlib.suppress(sqlite3.Error),
            ):  # the log holds it all the same; the next may succeed
                self._database.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _on_disk(self, syncs: list[_Job]) -> list[_Done]:
        """What was written at once, on the disk itself, by one sync for all."""
        failure: BaseException | None = None
        try:
            self._mend()
            self._sync(self._log)
        except OSError as error:
            self._holed = True
            failure = translated(sqlite3.OperationalError(f"disk I/O error: {error.strerror}"))
        except sqlite3.Error as error:
            failure = translated(error)
        return [(job, None, failure) for job in syncs]

    def _mend(self) -> None:
        """After a sync that failed the log may have a hole that nobody sees, and what is behind it would not be read
        after a power failure: all of it goes into the database before anything more is acknowledged."""
        if self._holed:
            with self._writing:
                busy, logged, done = self._database.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
            if busy or logged != done:
                raise sqlite3.OperationalError("disk I/O error: the log could not be written after one")
            self._holed = False

    def _written(self, works: list[tuple[_Job, _Work]]) -> list[_Done]:
        done: list[_Done] = []
        try:
            self._mend()
            with self._writing:
                self._commit(works, done)
        except BaseException as error:
            failure = translated(error)
            done = [(job, None, failure) for job, _ in works]
        return done

    def _commit(self, works: list[tuple[_Job, _Work]], done: list[_Done]) -> None:
        try:
            self._behave(_PATIENT)
            self._database.execute("BEGIN IMMEDIATE")
            for job, work in works:
                done.append((job, *self._one(work, len(works) == 1)))
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def _one(self, work: _Work, alone: bool) -> tuple[Any, BaseException | None]:
        """One job of several in a transaction; one that is alone needs no savepoint: it is the transaction."""
        if alone:
            return work(self._database), None
        self._database.execute("SAVEPOINT job")
        try:
            value = work(self._database)
        except sqlite3.OperationalError:
            raise  # a full disk concerns the whole transaction
        except BaseException as error:
            self._database.execute("ROLLBACK TO job")
            self._database.execute("RELEASE job")
            return None, translated(error)
        self._database.execute("RELEASE job")
        return value, None


def _settle_all(done: list[_Done]) -> None:
    for job, value, failed in done:
        _settle(job, value, failed)


def _settle(job: _Job, value: Any, error: BaseException | None) -> None:
    def settle() -> None:
        if job.answer.done():
            return
        if error is not None:
            job.answer.set_exception(error)
            job.answer.exception()  # whoever asked may be gone
        else:
            job.answer.set_result(value)

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
        job.loop.call_soon_threadsafe(settle)


def translated(error: BaseException) -> BaseException:
    """SQLite's failures as ours; anything else as it is."""
    if not isinstance(error, sqlite3.Error):
        return error
    text = str(error)
    if "full" in text or "disk I/O" in text:
        return Failed(
            f"The disk is full or failing ({text}): this change was not kept, earlier cells are intact. "
            "Free some space and call again."
        )
    if "locked" in text:
        return Failed(f"The data directory is busy ({text}): this change was not kept. Call again.")
    return Failed(f"The store failed ({text}): this change was not kept.")
