"""Databases, mapped memory, loggers, processes, sockets: what reaches outside, as far as it can be had again."""

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
    Refused,
    rebuilds,
    reduce_itself,
    reduces,
    reduces_named,
    refuses,
)

# SQLite, which is only imported where a cell did


@reduces_named("sqlite3.Connection")
def reduce_connection(context: Context, connection: Any) -> Any:
    return context.on_main(lambda: _connection(connection))


def _connection(connection: Any) -> Any:
    path, content = "", b""
    try:
        databases = list(connection.execute("pragma database_list").fetchall())
    except Exception as error:
        if "closed database" in str(error):
            return (closed_connection, ())
        raise
    if any(tuple(each)[1] not in ("main", "temp") for each in databases):
        raise Refused("a database connection", "other databases are attached to it")
    path = next((tuple(each)[2] for each in databases if tuple(each)[1] == "main"), "")
    if path and connection.in_transaction:
        raise Refused("a database connection", "it has an open transaction")
    if not path:
        content = connection.serialize()
    names = ("isolation_level", "row_factory", "text_factory")
    return (connect, (path, content), {name: getattr(connection, name) for name in names}, None, None, fill_connection)


@rebuilds
def connect(path: str, content: bytes) -> Any:
    import sqlite3

    if path and not os.path.exists(path):
        return tombstones.lost("a database connection", f"{path} is not there any more")
    connection = sqlite3.connect(path or ":memory:")
    if content:
        connection.deserialize(content)
    return connection


@rebuilds
def fill_connection(connection: Any, state: dict[str, Any]) -> None:
    if not tombstones.is_one(connection):
        for name, value in state.items():
            setattr(connection, name, value)


@rebuilds
def closed_connection() -> Any:
    import sqlite3

    connection = sqlite3.connect(":memory:")
    connection.close()
    return connection


reduces_named("sqlite3.Cursor")(refuses("a database cursor", "the rows it has yet to give cannot be saved"))


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
        raise Refused("mapped memory", "it is closed")
    path = _mapped_path(memory)
    if path:
        raise Refused("a mapped file", f"how {path} was mapped cannot be found")
    return (make_map, (memory[:], memory.tell()))


def _mapped_path(memory: mmap.mmap) -> str:
    """The file behind it, "" where there is none."""
    try:
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    except TypeError:
        return "a file"  # read-only memory has one
    with open("/proc/self/maps") as lines:
        for line in lines:
            span, *_, path = line.rstrip("\n").split(maxsplit=5) if line.count("/") else (line.split()[0], "")
            first, last = (int(part, 16) for part in span.split("-"))
            if first <= address < last:
                return "" if path.startswith("/dev/zero") or "memfd" in path else path
    return "a file"


@rebuilds
def make_map(content: bytes, position: int) -> Any:
    memory = mmap.mmap(-1, len(content))
    memory[:] = content
    memory.seek(position)
    return memory


# Loggers: by name, with what was set on them


@reduces(logging.Logger, logging.RootLogger, derived=True)
def reduce_logger(context: Context, logger: logging.Logger) -> Any:
    name = None if logger is logging.getLogger() else logger.name
    if logging.getLogger(name) is not logger:
        return reduce_itself(context, logger)
    names = ("level", "propagate", "disabled", "handlers", "filters")
    return (get_logger, (name,), {each: getattr(logger, each) for each in names}, None, None, fill_logger)


@rebuilds
def get_logger(name: str | None) -> Any:
    return logging.getLogger(name)


@rebuilds
def fill_logger(logger: Any, state: dict[str, Any]) -> None:
    logger.setLevel(state["level"])
    logger.propagate, logger.disabled = state["propagate"], state["disabled"]
    logger.filters[:] = [each for each in state["filters"] if not tombstones.is_one(each)]
    logger.handlers[:] = [each for each in state["handlers"] if not tombstones.is_one(each)]


@reduces_named("logging._StderrHandler")
def reduce_last_resort(context: Context, handler: Any) -> Any:
    return (last_resort, ())


@rebuilds
def last_resort() -> Any:
    return logging.lastResort


# Processes, sockets and what hangs on them


@reduces(subprocess.Popen)
def reduce_process(context: Context, process: Any) -> Any:
    if process.returncode is None:
        raise Refused("a subprocess", "a running process cannot be saved")
    return (make_process, (type(process),), process.__dict__)


@rebuilds
def make_process(kind: Any) -> Any:
    return object.__new__(kind)


@reduces(selectors.DefaultSelector, selectors.SelectSelector)
def reduce_selector(context: Context, selector: Any) -> Any:
    if selector.get_map():
        raise Refused("a selector", "what it watches is gone with the process")
    return (type(selector), ())


reduces(socket.socket, derived=True)(refuses("a socket", "a connection cannot be saved"))
reduces_named("ssl.SSLContext", "_ssl._SSLContext", "ssl.SSLObject", "ssl.SSLSocket", derived=True)(
    refuses("an SSL context", "its keys cannot be read from it")
)
reduces_named("_csv.reader", "_csv.writer")(refuses("a csv reader or writer", "what it works on is hidden in it"))
