"""Guests of the real component, and a host that remembers what they say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quire.runtimes.wasm.assets import python
from quire.runtimes.wasm.host.guest import Bounds, Image, Place
from quire.runtimes.wasm.host.python.language import PythonLanguage
from tests.wasm.programs import assets_dir
from tests.wasm.python.cells import Notebook

Make = Callable[..., Notebook]


@pytest.fixture(scope="session")
def language() -> Iterator[PythonLanguage]:
    loaded = PythonLanguage.load(python.build(assets_dir()), assets_dir(), stack=3 << 20)  # the main thread has 8 MiB
    over = threading.Event()

    def tick() -> None:
        while not over.wait(0.005):
            loaded.tick()

    ticking = threading.Thread(target=tick)
    ticking.start()
    yield loaded
    over.set()
    ticking.join()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def make(language: PythonLanguage, workspace: Path) -> Make:
    def made(
        bounds: Bounds | None = None, image: Image | None = None, mounts: tuple[tuple[Path, bool], ...] = ()
    ) -> Notebook:
        place = Place(workspace=workspace, mounts=mounts)
        notebook = Notebook(language, place, bounds or Bounds(memory=256 << 20))
        if image is not None:
            notebook.guest.restore(image)
        return notebook

    return made


@pytest.fixture
def notebook(make: Make) -> Notebook:
    return make()
