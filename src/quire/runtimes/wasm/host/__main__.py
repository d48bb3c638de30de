"""`python -m quire.runtimes.wasm.host LANGUAGE ASSETS`: make and compile its program, where that was not done yet.

With a third argument, the walls as JSON: put them up, load the program, hold guests until stdin ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from quire.runtimes.wasm import words
from quire.runtimes.wasm.host import languages
from quire.runtimes.wasm.host.guest import NotReady


def main() -> None:
    language, assets, *rest = sys.argv[1:]
    if rest:
        _hold(language, Path(assets), json.loads(rest[0]))
    else:
        _make(language, Path(assets))


def _make(language: str, assets: Path) -> None:
    try:
        languages.load(language, assets, _say)
    except Exception as error:
        traceback.print_exc()
        sys.exit(" ".join(str(error).split()) or type(error).__name__)  # the last line is what a person is told


def _hold(language: str, assets: Path, walls: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server's to answer
    read, write = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)  # what a library prints is no frame
    layers = _wall_in(assets, walls)
    from quire.runtimes.wasm.host.loop import Loop

    try:
        loaded = languages.load(language, assets, _say, make=False)
    except NotReady:
        os._exit(words.NOT_READY)
    with os.fdopen(write, "wb") as out:
        Loop(read, out, loaded, layers).serve()
    os._exit(0)  # ends guests that still run


def _wall_in(assets: Path, walls: dict[str, Any]) -> dict[str, str]:
    """Before anything is loaded that has threads: they would be outside."""
    if sys.platform != "linux" or not walls["up"]:
        why = "the setting sandbox.mode is off" if sys.platform == "linux" else "it is a part of Linux"
        return dict.fromkeys(walls["layers"], why)
    from quire.runtimes.wasm.host.walls import put_up

    return put_up([str(assets), *walls["readable"]], walls["writable"])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
