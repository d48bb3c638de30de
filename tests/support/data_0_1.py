"""The data directory in tests/fixtures/data-0.1: how version 0.1 made it, and what it holds.

`python -m tests.support.data_0_1 FOLDER` writes a data directory with everything that a user of 0.1 may have. It ran
once, with 0.1. The result is packed as `data.tar.xz`, so later versions open what 0.1 really wrote.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

import quire
from quire.core.model import Principal
from quire.stores.tokens import FileTokens
from tests.support.object_kinds import KINDS, Kind
from tests.support.servers import call, stdio_client, text

FIXTURE = Path(__file__).parents[1] / "fixtures" / "data-0.1"
BACKEND = "python -m tests.support.backends.quick /dev/null"

# Files outside the data directory are not part of it, and libraries change under their own versions.
KINDS_0_1: list[Kind] = [kind for kind in KINDS if not kind.needs and "tempfile" not in kind.make]

REPORT = (
    "import json, sys\nprint('to stdout')\nprint('to stderr', file=sys.stderr)\n{'answer': 42}",
    "class Table:\n    def _repr_html_(self): return '<b>bold</b>'\n    def __repr__(self): return 'a table'\nTable()",
    "print('x' * 200_000)",  # kept as a file beside the database
    "raise ValueError('raised on purpose')",
    "import zlib, struct\n"
    "def chunk(kind, data):\n"
    "    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))\n"
    "header = chunk(b'IHDR', struct.pack('>IIBBBBB', 2, 2, 8, 2, 0, 0, 0))\n"
    "pixels = chunk(b'IDAT', zlib.compress(b'\\0' + b'\\xff\\0\\0' * 2 + b'\\0' + b'\\0\\0\\xff' * 2))\n"
    "png = b'\\x89PNG\\r\\n\\x1a\\n' + header + pixels + chunk(b'IEND', b'')\n"
    "get_ipython().display_pub.publish({'image/png': png, 'text/plain': 'a picture'})",
)


async def write(data_dir: Path) -> None:
    await _write_kinds(data_dir)
    await _write_notebooks(data_dir)
    async with quire.open(data_dir, kernel_preload="") as opened:
        report = await opened.notebook("report")
        await report.share("alice", "write")
        await report.export(FIXTURE / "report.ipynb")
    tokens = FileTokens(data_dir / "tokens.json")
    given = {"alice": tokens.add(Principal("alice"), admin=False), "root": tokens.add(Principal("root"), admin=True)}
    (FIXTURE / "tokens.json").write_text(json.dumps(given, indent=1) + "\n")


async def _write_kinds(data_dir: Path) -> None:
    async with quire.open(data_dir, kernel_preload="", server_shutdown_stall_seconds=60) as opened:
        for kind in KINDS_0_1:
            made = await (await opened.notebook(kind.name)).add_cell(kind.make, timeout=60)
            assert made.state == "SUCCESS", (kind.name, await made.text())


async def _write_notebooks(data_dir: Path) -> None:
    async with stdio_client(data_dir, preload="", auto_save=60) as client:

        async def use(tool: str, **arguments: Any) -> Any:
            answer = await call(client, tool, **arguments)
            assert not answer.is_error, text(answer)
            return answer

        await use("create_notebook", name="report", use=True)
        await use("add_cell", code="# Report", cell_type="markdown")
        for code in REPORT:
            await call(client, "execute", code=code)
        await use("save_state", name="before the change")
        await use("execute", code="total = 1")
        await use("branch_notebook", name="what if")
        await use("execute", code="total = 2", notebook="what if")
        await use("create_notebook", name="strict", isolation="cell", on_error="rollback", use=False)
        await use("execute", code="kept = 1", notebook="strict")
        await call(client, "execute", code="kept = 2\n1/0", notebook="strict")
        await use("install_capability", name="quick", server_command=BACKEND)
        await use("execute", code="caps.quick.add(1, 2)")


async def describe(data_dir: Path) -> dict[str, Any]:
    """What users find in a data directory: compared with what 0.1 found in its own."""
    async with quire.open(data_dir, kernel_preload="") as opened:
        notebooks = {name: await _describe_notebook(opened, name) for name in sorted(await opened.notebooks())}
        return {
            "tree": dict(sorted((await opened.tree()).items())),
            "capabilities": sorted(await opened.capabilities()),
            "notebooks": notebooks,
        }


async def _describe_notebook(opened: Any, name: str) -> dict[str, Any]:
    notebook = await opened.notebook(name)
    cells = [
        {
            "id": cell.id,
            "source": cell.source,
            "state": str(cell.state),
            "outputs": [sorted(output.bundle) for output in cell.outputs],
            "text": (await cell.text())[:500],
            "images": [len(image.data) for image in await cell.images()],
        }
        for cell in await notebook.cells()
    ]
    return {
        "cells": cells,
        "snapshots": sorted(snapshot.name or "" for snapshot in await notebook.snapshots()),
        "shares": await notebook.shares(),
    }


def pack(data_dir: Path) -> None:
    with tarfile.open(FIXTURE / "data.tar.xz", "w:xz") as archive:
        archive.add(data_dir, arcname="data")


def unpack(folder: Path) -> Path:
    """The data directory that 0.1 wrote, as a copy in this folder."""
    with tarfile.open(FIXTURE / "data.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "data"


def main() -> None:
    data_dir = Path(sys.argv[1])
    FIXTURE.mkdir(parents=True, exist_ok=True)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    asyncio.run(write(data_dir))
    (FIXTURE / "expected.json").write_text(json.dumps(asyncio.run(describe(data_dir)), indent=1) + "\n")
    pack(data_dir)


if __name__ == "__main__":
    main()
