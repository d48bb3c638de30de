"""The zygote: a warm process that has imported large libraries once and forks supervisors in milliseconds.

It has one thread and runs no user code. A request is one packet with the new supervisor's socket; the answer is the
supervisor's pid and pidfd. Processes that a killed supervisor leaves behind become children of the zygote and are
killed. It ends with the server, after all processes below it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import os
import resource
import selectors
import signal
import socket
import sys
import time
from types import ModuleType
from typing import Any

from quire.wire import packets
from quire.worker import loop as worker_loop
from quire.worker.processes import process_tree, venv_exec
from quire.worker.processes.supervisor import Supervisor
from quire.worker.sandbox import namespaces, probe, root, system
from quire.worker.shell import import_hooks, ipython_finder, ipython_loader
from quire.worker.snapshot import process_state

_NICE = 5  # about a third of the processor share of a normal process
_ENVIRONMENT = {  # as in ipykernel: no pager waits for a key, and colours are on
    "TERM": "xterm-color",
    "CLICOLOR": "1",
    "FORCE_COLOR": "1",
    "CLICOLOR_FORCE": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
}
_INLINE_BACKEND = "module://matplotlib_inline.backend_inline"
_CLOSE_TIMEOUT_S = 2.0  # for supervisors to end with the server


def main(arguments: list[str]) -> None:
    control = socket.socket(fileno=int(arguments[0]))
    process_tree.die_with_parent(int(arguments[1]))  # while it warms up; later `control` reports the server's end
    process_tree.become_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C in a terminal
    loaded = warm(arguments[3:], ipython_folder=arguments[2])
    _lower_priority()
    gc.collect()
    gc.freeze()  # otherwise a garbage collection in a kernel would copy all pages of these objects
    process_tree.outlive_parent()
    ready = {
        "ready": loaded,
        "python": sys.version.split()[0],
        "interpreter_paths": root.interpreter_paths(),
        "features": probe.probe_features(),
    }
    with contextlib.suppress(OSError):  # the server is gone, which `control` reports
        packets.send(control, ready)
    _Zygote(control).serve()


def main_in_venv(message: str) -> None:
    """Continue as the live process that executed this Python, see venv_exec.py."""
    start, enter = venv_exec.read_start(message)
    warm([], ipython_folder=enter.ipython_folder)
    worker_loop.run_worker(start, enter)


def warm(preload: list[str], *, ipython_folder: str) -> list[str]:
    """Load what every kernel begins with. Returns the names that could be imported. `ipython_folder` has IPython, for
    interpreters without it."""
    ipython_loader.define_get_ipython()
    if ipython_finder.install(ipython_folder):
        import_hooks.after_import("matplotlib", _draw_inline)
    elif importlib.util.find_spec("matplotlib_inline") is not None:
        os.environ["MPLBACKEND"] = _INLINE_BACKEND
    loaded = [name for name in preload if _preload(name)]
    if "matplotlib" in sys.modules:
        ipython_loader.preload_backend()
    for name in ("PYTHONHASHSEED", "JE_ARROW_MALLOC_CONF"):
        os.environ.pop(name, None)  # already read, and not for programs that cells start
    os.environ.update(_ENVIRONMENT)
    process_state.remember_initial_state()  # once for all kernels, which share its memory
    return loaded


def _lower_priority() -> None:
    """The server must answer while kernels compute. Where Linux shares processors among sessions, the zygote's session
    has one share for all kernels, and niceness counts within a session only."""
    os.nice(_NICE)


def _preload(name: str) -> bool:
    try:
        importlib.import_module(name)
        if name == "IPython":
            ipython_loader.preload_shell()
    except Exception:  # not installed or broken; the cell that imports it reports it
        return False
    return True


def _draw_inline(matplotlib: ModuleType) -> None:
    """Set the backend without MPLBACKEND: programs that cells start would inherit it, but do not find the copy of
    IPython."""
    matplotlib.rcParams["backend"] = _INLINE_BACKEND


class _Zygote:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._supervisors: set[int] = set()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)  # required by set_wakeup_fd
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def serve(self) -> None:
        self._selector.register(self._control, selectors.EVENT_READ, self._on_request)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._reap)
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _on_request(self) -> None:
        message, descriptors, _ = packets.receive(self._control)
        if not message:
            self._end()
        elif "adopt" in message:  # forked from a checkpoint; it becomes our child when its own supervisor ends
            self._supervisors.add(message["adopt"])
        elif "trees" in message:
            self._open_trees(message, descriptors)
        else:
            self._fork(message, descriptors)

    def _fork(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Fork a supervisor, if `isolated` in new namespaces; then the answer includes its user namespace."""
        user_namespace: list[int] = []
        try:
            if message.get("isolated"):
                process = namespaces.fork_isolated(own_uid=message["own_uid"])
                pid = process.pid if process is not None else 0
                user_namespace = [process.user_namespace] if process is not None else []
            else:
                pid = os.fork()
        except OSError as error:
            packets.close(descriptors)
            self._answer({"failed": message["id"], "why": str(error)})
            return
        if pid == 0:
            self._run_supervisor(socket.socket(fileno=descriptors[0]), isolated=bool(message.get("isolated")))
        self._supervisors.add(pid)
        packets.close(descriptors)
        self._answer({"done": message["id"], "pid": pid}, [os.pidfd_open(pid), *user_namespace])

    def _open_trees(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Open folders as mounts for a kernel's root, with the kernel's user as their owner."""
        trees: list[int] = []
        try:
            for path, writable in message["trees"]:
                trees.append(system.open_tree(path))
                try:
                    system.set_attributes(trees[-1], read_only=not writable, user_namespace=descriptors[0])
                except OSError:
                    if writable:
                        raise
                    system.set_attributes(trees[-1], read_only=True)  # readable as for any other user
            self._answer({"done": message["id"]}, trees)
        except OSError as error:
            packets.close(trees)
            self._answer({"failed": message["id"], "why": str(error)})
        finally:
            packets.close(descriptors)

    def _answer(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        with contextlib.suppress(OSError):  # the server is gone, which `control` reports
            packets.send(self._control, message, descriptors or [])
        packets.close(descriptors or [])

    def _run_supervisor(self, control: socket.socket, *, isolated: bool) -> None:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            self._selector.close()
            self._control.close()
            packets.close([self._wake_read, self._wake_write])
            if isolated:
                port, listener = namespaces.set_up()
                with contextlib.suppress(OSError):  # the server is gone, which the supervisor notices
                    packets.send(control, {"proxy_port": port}, [listener.fileno()])
                listener.close()
            start = Supervisor(control).serve()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            worker_loop.run_worker(start)
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
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._supervisors.discard(pid)
        for pid in process_tree.descendants(os.getpid(), self._supervisors):
            process_tree.kill(pid)

    def _end(self) -> None:
        """Wait for supervisors, which notice the server's end themselves; then kill the rest."""
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        while process_tree.children(os.getpid()) and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.01)
        self._supervisors.clear()
        self._reap()
        os._exit(0)
