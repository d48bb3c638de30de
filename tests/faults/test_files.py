"""Files written for a client when the disk is full, when two write one, when the server is killed meanwhile."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from tests.support.disks import with_mount
from tests.support.servers import QUICK, call, http_client, http_server, server_environment, stdio_client, text
from tests.support.waiting import DEADLINE

FILES: dict[str, Any] = {"toolsets": "all", **QUICK}


def folder_of(data_dir: Path) -> Path:
    (folder,) = (data_dir / "workspaces").iterdir()
    return folder


async def test_a_full_disk_is_said_and_the_file_is_as_it_was(namespaces: None, data_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    program, *arguments = with_mount(
        'mount -t tmpfs -o size=1m,mode=700 quire "$0"', folder, sys.executable, "-m", "quire"
    )
    env = server_environment(data_dir, workspace=folder, **FILES)
    async with Client(StdioTransport(program, arguments, env=env, keep_alive=False)) as client:
        assert not (await call(client, "write_file", path="x", text="old")).is_error
        for append in (False, True):
            full = await call(client, "write_file", path="x", text="y" * 2_000_000, append=append)
            assert full.is_error and "No space left on device" in text(full) and "Nothing was changed" in text(full)
            assert (await call(client, "read_file", path="x")).content[0].text == "old"
        listed = (await call(client, "list_files")).structured_content["files"]
        assert [each["name"] for each in listed] == ["x"]
        assert not (await call(client, "write_file", path="x", text="y" * 500_000)).is_error  # there is room again


async def test_of_two_clients_writing_one_file_a_reader_sees_one_whole(data_dir: Path) -> None:
    texts = ["a" * 200_000, "b" * 200_000]
    with http_server(data_dir, **FILES) as (url, _):
        async with http_client(url) as one, http_client(url) as other, http_client(url) as reader:
            await call(one, "write_file", path="x", text=texts[0])
            seen = set()

            async def write(client: Client[Any], content: str) -> None:
                for _ in range(15):
                    assert not (await call(client, "write_file", path="x", text=content)).is_error

            async with anyio.create_task_group() as group:
                group.start_soon(write, one, texts[0])
                group.start_soon(write, other, texts[1])
                for _ in range(20):
                    read = await call(reader, "read_file", path="x", limit=300_000)
                    seen.add(read.structured_content["text"])
    assert seen <= set(texts)
    assert os.listdir(folder_of(data_dir)) == ["x"]


async def test_of_two_clients_appending_to_one_file_nothing_is_lost_or_mixed(data_dir: Path) -> None:
    with http_server(data_dir, **FILES) as (url, _):
        async with http_client(url) as one, http_client(url) as other:

            async def append(client: Client[Any], letter: str) -> None:
                for _ in range(15):
                    line = letter * 50_000 + "\n"
                    assert not (await call(client, "write_file", path="x", text=line, append=True)).is_error

            async with anyio.create_task_group() as group:
                group.start_soon(append, one, "a")
                group.start_soon(append, other, "b")
    lines = (folder_of(data_dir) / "x").read_text().splitlines()
    assert sorted(lines) == ["a" * 50_000] * 15 + ["b" * 50_000] * 15


async def test_a_server_killed_while_it_writes_leaves_a_whole_file(data_dir: Path) -> None:
    contents = ["a" * 3_000_000, "b" * 3_000_000]
    with http_server(data_dir, **FILES) as (url, process):
        with contextlib.suppress(Exception):  # what a client says of a server that is gone
            await _killed_while_it_writes(url, process, contents, data_dir)
        assert process.wait(DEADLINE) == -9
    folder = folder_of(data_dir)
    assert (folder / "x").read_text() in contents
    left = [name for name in os.listdir(folder) if name != "x"]
    assert all(name.endswith(".quire-new") for name in left)
    for name in [*left, ".0.quire-new"]:
        (folder / name).touch()
        os.utime(folder / name, (0, 0))
    async with stdio_client(data_dir, **FILES) as client:
        assert not (await call(client, "write_file", path="y", text="new")).is_error
        listed = (await call(client, "list_files")).structured_content["files"]
    assert [each["name"] for each in listed] == ["x", "y"]


async def _killed_while_it_writes(
    url: str, process: subprocess.Popen[str], contents: list[str], data_dir: Path
) -> None:
    def kill() -> None:
        seen = 0
        while seen < 3:  # in the middle of a later one
            seen += any(name.endswith(".quire-new") for name in os.listdir(folder_of(data_dir)))
        process.kill()

    async with http_client(url) as client, anyio.create_task_group() as group:
        await call(client, "write_file", path="x", text=contents[0])
        group.start_soon(partial(anyio.to_thread.run_sync, kill, abandon_on_cancel=True))
        for number in range(1_000):
            await call(client, "write_file", path="x", text=contents[number % 2])
