"""JavaScript guests over the real program, each on a thread as the host has it, with a host that writes all down."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.runtimes.wasm.host.guest import Bounds, Place
from quire.runtimes.wasm.host.javascript import language
from tests.support.wasm.assets import assets_dir
from tests.support.wasm.javascript_guest import Session


@pytest.fixture(scope="session")
def javascript() -> Iterator[language.JavaScript]:
    """The language; it ticks while they run."""
    made = language.load(assets_dir(), lambda _said: None)
    over = threading.Event()

    def tick() -> None:
        while not over.wait(0.01):
            made.tick()

    threading.Thread(target=tick, daemon=True).start()
    yield made
    over.set()


@pytest.fixture
def sessions(javascript: language.JavaScript, tmp_path: Path) -> Iterator[Callable[..., Session]]:
    made: list[Session] = []
    workspace = tmp_path / "workspace"
    workspace.mkdir()

    def new(mounts: tuple[tuple[Path, bool], ...] = (), **bounds: int) -> Session:
        place = Place(workspace=workspace, mounts=mounts)
        made.append(Session(javascript, place, Bounds(**{"memory": 64 << 20, **bounds})))
        return made[-1]

    yield new
    for each in made:
        each.close()


@pytest.fixture
def session(sessions: Callable[..., Session]) -> Session:
    return sessions()


@pytest.fixture
def workspace(tmp_path: Path, sessions: Any) -> Path:
    return tmp_path / "workspace"
