"""Process functions of Linux: fork a child for the supervisor, list descendants, end with the parent."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import platform
import signal
import time
import warnings
from collections.abc import Iterable, Iterator

_PDEATHSIG, _CHILD_SUBREAPER, _GET_TID_ADDRESS = 1, 36, 40  # of prctl
_SIBLING = 0x8000  # CLONE_PARENT
_CLONE_FLAGS = 0x01000000 | 0x00200000 | signal.SIGCHLD  # CLONE_CHILD_SETTID, _CHILD_CLEARTID
# number of the system call, and its argument for the thread id's address
_CLONE = {"x86_64": (56, 3), "aarch64": (220, 4)}.get(platform.machine())
_ADOPTION_TIMEOUT_S = 5.0  # for a copy to become the supervisor's child
_libc = ctypes.CDLL(None)
_python = ctypes.PyDLL(None)  # calls that keep the GIL, so that no signal handler runs after them
_unfinished_forks: list[bool] = []
_python.syscall.restype = ctypes.c_long
_python.syscall.argtypes = [ctypes.c_long] * 6

# bound before any cell runs, since a cell may patch os
_fork, _getppid, _exit, _waitpid = os.fork, os.getppid, os._exit, os.waitpid


def become_subreaper() -> None:
    """Become the parent of processes that descendants leave behind, instead of init."""
    _libc.prctl(_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have Linux kill this process when its parent ends."""
    _libc.prctl(_PDEATHSIG, signal.SIGKILL)
    if _getppid() != parent:
        _exit(0)


def outlive_parent() -> None:
    _libc.prctl(_PDEATHSIG, 0)


def fork_sibling(supervisor_pid: int, *, single_threaded: bool) -> bool:
    """Fork a copy that is the supervisor's child, so that os.wait() in a cell does not see it. True in the copy.

    `single_threaded` says that this process has one thread.
    """
    is_copy = _clone_sibling() if single_threaded and _getppid() == supervisor_pid else None
    if is_copy is None:
        finish_fork()
        is_copy = _fork_twice(supervisor_pid)
    if is_copy:
        os.setpgid(0, 0)  # signals to the original's group are not for the copy
        die_with_parent(supervisor_pid)
    return is_copy


def is_single_threaded() -> bool:
    """Whether this process has one thread."""
    return len(os.listdir("/proc/self/task")) == 1


def finish_fork() -> None:
    """Run what Python runs in the child of a fork. Checkpoints delay it until they wake: most never do, and a page that
    is not touched stays shared."""
    if _unfinished_forks:
        _unfinished_forks.clear()
        _python.PyOS_AfterFork_Child()


def _clone_sibling() -> bool | None:
    """Fork a child of our parent directly, at half the cost of forking twice. None where Linux cannot.

    Only with one thread, since the fork handlers of libraries, which this skips, are about threads. The copy must call
    `finish_fork` before it continues. Until then Python's fork locks are held in it, and a copy of the copy is taken in
    that state.
    """
    is_unfinished = bool(_unfinished_forks)
    call = _clone(_SIBLING)
    if call is None:
        return None
    if not is_unfinished:
        _python.PyOS_BeforeFork()
    pid = _python.syscall(*call)
    if pid == 0:
        _unfinished_forks[:] = [True]
        return True
    if not is_unfinished:
        _python.PyOS_AfterFork_Parent()
    return None if pid < 0 else False


def fork_into(namespaces: int) -> int | None:
    """Fork the first process of new namespaces. Returns its pid, 0 in it, or None where this takes another way. See
    above."""
    call = _clone(namespaces) if is_single_threaded() else None
    if call is None:
        return None
    _python.PyOS_BeforeFork()
    pid = int(_python.syscall(*call))
    if pid == 0:
        _python.PyOS_AfterFork_Child()
        return 0
    _python.PyOS_AfterFork_Parent()
    return pid if pid > 0 else None


def _clone(flags: int) -> list[int] | None:
    """Number and arguments of the clone system call."""
    thread_id_address = ctypes.c_long(0)
    if _CLONE is None or _libc.prctl(_GET_TID_ADDRESS, ctypes.byref(thread_id_address)) or not thread_id_address.value:
        return None
    syscall_number, argument_index = _CLONE
    arguments = [_CLONE_FLAGS | flags, 0, 0, 0, 0]
    arguments[argument_index] = thread_id_address.value  # libc keeps the thread's id there, and it differs in the copy
    return [syscall_number, *arguments]


def _fork_twice(supervisor_pid: int) -> bool:
    """Fork a child that forks and ends; its child becomes the supervisor's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn about lost threads, which the fork report lists
        child = _fork()
    if child:
        with contextlib.suppress(ChildProcessError):  # a cell ignores SIGCHLD, or a thread waited for all children
            _, status = _waitpid(child, 0)
            if status:
                raise OSError("no process could be forked")
        return False
    try:
        if _fork():
            _exit(0)
    except OSError:
        _exit(1)
    deadline = time.monotonic() + _ADOPTION_TIMEOUT_S
    while _getppid() != supervisor_pid:
        if time.monotonic() > deadline:
            _exit(0)
        os.sched_yield()
    return True


def descendants(root: int, spare: set[int]) -> list[int]:
    """All processes below `root`, parents first, without those of `spare` and their descendants."""
    pids: list[int] = []
    layer = [root]
    while layer:
        layer = [child for parent in layer for child in children(parent) if child not in spare]
        pids += layer
    return pids


def namespace_size() -> float:
    """Number of processes in this namespace. Infinite unless this process is its first one."""
    return sum(name.isdecimal() for name in os.listdir("/proc")) if os.getpid() == 1 else math.inf


@contextlib.contextmanager
def stopped_namespace() -> Iterator[None]:
    """Stop all other processes of this namespace meanwhile, if this process is its first one."""
    if os.getpid() != 1:
        yield
        return
    os.kill(-1, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # there are no others
            os.kill(-1, signal.SIGCONT)


def parent(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])
    return 0


def children(pid: int) -> list[int]:
    """Children as Linux lists them. One that starts or ends meanwhile can hide another: ask again where it matters."""
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                pids += map(int, file.read().split())
    return pids


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def wait_while_hidden(pids: Iterable[int], deadline_s: float) -> None:
    """Wait until killed processes that /proc does not show have ended; only then does it show their children. In the
    sandbox /proc hides processes that cannot be traced."""
    deadline = time.monotonic() + deadline_s
    for pid in pids:
        while _is_hidden(pid) and time.monotonic() < deadline:
            time.sleep(0.0005)


def _is_hidden(pid: int) -> bool:
    if os.path.exists(f"/proc/{pid}"):
        return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False  # it has ended
    return not os.path.exists(f"/proc/{pid}")


def set_oom_score(pid: int | str, score: int) -> None:
    """Set which process is killed first when memory runs out: 1000 first, 0 late."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w") as file:
        file.write(str(score))
