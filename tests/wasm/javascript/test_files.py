"""Files of the workspace and the mounts, and no others; modules among them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quire.runtimes.wasm.host.javascript import files as module
from quire.safe_open.by_name import PathWalker


@pytest.fixture(params=[True, False], ids=["by descriptor", "by path"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(module, "new_walker", lambda **_: PathWalker())


def test_files_are_written_read_listed_and_removed(session: Any, workspace: Path) -> None:
    session.value(
        "files.mkdir('a/b'); files.write('a/b/t.txt', 'hé'); files.write('x.bin', new Uint8Array([0, 255])); 0"
    )
    assert (workspace / "a/b/t.txt").read_text("utf-8") == "hé"
    assert session.value("[files.read('a/b/t.txt'), [...files.readBytes('x.bin')], files.list(), files.list('a')]") == (
        ["hé", [0, 255], ["a/", "x.bin"], ["b/"]]
    )
    assert session.value("files.write('x.bin', ''); files.read('x.bin')") == ""
    assert session.value("files.remove('x.bin'); [files.exists('x.bin'), files.exists('a/b')]") == [False, True]
    assert session.value(f"files.read({str(workspace / 'a/b/t.txt')!r})") == "hé"
    assert session.value("files.read('a/../a/./b/t.txt')") == "hé"


def test_nothing_outside_is_reached(session: Any, workspace: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (workspace / "link").symlink_to(secret)
    (workspace / "up").symlink_to(tmp_path)
    os.link(secret, workspace / "hard")
    os.mkfifo(workspace / "fifo")
    (workspace / "dev").symlink_to("/dev/zero")
    (workspace / "large").touch()
    os.truncate(workspace / "large", 1 << 33)
    for path in ("../secret.txt", "link", "up/secret.txt", "hard", "fifo", "dev", "large", "/etc/passwd", str(secret),
                 "a/../../secret.txt", "", "x\\0y", ".", "/", str(workspace) + "/../secret.txt"):  # fmt: skip
        error = session.run(f"files.read({path!r})").error
        assert error.name == "FileError" and "secret" not in error.message.replace("secret.txt", ""), path
        if path not in ("large", "fifo"):
            session.run(f"files.write({path!r}, 'gone')")
    for path in ("link", "fifo", "up/new.txt", "../new.txt", "hard"):
        assert session.run(f"files.write({path!r}, 'x')").error.name == "FileError"
    assert secret.read_text() == "secret" and not (tmp_path / "new.txt").exists()
    assert session.run("files.list('up')").error.name == "FileError"
    assert session.run("files.mkdir('up/new')").error.name == "FileError"
    assert session.run("files.remove('up/secret.txt')").error.name == "FileError"
    assert session.value("[files.exists('link'), files.exists('../secret.txt'), files.exists('fifo')]") == [False] * 3


def test_mounts_are_read_and_written_as_they_allow(sessions: Callable[..., Any], tmp_path: Path) -> None:
    fixed, free = tmp_path / "fixed", tmp_path / "free"
    for each in (fixed, free):
        each.mkdir()
        (each / "m.js").write_text(f"export const from = {each.name!r}")
    session = sessions(mounts=((fixed, False), (free, True)))
    assert session.value(f"files.read('{fixed}/m.js').length > 0")
    assert "read-only" in session.run(f"files.write('{fixed}/n', '')").error.message
    assert session.value(f"files.write('{free}/n', 'x'); files.read('{free}/n')") == "x"
    assert session.value(f"(await import('{fixed}/m.js')).from") == "fixed"
    for does in ("remove", "mkdir"):
        assert session.run(f"files.{does}('{fixed}/m.js')").error.name == "FileError"


def test_modules_are_imported_statically_and_dynamically(session: Any, workspace: Path) -> None:
    (workspace / "lib").mkdir()
    (workspace / "lib/a.js").write_text(
        "import { two } from './b.js';\nexport const three = two + 1;\nexport default 'd';"
    )
    (workspace / "lib/b.js").write_text("export const two = 2;")
    (workspace / "data.json").write_text('{"k": [1]}')
    assert session.value(
        "import d, { three as t } from './lib/a.js';\nimport * as b from './lib/b.js';\n[d, t, b.two]"
    ) == (["d", 3, 2])
    assert session.value("[d, t]") == ["d", 3]  # they stay
    assert session.value("(await import('./lib/b.js')).two") == 2
    assert session.value("import data from './data.json' with { type: 'json' }; data") == {"k": [1]}
    assert session.value("(await import('./lib/b.js')) === (await import('./lib/b.js'))")


def test_edited_module_is_imported_again(session: Any, workspace: Path) -> None:
    (workspace / "m.js").write_text("export const v = 1;")
    assert session.value("import { v } from './m.js'; v") == 1
    (workspace / "m.js").write_text("export const v = 2;")
    assert session.value("import { v } from './m.js'; v") == 2


def test_an_error_in_a_module_has_its_line(session: Any, workspace: Path) -> None:
    (workspace / "m.js").write_text("export function f() {\n  throw new Error('in m')\n}")
    error = session.run("import { f } from './m.js'\nf()").error
    assert error.traceback.startswith("m.js:2\n      throw new Error('in m')")
    assert "at f (m.js:2:" in error.traceback and "at <eval> (cell-1:2:1)" in error.traceback
    (workspace / "s.js").write_text("let = ;")
    assert session.run("await import('./s.js')").error.name == "SyntaxError"


def test_modules_from_elsewhere_are_refused(session: Any, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "out.js").write_text("export default 1")
    (workspace / "link.js").symlink_to(tmp_path / "out.js")
    os.mkfifo(workspace / "fifo.js")
    (workspace / "large.js").touch()
    os.truncate(workspace / "large.js", 1 << 33)
    for path in (
        "../out.js",
        "./link.js",
        "./fifo.js",
        "./large.js",
        "/etc/passwd",
        "lodash",
        "./none.js",
        "file:///x",
        "./",
    ):
        assert session.run(f"await import({path!r})").outcome == "error", path
    assert "no package" in session.run("import x from 'lodash'").error.message
