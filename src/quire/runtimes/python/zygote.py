"""The zygote's parent side: start it once, ask it for kernels, hear how they died."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

from quire.core.errors import Failed

_WORKER = Path(__file__).parents[2] / "worker" / "__main__.py"


class Zygote:
    """One warm process. Any doubt about it ends it; the runtime starts another."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._forks: dict[int, asyncio.Future[tuple[int, int]]] = {}
        self._deaths: dict[int, asyncio.Future[int | None]] = {}
        self._numbers = itertools.count()
        self._loop.add_reader(control.fileno(), self._heard)

    @classmethod
    def spawn(cls, python: str, preload: tuple[str, ...]) -> Zygote:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            # from this thread, which outlives it: the zygote is killed when its parent thread ends
            try:
                process = subprocess.Popen(
                    [python, "-P", str(_WORKER), str(theirs.fileno()), str(os.getpid()), *preload],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # all kernels are one group to the scheduler, see worker/zygote.py
                    stdout=2,  # stdout may be the MCP stream
                    env={
                        **os.environ,
                        "PYTHONHASHSEED": "0",
                    },  # a set prints in the same order after a restart
                )
            except OSError as error:
                ours.close()
                raise Failed(
                    f"Python could not be started ({python}: {error.strerror}). See setting `python`."
                ) from error
        return cls(process, ours)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and self._control.fileno() >= 0

    async def ready(self) -> dict[str, Any]:
        """What it preloaded and its Python; raises Failed where it ended instead."""
        return await asyncio.shield(self._ready)

    async def fork(self, words: dict[str, Any], descriptors: list[int]) -> tuple[int, int]:
        """A new kernel process: its pid, and a pidfd that is the caller's to close."""
        number = next(self._numbers)
        answer = self._forks[number] = self._loop.create_future()
        try:
            socket.send_fds(self._control, [json.dumps({"id": number, **words}).encode()], descriptors)
            pid, pidfd = await answer
            return pid, pidfd
        except OSError as error:
            raise Failed("The zygote is gone; call again.") from error
        finally:
            self._forks.pop(number, None)

    async def status_of(self, pid: int, patience: float = 2.0) -> int | None:
        """The wait status of a kernel that died; None where the zygote did not say in time."""
        death = self._deaths.setdefault(pid, self._loop.create_future())
        try:
            return await asyncio.wait_for(asyncio.shield(death), patience)
        except TimeoutError:
            return None
        finally:
            self._deaths.pop(pid, None)

    async def close(self) -> None:
        self._hang_up()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        while self._process.poll() is None:  # noqa: ASYNC110 - killed, it is a moment; Popen has no event
            await asyncio.sleep(0.005)

    def _heard(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, 1)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if not data:
            self._hang_up()
            return
        words = json.loads(data)  # from our own program, before any user code ran in it
        if "ready" in words:
            self._ready.set_result(words)
        elif "forked" in words:
            waiting = self._forks.pop(words["forked"], None)
            if waiting is not None and not waiting.done():
                self._deaths[words["pid"]] = self._loop.create_future()
                waiting.set_result((words["pid"], descriptors[0]))
            else:
                os.close(descriptors[0])  # whoever asked is gone; the kernel ends with its socket
        elif "died" in words:
            death = self._deaths.get(words["died"])
            if death is not None and not death.done():
                death.set_result(words["status"])

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
        for death in self._deaths.values():
            if not death.done():
                death.set_result(None)
