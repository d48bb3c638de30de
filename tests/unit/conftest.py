"""What unit tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.relayed import Book


@pytest.fixture
def book() -> Iterator[Book]:
    made = Book()
    yield made
    made.close()
