"""Where a notebook installs, and whether pip and uv try again."""

from __future__ import annotations

import os

import pytest

from quire.worker.environment import packages

NAMES = ("PIP_RETRIES", "PIP_DISABLE_PIP_VERSION_CHECK", "UV_HTTP_RETRIES")
INDEX = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "PIP_INDEX_URL")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "unreachable_hosts", [])
    monkeypatch.setattr(packages, "_set_by_quire", [])
    monkeypatch.setattr(os, "environ", {name: os.environ[name] for name in os.environ if name not in (*NAMES, *INDEX)})


def now() -> list[str | None]:
    return [os.environ.get(name) for name in NAMES]


def test_denied_index_is_not_retried() -> None:
    packages.set_unreachable_hosts(["pypi.org"])
    assert now() == ["0", "1", "0"] and packages.unreachable_hosts == ["pypi.org"]
    packages.set_unreachable_hosts(["pypi.org"])  # of a branch
    assert now() == ["0", "1", "0"]
    packages.set_unreachable_hosts([])
    assert now() == [None, None, None] and packages.unreachable_hosts == []


def test_user_settings_are_kept() -> None:
    os.environ["PIP_RETRIES"] = "7"
    packages.set_unreachable_hosts(["pypi.org"])
    assert now() == ["7", "1", "0"]
    assert "UV_HTTP_RETRIES" not in packages.without_fail_fast(dict(os.environ))
    packages.set_unreachable_hosts([])
    assert now() == ["7", None, None]


@pytest.mark.parametrize("name", INDEX)
def test_other_index_is_retried_as_usual(name: str) -> None:
    os.environ[name] = "https://index.example"
    packages.set_unreachable_hosts(["pypi.org"])
    assert now() == [None, None, None]
