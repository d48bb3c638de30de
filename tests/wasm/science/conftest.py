"""Guests of the real interpreter with its libraries; what makes them is as for the plain guest."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from quire.runtimes.wasm.host.science.language import ScienceLanguage
from tests.wasm.programs import science_assets_dir
from tests.wasm.python.conftest import make, notebook, workspace

__all__ = ["language", "make", "notebook", "workspace"]


@pytest.fixture(scope="session")
def language() -> Iterator[ScienceLanguage]:
    loaded = ScienceLanguage.load(science_assets_dir(), print, stack=3 << 20)  # the main thread has 8 MiB
    over = threading.Event()

    def tick() -> None:
        while not over.wait(0.005):
            loaded.tick()

    ticking = threading.Thread(target=tick)
    ticking.start()
    yield loaded
    over.set()
    ticking.join()
