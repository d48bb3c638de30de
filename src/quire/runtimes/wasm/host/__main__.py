"""`python -m quire.runtimes.wasm.host LANGUAGE ASSETS`: load its program, then hold guests until stdin ends."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server's to answer
    read, write = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)  # what a library prints is no frame
    from quire.runtimes.wasm.host.languages import load
    from quire.runtimes.wasm.host.loop import Loop

    with os.fdopen(write, "wb") as out:
        Loop(read, out, load(sys.argv[1], Path(sys.argv[2]), _say)).serve()
    os._exit(0)  # guests that still run are nobody's


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
