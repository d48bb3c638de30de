"""A program: become the command given, but die with the process that started it, however that ends.

Run before the command as `python -I -S launch.py PARENT PROGRAM ARGV0 ARG...`. A process of its own, not code
between fork and exec: the server has threads, and their locks may be held at any moment.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PDEATHSIG = 1  # prctl's number

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(0)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python; that would pass to the command
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execv(sys.argv[2], sys.argv[3:])  # noqa: S606 - no shell is what is wanted
    except OSError as error:
        sys.stderr.write(f"{sys.argv[2]}: {error.strerror}\n")
        sys.exit(126)
