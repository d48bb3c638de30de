"""Fixtures of the Python guests: the plain one, the one with libraries, and notebooks on the folder's `language`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.runtimes.wasm.assets import python
from quire.runtimes.wasm.host.guest import Bounds, Image, Place
from quire.runtimes.wasm.host.python.language import PythonLanguage
from quire.runtimes.wasm.host.science.language import ScienceLanguage
from tests.support.wasm.assets import assets_dir, science_assets_dir
from tests.support.wasm.python_guest import Make, Notebook, ticking


@pytest.fixture(scope="session")
def plain_language() -> Iterator[PythonLanguage]:
    loaded = PythonLanguage.load(python.build(assets_dir()), assets_dir(), stack=3 << 20)  # the main thread has 8 MiB
    with ticking(loaded):
        yield loaded


@pytest.fixture(scope="session")
def science_language() -> Iterator[ScienceLanguage]:
    loaded = ScienceLanguage.load(science_assets_dir(), print, stack=3 << 20)  # the main thread has 8 MiB
    with ticking(loaded):
        yield loaded


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
