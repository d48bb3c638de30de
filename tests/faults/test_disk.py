"""A full, read-only or damaged disk is reported in words, and nothing recorded before is lost."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from tests.support.disks import FILL, with_mount
from tests.support.notebooks import Book, indented, waits_for
from tests.support.servers import IN_MEMORY, QUICK, server_environment, text
from tests.support.waiting import appears


@asynccontextmanager
async def on_two_megabytes(data_dir: Path, **settings: Any) -> AsyncIterator[Book]:
    """The notebook of a server whose data directory has no more."""
    data_dir.mkdir()
    program, *arguments = with_mount(
        'mount -t tmpfs -o size=2m,mode=700 quire "$0"', data_dir, sys.executable, "-m", "quire"
    )
    environment = server_environment(data_dir, **QUICK, **settings)
    async with Client(StdioTransport(program, arguments, env=environment, keep_alive=False)) as client:
        yield Book(client=client)


@pytest.fixture
async def tiny(namespaces: None, data_dir: Path) -> AsyncIterator[Book]:
    async with on_two_megabytes(data_dir) as book:
        yield book


@pytest.fixture
async def filling(namespaces: None, data_dir: Path) -> AsyncIterator[Book]:
    """Where nothing but cells is written: no snapshot that is given up makes room again."""
    async with on_two_megabytes(data_dir, **IN_MEMORY) as book:
        yield book


async def test_full_disk_is_reported_and_with_space_the_notebook_goes_on(filling: Book, tmp_path: Path) -> None:
    free, freed = tmp_path / "free", tmp_path / "freed"
    await filling.run("x = 41\nprint('first')")
    await filling.run(
        "import os, threading\ndef make_room():\n" + indented(waits_for(free)) + "    os.remove('fill')\n"
        f"    open({str(freed)!r}, 'w').close()\n"
        "threading.Thread(target=make_room, daemon=True).start()"
    )
    filled = await filling.run(FILL)
    for failed in (filled, await filling.run("x"), await filling.run("x")):
        assert failed.is_error and "disk is full" in text(failed), text(failed)
        assert "earlier cells are intact" in text(failed).lower() and "Free some space" in text(failed)
    listed = await filling.ask("list_cells")
    assert [cell["state"] for cell in listed.structured_content["cells"]][:2] == ["SUCCESS", "SUCCESS"]
    assert await filling.shown(0) == "first\n"
    free.touch()
    await appears(freed)
    again = await filling.run("x + 1")
    assert again.structured_content["return_value"] == 42, text(again)
    assert "notice" not in again.structured_content
    cells = (await filling.ask("list_cells")).structured_content["cells"]
    assert "RUNNING" not in [cell["state"] for cell in cells]


async def test_a_disk_that_is_full_while_a_cell_goes_on_does_not_hurt_the_run(tiny: Book) -> None:
    await tiny.run("x = 41")
    code = f"import os, time\nprint('first')\n{FILL}\nfor n in range(10):\n    print(n)\n    time.sleep(0.1)\n"
    result = await tiny.run(code + "os.remove('fill')\nx += 1\nprint('last')")
    assert not result.is_error, text(result)
    lines = result.structured_content["stdout"].splitlines()
    assert (lines[0], lines[-11:]) == ("first", [*map(str, range(10)), "last"])
    assert await tiny.shown(1) == result.structured_content["stdout"]
    assert await tiny.value("x") == 42


async def test_a_rollback_on_a_full_disk_is_made_and_what_is_not_recorded_is_said(filling: Book) -> None:
    await filling.run("x = [1]")
    await filling.run("x.append(2)")
    await filling.run(FILL)
    rolled = await filling.ask("rollback", to=0)
    assert rolled.is_error and "was rolled back, but cells were not marked stale" in text(rolled), text(rolled)
    assert "disk is full" in text(rolled)
    assert (await filling.ask("state")).structured_content["variables"] == {"x": "list of 1"}
    assert "already" in text(await filling.ask("rollback", to=0))


# what a run has shown is kept after a fifth of a second, and at its end
@pytest.mark.parametrize("then", ["", "import time; time.sleep(1)"], ids=["at its end", "before its end"])
async def test_an_output_that_does_not_fit_is_said_and_the_next_cell_runs(tiny: Book, then: str) -> None:
    await tiny.run("x = 41\nprint('first')")
    large = await tiny.run(f"print('x' * 3_000_000)\n{then}")
    assert large.is_error
    assert "No space left" in text(large) and "Earlier cells are intact" in text(large)
    after = await tiny.run("x + 1")
    assert after.structured_content["return_value"] == 42, text(after)
    states = [cell["state"] for cell in (await tiny.ask("list_cells")).structured_content["cells"]]
    assert states[0] == states[2] == "SUCCESS" and states[1] != "RUNNING"
    assert await tiny.shown(0) == "first\n"
    again = await tiny.ask("execute_cell", cell_id_or_number=1)
    assert "No space left" in text(again)  # it may be run again, and says the same


async def test_acknowledged_cells_stay_when_small_outputs_fill_the_disk(tiny: Book) -> None:
    acknowledged = 0
    while True:
        result = await tiny.run("print('x' * 20_000)")
        if result.is_error:
            break
        acknowledged += 1
        assert acknowledged < 200
    assert "disk is full" in text(result)
    listed = (await tiny.ask("list_cells")).structured_content["cells"]
    assert [cell["state"] for cell in listed[:acknowledged]] == ["SUCCESS"] * acknowledged
    assert (await tiny.whole(acknowledged - 1))[0].text == "x" * 20_000 + "\n"


def quire(data_dir: Path, *arguments: str, wrapped: Callable[..., list[str]] | None = None) -> tuple[int, str]:
    command = [sys.executable, "-m", "quire", *(arguments or ("exec", "1"))]
    if wrapped is not None:
        command = wrapped(data_dir, *command)
    done = subprocess.run(
        command,
        env=server_environment(data_dir, **QUICK),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def used_data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory in which a cell has run. Tests work on copies."""
    folder = tmp_path_factory.mktemp("used") / "data"
    code, said = quire(folder)
    assert code == 0, said
    return folder


