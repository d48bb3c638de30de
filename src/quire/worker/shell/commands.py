"""Shell commands of cells: run in a terminal with their output relayed, or captured as lines."""

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
_PYTHON_PATTERN = r"""(?P<quote>["']?)(?:[^\s"'|&;()]*/)?python[\d.]*(?P=quote)"""
_PIP_COMMAND = os.path.join(os.path.dirname(os.path.abspath(packages.__file__)), "pip_command.py")
_PIP_PATTERN = re.compile(
    rf"(?P<before>^\s*|[|&;(]\s*)(?:(?P<uv>uv(?=\s+pip\s))|pip3?|{_PYTHON_PATTERN}\s+-m\s+pip)(?=\s|$)"
)


def system(command: str, *, terminal: bool = True) -> int:
    """Run a shell command and print its output. Returns its exit code, or -n if signal n ended it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pending = ""  # a "\r" that may be followed by "\n" in the next bytes

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
    return 128 - code if code > 128 else code  # how a shell reports a signal


def getoutput(command: str) -> list[str]:
    """Run a shell command and return the lines it writes to stdout and stderr."""
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
        streams = {"stdin": subprocess.DEVNULL, "stdout": write_end, "stderr": write_end}
        process = programs.start([_shell(), "-c", command], env=environment, **streams)
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
    """The user's shell, as in IPython."""
    return shutil.which(os.environ.get("SHELL", "sh")) or "/bin/sh"


def _open_output(terminal: bool) -> tuple[int, int]:
    """A terminal or a pipe: our end and the command's."""
    if terminal:
        with contextlib.suppress(OSError):  # a sandbox may have no terminals
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
        programs.stop(process)
        raise


def _relay_once(process: subprocess.Popen[bytes], read_end: int, sink: Callable[[bytes], object]) -> bool:
    """Relay available output. False at the end, even if a background process still holds the other end."""
    has_ended = process.poll() is not None  # checked before reading, so that its last output is read
    if not select.select([read_end], [], [], 0 if has_ended else 0.05)[0]:
        return not has_ended
    try:
        data = os.read(read_end, 1 << 16)
    except OSError:  # of a terminal whose other end is closed
        return False
    if data:
        sink(data)
    return bool(data)


class _PipFunctions:
    """Makes `pip` in a command use the kernel's environment, and reports failed changes."""

    def __init__(self) -> None:
        handle, self._failures = tempfile.mkstemp(prefix="quire-pip-")
        os.close(handle)

    def command(self, command: str) -> str:
        program = shlex.join([sys.executable, "-P", _PIP_COMMAND, packages.folder, self._failures])
        functions = "".join(f'{name}() {{ {program} {name} "$@"; }}; ' for name in ("pip", "uv"))
        return functions + _PIP_PATTERN.sub(lambda match: match["before"] + (match["uv"] or "pip"), command)

    def close(self) -> str:
        """Make new packages importable. Returns a notice about failed changes."""
        importlib.invalidate_caches()
        user = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
        if os.path.isdir(user) and user not in sys.path:  # the folder did not exist when Python started
            site.addsitedir(user)
        failures = ""
        with contextlib.suppress(OSError):  # the command removed it
            with open(self._failures, encoding="utf-8", errors="replace") as file:
                failures = "".join(f"[quire] {line}" for line in file)
            os.unlink(self._failures)
        return failures
