"""The thread that makes every change to an SQLite database, with group commit.

All work that waits when the thread is free becomes one transaction, each piece in a savepoint of its own, so that fifty
busy notebooks share one commit. Callers continue after it.

There are two connections, and each transaction uses one of them. `synchronous` is never changed:

- FULL: SQLite syncs its log (WAL) before the commit returns. Used if any piece of work in the group is durable.
- NORMAL: the commit is in the log but not synced. It survives the end of the process, also by `kill -9`. It survives
  a power failure once a later durable commit has returned: both are in the same log.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from quire.stores.sqlite import connect, translated

T = TypeVar("T")
_Work = Callable[[sqlite3.Connection], Any]
_Outcome = tuple[Any, BaseException | None]  # what the work returned, or why it failed
_MAX_GROUP = 200  # pieces of work in one transaction
_COMMITS_PER_CHECKPOINT = 128
_QUICK_CACHE_KB = 256  # a beginning or new outputs touch few pages


@dataclass(frozen=True, slots=True)
class _Job:
    work: _Work
    is_durable: bool
    answer: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class SqliteWriter:
    def __init__(self, path: Path, open_connection: Callable[[Path], sqlite3.Connection] = connect) -> None:
        self._durable = open_connection(path)
        self._quick = open_connection(path)
        self._quick.execute("PRAGMA synchronous = NORMAL")
        self._quick.execute("PRAGMA wal_autocheckpoint = 0")  # it would hide an error of its sync
        self._quick.execute(f"PRAGMA cache_size = -{_QUICK_CACHE_KB}")
        self._log_may_have_hole = False
        self._commits = 0  # since the last checkpoint
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="quire-sql-writer", daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do all of `work` or nothing. Returns when it is committed; not yet safe from a power failure."""
        value: T = await self._submit(work, is_durable=False)
        return value

    async def run_durable(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do all of `work` or nothing. Returns when it is on the disk."""
        value: T = await self._submit(work, is_durable=True)
        return value

    async def close(self) -> None:
        self._jobs.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _submit(self, work: _Work, *, is_durable: bool) -> asyncio.Future[Any]:
        """The work is done also if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._jobs.put(_Job(work, is_durable, answer, loop))
        return answer

    def _serve(self) -> None:
        is_closing = False
        while not is_closing:
            group, is_closing = self._next_group()
            if group:
                for job, outcome in zip(group, self._commit_group(group), strict=True):
                    _settle(job, outcome)
                self._checkpoint_if_due()
        self._quick.close()
        self._durable.close()

    def _next_group(self) -> tuple[list[_Job], bool]:
        """Wait for work; return all that is there, and whether the writer is to close."""
        group: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            group.append(job)
            if len(group) >= _MAX_GROUP or self._jobs.empty():
                return group, False
            job = self._jobs.get()
        return group, True

    def _commit_group(self, group: list[_Job]) -> list[_Outcome]:
        is_durable = any(job.is_durable for job in group)
        database = self._durable if is_durable else self._quick
        try:
            if is_durable and self._log_may_have_hole:
                self._empty_log()
            database.execute("BEGIN IMMEDIATE")
            outcomes = [_run_in_savepoint(database, job.work) for job in group]
            database.execute("COMMIT")
        except BaseException as error:
            self._note(error)
            if database.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
            return [(None, translated(error))] * len(group)
        self._commits += 1
        return outcomes

    def _checkpoint_if_due(self) -> None:
        """Copy the log into the database now and then, after the answers, so that commits need not."""
        if self._commits >= _COMMITS_PER_CHECKPOINT:
            self._commits = 0
            try:
                self._durable.execute("PRAGMA wal_checkpoint(PASSIVE)")
            except sqlite3.Error as error:  # the log still has everything, and the next checkpoint may succeed
                self._note(error)

    def _note(self, error: BaseException) -> None:
        """After a failed sync Linux drops what it could not write and reports success from then on. Unsynced commits
        before it may be missing on the disk: a hole, behind which recovery after a power failure reads nothing."""
        if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_IOERR:
            self._log_may_have_hole = True

    def _empty_log(self) -> None:
        """Copy all of the log into the database and sync that, so that nothing depends on a hole any more."""
        busy, pages, copied = self._durable.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        if busy or pages != copied:
            raise sqlite3.OperationalError("disk I/O error: the log could not be copied after a failed sync")
        self._log_may_have_hole = False


def _run_in_savepoint(database: sqlite3.Connection, work: _Work) -> _Outcome:
    database.execute("SAVEPOINT work")
    try:
        value = work(database)
    except sqlite3.OperationalError:
        raise  # a full disk concerns the whole transaction
    except BaseException as error:
        database.execute("ROLLBACK TO work")
        database.execute("RELEASE work")
        return None, translated(error)
    database.execute("RELEASE work")
    return value, None


def _settle(job: _Job, outcome: _Outcome) -> None:
    value, error = outcome

    def settle() -> None:
        if job.answer.done():
            return  # its caller was cancelled
        if error is not None:
            job.answer.set_exception(error)
            job.answer.exception()  # no warning if the caller is gone
        else:
            job.answer.set_result(value)

    with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
        job.loop.call_soon_threadsafe(settle)
