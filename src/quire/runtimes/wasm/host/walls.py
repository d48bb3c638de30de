"""The host's own walls, on Linux: what is left to code that has found a hole in WebAssembly."""

from __future__ import annotations

import platform
import resource
import site
import sys
from collections.abc import Callable, Iterable

from quire.os_sandbox import landlock, privileges, seccomp

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/proc", "/sys/devices/system/cpu")
_DEVICES = ("/dev/urandom", "/dev/random", "/dev/zero")


def put_up(readable: Iterable[str], writable: Iterable[str]) -> dict[str, str]:
    """Give up all but reading the first and writing in the second; each layer, and why it does not stand or "".

    Call with one thread. It can load what Python and this program consist of, start threads, and nothing else: no
    program, no process, no socket, no signal.
    """
    version, filters = landlock.abi(), seccomp.unavailable_reason()
    reads = [*_SYSTEM, *_DEVICES, *_interpreter(), *readable]
    found = {
        "rlimits": _tried(lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))),
        "capabilities": _tried(privileges.drop_capabilities),
        "no_new_privs": _tried(privileges.no_new_privs),
        "landlock": "this system has no Landlock",
        "seccomp": filters,
    }
    if version:
        found["landlock"] = _tried(lambda: landlock.restrict(reads, [*writable, "/dev/null"], version))
    if not filters:
        found["seccomp"] = _tried(lambda: seccomp.install(seccomp.program(platform.machine(), alone=True)))
    return found


def _interpreter() -> list[str]:
    """Where this Python and what it can import lie."""
    found = {sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path, *site.getsitepackages()}
    return [path for path in found if path.startswith("/") and path != "/"]


def _tried(step: Callable[[], object]) -> str:
    try:
        step()
    except (OSError, ValueError) as error:
        return str(error)
    return ""
