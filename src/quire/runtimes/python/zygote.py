"""The zygote's parent side: start it once, ask it for keepers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

from quire.core.errors import Failed
from quire.runtimes.python.keeper import Keeper
from quire.runtimes.python.venv import find_uv
from quire.wire import packets

_WORKER = Path(__file__).parents[2] / "worker" / "__main__.py"
_END = 4.0  # seconds it has to see its keepers off


def _environment() -> dict[str, str]:
    own = {"PYTHONHASHSEED": "0"}  # a set prints in the same order after a restart
    if uv := find_uv():
        own["UV"] = uv  # what %pip installs with
    return {**os.environ, **own}


class Zygote:
    """One warm process. Any doubt about it ends it; the runtime starts another."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._forks: dict[int, asyncio.Future[tuple[int, int]]] = {}
        self._numbers = itertools.count()
        self._loop.add_reader(control.fileno(), self._heard)

    @classmethod
    def spawn(cls, python: str, preload: tuple[str, ...]) -> Zygote:
        ours, theirs = packets.pair()
        ours.setblocking(False)
        with theirs:
            try:
                process = subprocess.Popen(
                    [python, "-P", str(_WORKER), str(theirs.fileno()), str(os.getpid()), *preload],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # all kernels are one group to the scheduler, see worker/zygote.py
                    stdout=2,  # stdout may be the MCP stream
                    env=_environment(),
                )
            except OSError as error:
                ours.close()
                raise Failed(
                    f"Python could not be started ({python}: {error.strerror}). Name another as the setting or the "
                    "notebook's `python`."
                ) from error
        return cls(process, ours)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and self._control.fileno() >= 0

    async def ready(self) -> dict[str, Any]:
        """What it preloaded and its Python; raises Failed where it ended instead."""
        return await asyncio.shield(self._ready)

    async def fork(self) -> Keeper:
        """A new keeper, with nothing to keep yet."""
        number = next(self._numbers)
        answer = self._forks[number] = self._loop.create_future()
        ours, theirs = packets.pair()
        ours.setblocking(False)
        try:
            with theirs:
                packets.send(self._control, {"id": number}, [theirs.fileno()])
            _, pidfd = await answer
        except OSError as error:
            ours.close()
            raise Failed("The zygote is gone; call again.") from error
        except BaseException:
            ours.close()
            raise
        finally:
            self._forks.pop(number, None)
        return Keeper(ours, pidfd)

    def adopt(self, keeper: int) -> None:
        """One that was not forked here: not to be killed when its own parent ends."""
        with contextlib.suppress(OSError):
            packets.send(self._control, {"adopt": keeper})

    async def close(self) -> None:
        """Keepers that are left see the server's end as it does; it waits for them. One not yet warm has none."""
        warm = self._ready.done()
        self._hang_up()
        if warm:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END):
                    await self._ended()
        self._process.kill()
        await self._ended()

    async def _ended(self) -> None:
        while self._process.poll() is None:  # noqa: ASYNC110 - it is a moment; Popen has no event
            await asyncio.sleep(0.005)

    def _heard(self) -> None:
        try:
            words, descriptors, _ = packets.receive(self._control)  # our own program, no user code ran in it
        except BlockingIOError:
            return
        if not words:
            self._hang_up()
        elif "ready" in words:
            self._ready.set_result(words)
        elif "forked" in words:
            waiting = self._forks.pop(words["forked"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result((words["pid"], descriptors[0]))
            else:
                os.close(descriptors[0])  # whoever asked is gone; the keeper ends with its socket

    def _hang_up(self) -> None:
        if self._control.fileno() < 0:
            return
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        gone = Failed("The process kernels are made from ended; its words are in the server's log. Call again.")
        if not self._ready.done():
            self._ready.set_exception(gone)
            self._ready.exception()  # asked for or not, it has been seen
        for fork in self._forks.values():
            if not fork.done():
                fork.set_exception(gone)
