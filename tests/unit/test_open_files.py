"""Open files through the stream: a dump moves and writes none, and a load opens only what is still the same."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import pytest

from tests.support.snapshot_stream import dump, load, notebook, run


def test_a_file_that_was_changed_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("abc")
    namespace = notebook()
    run(f"f = open({str(path)!r}); f.read(1); k = 1", namespace)
    dumped = dump(namespace)
    path.write_text("abcdef")
    loaded, lost = load(dumped)
    assert loaded["k"] == 1 and lost[0].name == "f" and "changed" in lost[0].why


def test_a_file_that_its_path_does_not_lead_to_is_not_kept(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    namespace = notebook()
    code = (
        f"a = open({str(tmp_path / 'a')!r}, 'w'); b = open({str(tmp_path / 'b')!r}, 'w'); n = open('/dev/null', 'w')\n"
    )
    code += f"import os; p = os.fdopen(os.open({str(tmp_path / 'fifo')!r}, os.O_RDWR), 'wb')"
    run(code, namespace)
    (tmp_path / "a").unlink()
    (tmp_path / "c").write_text("")
    (tmp_path / "c").replace(tmp_path / "b")
    assert {each.name for each in dump(namespace).lost} == {"a", "b", "p"}


def test_files_opened_by_relative_names_survive_a_change_of_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace = notebook()
    run(
        "import gzip, os, zipfile\n"
        "f = open('f', 'w'); f.write('kept'); f.flush(); g = open('g', 'ab'); g.write(b'more')\n"
        "with gzip.open('z.gz', 'wb') as out: out.write(b'zipped')\n"
        "with zipfile.ZipFile('a.zip', 'w') as out: out.writestr('m', 'member')\n"
        "z = gzip.open('z.gz'); z.read(3); a = zipfile.ZipFile('a.zip'); os.mkdir('sub'); os.chdir('sub')",
        namespace,
    )
    loaded, lost = load(dump(namespace))
    assert lost == [] and (loaded["f"].tell(), loaded["f"].name, loaded["z"].read()) == (4, "f", b"ped")
    loaded["f"].write(" on")
    loaded["f"].flush()
    assert (tmp_path / "f").read_text() == "kept on" and loaded["a"].read("m") == b"member"


def test_a_lost_file_says_that_opening_it_again_empties_it(tmp_path: Path) -> None:
    path = tmp_path / "f"
    namespace = notebook()
    run(f"f = open({str(path)!r}, 'w'); f.write('abc'); f.flush()", namespace)
    dumped = dump(namespace)
    path.write_text("abcdef")
    assert load(dumped)[1][0].why.endswith("was changed since; opening it with mode 'w' empties it")


def test_a_dump_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    limit, warned = sys.getrecursionlimit(), list(warnings.filters)
    namespace = notebook()
    run(
        f"f = open({str(tmp_path / 'f')!r}, 'w'); f.write('abc'); import queue; q = queue.SimpleQueue(); q.put(1)",
        namespace,
    )
    dump(namespace)
    assert os.path.getsize(tmp_path / "f") == 0 and namespace["q"].qsize() == 1
    namespace["f"].close()
    assert (tmp_path / "f").read_text() == "abc"
    assert sys.getrecursionlimit() == limit and warnings.filters == warned
