"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.relay_server import Book, Pair


@pytest.fixture
def book() -> Iterator[Book]:
    made = Book()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()
