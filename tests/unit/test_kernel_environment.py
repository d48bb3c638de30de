"""Which of the server's variables kernels have: those that say how programs run, and none that may hold a secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from quire.runtimes.python.zygote import kernel_environment

SECRETS = (
    *("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DATABASE_URL", "SSH_AUTH_SOCK", "QUIRE_TOKEN"),
    *("http_proxy", "HTTPS_PROXY", "PIP_INDEX_URL", "UV_INDEX_URL", "UV_PUBLISH_TOKEN", "HOMEBREW_TOKEN"),
    *("PATH_TO_SECRET", "MY_PATH", "LD_PRELOAD", "LC_", "KUBECONFIG", "XDGX", "DISPLAY", "path"),
)
PLAIN = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "OMP_NUM_THREADS"),
    *("OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "MPLBACKEND", "SSL_CERT_FILE", "XDG_CACHE_HOME", "NO_COLOR"),
)


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name in (*SECRETS, *PLAIN):
        monkeypatch.setenv(name, "" if name == "PATH" else f"of {name}")


def test_only_plain_variables_are_inherited() -> None:
    inherited = set(kernel_environment(())) - {"UV", "PYTHONHASHSEED", "JE_ARROW_MALLOC_CONF"}
    assert inherited == set(PLAIN)


def test_variables_that_were_named_are_passed_on() -> None:
    passed = kernel_environment(("DATABASE_URL", "NOT_SET"))
    assert passed["DATABASE_URL"] == "of DATABASE_URL" and "NOT_SET" not in passed
    assert not {*SECRETS} & {*passed} - {"DATABASE_URL"}


def test_without_a_sandbox_all_are() -> None:
    assert {*SECRETS, *PLAIN} <= set(kernel_environment(None))


def test_sets_print_in_the_same_order_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "random")
    assert kernel_environment(None)["PYTHONHASHSEED"] == kernel_environment(())["PYTHONHASHSEED"] == "0"


def test_uv_is_named_by_where_it_is_not_by_who_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UV", "/tmp/planted")
    found = tmp_path / "uv"
    found.write_text("#!/bin/sh\n")
    found.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kernel_environment(())["UV"] == str(found)
