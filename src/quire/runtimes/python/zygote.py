"""The server's connection to a zygote: start it, and have it fork supervisors."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from quire.core.errors import OperationFailed
from quire.runtimes.python.kill_wait import wait_killed
from quire.runtimes.python.supervisor import SupervisorClient
from quire.wire import packets

_WORKER = Path(__file__).parents[2] / "worker" / "__main__.py"
_CLOSE_TIMEOUT_S = 4.0  # for it to end its supervisors


_SAFE_VARIABLES = re.compile(  # variables about programs and places, without secrets
    "PATH|HOME|USER|LOGNAME|SHELL|TERM|COLORTERM|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|HOSTNAME|"
    "PYTHON[A-Z]*|VIRTUAL_ENV|LD_LIBRARY_PATH|[A-Z]+_NUM_THREADS|OMP_[A-Z_]+|MKL_[A-Z_]+|CUDA_[A-Z_]+|"
    "MPL[A-Z]+|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|XDG_[A-Z_]+|NO_COLOR|UV"
)


def _find_uv() -> str | None:
    """On the path, or beside the Python that runs this."""
    return shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))


def kernel_environment(passed: Collection[str] | None) -> dict[str, str]:
    """The environment of kernels: all of the server's, or safe variables and those named in `passed`."""
    added = {
        "PYTHONHASHSEED": "0",  # so that a set prints in the same order after a restart
        "JE_ARROW_MALLOC_CONF": "background_thread:false",  # of pyarrow: its thread slows forks down
    }
    if uv := _find_uv():
        added["UV"] = uv  # for %pip
    if passed is None:
        return {**os.environ, **added}
    inherited = {name: value for name, value in os.environ.items() if name in passed or _SAFE_VARIABLES.fullmatch(name)}
    return {**inherited, **added}


def _never_ready(python: str) -> str:
    return (
        f"Kernels cannot be made with {python}: it ended at its start. Kernels need Python 3.11 or newer. What it "
        "printed is in the server's log. Nothing was run. Name another as the setting or the notebook's `python`."
    )


class ZygoteClient:
    """One zygote process. After an error it is ended, and the runtime starts another."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._pending: dict[int, asyncio.Future[list[int]]] = {}  # descriptors come with the answer
        self._numbers = itertools.count()
        self._loop.add_reader(control.fileno(), self._on_message)

    @classmethod
    def spawn(cls, python: str, preload: tuple[str, ...], environ: dict[str, str], ipython: str = "") -> ZygoteClient:
        """`ipython` is a folder with IPython, for interpreters that may have none."""
        server_end, zygote_end = packets.socket_pair()
        server_end.setblocking(False)
        with zygote_end:
            try:
                process = subprocess.Popen(
                    [python, "-P", str(_WORKER), str(zygote_end.fileno()), str(os.getpid()), ipython, *preload],
                    pass_fds=[zygote_end.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # one scheduler group, see worker/processes/zygote.py
                    stdout=2,  # stdout may be the MCP stream
                    env=environ,
                )
            except OSError as error:
                server_end.close()
                raise OperationFailed(
                    f"Python could not be started ({python}: {error.strerror}). Name another as the setting or the "
                    "notebook's `python`."
                ) from error
        return cls(process, server_end)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and self._control.fileno() >= 0

    async def ready(self) -> dict[str, Any]:
        """What it preloaded, its Python and its features. Raises OperationFailed if it ended instead."""
        return await asyncio.shield(self._ready)

    async def fork(self, *, isolated: bool, own_uid: bool) -> SupervisorClient:
        """Fork a supervisor, if `isolated` in namespaces of its own, and there with a user of its own."""
        server_end, zygote_end = packets.socket_pair()
        server_end.setblocking(False)
        try:
            with zygote_end:
                fields = {"isolated": isolated, "own_uid": own_uid}
                pidfd, *namespaces = await self._request(fields, [zygote_end.fileno()])
        except BaseException:
            server_end.close()
            raise
        return SupervisorClient(server_end, pidfd, namespaces[0] if namespaces else -1)

    async def open_trees(self, paths: list[tuple[str, bool]], user_namespace: int) -> list[int]:
        """Open folders as mounts, each writable or not; `user_namespace` maps their owners."""
        return await self._request({"trees": paths}, [user_namespace])

    async def _request(self, message: dict[str, Any], descriptors: list[int]) -> list[int]:
        number = next(self._numbers)
        answer: asyncio.Future[list[int]] = self._loop.create_future()
        self._pending[number] = answer
        try:
            packets.send(self._control, {"id": number, **message}, descriptors)
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                packets.close(answer.result())  # the caller is gone; a supervisor ends when its socket closes
            raise
        except OSError as error:
            raise OperationFailed("The zygote is gone; call again.") from error
        finally:
            self._pending.pop(number, None)

    def adopt(self, supervisor_pid: int) -> None:
        """Keep a supervisor that was not forked here alive when its own parent ends."""
        with contextlib.suppress(OSError):
            packets.send(self._control, {"adopt": supervisor_pid})

    async def close(self) -> None:
        """Disconnect: its supervisors end, and it waits for them. Then kill it."""
        warm = self._ready.done()
        self._disconnect()
        if warm:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self._ended()
        self._process.kill()
        await wait_killed(self._ended(), self._process.pid, "The process that kernels are forked from")

    async def _ended(self) -> None:
        while self._process.poll() is None:  # noqa: ASYNC110 - short; Popen has no event
            await asyncio.sleep(0.005)

    def _on_message(self) -> None:
        try:
            message, descriptors, _ = packets.receive(self._control)  # trusted: no user code runs in it
        except BlockingIOError:
            return
        if not message:
            self._disconnect()
        elif "ready" in message:
            self._ready.set_result(message)
        elif "done" in message:
            pending = self._pending.pop(message["done"], None)
            if pending is not None and not pending.done():
                pending.set_result(descriptors)
            else:
                packets.close(descriptors)  # the caller is gone; a supervisor ends when its socket closes
        elif "failed" in message:
            pending = self._pending.pop(message["failed"], None)
            if pending is not None and not pending.done():
                pending.set_exception(OperationFailed(f"A kernel's namespaces could not be created: {message['why']}."))

    def _disconnect(self) -> None:
        if self._control.fileno() < 0:
            return
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        error = OperationFailed("The process that kernels are forked from ended; its output is in the log. Call again.")
        if not self._ready.done():
            self._ready.set_exception(OperationFailed(_never_ready(str(self._process.args[0]))))  # type: ignore[index]
            self._ready.exception()  # retrieved, so that asyncio logs nothing
        for pending in self._pending.values():
            if not pending.done():
                pending.set_exception(error)
