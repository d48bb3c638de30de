"""Test which sandbox layers work on this machine, in child processes."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable
from typing import Any

from quire.os_sandbox import landlock, seccomp
from quire.worker.sandbox import namespaces, root, system


def probe_features() -> dict[str, Any]:
    """For namespaces, own user ids and seccomp: "" or why they do not work. For Landlock: the version, or 0."""
    namespace_problem = _problem_of(lambda: _try_isolated(own_uid=False))
    filters = seccomp.unavailable_reason()
    if not filters:
        seccomp.program(platform.machine(), internet=not namespace_problem)  # cached for all forks
    return {
        "namespaces": namespace_problem,
        "uid": namespace_problem or _own_uid_problem(),
        "landlock": landlock.abi(),
        "seccomp": filters,
    }


def _own_uid_problem() -> str:
    if os.getuid() != 0:
        return "only root can give kernels user ids of their own"
    return _problem_of(lambda: _try_isolated(own_uid=True)) or _problem_of(_try_id_mapping)


def _problem_of(step: Callable[[], None]) -> str:
    try:
        step()
    except OSError as error:
        return str(error)
    return ""


def _try_isolated(*, own_uid: bool) -> None:
    """Fork an isolated process that enters its own root."""
    result_read, result_write = os.pipe2(os.O_CLOEXEC)
    try:
        process = namespaces.fork_isolated(own_uid=own_uid)
        if process is None:
            _try_root(result_write)
            return
        os.close(result_write)
        result_write = -1
        os.close(process.user_namespace)
        os.waitpid(process.pid, 0)
        answer = os.read(result_read, 500).decode("utf-8", "replace")
        if answer != "fine":
            raise OSError(answer or "a process in namespaces of its own died")
    finally:
        os.close(result_read)
        if result_write >= 0:
            os.close(result_write)


def _try_root(result_write: int) -> None:
    try:
        namespaces.set_up()
        root.enter(root.Root(granted=[], home="/", private_bytes=1 << 20))
        os.write(result_write, b"fine")
    except OSError as error:
        os.write(result_write, str(error).encode()[:500])
    finally:
        os._exit(0)


def _try_id_mapping() -> None:
    """Test whether mounts can map this user's files to another user."""
    process = namespaces.fork_isolated(own_uid=True)
    if process is None:
        os._exit(0)
    try:
        folder = tempfile.mkdtemp()
        try:
            tree = system.open_tree(folder)
        finally:
            os.rmdir(folder)  # early, since this process is killed if the server ends while it warms up
        try:
            system.set_attributes(tree, read_only=False, user_namespace=process.user_namespace)
        finally:
            os.close(tree)
    finally:
        os.close(process.user_namespace)
        os.waitpid(process.pid, 0)
