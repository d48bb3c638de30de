"""Databases, mapped memory, loggers, processes and sockets, as far as they can be restored."""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import selectors
import socket
import subprocess
from typing import Any

from quire.worker.snapshot import tombstones
from quire.worker.snapshot.reducers import (
    Context,
    NotSerializable,
    rebuilds,
    reduce_itself,
    reduces,
    reduces_named,
    refuse_with,
)

# SQLite, only if a cell imported it


@reduces_named("sqlite3.Connection")
def reduce_connection(context: Context, connection: Any) -> Any:
    return context.on_main(lambda: _connection(context, connection))


def _connection(context: Context, connection: Any) -> Any:
    path, content = "", b""
    try:
        databases = list(connection.execute("pragma database_list").fetchall())
    except Exception as error:
        if "closed database" in str(error):
            return (closed_connection, ())
        raise
    if any(tuple(database)[1] not in ("main", "temp") for database in databases):
        raise NotSerializable("a database connection", "other databases are attached to it")
    path = next((tuple(database)[2] for database in databases if tuple(database)[1] == "main"), "")
    if path and connection.in_transaction:
        raise NotSerializable("a database connection", "it has an open transaction")
    if not path:
        content = connection.serialize()
        if connection.in_transaction:
            context.report(connection, "an open transaction", "what it changed is kept as if it had been committed")
    names = ("isolation_level", "row_factory", "text_factory")
    return (connect, (path, content), {name: getattr(connection, name) for name in names}, None, None, fill_connection)


@rebuilds
def connect(path: str, content: bytes) -> Any:
    import sqlite3

    if path and not os.path.exists(path):
        return tombstones.lost_on_load("a database connection", f"{path} is not there any more")
    connection = sqlite3.connect(path or ":memory:")
    if content:
        connection.deserialize(content)
    return connection


@rebuilds
def fill_connection(connection: Any, state: dict[str, Any]) -> None:
    if not tombstones.is_tombstone(connection):
        for name, value in state.items():
            setattr(connection, name, value)


@rebuilds
def closed_connection() -> Any:
    import sqlite3

    connection = sqlite3.connect(":memory:")
    connection.close()
    return connection


reduces_named("sqlite3.Cursor")(refuse_with("a database cursor", "the rows it has yet to give cannot be saved"))


@reduces_named("sqlite3.Row")
def reduce_row(context: Context, row: Any) -> Any:
    return (make_row, (tuple(row.keys()), tuple(row)))


@rebuilds
def make_row(names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    import sqlite3

    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    columns = ", ".join(f"? as {_quoted(name)}" for name in names)
    row = connection.execute(f"select {columns}", values).fetchone()
    connection.close()
    return row


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# Mapped memory


@reduces(mmap.mmap)
def reduce_map(context: Context, memory: mmap.mmap) -> Any:
    if memory.closed:
        raise NotSerializable("mapped memory", "it is closed")
    mode, offset, inode, path = _mapping(memory)
    if not path:
        return (make_map, (memory[:], memory.tell()))
    try:
        if os.stat(path).st_ino != inode:
            raise NotSerializable("a mapped file", "its path leads to another file by now")
    except OSError:
        raise NotSerializable("a mapped file", "it was deleted") from None
    own = memory[:] if mode == mmap.ACCESS_COPY else None
    return (map_again, (path, len(memory), offset, mode, memory.tell(), own))


def _mapping(memory: mmap.mmap) -> tuple[int, int, int, str]:
    """Access mode, offset, inode and path ("" without file) of a mapping."""
    address = _address(memory)
    with open("/proc/self/maps") as lines:
        for line in lines:
            span, flags, offset, _, inode, *rest = line.rstrip("\n").split(maxsplit=5)
            first, last = (int(part, 16) for part in span.split("-"))
            if first <= address < last:
                path = rest[0] if rest else ""
                if path.startswith(("/dev/zero", "/memfd:", "[")):
                    path = ""
                copied = mmap.ACCESS_COPY if flags[3] == "p" else mmap.ACCESS_WRITE
                mode = copied if "w" in flags else mmap.ACCESS_READ
                return mode, int(offset, 16) + address - first, int(inode), path
    raise NotSerializable("mapped memory", "how it is mapped cannot be found")


def _address(memory: mmap.mmap) -> int:
    """The address, also of read-only memory."""
    room = (ctypes.c_void_p * 16)()  # a Py_buffer, whose first field is the address
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(memory), room, 0)
    try:
        return int(room[0] or 0)
    finally:
        ctypes.pythonapi.PyBuffer_Release(room)


