"""Names that users and stored data rely on stay: tools, settings, commands, metrics, audit keys, database columns."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support import golden

FILES = sorted(path.stem for path in golden.FOLDER.glob("*.json"))


@pytest.fixture(scope="module")
def current() -> dict[str, Any]:
    return asyncio.run(golden.current())


def test_every_group_of_names_has_a_file(current: dict[str, Any]) -> None:
    assert sorted(current) == FILES


@pytest.mark.parametrize("group", FILES)
def test_names_are_those_of_the_golden_file(group: str, current: dict[str, Any]) -> None:
    expected = json.loads((golden.FOLDER / f"{group}.json").read_text())
    assert current[group] == expected, "After a deliberate change: python -m tests.support.golden"
