"""The parent's side of a snapshot being written: order it of a checkpoint, watch that it gets on, hear how it went."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from typing import Any

from quire.core.errors import OperationFailed
from quire.core.ports.snapshots import Draft, Written
from quire.runtimes.python.supervisor import Keeper
from quire.wire import packets

_STUCK = 30.0  # seconds without any progress
_LOOK = 0.5  # seconds between looks
_SPOT = 1024  # bytes that say where the writer is
_TRIES = 5
_BESIDE = 256 << 20  # bytes a draft may have besides what it describes

Refused = dict[str, tuple[str, str]]
"""Variables that cannot be written: by name, the type they had, and why."""


async def write(keeper: Keeper, order: dict[str, Any], draft: Draft, refused: Refused) -> Written:
    """Have a checkpoint written into the draft. A variable that its writer crashes or hangs at joins `refused`.

    Raises OperationFailed where it cannot be written.
    """
    for _ in range(_TRIES):
        os.truncate(draft.file, 0)
        os.lseek(draft.file, 0, os.SEEK_SET)
        spot = os.memfd_create("quire-spot")
        try:
            return await _Writer(keeper, draft, spot).write({**order, "do": "write", "refused": refused})
        except _Lost as lost:
            name, _, kind = os.pread(spot, _SPOT, 0).rstrip(b"\0").decode("utf-8", "replace").partition("\0")
            if not name or name in refused:
                raise OperationFailed(f"The process that wrote the snapshot {lost.how}.") from None
            refused[name] = kind, f"the process that wrote it down {lost.how}"
        finally:
            os.close(spot)
    raise OperationFailed("Too many variables cannot be written.")


class _Lost(Exception):
    """The writer ended without a word, or had to be ended."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class _Writer:
    def __init__(self, keeper: Keeper, draft: Draft, spot: int) -> None:
        self._keeper = keeper
        self._draft = draft
        self._spot = spot

    async def write(self, order: dict[str, Any]) -> Written:
        ours, theirs = packets.pair()
        ours.setblocking(False)
        pidfd = -1
        with ours:
            try:
                with theirs:
                    files = [theirs.fileno(), self._draft.file, self._spot]
                    files += [self._draft.base] if self._draft.base >= 0 else []
                    _, pidfd = await self._keeper.launch(order, files)
                return _written(await self._answer(ours, order["limit"] + _BESIDE))
            finally:
                if pidfd >= 0:
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    os.close(pidfd)

    async def _answer(self, ours: socket.socket, most: int) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        answer = loop.create_task(loop.sock_recv(ours, 1 << 16))
        try:
            stands, still = self._stands(), 0.0
            while not (await asyncio.wait([answer], timeout=_LOOK))[0]:
                now = self._stands()
                if now[1] > most:  # a cell's code writes there what it likes
                    raise OperationFailed("The snapshot's writer wrote more than it may. The last snapshot stands.")
                still = still + _LOOK if now == stands else 0.0
                stands = now
                if still >= _STUCK:
                    raise _Lost("did not get on and was ended")
        finally:
            answer.cancel()
            loop.remove_reader(ours)  # at once, whoever ends this: the next descriptor of its number would go unheard
        with contextlib.suppress(OSError):
            if data := answer.result():
                return packets.parse(data)
        raise _Lost("crashed")

    def _stands(self) -> tuple[bytes, int]:
        return os.pread(self._spot, _SPOT, 0), os.fstat(self._draft.file).st_size


def _written(answer: dict[str, Any]) -> Written:
    match answer:
        case {"written": [int(chunks), int(entries), int(manifest)]}:
            return Written(chunks=chunks, entries=entries, manifest=manifest)
        case {"failed": str(why)}:
            raise OperationFailed(f"The snapshot could not be written: {why[:300]}. The last snapshot stands.")
        case _:
            raise OperationFailed("The process that wrote the snapshot spoke nonsense.")
