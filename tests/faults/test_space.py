"""A workspace past its quota: a cell that fills it is stopped and told why, by how much, and what to do."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.notebooks import Book
from tests.support.servers import QUICK, stdio_client, text
from tests.support.waiting import DEADLINE

LIMITS: dict[str, Any] = {"toolsets": "all", "workspace_bytes": 5_000_000, "workspace_files": 2_000}
FILL = "import time\nn = 0\nwhile True:\n    open(f'{n}', 'wb').write(b'x' * 100_000); n += 1; time.sleep(0.01)"
MANY = "import time\nn = 0\nwhile True:\n    open(f'{n}', 'w').close(); n += 1; time.sleep(0.0005)"
EMPTY = "import os, shutil\nfor f in os.listdir():\n    shutil.rmtree(f) if os.path.isdir(f) else os.remove(f)"


@pytest.fixture(scope="module")
def server_settings() -> dict[str, Any]:
    return LIMITS


@pytest.mark.parametrize(
    ("code", "limit"),
    [
        (FILL, "over its quota of 4.8 MiB (setting limits.max_workspace_bytes)"),
        (MANY, "2,000 (setting limits.max_workspace_files)"),
    ],
    ids=["bytes", "files"],
)
async def test_a_cell_that_fills_the_workspace_is_stopped_and_that_is_said(book: Book, code: str, limit: str) -> None:
    await book.run("kept = 41")
    filled = await book.run(code, timeout=DEADLINE)
    assert filled.is_error and filled.structured_content["state"] == "INTERRUPTED", text(filled)
    assert limit in text(filled) and "Delete" in text(filled) and "Variables are kept." in text(filled)
    refused = await book.ask("write_file", path="more", text="x")
    assert refused.is_error and limit in text(refused) and "Nothing was written" in text(refused)
    told = await book.run("kept + 1")
    assert told.structured_content["return_value"] == 42 and limit in told.structured_content["notice"]
    assert limit in (await book.run("1")).structured_content["notice"]
    assert not (await book.run(EMPTY)).is_error
    assert "notice" not in (await book.run("kept")).structured_content
    assert not (await book.ask("write_file", path="more", text="x")).is_error


async def test_past_the_quota_only_a_cell_that_writes_is_stopped(book: Book) -> None:
    await book.run(FILL, timeout=DEADLINE)
    patient = await book.run("import time; time.sleep(4); 'slept'", timeout=DEADLINE)
    assert patient.structured_content["return_value"] == "slept", text(patient)
    again = await book.run(FILL.replace("f'{n}'", "f'more-{n}'"), timeout=DEADLINE)
    assert again.structured_content["state"] == "INTERRUPTED" and "workspace_bytes" in text(again), text(again)


async def test_a_cell_that_found_it_full_after_a_restart_may_make_room(data_dir: Path) -> None:
    async with stdio_client(data_dir, **QUICK, **LIMITS) as client:
        await Book(client=client).run("1")
    (folder,) = (data_dir / "workspaces").iterdir()
    (folder / "big").write_bytes(bytes(8_000_000))
    async with stdio_client(data_dir, **QUICK, **LIMITS) as client:
        slow = "import os, time; time.sleep(3); os.remove('big'); 'done'"
        done = await Book(client=client).run(slow, timeout=DEADLINE)
        assert done.structured_content["return_value"] == "done", text(done)


async def test_a_cell_that_will_not_stop_filling_is_killed_and_the_quota_is_named(book: Book) -> None:
    await book.run("kept = 41")
    killed = await book.run(f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{FILL}", timeout=DEADLINE)
    assert killed.structured_content["state"] == "INTERRUPTED", text(killed)
    assert "was killed" in text(killed) and "workspace_bytes" in text(killed)
    assert "Variables are as they were before this cell." in text(killed)
    assert await book.value("kept") == 41


async def test_what_fills_the_disk_between_two_cells_is_ended_and_that_is_said(book: Book) -> None:
    await book.run("kept = 41")
    await book.run(f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {FILL!r}, 'filler'])")
    with anyio.fail_after(DEADLINE):
        while fillers():
            await anyio.sleep(0.1)
    after = await book.run("kept")
    assert after.structured_content["return_value"] == 41
    assert "What ran on in the background was ended" in after.structured_content["notice"], text(after)


def fillers() -> list[bytes]:
    """Such processes as there are on this machine; in the kernel they have other numbers."""
    lines = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(place.read_bytes())
    return [line for line in lines if line.endswith(b"\0filler\0")]


async def test_a_write_that_would_not_fit_is_refused_before_it_is_made(book: Book) -> None:
    for number in range(4):
        assert not (await book.ask("write_file", path=str(number), text="x" * 1_200_000)).is_error
    assert "The workspace holds 4.6 MiB of the 4.8 MiB it may." in text(await book.ask("list_files"))
    refused = await book.ask("write_file", path="4", text="x" * 1_200_000)
    assert refused.is_error and "with 1,200,000 more bytes" in text(refused)
    assert "4" not in [each["name"] for each in (await book.ask("list_files")).structured_content["files"]]


async def test_folders_nested_too_deeply_to_be_counted_are_past_the_quota(book: Book) -> None:
    nest = "import os, time\nfor _ in range(100):\n    os.mkdir('d' * 200); os.chdir('d' * 200)\ntime.sleep(30)"
    nested = await book.run(nest, timeout=DEADLINE)
    assert nested.structured_content["state"] == "INTERRUPTED" and "nested too deeply" in text(nested), text(nested)
    refused = await book.ask("write_file", path="x", text="1")
    assert refused.is_error and "nested too deeply" in text(refused)


async def test_a_folder_the_operator_named_is_counted_only_if_asked(data_dir: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for number in range(3_000):
        (project / f"{number}").touch()
    said = {"workspace": project, "toolsets": "all", **QUICK}
    async with stdio_client(data_dir, **said) as client:
        assert not (await Book(client=client).ask("write_file", path="x", text="1")).is_error
    async with stdio_client(data_dir, **said, workspace_files=1_000) as client:
        assert (await Book(client=client).ask("write_file", path="x", text="1")).is_error
