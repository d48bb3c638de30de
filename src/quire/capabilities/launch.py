"""A program that runs a command and kills all of its processes when it, or the server, ends.

Run as `python -I -S launch.py PARENT PROGRAM ARGV0 ARG...`. It is a process and not code between fork and
exec, since locks of the server's threads may be held. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NoReturn

_PDEATHSIG, _DUMPABLE, _CHILD_SUBREAPER = 1, 4, 36  # prctl's numbers
# sent by the server, or by the system when the server ended; not on Windows
END_ALL = getattr(signal, "SIGUSR1", signal.SIGTERM)


def main(parent: int, program: str, argv: list[str]) -> NoReturn:
    system = ctypes.CDLL(None)
    system.prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphaned descendants become children of this process
    signal.signal(END_ALL, lambda *_: _end_all())
    for ours in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # sent to the whole group, meant for the command
        signal.signal(ours, signal.SIG_IGN)
    system.prctl(_PDEATHSIG, END_ALL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
    child = os.fork()
    if child == 0:
        _become(program, argv)
    for descriptor in (0, 1, 2):  # only the command holds them, so that the server sees end of file
        os.close(descriptor)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            break
    _kill_below()
    if os.WIFSIGNALED(status):  # end by the same signal, without a core dump
        system.prctl(_DUMPABLE, 0, 0, 0, 0)
        if os.WTERMSIG(status) != signal.SIGKILL:
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def _become(program: str, argv: list[str]) -> NoReturn:
    for number in (END_ALL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(program, argv)  # noqa: S606 - no shell is what is wanted
    except OSError as error:
        sys.stderr.write(f"{program}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(126)


def _end_all() -> NoReturn:
    _kill_below()
    os._exit(137)


def _kill_below() -> None:
    """Kill all descendants; children of killed processes become ours and are killed too."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:  # noqa: PTH123 - starts faster
            for pid in file.read().split():
                os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
