"""An audit log that cannot be written: calls work or are refused, as the operator wants; the loss is said."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from tests.support.disks import FILL, with_mount
from tests.support.servers import QUICK, call, http_client, server_environment, text
from tests.support.waiting import DEADLINE, until


@contextmanager
def small_server(data_dir: Path, **settings: Any) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """One over HTTP whose data directory has two megabytes."""
    data_dir.mkdir()
    serve = (sys.executable, "-m", "quire", "serve", "--server-transport", "http", "--server-port", "0")
    command = with_mount('mount -t tmpfs -o size=2m,mode=700 quire "$0"', data_dir, *serve)
    env = server_environment(data_dir, **QUICK, **settings)
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        yield process.stderr.readline().split()[-1], process
    finally:
        process.terminate()
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stderr.close()


def lost(url: str) -> int:
    told = httpx2.get(url.replace("/mcp", "/metrics"), timeout=30).text
    return int(float(re.findall(r"^quire_audit_lost_total (\S+)", told, re.MULTILINE)[0]))


@pytest.mark.usefixtures("namespaces")
async def test_full_disk_is_in_metrics_log_and_readiness_and_calls_go_on(data_dir: Path) -> None:
    with small_server(data_dir) as (url, process):
        async with http_client(url) as client:
            await call(client, "execute", code="x = 41")
            assert lost(url) == 0
            await call(client, "execute", code=FILL)

            async def some_are_lost() -> bool:  # the log's own page may have room for some
                listed = await call(client, "list_cells")
                assert not listed.is_error, text(listed)
                return lost(url) >= 1

            await until(some_are_lost, "a line of the audit log is lost")
            unready = httpx2.get(url.replace("/mcp", "/readyz"), timeout=30)
            assert unready.status_code == 503 and "No space left" in unready.json()["why"]["store"]
        process.terminate()
        assert process.stderr is not None
        said = process.stderr.read()
    assert said.count("could not be written to the audit log") == 1, said


@pytest.mark.usefixtures("namespaces")
async def test_a_required_log_refuses_calls_until_it_can_be_written(data_dir: Path) -> None:
    with small_server(data_dir, audit_required=True) as (url, process):
        async with http_client(url) as client:
            await call(client, "execute", code="x = 41")
            folder = Path(f"/proc/{process.pid}/root{data_dir}")
            (folder / "audit.jsonl").unlink()  # the next line needs room for a file
            with pytest.raises(OSError, match="No space"), (folder / "filler").open("wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
            refused = None
            for _ in range(200):  # a freed page has room for some
                try:
                    await call(client, "list_cells")
                except MCPError as error:
                    refused = str(error)
                    break
            assert refused is not None and "The audit log cannot be written" in refused
            assert "setting store.audit_required" in refused and "Nothing was done" in refused
            (folder / "filler").unlink()
            with pytest.raises(MCPError, match="audit log"):  # this one finds that it can be written again
                await call(client, "list_cells")
            done = await call(client, "execute", code="x + 1")
            assert "42" in text(done)
