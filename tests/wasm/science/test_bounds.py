"""Bounds and walls of the guest with libraries, where its words or numbers are others than the plain one's."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.runtimes.wasm.host.guest import Bounds, Ended
from quire.runtimes.wasm.host.science.language import ScienceLanguage
from quire.wire.messages import Finished, Inspect
from tests.support.wasm.python_guest import FULL, Make, Notebook

pytestmark = pytest.mark.soak

FORGED = """
import _host
_host.call(b's{"say":"Finished","with":{"run":"other","outcome":"success"},"parts":[]}')
"""
MEMORY = Bounds(memory=224 << 20)


def test_memory_that_is_used_up_is_an_error_and_the_state_is_kept(make: Make) -> None:
    notebook = make(MEMORY)
    notebook.run("import numpy as np\nkept = 1")
    for code in ("x = bytearray(10**9)", "x = np.ones(10**8)", "x = []\nwhile True: x.append('x' * 1_000_000)"):
        assert "MemoryError" in notebook.run(code).raised
        assert notebook.run("x = None\nkept").value == 1


@pytest.mark.parametrize("kind", FULL)
def test_what_fills_all_memory_can_be_deleted_by_the_next_cell(make: Make, kind: str) -> None:
    notebook = make(MEMORY)
    notebook.run("kept = 1")
    for _ in range(3):
        notebook.run(FULL[kind])
        notebook.guest.ask(Inspect())
        notebook.guest.image()
        assert notebook.run("del a").finished.outcome == "success"
        assert notebook.run("len(bytearray(5_000_000)) + kept").value == 5_000_001


def test_a_guest_with_less_memory_than_it_needs_is_not_made(make: Make) -> None:
    with pytest.raises(Ended, match=r"needs .* MiB of memory at least"):
        make(Bounds(memory=64 << 20))


def test_an_image_larger_than_the_limit_is_refused(make: Make) -> None:
    notebook = make(Bounds(memory=512 << 20))
    notebook.run("x = bytearray(100_000_000)")
    with pytest.raises(Ended, match=r"needs .* bytes of memory"):
        make(MEMORY, image=notebook.guest.image())


@pytest.mark.parametrize("said", ["b'junk'", "b'sjunk'", "b's{}'", "b's' + b'[' * 100_000", "b's\\xff'", "b''"])
def test_what_is_no_word_ends_the_guest(notebook: Notebook, said: str) -> None:
    with pytest.raises(Ended, match="no word of ours"):
        notebook.run(f"import _host\n_host.call({said})")
    with pytest.raises(Ended, match="has ended before"):
        notebook.run("1")


def test_a_run_ends_once_and_under_its_own_name(notebook: Notebook) -> None:
    with pytest.raises(Ended):
        notebook.run(FORGED)
    assert not [each for each in notebook.events if isinstance(each, Finished)]


def test_an_answer_given_by_code_is_not_its_runs(notebook: Notebook) -> None:
    ran = notebook.run("import _host\n_host.call(b'a0\\n{}')\n2 + 2")
    assert ran.value == 4


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import ssl", "no network"),
        ("import socket; socket.create_connection(('example.org', 80))", "no network"),
        ("import os; os.system('ls')", "no processes"),
        ("import multiprocessing; multiprocessing.Process(target=print).start()", "no processes"),
        ("import threading; threading.Thread(target=print).start()", "no threads"),
        ("import fcntl", "no operating system"),
        ("import tkinter", "no terminal"),
    ],
)
def test_what_cannot_be_says_so(notebook: Notebook, code: str, why: str) -> None:
    assert why in notebook.run(code).raised


def test_a_module_that_is_not_there_is_told_with_its_package(notebook: Notebook) -> None:
    assert (
        "ModuleNotFoundError: No module named 'torch'\nIt is in the package torch. "
        in notebook.run("import torch").raised
    )


def test_its_library_can_be_read_and_not_written(notebook: Notebook, language: ScienceLanguage) -> None:
    for code in (
        "open('/usr/local/lib/new', 'w')",
        "import os; os.remove('/usr/local/lib/' + os.listdir('/usr/local/lib')[0])",
        "import os; os.rename('/usr/local/lib/' + os.listdir('/usr/local/lib')[0], '/workspace/it')",
        "import os; os.link('/usr/local/lib/' + os.listdir('/usr/local/lib')[0], '/workspace/it')",
        "import os; os.listdir('/usr/local/lib/..')",
        "import os; os.listdir('/usr/local')",
    ):
        assert notebook.run(code).finished.outcome == "error", code


def test_a_guest_with_other_mounts_takes_the_image_of_one_without(make: Make, tmp_path: Path) -> None:
    first = make()
    first.run("x = 5\nopen('here.txt', 'w').write('here')")
    mount = tmp_path / "mount"
    mount.mkdir()
    (mount / "given.txt").write_text("given")
    second = make(image=first.guest.image(), mounts=((mount, False),))
    assert second.run(f"[x, open('here.txt').read(), open({str(mount / 'given.txt')!r}).read()]").value == [
        5,
        "here",
        "given",
    ]


def test_a_guest_put_back_has_nothing_of_what_it_was_since(make: Make) -> None:
    notebook = make()
    notebook.run("x = 1")
    image = notebook.guest.image()
    notebook.run("x = 2; y = list(range(1_000_000))")
    notebook.guest.restore(image)
    assert notebook.run("x, 'y' in globals()").value == [1, False]
    assert notebook.guest.image().size < image.size + (1 << 20), "nor the room that took: tens of MB"
