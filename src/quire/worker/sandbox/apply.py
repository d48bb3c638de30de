"""Apply the planned sandbox layers to this process, in order."""

from __future__ import annotations

import os
import platform
import resource
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from quire.os_sandbox import landlock, privileges, seccomp
from quire.worker.sandbox import root

_SHARED = ("/tmp", "/dev/shm", "/dev", "/proc")  # writable if the process has its own root


class LayerFailed(Exception):
    """A planned layer failed; the process must not run a cell."""


def apply(rules: dict[str, Any], trees: Sequence[int]) -> None:
    """`rules` are settings of the layers, from the server; `trees` are the mounts that they refer to by index."""
    layers = rules["layers"]
    steps: dict[str, Callable[[], None]] = {
        "mount": lambda: root.enter(_root(rules, trees)),
        "rlimits": lambda: _limit(rules["limits"]),
        "capabilities": privileges.drop_capabilities,
        "no_new_privs": privileges.no_new_privs,
        "landlock": lambda: _landlock(rules, own_root="mount" in layers),
        "seccomp": lambda: seccomp.install(seccomp.program(platform.machine(), internet=rules["internet"])),
    }
    for name, step in steps.items():
        if name in layers:
            try:
                step()
            except (OSError, ValueError) as error:
                raise LayerFailed(f"{name}: {error}") from error
    privileges.set_dumpable(True)  # otherwise /proc/self belongs to root


def _root(rules: dict[str, Any], trees: Sequence[int]) -> root.Root:
    return root.Root(
        granted=[root.Tree(path, writable, trees[at] if at >= 0 else -1) for path, writable, at in rules["granted"]],
        home=os.path.expanduser("~"),
        private_bytes=rules["private_bytes"],
    )


def _limit(limits: dict[str, int]) -> None:
    for name, limit in limits.items():
        which = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(which)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(which, (limit, limit))


def _temporary(workspace: str) -> None:
    """Use a temporary folder in the workspace, since /tmp is shared unless the process has its own root."""
    tempfile.tempdir = os.environ["TMPDIR"] = os.path.join(workspace, ".tmp")
    os.makedirs(tempfile.tempdir, mode=0o700, exist_ok=True)


def _landlock(rules: dict[str, Any], *, own_root: bool) -> None:
    writable = [path for path, may, _ in rules["granted"] if may]
    if own_root:
        landlock.restrict(["/"], [*writable, *_SHARED, os.path.expanduser("~")], rules["landlock"])
        return
    _temporary(writable[-1])
    granted = [path for path, _, _ in rules["granted"]]
    readable = [*root.SYSTEM, *root.interpreter_paths(), *granted, *(f"/etc/{name}" for name in root.ETC), "/proc"]
    landlock.restrict(readable, [*writable, "/dev/null", "/dev/zero", "/dev/full", "/dev/pts"], rules["landlock"])
