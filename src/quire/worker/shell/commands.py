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
_TERMINAL_SIZE = struct.pack("HHHH", 24, 80, 0, 0)
_INTERRUPT_TIMEOUT_S = 2.0
_PYTHON_PATTERN = r"""(?P<quote>["']?)(?:[^\s"'|&;()]*/)?python[\d.]*(?P=quote)"""
_PIP_COMMAND = os.path.join(os.path.dirname(os.path.abspath(packages.__file__)), "pip_command.py")
_PIP_PATTERN = re.compile(
    rf"(?P<before>^\s*|[|&;(]\s*)(?:(?P<uv>uv(?=\s+pip\s))|pip3?|{_PYTHON_PATTERN}\s+-m\s+pip)(?=\s|$)"
)


def system(command: str, *, terminal: bool = True) -> int:
    """Run it by the shell and print what it says; its exit code, -n where signal n ended it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pending = ""  # a "\r" whose "\n" may come with the next bytes

    def relay(data: bytes, last: bool = False) -> None:
        nonlocal pending
        text = pending + decoder.decode(data, last)
        pending = "\r" if text.endswith("\r") and not last else ""
        text = text[: len(text) - len(pending)].replace("\r\n", "\n")
        if text:
            sys.stdout.write(text)
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
    pip_functions = _PipFunctions() if _PIP_PATTERN.search(command) is not None else None
    try:
        script = pip_functions.command(command) if pip_functions is not None else command
        environment = {**os.environ, **_ENVIRONMENT}
        if pip_functions is not None and "index-url" in command:
            environment = packages.without_fail_fast(environment)
        return _run_shell(script, sink, terminal, environment)
    finally:
        if pip_functions is not None:
            sys.stderr.write(pip_functions.close())


def _run_shell(command: str, sink: Callable[[bytes], object], terminal: bool, environment: dict[str, str]) -> int:
    read_end, write_end = _open_output(terminal)
    try:
        process = programs.start(
            [_shell(), "-c", command],
            _stop,
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            env=environment,
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    try:
        return _follow(process, read_end, sink)
    finally:
        os.close(read_end)


def _shell() -> str:
    """The user's own, as IPython has it."""
    return shutil.which(os.environ.get("SHELL", "sh")) or "/bin/sh"


def _open_output(terminal: bool) -> tuple[int, int]:
    """What we read and what the command writes to."""
    if terminal:
        with contextlib.suppress(OSError):  # a sandbox may have no terminals to give
            read_end, write_end = os.openpty()
            fcntl.ioctl(write_end, termios.TIOCSWINSZ, _TERMINAL_SIZE)
            return read_end, write_end
    return os.pipe()


def _follow(process: subprocess.Popen[bytes], read_end: int, sink: Callable[[bytes], object]) -> int:
    try:
        while _relay_once(process, read_end, sink):
            pass
        return process.wait()
    except BaseException:
        _stop(process)
        raise


def _relay_once(process: subprocess.Popen[bytes], read_end: int, sink: Callable[[bytes], object]) -> bool:
    """Relay what there is; False when all is said, though a child in the background may hold the other end."""
    has_ended = process.poll() is not None  # asked first: what it wrote before its end is there to read by then
    if not select.select([read_end], [], [], 0 if has_ended else 0.05)[0]:
        return not has_ended
    try:
        data = os.read(read_end, 1 << 16)
    except OSError:  # how a terminal says that nobody holds its other end
        return False
    if data:
        sink(data)
    return bool(data)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the command, and kill what does not heed it."""
    _signal(process, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_INTERRUPT_TIMEOUT_S)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


class _PipFunctions:
    """`pip` in a command is the kernel's own: what it installs can be imported here. A failed change is remarked on."""

    def __init__(self) -> None:
        handle, self._failures = tempfile.mkstemp(prefix="quire-pip-")
        os.close(handle)

    def command(self, command: str) -> str:
        program = shlex.join([sys.executable, "-P", _PIP_COMMAND, packages.folder, self._failures])
        functions = "".join(f'{name}() {{ {program} {name} "$@"; }}; ' for name in ("pip", "uv"))
        return functions + _PIP_PATTERN.sub(lambda found: found["before"] + (found["uv"] or "pip"), command)

    def close(self) -> str:
        """What is to be said of changes that failed."""
        importlib.invalidate_caches()
        user = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
        if os.path.isdir(user) and user not in sys.path:  # there was no such folder when Python started
            site.addsitedir(user)
        failures = ""
        with contextlib.suppress(OSError):  # the command removed it
            with open(self._failures, encoding="utf-8", errors="replace") as file:
                failures = "".join(f"[quire] {line}" for line in file)
            os.unlink(self._failures)
        return failures
