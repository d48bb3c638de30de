"""The system ends a process for memory: in a group of processes that may have only so much of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.notebooks import Book
from tests.support.servers import NO_SANDBOX, QUICK, stdio_client, text
from tests.support.waiting import wait_until

LIMIT = 700 << 20
ROOT = Path("/sys/fs/cgroup")


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory cgroup, of either version."""
    home = ROOT / "memory" if (ROOT / "memory").is_dir() else ROOT
    made = home / f"quire-{uuid4().hex[:8]}"
    try:
        made.mkdir()
        limit = made / ("memory.limit_in_bytes" if home != ROOT else "memory.max")
        limit.write_text(str(LIMIT))
    except OSError as error:
        with suppress(OSError):
            made.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {error.strerror}")
    yield made
    wait_until(lambda: not (made / "cgroup.procs").read_text().split(), "no process is in the group any more")
    made.rmdir()


async def test_a_cell_killed_for_memory_is_undone_and_the_cause_is_said(tmp_path: Path, group: Path) -> None:
    async with stdio_client(tmp_path / "data", **QUICK, max_memory_bytes=0, **NO_SANDBOX) as client:
        book = Book(client=client)
        await book.run("kept = (n for n in range(9)); next(kept)")
        join = f"import os; open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))"
        assert not (await book.run(join)).is_error
        bomb = await book.run("print('before')\nhoard = []\nwhile True: hoard.append(bytearray(1 << 24))")
        found = bomb.structured_content
        assert (found["state"], found["stdout"]) == ("CRASHED", "before\n"), text(bomb)
        assert "ran out of memory" in found["error_message"] and "MiB at its peak" in found["error_message"]
        assert "Variables are as they were before this cell" in found["error_message"]
        assert await book.value("[next(kept), 'hoard' in globals()]") == [1, False]
        assert await book.value("__import__('os').getpid()") != os.getpid()
