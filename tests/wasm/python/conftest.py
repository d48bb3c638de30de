"""Every test of this folder runs on the plain Python guest and, in the soak, on the one with libraries.

`@pytest.mark.plain_guest_only` is for tests of how the plain guest is built, and for tests whose limits or messages
differ in the guest with libraries; tests/wasm/science has its own version of the latter.
"""

from __future__ import annotations

import pytest

from quire.runtimes.wasm.host.python.language import PythonLanguage


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "plain_guest_only(reason): not for the Python guest with libraries")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "language" in metafunc.fixturenames:
        only_plain = metafunc.definition.get_closest_marker("plain_guest_only")
        sampled = metafunc.module.__name__.endswith(".test_cells")
        science = pytest.param("science", marks=pytest.mark.soak(sample=sampled))
        metafunc.parametrize("language", ["plain"] if only_plain else ["plain", science], indirect=True)


@pytest.fixture
def language(request: pytest.FixtureRequest) -> PythonLanguage:
    """Session-wide; the guest with libraries has the same methods."""
    found: PythonLanguage = request.getfixturevalue(f"{request.param}_language")
    return found
