"""The languages there are: each is imported when it is wanted."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

from quire.runtimes.wasm.host.guest import Language


def load(name: str, assets: Path, progress: Callable[[str], None]) -> Language:
    """A language's program, made and compiled where that was not done yet, which `progress` hears of."""
    assets.mkdir(mode=0o700, parents=True, exist_ok=True)
    if name == "wasm-python-science":
        return _science(assets, progress)
    if name == "wasm-python":
        from quire.runtimes.wasm.assets.python import build
        from quire.runtimes.wasm.host.python.language import STACK, PythonLanguage

        threading.stack_size(2 * STACK)  # of the guests' threads
        return PythonLanguage.load(build(assets, progress), assets, progress, stack=STACK)
    if name == "wasm-javascript":
        from quire.runtimes.wasm.host.javascript.language import load as load_javascript

        return load_javascript(assets, progress)
    sys.exit(f"There is no language {name}.")


def _science(assets: Path, progress: Callable[[str], None]) -> Language:
    from quire.runtimes.wasm.assets import science

    if not science.installed():
        sys.exit("Python with its libraries needs them: pip install 'quire[wasm-science]'.")
    from quire.runtimes.wasm.host.python.language import STACK
    from quire.runtimes.wasm.host.science.language import ScienceLanguage

    threading.stack_size(2 * STACK)
    return ScienceLanguage.load(assets, progress, stack=STACK)
