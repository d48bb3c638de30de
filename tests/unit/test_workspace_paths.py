"""Paths from callers: parsed, refused outside the workspace, displayed in one line."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.core.errors import InvalidRequest
from quire.core.limits.workspace_paths import display_path, path_parts, quoted
from quire.core.notebooks.files import as_text
from quire.core.ports.files import FileSlice

HOME = "/data/workspaces/1"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", ()),
        (".", ()),
        (HOME, ()),
        (f"{HOME}/", ()),
        ("a", ("a",)),
        ("./a//b/", ("a", "b")),
        (f"{HOME}/a/./b", ("a", "b")),
        ("...", ("...",)),
        ("a..b/.c", ("a..b", ".c")),
        ("-rf", ("-rf",)),
        ("a\\..\\b", ("a\\..\\b",)),
        ("c:/b", ("c:", "b")),
    ],
)
def test_path_is_split_into_parts_below_the_workspace(path: str, found: tuple[str, ...]) -> None:
    assert path_parts(HOME, path) == found


def test_windows_paths_allow_both_separators_and_drives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "name", "nt")
    for path in ("a\\b", "a/b", "C:\\ws\\1\\a\\b", "C:/ws/1/a/b"):
        assert path_parts("C:\\ws\\1", path) == ("a", "b")
    for path in ("D:\\a", "C:\\ws\\12\\a", "..\\a", "\\a"):
        with pytest.raises(InvalidRequest):
            path_parts("C:\\ws\\1", path)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("..", "goes up"),
        ("a/../b", "goes up"),
        ("a/..", "goes up"),
        ("/", "outside"),
        ("/etc/passwd", "outside"),
        (f"{HOME}0/x", "outside"),
        (f"{HOME}/../2/x", "goes up"),
        ("//etc/passwd", "outside"),
        ("a\x00b", "NUL"),
        ("a/\udcff", "UTF-8"),
        ("a/\ud800", "UTF-8"),
        ("n" * 256, "too long"),
        ("\u20ac" * 86, "too long"),
        ("/".join(["name"] * 1000), "too long"),
    ],
)
def test_path_outside_the_workspace_is_refused_in_one_line(path: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as refused:
        path_parts(HOME, path)
    assert str(refused.value).isprintable()


@given(st.text() | st.lists(st.sampled_from(["..", ".", "", "a", "~", HOME, "\x00", "\udcff", "%2e%2e"])).map("/".join))
def test_no_part_of_any_path_leads_outside(path: str) -> None:
    try:
        found = path_parts(HOME, path)
    except InvalidRequest as refused:
        assert str(refused).isprintable()
        return
    for step in found:
        assert step not in ("", ".", "..") and "/" not in step and "\x00" not in step
    joined = os.path.normpath(os.path.join(HOME, *found))
    assert joined == HOME or joined.startswith(f"{HOME}/")


@given(st.binary(min_size=1, max_size=300))
def test_any_file_name_is_displayed_in_one_line(name: bytes) -> None:
    for said in (quoted(os.fsdecode(name)), display_path(os.fsdecode(name))):
        assert said.isprintable() and said
        said.encode("utf-8")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("data.csv", "data.csv"),
        ("a b", "a b"),
        ("a\nb", "'a\\nb'"),
        ("\x1b[2Jx", "'\\x1b[2Jx'"),
        ("\u202egnp.exe", "'\\u202egnp.exe'"),
        (" a", "' a'"),
        ("'a\\nb'", "\"'a\\\\nb'\""),
        (os.fsdecode(b"\xff.bin"), "b'\\xff.bin'"),
    ],
)
def test_ambiguous_name_is_quoted(name: str, said: str) -> None:
    assert display_path(name) == said


@given(st.text(max_size=40), st.integers(1, 17))
def test_text_read_in_parts_is_complete(text: str, limit: int) -> None:
    whole = text.replace("\x00", "").encode("utf-8", "ignore")
    place, read = 0, ""
    while place < len(whole):
        found = as_text(FileSlice(data=whole[place : place + max(4, limit)], start=place, total=len(whole)))
        assert found is not None
        read, place = read + found[0], found[1]
    assert read == whole.decode("utf-8")


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\x00", b"a\x00b", b"\xff\xfe", b"ab\x80cd", b"caf\xc3"])
def test_binary_data_is_not_text(data: bytes) -> None:
    assert as_text(FileSlice(data=data, start=0, total=len(data))) is None