@rebuilds
def map_again(path: str, length: int, offset: int, mode: int, position: int, content: bytes | None) -> Any:
    try:
        if os.path.getsize(path) < offset + length:
            return tombstones.lost_on_load("a mapped file", f"{path} is shorter than it was")
        number = os.open(path, os.O_RDWR if mode == mmap.ACCESS_WRITE else os.O_RDONLY)
        try:
            memory = mmap.mmap(number, length, access=mode, offset=offset)
        finally:
            os.close(number)
    except OSError as error:
        return tombstones.lost_on_load("a mapped file", f"{path} cannot be opened: {error.strerror}")
    if content is not None:
        memory[:] = content
    memory.seek(position)
    return memory


@rebuilds
def make_map(content: bytes, position: int) -> Any:
    memory = mmap.mmap(-1, len(content))
    memory[:] = content
    memory.seek(position)
    return memory


# Loggers: by name, with their settings


@reduces(logging.Logger, logging.RootLogger, derived=True)
def reduce_logger(context: Context, logger: logging.Logger) -> Any:
    name = None if logger is logging.getLogger() else logger.name
    if logging.getLogger(name) is not logger:
        return reduce_itself(context, logger)
    names = ("level", "propagate", "disabled", "handlers", "filters")
    return (get_logger, (name,), {key: getattr(logger, key) for key in names}, None, None, fill_logger)


@rebuilds
def get_logger(name: str | None) -> Any:
    return logging.getLogger(name)


@rebuilds
def fill_logger(logger: Any, state: dict[str, Any]) -> None:
    logger.setLevel(state["level"])
    logger.propagate, logger.disabled = state["propagate"], state["disabled"]
    logger.filters[:] = [filter_ for filter_ in state["filters"] if not tombstones.is_tombstone(filter_)]
    logger.handlers[:] = [handler for handler in state["handlers"] if not tombstones.is_tombstone(handler)]


@reduces_named("logging._StderrHandler")
def reduce_last_resort(context: Context, handler: Any) -> Any:
    return (last_resort, ())


@rebuilds
def last_resort() -> Any:
    return logging.lastResort


# Processes and sockets


@reduces(subprocess.Popen)
def reduce_process(context: Context, process: Any) -> Any:
    if process.returncode is None:
        raise NotSerializable("a subprocess", "a running process cannot be saved")
    return (make_process, (type(process),), process.__dict__)


@rebuilds
def make_process(kind: Any) -> Any:
    return object.__new__(kind)


@reduces(selectors.DefaultSelector, selectors.SelectSelector)
def reduce_selector(context: Context, selector: Any) -> Any:
    if selector.get_map():
        raise NotSerializable("a selector", "what it watches is gone with the process")
    return (type(selector), ())


reduces(socket.socket, derived=True)(refuse_with("a socket", "a connection cannot be saved"))
reduces_named("ssl.SSLContext", "_ssl._SSLContext", "ssl.SSLObject", "ssl.SSLSocket", derived=True)(
    refuse_with("an SSL context", "its keys cannot be read from it")
)
reduces_named("_csv.reader", "_csv.writer")(refuse_with("a csv reader or writer", "what it works on is hidden in it"))
