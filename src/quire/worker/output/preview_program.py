"""A program that makes one image preview in a sandbox: it reads a picture and writes a smaller copy.

For kernels without previews: `python -m quire.worker.output.preview_program image/png < picture > preview`.
"""

from __future__ import annotations

import contextlib
import platform
import resource
import sys

from quire.os_sandbox import landlock, privileges, seccomp
from quire.worker.output.previews import PREVIEW, with_preview

_MAX_MEMORY_BYTES = 1 << 30
_MAX_CPU_SECONDS = 10


def main() -> None:
    """Writes nothing if Pillow is missing or cannot read the picture."""
    try:
        from PIL import Image
    except ImportError:
        return
    Image.preinit()  # load the decoders for PNG, JPEG and GIF before files are out of reach
    picture = sys.stdin.buffer.read()
    _enter_sandbox()
    preview = with_preview({sys.argv[1]: picture}).get(PREVIEW)
    sys.stdout.buffer.write(preview if isinstance(preview, bytes) else b"")


def _enter_sandbox() -> None:
    """Apply the layers that this machine supports, since the picture is not trusted."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_SECONDS, _MAX_CPU_SECONDS))
    with contextlib.suppress(OSError, ValueError):
        privileges.drop_capabilities()
    with contextlib.suppress(OSError, ValueError):
        privileges.no_new_privs()
        if version := landlock.abi():
            landlock.restrict([], [], version)
    with contextlib.suppress(OSError, ValueError, KeyError):
        if not seccomp.unavailable_reason():
            seccomp.install(seccomp.program(platform.machine(), alone=True))


if __name__ == "__main__":
    main()
