"""The server's side of writing a snapshot: order it from a checkpoint, watch its progress, read the result."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from typing import Any

from quire.core.errors import OperationFailed
from quire.core.ports.snapshots import Draft, Written
from quire.runtimes.python.supervisor import SupervisorClient
from quire.wire import packets

_STALL_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.5
_PROGRESS_BYTES = 1024  # of the text that names the variable being written
_MAX_ATTEMPTS = 5
_MAX_OVERHEAD_BYTES = 256 << 20  # of a draft beyond the data it describes

Unwritable = dict[str, tuple[str, str]]
"""Variables that cannot be written: by name, their type and why."""


async def write(supervisor: SupervisorClient, order: dict[str, Any], draft: Draft, unwritable: Unwritable) -> Written:
    """Have a checkpoint written into the draft. A variable that makes the writer crash or hang is added to
    `unwritable`.

    Raises OperationFailed where it cannot be written.
    """
    for _ in range(_MAX_ATTEMPTS):
        os.truncate(draft.file, 0)
        os.lseek(draft.file, 0, os.SEEK_SET)
        progress_file = os.memfd_create("quire-spot")
        try:
            writer = _Writer(supervisor, draft, progress_file)
            return await writer.write({**order, "do": "write", "refused": unwritable})
        except _WriterLost as error:
            progress = os.pread(progress_file, _PROGRESS_BYTES, 0).rstrip(b"\0").decode("utf-8", "replace")
            name, _, kind = progress.partition("\0")
            if not name or name in unwritable:
                raise OperationFailed(f"The process that wrote the snapshot {error.reason}.") from None
            unwritable[name] = kind, f"the process that wrote it down {error.reason}"
        finally:
            os.close(progress_file)
    raise OperationFailed("Too many variables cannot be written.")


class _WriterLost(Exception):
    """The writer ended without an answer, or had to be killed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Writer:
    def __init__(self, supervisor: SupervisorClient, draft: Draft, progress_file: int) -> None:
        self._supervisor = supervisor
        self._draft = draft
        self._progress_file = progress_file

    async def write(self, order: dict[str, Any]) -> Written:
        server_end, writer_end = packets.socket_pair()
        server_end.setblocking(False)
        pidfd = -1
        with server_end:
            try:
                with writer_end:
                    files = [writer_end.fileno(), self._draft.file, self._progress_file]
                    files += [self._draft.base] if self._draft.base >= 0 else []
                    _, pidfd = await self._supervisor.launch(order, files)
                return _written(await self._answer(server_end, order["limit"] + _MAX_OVERHEAD_BYTES))
            finally:
                if pidfd >= 0:
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    os.close(pidfd)

    async def _answer(self, server_end: socket.socket, max_bytes: int) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        answer = loop.create_task(loop.sock_recv(server_end, 1 << 16))
        try:
            progress, stalled_s = self._progress(), 0.0
            while not (await asyncio.wait([answer], timeout=_POLL_INTERVAL_S))[0]:
                current = self._progress()
                if current[1] > max_bytes:  # code of a cell could write anything there
                    raise OperationFailed("The snapshot's writer wrote more than allowed. The last snapshot stands.")
                stalled_s = stalled_s + _POLL_INTERVAL_S if current == progress else 0.0
                progress = current
                if stalled_s >= _STALL_TIMEOUT_S:
                    raise _WriterLost("made no progress and was killed")
        finally:
            answer.cancel()
            loop.remove_reader(server_end)  # now: another socket may get this descriptor's number
        with contextlib.suppress(OSError):
            if data := answer.result():
                return packets.parse(data)
        raise _WriterLost("crashed")

    def _progress(self) -> tuple[bytes, int]:
        return os.pread(self._progress_file, _PROGRESS_BYTES, 0), os.fstat(self._draft.file).st_size


def _written(answer: dict[str, Any]) -> Written:
    match answer:
        case {"written": [int(chunks), int(entries), int(manifest)]}:
            return Written(chunks=chunks, entries=entries, manifest=manifest)
        case {"failed": str(why)}:
            raise OperationFailed(f"The snapshot could not be written: {why[:300]}. The last snapshot stands.")
        case _:
            raise OperationFailed("The process that wrote the snapshot sent an invalid answer.")
