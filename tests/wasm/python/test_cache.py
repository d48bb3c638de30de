"""What a component is compiled to: machine code, loaded only where no other user could have written it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import wasmtime
from wasmtime.component import Component

from quire.runtimes.wasm.host.python.language import Cache

SMALL = b"\0asm\x0d\0\x01\0"  # a component of nothing


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "small.wasm"
    path.write_bytes(SMALL)
    return path


def get(folder: Path, source: Path) -> tuple[Component, list[str]]:
    said: list[str] = []
    return Cache(folder).get(wasmtime.Engine(), source, "small", said.append), said


def test_it_is_compiled_once(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "cache"
    assert "compiling the Python guest, once" in get(folder, source)[1]
    assert get(folder, source)[1] == []
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in folder.iterdir()] == ["small.cwasm"]


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_what_others_can_write_is_not_loaded(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "cache"
    get(folder, source)
    (folder / "small.cwasm").chmod(0o666)
    assert get(folder, source)[1] != []
    assert get(folder, source)[1] == []  # written again
    folder.chmod(0o777)
    assert get(folder, source)[1] != []


def test_what_is_not_of_this_version_is_compiled_again(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "cache"
    get(folder, source)
    (folder / "small.cwasm").write_bytes(b"something else")
    (folder / "small.cwasm").chmod(0o600)
    assert "of another version" in get(folder, source)[1][0]
    assert get(folder, source)[1] == []


@pytest.mark.skipif(os.name != "posix", reason="links are POSIX's")
def test_a_link_is_not_followed(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "cache"
    get(folder, source)
    (folder / "small.cwasm").rename(tmp_path / "elsewhere")
    (folder / "small.cwasm").symlink_to(tmp_path / "elsewhere")
    assert get(folder, source)[1] != []
