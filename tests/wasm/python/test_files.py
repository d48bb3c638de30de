"""Files: the workspace to read and to write, mounts as they are given, nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.runtimes.wasm.host.guest import Bounds, Ended, Place
from quire.runtimes.wasm.host.python.language import PythonLanguage
from tests.support.wasm.python_guest import Make, Notebook


def test_the_workspace_is_the_working_folder(notebook: Notebook, workspace: Path) -> None:
    (workspace / "given.txt").write_text("given")
    assert notebook.run("import os\nos.getcwd(), open('given.txt').read(), dict(os.environ)").value == [
        "/workspace",
        "given",
        {"HOME": "/workspace", "PWD": "/workspace"},
    ]
    notebook.run(
        "import pathlib\npathlib.Path('a/b').mkdir(parents=True)\npathlib.Path('a/b/c.txt').write_text('made')"
    )
    assert (workspace / "a/b/c.txt").read_text() == "made"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/", "../secret.txt", "/workspace/../secret.txt", "link", "chain/secret.txt"]
)
def test_nothing_outside_is_seen(notebook: Notebook, workspace: Path, path: str) -> None:
    (workspace.parent / "secret.txt").write_text("secret")
    (workspace / "link").symlink_to(workspace.parent / "secret.txt")
    (workspace / "chain").symlink_to("..")
    ran = notebook.run(f"import os\nos.listdir({path!r}) if os.path.isdir({path!r}) else open({path!r}).read()")
    assert ran.finished.outcome == "error", ran.finished.value
    assert "secret" not in ran.text


def test_links_a_cell_makes_lead_nowhere_either(notebook: Notebook, workspace: Path) -> None:
    (workspace.parent / "secret.txt").write_text("secret")
    for target in (str(workspace.parent / "secret.txt"), "../secret.txt"):
        ran = notebook.run(
            f"import os\nos.path.lexists('l') and os.remove('l')\nos.symlink({target!r}, 'l')\nopen('l').read()"
        )
        assert ran.finished.outcome == "error"
    assert notebook.run("os.rename('/workspace/../secret.txt', 'mine')").finished.outcome == "error"
    assert notebook.run("os.link('../secret.txt', 'mine')").finished.outcome == "error"


def test_a_mount_is_read_only_unless_it_may_be_written(make: Make, tmp_path: Path) -> None:
    fixed, free = tmp_path / "fixed", tmp_path / "free"
    for folder in (fixed, free):
        folder.mkdir()
        (folder / "a.txt").write_text("a")
    notebook = make(mounts=((fixed, False), (free, True)))
    assert notebook.run(f"open('{fixed}/a.txt').read()").value == "a"
    for code in (
        f"open('{fixed}/a.txt', 'w')",
        f"open('{fixed}/b.txt', 'w')",
        f"import os; os.remove('{fixed}/a.txt')",
    ):
        assert notebook.run(code).finished.outcome == "error"
    assert (fixed / "a.txt").read_text() == "a"
    notebook.run(f"open('{free}/a.txt', 'w').write('changed')")
    assert (free / "a.txt").read_text() == "changed"
    again = make(image=notebook.guest.image(), mounts=((fixed, False), (free, True)))
    assert again.run(f"open('{fixed}/a.txt').read()").value == "a"


def test_nothing_of_the_servers_is_told(notebook: Notebook) -> None:
    assert notebook.run("import sys, os\n[sys.argv, list(os.environ), sys.orig_argv]").value[1] == ["HOME", "PWD"]


def test_modules_are_imported_from_the_workspace(notebook: Notebook, workspace: Path) -> None:
    (workspace / "tool.py").write_text("def f(): return 1 / 0\n")
    (workspace / "random.py").write_text("raise RuntimeError('not this one')")
    raised = notebook.run("import tool, random\ntool.f()").raised
    assert "tool.py" in raised and "return 1 / 0" in raised


def test_a_guest_without_its_folder_is_not_made(language: PythonLanguage, tmp_path: Path) -> None:
    with pytest.raises(Ended) as ended:
        Notebook(language, Place(workspace=tmp_path / "nowhere"), Bounds())
    assert "folders" in ended.value.hint
