"""Commands with a small or full disk: a mount namespace of their own, and code that fills the disk."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.external_programs import missing

UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]
# private first, so that nothing done here reaches the machine's own mounts
PRIVATE = 'mount --make-rprivate / && {mount} && exec "$@"'


def require_user_namespaces() -> None:
    """Skip the test if this machine does not allow a mount namespace."""
    if shutil.which("unshare") is None:
        missing("user namespaces", "unshare is not installed")
    tried = subprocess.run([*UNSHARE, "mount", "--make-rprivate", "/"], capture_output=True, text=True)
    if tried.returncode != 0:
        missing("user namespaces", tried.stderr.strip())


def with_mount(mount: str, folder: Path, *command: str) -> list[str]:
    """The command in a mount namespace of its own; `mount` says $0 for the folder."""
    return [*UNSHARE, "sh", "-c", PRIVATE.format(mount=mount), str(folder), *command]


FILL = """
import os
with open("fill", "wb", buffering=0) as file:
    for size in (65536, 512, 1):
        try:
            while True:
                file.write(b"x" * size)
        except OSError as error:
            print(error.strerror)
"""