@pytest.fixture
def copied_data_dir(used_data_dir: Path, data_dir: Path) -> Path:
    shutil.copytree(used_data_dir, data_dir)
    return data_dir


def is_one_clear_line(said: str) -> bool:
    return said.startswith("quire: ") and said.count("\n") == 1


def test_a_data_directory_that_is_a_file_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place, command in [(tmp_path / "file", ["exec", "1"]), (tmp_path / "file" / "below", ["serve"])]:
        code, said = quire(place, *command)
        assert code == 2 and is_one_clear_line(said) and str(place) in said, said


def test_a_data_directory_that_may_not_be_made_is_said_in_one_line(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    place = (Path("/sys") if os.geteuid() == 0 else closed) / "quire"  # root may write anywhere but there
    code, said = quire(place)
    assert code == 2 and is_one_clear_line(said) and str(place) in said, said


def test_a_data_directory_that_is_read_only_is_said_in_one_line(namespaces: None, copied_data_dir: Path) -> None:
    def read_only(folder: Path, *command: str) -> list[str]:
        return with_mount('mount --bind "$0" "$0" && mount -o remount,ro,bind "$0"', folder, *command)

    code, said = quire(copied_data_dir, wrapped=read_only)
    assert code == 2 and is_one_clear_line(said), said


def garbage(database: Path) -> None:
    database.write_bytes(os.urandom(50_000))


def garbage_behind_the_header(database: Path) -> None:
    whole = bytearray(database.read_bytes())
    whole[100:] = b"\xff" * (len(whole) - 100)
    database.write_bytes(whole)


def cut_short(database: Path) -> None:
    whole = database.read_bytes()
    database.write_bytes(whole[: len(whole) // 2 + 100])


def another_programs(database: Path) -> None:
    database.unlink()
    with sqlite3.connect(database) as other:
        other.execute("CREATE TABLE notebooks (title TEXT)")


def without_tables(database: Path) -> None:
    database.unlink()
    with sqlite3.connect(database) as other:
        other.execute("PRAGMA user_version = 1")


def a_newer_one(database: Path) -> None:
    with sqlite3.connect(database) as ours:
        ours.execute("PRAGMA user_version = 999")


def a_folder(database: Path) -> None:
    database.unlink()
    database.mkdir()


@pytest.mark.parametrize(
    "damage",
    [garbage, garbage_behind_the_header, cut_short, another_programs, without_tables, a_newer_one, a_folder],
)
def test_a_database_that_cannot_be_used_is_said_in_one_line(
    copied_data_dir: Path, damage: Callable[[Path], None]
) -> None:
    for leftover in copied_data_dir.glob("quire.db-*"):
        leftover.unlink()
    damage(copied_data_dir / "quire.db")
    code, said = quire(copied_data_dir)
    assert code == 2 and is_one_clear_line(said), said
