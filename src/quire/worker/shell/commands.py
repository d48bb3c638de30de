"""Shell commands of a cell: in a terminal of their own and relayed as they come, or read into lines."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import importlib
import os
import re
import select
import shlex
import shutil
import signal
import site
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable

from quire.worker.environment import packages
from quire.worker.shell import programs

_ENVIRONMENT = {"PAGER": "cat", "GIT_PAGER": "cat", "TERM": "xterm-color"}
_SIZE = struct.pack("HHHH", 24, 80, 0, 0)
_INTERRUPT_SECONDS = 2.0
_PYTHON = r"""(?P<quote>["']?)(?:[^\s"'|&;()]*/)?python[\d.]*(?P=quote)"""
_PIP_COMMAND = os.path.join(os.path.dirname(os.path.abspath(packages.__file__)), "pip_command.py")
_PIP = re.compile(rf"(?P<before>^\s*|[|&;(]\s*)(?:(?P<uv>uv(?=\s+pip\s))|pip3?|{_PYTHON}\s+-m\s+pip)(?=\s|$)")


def system(command: str, *, terminal: bool = True) -> int:
    """Run it by the shell and print what it says; its exit code, -n where signal n ended it."""
    text = codecs.getincrementaldecoder("utf-8")("replace")
    held = ""  # a "\r" whose "\n" may come with the next bytes

    def relay(data: bytes, last: bool = False) -> None:
        nonlocal held
        words = held + text.decode(data, last)
        held = "\r" if words.endswith("\r") and not last else ""
        words = words[: len(words) - len(held)].replace("\r\n", "\n")
        if words:
            sys.stdout.write(words)
            sys.stdout.flush()

    sys.stdout.flush()
    code = _run(command, relay, terminal=terminal)
    relay(b"", last=True)
    return 128 - code if code > 128 else code  # a shell says so of a signal


def getoutput(command: str) -> list[str]:
    """Run it by the shell and give the lines it writes, to either stream."""
    data = bytearray()
    _run(command, data.extend, terminal=False)
    return data.decode("utf-8", "replace").replace("\r\n", "\n").splitlines()


def _run(command: str, sink: Callable[[bytes], object], *, terminal: bool) -> int:
    pip = _Pip() if _PIP.search(command) is not None else None
    try:
        shown = pip.command(command) if pip is not None else command
        environment = {**os.environ, **_ENVIRONMENT}
        if pip is not None and "index-url" in command:
            environment = packages.without_limits(environment)
        return _run_shell(shown, sink, terminal, environment)
    finally:
        if pip is not None:
            sys.stderr.write(pip.close())


def _run_shell(command: str, sink: Callable[[bytes], object], terminal: bool, environment: dict[str, str]) -> int:
    ours, theirs = _ends(terminal)
    try:
        process = programs.start(
            [_shell(), "-c", command],
            _stop,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env=environment,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    try:
        return _follow(process, ours, sink)
    finally:
        os.close(ours)


def _shell() -> str:
    """The user's own, as IPython has it."""
    return shutil.which(os.environ.get("SHELL", "sh")) or "/bin/sh"


def _ends(terminal: bool) -> tuple[int, int]:
    """What we read and what the command writes to."""
    if terminal:
        with contextlib.suppress(OSError):  # a sandbox may have no terminals to give
            ours, theirs = os.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, _SIZE)
            return ours, theirs
    return os.pipe()


def _follow(process: subprocess.Popen[bytes], end: int, sink: Callable[[bytes], object]) -> int:
    try:
        while _pass_on(process, end, sink):
            pass
        return process.wait()
    except BaseException:
        _stop(process)
        raise


def _pass_on(process: subprocess.Popen[bytes], end: int, sink: Callable[[bytes], object]) -> bool:
    """Relay what there is; False when all is said, though a child in the background may hold the other end."""
    over = process.poll() is not None  # asked first: what it wrote before its end is there to read by then
    if not select.select([end], [], [], 0 if over else 0.05)[0]:
        return not over
    try:
        data = os.read(end, 1 << 16)
    except OSError:  # how a terminal says that nobody holds its other end
        return False
    if data:
        sink(data)
    return bool(data)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the command, and kill what does not heed it."""
    _signal(process, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_INTERRUPT_SECONDS)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


class _Pip:
    """`pip` in a command is the kernel's own: what it installs can be imported here. A failed change is remarked on."""

    def __init__(self) -> None:
        handle, self._failures = tempfile.mkstemp(prefix="quire-pip-")
        os.close(handle)

    def command(self, command: str) -> str:
        words = shlex.join([sys.executable, "-P", _PIP_COMMAND, packages.folder, self._failures])
        functions = "".join(f'{name}() {{ {words} {name} "$@"; }}; ' for name in ("pip", "uv"))
        return functions + _PIP.sub(lambda found: found["before"] + (found["uv"] or "pip"), command)

    def close(self) -> str:
        """What is to be said of changes that failed."""
        importlib.invalidate_caches()
        user = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
        if os.path.isdir(user) and user not in sys.path:  # there was no such folder when Python started
            site.addsitedir(user)
        failed = ""
        with contextlib.suppress(OSError):  # the command removed it
            with open(self._failures, encoding="utf-8", errors="replace") as file:
                failed = "".join(f"[quire] {line}" for line in file)
            os.unlink(self._failures)
        return failed
