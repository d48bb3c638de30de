"""Monitor a server: health checks, metrics and the audit log."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from fastmcp import Client

QUIRE = [sys.executable, "-m", "quire"]


@contextmanager
def server(env: dict[str, str]) -> Iterator[str]:
    command = [*QUIRE, "serve", "--server-transport", "http", "--server-port", "0"]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        yield process.stderr.readline().split()[-1].removesuffix("/mcp")  # Quire listens at …
        process.terminate()


async def work(url: str) -> None:
    async with Client(f"{url}/mcp") as client:
        await client.call_tool("execute", {"code": "print('hello')"})
        await client.call_tool("execute", {"code": "1 / 0"}, raise_on_error=False)
        await client.call_tool("execute", {"code": "1", "notebook": "none"}, raise_on_error=False)


def look(url: str) -> None:
    assert httpx2.get(f"{url}/healthz").json() == {"status": "ok"}
    assert httpx2.get(f"{url}/readyz", timeout=30).json() == {"status": "ready"}
    lines = httpx2.get(f"{url}/metrics").text.splitlines()
    assert 'quire_calls_total{outcome="ok",tool="execute"} 1.0' in lines
    assert 'quire_runs_total{outcome="error"} 1.0' in lines
    assert "quire_audit_lost_total 0.0" in lines


def read_log(env: dict[str, str]) -> None:
    command = [*QUIRE, "audit", "--since", "1h", "--tool", "execute", "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    calls = [json.loads(line) for line in done.stdout.splitlines()]
    assert [call["outcome"] for call in calls] == ["ok", "error", "refused"]
    assert (calls[0]["who"], calls[0]["notebook"], calls[0]["cell"], calls[0]["via"]) == ("local", "main", 0, "http")
    assert "hello" not in done.stdout  # the log contains no code


def main() -> None:
    with tempfile.TemporaryDirectory() as data_dir:
        env = {**os.environ, "QUIRE_STORE_DATA_DIR": str(Path(data_dir)), "QUIRE_KERNEL_PRELOAD": ""}
        with server(env) as url:
            asyncio.run(work(url))
            look(url)
        read_log(env)
    print("ok")


if __name__ == "__main__":
    main()
