"""Tests of this folder run on the Python guest with libraries only."""

from __future__ import annotations

import pytest

from quire.runtimes.wasm.host.science.language import ScienceLanguage


@pytest.fixture
def language(science_language: ScienceLanguage) -> ScienceLanguage:
    return science_language
