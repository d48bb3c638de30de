"""The languages there are: each is imported when it is wanted."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

from quire.runtimes.wasm.host.guest import Language, NotReady


def load(name: str, assets: Path, progress: Callable[[str], None], *, make: bool = True) -> Language:
    """A language's program, made and compiled where that was not done yet, which `progress` hears of; or, without
    `make`, as it is there. Raises NotReady."""
    if make:
        assets.mkdir(mode=0o700, parents=True, exist_ok=True)
    if name == "wasm-python-science":
        return _science(assets, progress, make=make)
    if name == "wasm-python":
        from quire.runtimes.wasm.assets.python import build, built
        from quire.runtimes.wasm.host.python.language import STACK, PythonLanguage

        threading.stack_size(2 * STACK)  # of the guests' threads
        component = build(assets, progress) if make else built(assets)
        if component is None:
            raise NotReady
        return PythonLanguage.load(component, assets, progress, stack=STACK, make=make)
    if name == "wasm-javascript":
        from quire.runtimes.wasm.host.javascript.language import load as load_javascript

        return load_javascript(assets, progress, make=make)
    sys.exit(f"There is no language {name}.")


def _science(assets: Path, progress: Callable[[str], None], *, make: bool) -> Language:
    from quire.runtimes.wasm.assets import science

    if not science.installed():
        sys.exit("Python with its libraries needs them: pip install 'quire[wasm-science]'.")
    from quire.runtimes.wasm.host.python.language import STACK
    from quire.runtimes.wasm.host.science.language import ScienceLanguage

    threading.stack_size(2 * STACK)
    return ScienceLanguage.load(assets, progress, stack=STACK, make=make)
