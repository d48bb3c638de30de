"""Real Jupyter servers, one of each kind for all tests of a worker; tests that break theirs start their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.jupyter.servers import JupyterServer, jupyter


@pytest.fixture(scope="session")
def collaborating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """With jupyter-collaboration."""
    with jupyter(tmp_path_factory.mktemp("collaborating")) as server:
        yield server


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """Without collaboration."""
    with jupyter(tmp_path_factory.mktemp("plain"), collaboration=False) as server:
        yield server


@pytest.fixture(scope="session")
def below_a_base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """With collaboration, a password beside the token, and everything below /user/ann/, as JupyterHub has it."""
    with jupyter(tmp_path_factory.mktemp("below"), base_url="/user/ann/", password="sesame") as server:
        yield server
