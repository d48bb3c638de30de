"""Names that users and stored data rely on, as golden files in tests/fixtures/golden.

They are the names of tools, settings, commands, metrics, audit keys and database columns.

`python -m tests.support.golden` writes the files again after a deliberate change.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2

from quire import cli
from quire.settings import TOOLSETS
from quire.settings.names import SETTINGS
from tests.support.data_0_1 import unpack
from tests.support.servers import call, http_client, http_server, in_process_client
from tests.support.waiting import DEADLINE

FOLDER = Path(__file__).parents[1] / "fixtures" / "golden"


async def tools() -> dict[str, Any]:
    """Each tool with its parameters and the names in its answer."""
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_client(Path(folder), toolsets=",".join(TOOLSETS)) as client:
            listed = await client.list_tools()
    return {
        tool.name: {
            "parameters": sorted(tool.input_schema["properties"]),
            "required": sorted(tool.input_schema.get("required", [])),
            "results": sorted((tool.output_schema or {}).get("properties", {})),
        }
        for tool in sorted(listed, key=lambda tool: tool.name)
    }


def settings() -> dict[str, str]:
    """Each setting with its name in version 0.1."""
    return {setting.name: setting.old for setting in SETTINGS}


def commands() -> dict[str, list[str]]:
    """Each command with its arguments and options."""
    return dict(_commands("quire", cli.parser()))


def _commands(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[str]]]:
    yield name, _options(parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, sub in sorted(action.choices.items()):
                yield from _commands(f"{name} {word}", sub)


def _options(parser: argparse.ArgumentParser) -> list[str]:
    names = (action.option_strings or [action.dest] for action in parser._actions)
    return sorted(name for each in names for name in each if name != argparse.SUPPRESS)


async def after_a_call() -> dict[str, list[str]]:
    """What one call leaves behind: metrics, keys of the audit log, and tables with their columns."""
    with tempfile.TemporaryDirectory() as folder:
        data_dir = unpack(Path(folder))
        (data_dir / "audit.jsonl").unlink()
        with http_server(data_dir, spare_kernels=0) as (url, _):
            async with http_client(url) as client:
                await call(client, "execute", code="caps.quick", notebook="what if")
            scraped = httpx2.get(url.removesuffix("/mcp") + "/metrics", timeout=DEADLINE).text
        entry = json.loads((data_dir / "audit.jsonl").read_text().splitlines()[-1])
        databases = ("quire.db", "snapshots/index.db")
        return {
            "metrics": sorted(line.split()[2] for line in scraped.splitlines() if line.startswith("# TYPE")),
            "audit_keys": sorted(entry),
            "schema": [f"{name} {column}" for name in databases for column in _columns(data_dir / name)],
        }


def _columns(database: Path) -> Iterator[str]:
    with sqlite3.connect(database) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in sorted(tables):
            for column in connection.execute(f"PRAGMA table_info({table})"):
                yield f"{table}.{column[1]} {column[2]}"
    connection.close()


async def current() -> dict[str, Any]:
    return {
        "tools": await tools(),
        "settings": settings(),
        "commands": commands(),
        **await after_a_call(),
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, value in asyncio.run(current()).items():
        (FOLDER / f"{name}.json").write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    main()
