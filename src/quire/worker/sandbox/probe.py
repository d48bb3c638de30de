"""What this machine lets a process be put under, found by trying, in children that end at once."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable
from typing import Any

from quire.os_sandbox import landlock, seccomp
from quire.worker.sandbox import namespaces, root, system


def able() -> dict[str, Any]:
    """For namespaces, own uids and seccomp "" or why they cannot be had; of Landlock the version, 0 for none."""
    apart = _tried(lambda: _apart(own_uid=False))
    filters = seccomp.available()
    if not filters:
        seccomp.program(platform.machine(), internet=not apart)  # made once, for all that are forked from here
    return {
        "namespaces": apart,
        "uid": apart or _own_uid(),
        "landlock": landlock.abi(),
        "seccomp": filters,
    }


def _own_uid() -> str:
    if os.getuid() != 0:
        return "only root can give kernels user ids of their own"
    return _tried(lambda: _apart(own_uid=True)) or _tried(_ids)


def _tried(step: Callable[[], None]) -> str:
    try:
        step()
    except OSError as error:
        return str(error)
    return ""


def _apart(*, own_uid: bool) -> None:
    """A process apart that sees itself and enters a root of its own."""
    told, tell = os.pipe2(os.O_CLOEXEC)
    try:
        made = namespaces.fork(own_uid=own_uid)
        if made is None:
            _try_root(tell)
            return
        os.close(tell)
        tell = -1
        os.close(made.ids)
        os.waitpid(made.pid, 0)
        said = os.read(told, 500).decode("utf-8", "replace")
        if said != "fine":
            raise OSError(said or "a process in namespaces of its own died")
    finally:
        os.close(told)
        if tell >= 0:
            os.close(tell)


def _try_root(tell: int) -> None:
    try:
        namespaces.settle()
        root.enter(root.Root(granted=[], home="/", private_bytes=1 << 20))
        os.write(tell, b"fine")
    except OSError as error:
        os.write(tell, str(error).encode()[:500])
    finally:
        os._exit(0)


def _ids() -> None:
    """Whether files of this user can be seen as another's."""
    made = namespaces.fork(own_uid=True)
    if made is None:
        os._exit(0)
    try:
        folder = tempfile.mkdtemp()
        try:
            tree = system.open_tree(folder)
        finally:
            os.rmdir(folder)  # soon: this process is killed if the server ends while it warms up
        try:
            system.set_attributes(tree, read_only=False, ids=made.ids)
        finally:
            os.close(tree)
    finally:
        os.close(made.ids)
        os.waitpid(made.pid, 0)
