"""A warm process that has imported the heavy libraries once and forks a kernel in milliseconds.

It stays single-threaded and runs no user code. Requests come on a socket as one JSON packet with the
new kernel's descriptors beside it; answers are the child's pid with a pidfd, and each child's death.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import selectors
import signal
import socket
import sys
from typing import Any

from quire.worker import figures  # noqa: F401 - matplotlib finds its backend among the loaded modules
from quire.worker import loop as worker_loop
from quire.worker.channel import Channel

_PR_SET_PDEATHSIG = 1
_NICE = 5  # how far kernels stand back behind the server; more would starve them on a busy machine


def main(arguments: list[str]) -> None:
    control = socket.socket(fileno=int(arguments[0]))
    _die_with(int(arguments[1]))
    os.environ.pop("PYTHONHASHSEED", None)  # ours, not for what cells start
    os.environ["MPLBACKEND"] = "module://quire.worker.figures"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is the server's to handle
    loaded = [name for name in arguments[2:] if _preload(name)]
    if "matplotlib" in sys.modules:
        del os.environ["MPLBACKEND"]  # read when it loaded; for what cells start it would be a riddle
    _give_way()
    gc.collect()
    gc.freeze()  # without it a collection in a kernel would unshare every page of these objects
    _say(control, {"ready": loaded, "python": sys.version.split()[0]})
    _Zygote(control).serve()


def _die_with(parent: int) -> None:
    """Be killed when the parent dies, however it dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _give_way() -> None:
    """The server must answer while kernels compute. Where Linux groups processes by session, niceness counts
    within a group only: the zygote's session is one group for all kernels, and the group is made nice."""
    os.nice(_NICE)
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as group:
        group.write(str(_NICE))


def _preload(name: str) -> bool:
    try:
        importlib.import_module(name)
    except Exception:  # not installed, or broken: the cell that imports it will say so
        return False
    return True


def _say(control: socket.socket, words: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
    data = json.dumps(words).encode()
    beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    control.sendmsg([data], beside)


class _Zygote:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._ready = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)  # set_wakeup_fd asks for it
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def serve(self) -> None:
        self._ready.register(self._control, selectors.EVENT_READ, self._fork)
        self._ready.register(self._wake_read, selectors.EVENT_READ, self._reap)
        while True:
            for key, _ in self._ready.select():
                key.data()

    def _fork(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, 8)
        if not data:
            os._exit(0)  # the server is gone
        request = json.loads(data)
        pid = os.fork()
        if pid == 0:
            self._become_kernel(request, list(descriptors))
        for each in descriptors:
            os.close(each)
        pidfd = os.pidfd_open(pid)
        _say(self._control, {"forked": request["id"], "pid": pid}, (pidfd,))
        os.close(pidfd)

    def _become_kernel(self, request: dict[str, Any], descriptors: list[int]) -> None:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            zygote = os.getppid()
            self._ready.close()
            for each in (self._control.fileno(), self._wake_read, self._wake_write):
                os.close(each)
            os.setpgid(0, 0)  # a process group of its own: an interrupt reaches what the cell started too
            _die_with(zygote)
            _start(request, descriptors)
            code = 0
        except BaseException as error:  # nothing may return into the zygote's loop
            with contextlib.suppress(BaseException):
                os.write(2, f"quire worker: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                _say(self._control, {"died": pid, "status": status, "peak_kb": usage.ru_maxrss})


def _start(request: dict[str, Any], descriptors: list[int]) -> None:
    control, out_write, out_read, err_write, err_read, lock = descriptors
    os.dup2(out_write, 1)
    os.dup2(err_write, 2)
    os.close(out_write)
    os.close(err_write)
    worker_loop.quiet_stdin()
    os.chdir(request["cwd"])
    sys.path.insert(0, "")
    sys.argv = [""]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _reseed()
    worker_loop.serve(Channel(socket.socket(fileno=control), out_read, err_read, lock))


def _reseed() -> None:
    """Two kernels of one zygote must not draw the same random numbers."""
    import random

    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
